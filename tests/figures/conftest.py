from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from fillerscope.analysis.run import Run
from fillerscope.study.conditions import PRESETS
from support.synthetic import MLESS, NONE, RANDOM, Mechanism, Synthetic, swept

ATTENTION = ("layers", "heads", "fillers", "headmap", "depth")
MECHANISM = ("affine", "activations", "tokenclasses", "layermap", "lookback", "arm")


@pytest.fixture(scope="session")
def recipe() -> Synthetic:
    return Synthetic()


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Synthetic], Run]:
    """Gives the run of a recipe, which is built once. Nobody changes it."""
    folder = tmp_path_factory.mktemp("built")
    runs: dict[bytes, Run] = {}

    def build(recipe: Synthetic) -> Run:
        key = pickle.dumps(recipe)
        if key not in runs:
            runs[key] = recipe.build(folder / str(len(runs)))
        return runs[key]

    return build


@pytest.fixture(scope="session")
def run(recipe: Synthetic, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Attention, and no answers."""
    return recipe.build(tmp_path_factory.mktemp("figures") / "run")


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Every figure can be drawn from it: answers too, a sweep of lengths and one of places."""
    cells = swept(
        {"name": "long", "kind": "repeat", "text": " /", "count": [0, 5, 20], "label": "Slashes"},
        {"name": "at", "kind": "repeat", "text": " he", "count": 9, "position": ["start", "end"], "label": "Words"},
    )[1:]
    recipe = Synthetic(
        conditions=(NONE, MLESS, RANDOM, *cells),
        right={"none": 0.5, "mless": 0.75, "long-5": 0.4, "long-20": 1.0, "at-end": 0.0},
    )
    return recipe.build(tmp_path_factory.mktemp("figures") / "full")


@pytest.fixture(scope="session")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All that is measured inside a model, interventions, and a sweep of one."""
    arms = swept({"name": "arms", "intervention": {"kind": "arm", "c": [0.05, 0.13], "p1": [90, 95, 99.5]}})[1:]
    recipe = Synthetic(
        conditions=(NONE, MLESS, RANDOM, PRESETS["arm"], PRESETS["knockout"], PRESETS["positions"], *arms),
        right={"none": 0.5, "arms-c0.13-p195": 1.0}, affine=True, activations=True, answering=True,
        mechanisms={"random": Mechanism(lam=(0.8, 1.05), near_zero=(0.01, 0.0), together=0.3, variance=(1.1, 0.9))},
    )  # fmt: skip
    return recipe.build(tmp_path_factory.mktemp("figures") / "inside")


@pytest.fixture(scope="session")
def run_for(run: Run, full: Run, inside: Run) -> Callable[[str], Run]:
    """The smallest run that a figure can be drawn from."""
    return lambda name: run if name in ATTENTION else inside if name in MECHANISM else full
