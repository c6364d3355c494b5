"""Which runs that were measured before may stand in for another study's, and that they do."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fillerscope.analysis.run import open_run
from fillerscope.measure.engines import model_work
from fillerscope.measure.reuse import holds
from fillerscope.measure.run_study import RunChoices, run_study
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import merged_name
from fillerscope.study.study import Study
from support.studies import CONDITIONS, save_model, study_of

Identity = dict[str, Any]


def identity(**study: Any) -> Identity:
    """The identity of a study, with models, data and code by name."""
    measured = json.loads(json.dumps(study_of("m", **study).measured()))
    libraries = {"torch": "2", "transformers": "4"} | ({"sympy": "1"} if "generation" in study else {})
    return {
        "study": {key: value for key, value in measured.items() if key not in ("problems", "device", "models")},
        "problems": "data", "models": [{"name": "m", "digest": "d", "dtype": "float32"}], "device": "cpu",
        "code": "1+abc", "libraries": libraries,
    }  # fmt: skip


MORE = {
    "the same": {},
    "fewer conditions": {"conditions": CONDITIONS[:2]},
    "other order of conditions": {"conditions": (CONDITIONS[0], CONDITIONS[1], *CONDITIONS[:1:-1])},
    "another name and figure": {"name": "other", "figures": [{"name": "depth"}]},
}


@pytest.mark.parametrize("case", MORE)
def test_what_a_run_holds(case: str) -> None:
    rich = identity(generation={}, references={"twin": 3}, probes={
        "attention": {"positions": 110}, "affine": True, "activations": True, "answering": True,
    })  # fmt: skip
    assert holds(identity(), identity(**MORE[case]))
    assert holds(rich, identity(**MORE[case])), "more probes, twins and answers than are asked for"
    assert holds(rich, rich)
    assert not holds(identity(), rich)


STUDIES: dict[str, dict[str, Any]] = {
    "seed": {"seed": 1},
    "prompt": {"prompt": {"system": "Think!"}},
    "shards": {"batch": {"shard": 4, "tokens": 256}},
    "positions": {"probes": {"attention": {"positions": 111}}},
    "diagonal": {"probes": {"attention": {"positions": 110, "diagonal": True}}},
    "attention is not asked for": {"probes": {"attention": False}, "generation": {}},
    "affine": {"probes": {"attention": {"positions": 110}, "affine": True}},
    "activations": {"probes": {"attention": {"positions": 110}, "activations": True}},
    "twins": {"references": {"twin": 2}},
    "answers": {"generation": {}},
    "one more condition": {"conditions": (*CONDITIONS, "arm")},
    "another condition": {"conditions": ("none", {**CONDITIONS[1], "count": 7})},
    "another first filler": {"conditions": (CONDITIONS[0], CONDITIONS[2])},
}


@pytest.mark.parametrize("case", STUDIES)
def test_what_a_run_does_not_hold(case: str) -> None:
    assert not holds(identity(), identity(**STUDIES[case]))


@pytest.mark.parametrize("key", ["problems", "models", "device", "code", "libraries"])
def test_other_data_models_code_or_libraries_are_never_used(key: str) -> None:
    other = deepcopy(identity())
    other[key] = [{"name": "m", "digest": "d", "dtype": "bfloat16"}] if key == "models" else {"torch": "3"}
    assert not holds(other, identity())
    assert not holds(identity(), other)


def test_a_run_of_several_processes_is_never_taken_for_one_of_a_single_process() -> None:
    """Sums are rounded otherwise there. So it is with whatever else an identity may say one day."""
    shared = identity() | {"tensor parallel": 2}
    assert holds(shared, shared)
    assert not holds(shared, identity())
    assert not holds(identity(), shared)


def test_answers_are_compared_over_the_same_conditions() -> None:
    """Their p values are adjusted over all comparisons of a run."""
    many, few = identity(generation={}), identity(generation={}, conditions=CONDITIONS[:2])
    assert not holds(many, few)
    assert not holds(identity(generation={"max_tokens": 9}), identity(generation={"max_tokens": 8}))


def test_a_run_of_an_old_version_is_passed_over() -> None:
    assert not holds({}, identity())
    assert not holds(identity() | {"study": {}}, identity())


# Real runs

ROUNDED = ", with other conditions: its numbers are the same up to rounding"


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FILLERSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return save_model(tmp_path / "tiny-llama")


class Said:
    """The lines that were said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def stage(self, text: str, done: float, total: int | None) -> None:
        pass

    def say(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[RunStore, list[str], bool]]:
    """Runs a study that may use others' numbers; gives its run, what was said, and whether a model was loaded."""
    loaded: list[object] = []
    load = model_work.load_source
    monkeypatch.setattr(model_work, "load_source", lambda *rest: loaded.append(rest) or load(*rest))  # type: ignore[func-returns-value]

    def call(study: Study, out: Path | None = None) -> tuple[RunStore, list[str], bool]:
        loaded.clear()
        said = Said()
        store = run_study(study, out, said, RunChoices(reuse=True))
        return store, said.lines, bool(loaded)

    return call


