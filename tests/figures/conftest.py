from __future__ import annotations

from collections.abc import Callable

import pytest

from fillerscope.analysis.runs import Run
from synthetic import MLESS, NONE, RANDOM, Synthetic, swept

ATTENTION = ("layers", "heads", "fillers", "headmap", "depth")


@pytest.fixture(scope="session")
def recipe() -> Synthetic:
    return Synthetic()


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
def run_for(run: Run, full: Run) -> Callable[[str], Run]:
    """The smallest run that a figure can be drawn from."""
    return lambda name: run if name in ATTENTION else full
