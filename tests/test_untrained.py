"""Nothing is claimed of a model with random weights, though its numbers move under filler as those of trained ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from fillerscope.analysis.runs import Run, open_run
from fillerscope.controlfindings import control_findings
from fillerscope.findings import Finding
from fillerscope.library import run as measure
from fillerscope.mechanismfindings import mechanism_findings
from fillerscope.report.headline import CLAIMS, headline
from fillerscope.verdicts import Degree
from studies_helper import save_model, study_of
from tiny import tiny_config, tiny_tokenizer

pytestmark = pytest.mark.slow
SEEDS = range(4)
SLASHES: dict[str, Any] = {"kind": "repeat", "text": " /", "count": 20}
CONDITIONS = (
    "none",
    {"name": "mless", **SLASHES},
    {"name": "random", "kind": "sentence", "count": 20},
    {"name": "knockout", **SLASHES, "intervention": {"kind": "knockout"}},
    {"name": "positions", "intervention": {"kind": "shift", "by": 20}},
)


class Others(Run):
    """Every model of the run is a twin of the others: same configuration, other weights."""

    def twins(self, model: str | None = None) -> list[str]:
        return [name for name in self.models if name != self.model(model)]


def usual(folder: Path, seed: int) -> Path:
    """A model as its own initialisation leaves it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        LlamaForCausalLM(tiny_config("llama")).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def large(folder: Path, seed: int) -> Path:
    """A model with weights so large that attention is uneven."""
    return save_model(folder, "llama", seed)


@pytest.fixture(scope="module", params=[usual, large], ids=["usual", "large"])
def untrained(request: pytest.FixtureRequest, shared: Callable[[str, Callable[[Path], Any]], Path]) -> Others:
    def build(folder: Path) -> None:
        models = [str(request.param(folder.parent / f"{folder.name}-{seed}", seed)) for seed in SEEDS]
        probes = {"attention": {"positions": 110}, "affine": True, "activations": True}
        batch = {"shard": 12, "tokens": 512}
        study = study_of(
            models[0], models=models, conditions=list(CONDITIONS), problems={"limit": 12}, probes=probes, batch=batch
        )
        measure(study, folder)

    return Others(open_run(shared(f"untrained-{request.param.__name__}", build)).store)


def inside(run: Run, model: str) -> list[Finding]:
    return mechanism_findings(run, model=model) + control_findings(run, model=model)


def test_filler_moves_untrained_models_beyond_every_control(untrained: Others) -> None:
    """Which is why no control can stand for a twin."""
    alone = Run(untrained.store)
    found = [one for model in alone.models for one in inside(alone, model) if one.name == "direction"]
    beyond = [one for one in found if "(beyond positions and knockout and random; not held against" in one.text]
    assert len(beyond) >= len(SEEDS) / 2
    assert {one.verdict for one in beyond} == {Degree.UNTESTED}


def test_nothing_is_claimed_of_an_untrained_model(untrained: Others) -> None:
    for model in untrained.models:
        found = inside(untrained, model)
        degrees = {one.name: one.verdict for one in found if one.verdict is not None}
        assert set(degrees) >= {"scaling", "later", "deeper", "direction", "near_zero", "variance"}
        assert not [name for name, degree in degrees.items() if degree in (Degree.HOLDS, Degree.LITTLE)], degrees
        assert not [one.text for one in found if "holds on this model" in one.text or "holds by little" in one.text]
        value, note = next(fact[1:] for fact in headline(untrained, model).facts if fact.label == "Published claims")
        assert value.startswith("0 of ")
        assert not [word for word in (": holds", "by little", "not tested") if word in f"{value}; {note}"]
        assert all(label in note for name, label in CLAIMS.items() if name in degrees)