def test_studies_of_the_same_numbers_are_measured_once(saved: Path, ask: Callable[..., Any]) -> None:
    all_of_it = study_of(saved, name="all")
    first, _, loaded = ask(all_of_it)
    assert loaded
    before = (first.path / "study.json").read_bytes()
    using = f"using {first.path}, measured before"
    for name, conditions, told in (("again", CONDITIONS, using), ("less", CONDITIONS[:2], f"{using}{ROUNDED}")):
        store, said, loaded = ask(study_of(saved, name=name, conditions=conditions))
        assert (store.path, said, loaded) == (first.path, [told], False)
    assert (first.path / "study.json").read_bytes() == before, "what was stored stays as it was"
    own = run_study(study_of(saved, name="less", conditions=CONDITIONS[:2]), Path("own"))
    for name in ("none", "mless"):
        here, there = (open_run(path).summary("received_original", name) for path in (own.path, first.path))
        np.testing.assert_allclose(here, there, rtol=0, atol=1e-7)


def test_the_same_problems_from_another_file_are_named_with_it(saved: Path, ask: Callable[..., Any]) -> None:
    rows = [{"id": str(n), "question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(2)]
    Path("a.json").write_text(json.dumps(rows))
    Path("b.jsonl").write_text("\n".join(map(json.dumps, rows)))
    first, _, _ = ask(study_of(saved, problems={"source": "a.json"}))
    _, said, loaded = ask(study_of(saved, problems={"source": "b.jsonl"}))
    assert (said, loaded) == ([f"using {first.path}, measured before from a.json, the same problems"], False)


def test_a_folder_that_is_given_is_used_where_it_holds_enough(saved: Path, ask: Callable[..., Any]) -> None:
    ask(study_of(saved), Path("mine"))
    store, said, loaded = ask(study_of(saved, conditions=CONDITIONS[:2]), Path("mine"))
    assert (store.path, said, loaded) == (Path("mine"), [f"using mine, measured before{ROUNDED}"], False)
    store, _, loaded = ask(study_of(saved, conditions=CONDITIONS[:2]))
    assert loaded, "it is looked for in `runs` alone"
    assert store.path.parent == Path("runs")


def test_an_unfinished_or_damaged_run_is_passed_over(saved: Path, ask: Callable[..., Any]) -> None:
    first, _, _ = ask(study_of(saved, name="all"))
    merged = first.path / merged_name(str(saved))
    merged.write_bytes(merged.read_bytes()[:-1])
    Path("runs/other").mkdir()
    store, _, loaded = ask(study_of(saved, name="less", conditions=CONDITIONS[:2]))
    assert loaded
    assert store.path != first.path


def test_a_run_that_lost_problems_to_other_conditions_is_passed_over(saved: Path, ask: Callable[..., Any]) -> None:
    rows = [{"id": str(n), "question": "1 + 1 = " * n, "answer": "2"} for n in (1, 2, 50)]
    Path("rows.json").write_text(json.dumps(rows))
    problems = {"source": str(Path("rows.json").resolve())}
    long = (*CONDITIONS[:2], {"name": "long", "kind": "repeat", "text": " /", "count": 900})
    first, _, _ = ask(study_of(saved, name="all", conditions=long, problems=problems))
    failed = [record["id"] for record in first.get(merged_name(str(saved)), []).records if record["status"] != "ok"]
    assert failed == ["50"], "it does not fit into the context"
    store, _, loaded = ask(study_of(saved, name="less", conditions=CONDITIONS[:2], problems=problems))
    assert loaded
    assert store.path != first.path


def test_answers_are_grouped_as_the_data_are_now(saved: Path, ask: Callable[..., Any]) -> None:
    """What groups problems is in no identity: the run of the same numbers is mended, not used as it is."""

    def asked(levels: str) -> tuple[list[str], bool]:
        rows = [{"id": id, "question": "1 + 1?", "answer": "2", "level": id in levels} for id in "ab"]
        Path("data.json").write_text(json.dumps(rows))
        study = study_of(
            saved, problems={"source": "data.json"}, generation={"max_tokens": 1, "recheck": 0},
            conditions=CONDITIONS[:1], probes={"attention": False},
        )  # fmt: skip
        store, said, loaded = ask(study)
        found = [problem["meta"]["level"] for problem in open_run(store.path).problems()]
        assert found == [id in levels for id in "ab"]
        return said, loaded

    assert asked("a")[1]
    said, loaded = asked("b")
    assert not loaded
    assert not any("measured before" in line for line in said)
    said, loaded = asked("b")
    assert not loaded
    assert any("measured before" in line for line in said)
