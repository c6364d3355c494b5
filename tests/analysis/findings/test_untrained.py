"""Nothing is claimed of a model with random weights, though its numbers move under filler as those of trained ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from fillerscope.analysis.findings.attention import attention_findings
from fillerscope.analysis.findings.controls import control_findings
from fillerscope.analysis.findings.finding import Finding, Verdict
from fillerscope.analysis.findings.mechanism import mechanism_findings
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.run import Run, open_run
from fillerscope.api import run as measure
from fillerscope.report.headline import headline
from fillerscope.report.headline_tiles import CLAIMS
from support.studies import study_of
from support.tiny import redraw, tiny_config, tiny_tokenizer

pytestmark = pytest.mark.slow
MODELS = 3
SLASHES: dict[str, Any] = {"kind": "repeat", "text": " /", "count": 20}
CONDITIONS = (
    "none",
    {"name": "mless", **SLASHES},
    {"name": "random", "kind": "sentence", "count": 20},
    {"name": "knockout", **SLASHES, "intervention": {"kind": "knockout"}},
    {"name": "positions", "intervention": {"kind": "shift", "by": 20}},
)


class Alone(ModelRun):
    """A model without its twins."""

    def twins(self) -> list[ModelRun]:
        return []


def random_model(folder: Path, seed: int, kind: str) -> Path:
    """Random weights: as the configuration says, or of another size than it says."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(tiny_config("llama", initializer_range=0.15 if kind == "large" else 0.02))
        if kind == "redrawn":
            redraw(model, 0.15)
        model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=["usual", "large", "redrawn"])
def untrained(request: pytest.FixtureRequest, shared: Callable[[str, Callable[[Path], Any]], Path]) -> Path:
    """Random models with three twins each; weights of sd 0.15 make attention uneven."""

    def build(folder: Path) -> None:
        models = [
            str(random_model(folder.parent / f"{folder.name}-{seed}", seed, request.param)) for seed in range(MODELS)
        ]
        study = study_of(
            models[0], models=models, conditions=list(CONDITIONS), problems={"limit": 12}, references={"twin": 3},
            probes={"attention": {"positions": 110}, "affine": True, "activations": True},
            batch={"shard": 12, "tokens": 512},
        )  # fmt: skip
        measure(study, folder)

    return shared(f"untrained-{request.param}", build)


def inside(run: Run, model: str) -> list[Finding]:
    return _inside(run[model])


def _inside(run: ModelRun) -> list[Finding]:
    return mechanism_findings(run) + control_findings(run)


def test_filler_moves_untrained_models_beyond_every_control(untrained: Path) -> None:
    """Which is why no control can stand for a twin."""
    run = open_run(untrained)
    found = [one for model in run.models for one in _inside(Alone(run, model)) if one.name == "direction"]
    beyond = [one for one in found if "(beyond positions and knockout and random; not compared with" in one.text]
    assert len(beyond) >= MODELS / 2
    assert {one.verdict for one in beyond} == {Verdict.UNTESTED}


def test_nothing_is_claimed_of_an_untrained_model(untrained: Path) -> None:
    run = open_run(untrained)
    for model in run.models:
        assert len(run[model].twins()) == 3
        found = attention_findings(run[model]) + inside(run, model)
        verdicts = {one.name: one.verdict for one in found if one.verdict is not None}
        assert set(verdicts) >= {
            "first_layer",
            "collapse",
            "scaling",
            "later",
            "deeper",
            "direction",
            "near_zero",
            "variance",
        }
        assert not [name for name, one in verdicts.items() if one in (Verdict.HOLDS, Verdict.LITTLE)], verdicts
        told = headline(run, model)
        assert told.tone != "change"
        assert "filler draws" not in told.verdict
        value, note = next(fact[1:] for fact in headline(run, model).facts if fact.label == "Published claims")
        assert value.startswith("0 of ")
        assert not [word for word in (": holds", "by little", "not tested") if word in f"{value}; {note}"]
        assert all(label in note for name, label in CLAIMS.items() if name in verdicts)
