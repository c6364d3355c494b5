"""The second answers without filler: what is written, what is reused, and when they cannot be had."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import fillerscope
from fillerscope.analysis.integrity import faults
from fillerscope.analysis.noise import noise_floor
from fillerscope.answers.local import answer_check
from fillerscope.answers.local.answer_check import AnswerCheck, exactcheck
from fillerscope.answers.local.engine import LocalGenerator
from fillerscope.answers.request import Request
from fillerscope.errors import GenerationError, StoreError
from fillerscope.measure.engines import answers
from fillerscope.measure.engines.answers import AnswerStage, RepeatStage
from fillerscope.measure.engines.model_work import ModelWork
from fillerscope.measure.prepare import Prepared, Shard
from fillerscope.measure.run_study import run_study
from fillerscope.models.loading import wrap
from fillerscope.models.resolve import resolve
from fillerscope.progress import Silent
from fillerscope.store.memory_store import MemoryStore
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import answers_name, repeated_answers_name
from fillerscope.study.study import Study
from support.studies import CONDITIONS, save_model, study_of
from support.tiny import tiny_model, tiny_tokenizer

GENERATION: dict[str, Any] = {"max_tokens": 6, "temperature": [0, 1.2], "samples": 2, "recheck": 1, "rows": 4}


@pytest.fixture(scope="module", autouse=True)
def _surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FILLERSCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.chdir(tmp_path_factory.mktemp("work"))
        yield


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "tiny-llama")


def small(model: Path, dtype: str = "float32", **generation: Any) -> Study:
    """Five problems in two shards, answered once greedily and twice by chance, four at a time."""
    return study_of(
        model, models=[{"name": str(model), "dtype": dtype}], problems={"limit": 5},
        conditions=CONDITIONS[:2], batch={"shard": 3}, probes={"attention": False},
        generation=GENERATION | generation,
    )  # fmt: skip


@pytest.fixture(scope="module")
def finished(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    run_study(small(saved, noise=True), folder)
    return folder


def tables(folder: Path, kind: str = "a*") -> dict[str, bytes]:
    """The files of answers, first and second."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.glob(f"{kind}/*/*.parquet"))}


@pytest.fixture
def shards(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """What is answered from now on: shards, and whether it is the second time."""
    seen: list[tuple[int, bool]] = []
    usual = answers.write_answers

    def noting(study: Study, items: Sequence[Prepared], *given: Any, repeat: bool = False) -> Any:
        seen.append((items[0].number // study.batch.shard, repeat))
        return usual(study, items, *given, repeat=repeat)

    monkeypatch.setattr(answers, "write_answers", noting)
    return seen


def test_the_baseline_is_answered_again_beside_everything_else(saved: Path, finished: Path, tmp_path: Path) -> None:
    run = fillerscope.open_run(finished)
    again, first = run[str(saved)].again_columns(), run[str(saved)].answer_columns()
    assert set(again["condition"]) == {"none"}
    assert len(again["id"]) == 5 * 3
    assert faults(run) == run.store.verify() == []
    run_study(small(saved), tmp_path / "plain")
    assert tables(finished, "answers") == tables(tmp_path / "plain")
    assert {row.condition for row in noise_floor(run[None])} == {"none", "mless"}
    plain = [i for i, name in enumerate(first["condition"]) if name == "none"]
    for key in ("number", "temperature", "sample", "prompt_tokens", "text", "verdict"):
        assert again[key] == [first[key][i] for i in plain]  # samples too: float32 rounds too little to be seen here


@pytest.mark.slow
def test_half_precision_changes_texts_and_exact_answers_in_it_do_not(saved: Path, tmp_path: Path) -> None:
    """What neighbours change depends on the processor, so the dtype is what differs here."""
    settings: dict[str, dict[str, Any]] = {
        "dtype": {"noise": {"dtype": "float32"}},
        "exact": {"noise": True, "exact": True},
    }
    changed = {}
    for name, more in settings.items():
        run_study(small(saved, "bfloat16", max_tokens=16, rows=6, **more), tmp_path / name)
        floors = [row for row in noise_floor(fillerscope.open_run(tmp_path / name)[None]) if row.condition == "none"]
        assert [row.answers for row in floors] == [5, 10]
        changed[name] = sum(row.texts for row in floors)
    assert changed["dtype"] > changed["exact"] == 0


def test_neighbours_are_others_the_second_time(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half as many rows, in an order that the study's seed gives; with `exact` as many rows."""
    made: list[tuple[int, bool, int | None]] = []

    class Noting(LocalGenerator):
        def answer(self, *given: Any) -> Any:
            made.append((self.rows, self.exact, self.order))
            return super().answer(*given)

    monkeypatch.setitem(answer_check.ENGINES, "rows", Noting)
    run_study(small(saved, noise=True, recheck=0, temperature=0, samples=1), tmp_path / "run")
    run_study(small(saved, noise=True, recheck=0, temperature=0, samples=1, exact=True), tmp_path / "exact")
    seeds = {order for *_, order in made if order is not None}
    assert len(seeds) == 1
    assert [(rows, exact) for rows, exact, order in made if order is not None] == [
        (2, False), (2, False), (4, True), (4, True),
    ]  # fmt: skip
    assert {rows for rows, _, order in made if order is None} == {4}


def test_what_generators_say_is_shown_once_and_repeated_answers_share_a_generator(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps are captured for each generator anew, and each would say of itself where that fails."""
    shown: list[str] = []
    repeating: list[LocalGenerator] = []

    class Talking(LocalGenerator):
        def answer(self, *given: Any) -> Any:
            self.say("decode steps are slower here")
            repeating.extend([self] if self.order is not None else [])
            return super().answer(*given)

    class Listening(Silent):
        def say(self, text: str) -> None:
            shown.append(text)

    monkeypatch.setitem(answer_check.ENGINES, "rows", Talking)
    run_study(small(saved, noise=True, temperature=0, samples=1), tmp_path / "run", Listening())
    assert len([text for text in shown if text.endswith(": decode steps are slower here")]) == 1
    assert len(repeating) == 2, "one for each shard"
    assert repeating[0] is repeating[1]


def test_what_is_there_is_not_answered_again(
    saved: Path, finished: Path, tmp_path: Path, shards: list[tuple[int, bool]]
) -> None:
    """Neither where a file of it is missing, nor where a finished run is asked for its noise floor."""
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    (folder / repeated_answers_name(str(saved), 1)).unlink()
    run_study(small(saved, noise=True), folder)
    assert shards == [(1, True)]
    assert tables(folder) == tables(finished)
    run_study(small(saved), tmp_path / "plain")
    shards.clear()
    run_study(small(saved, noise=True), tmp_path / "plain")
    assert shards == [(0, True), (1, True)]
    assert tables(tmp_path / "plain") == tables(finished)
    (folder / answers_name(str(saved), 0)).unlink()
    shards.clear()
    run_study(small(saved, noise=True), folder)
    assert shards == [(0, False)]


def test_another_dtype_has_files_of_its_own(saved: Path, finished: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    run_study(small(saved, noise={"dtype": "float16"}), folder)
    run = fillerscope.open_run(folder)
    assert noise_floor(run[None])[0].way == "float16"
    assert tables(folder, "again") == tables(finished, "again")
    assert len(tables(folder, "again-float16")) == 2
    assert faults(run) == []
    with pytest.raises(GenerationError, match=r"answers in float32 already.*another dtype"):
        run_study(small(saved, noise={"dtype": "float32"}), tmp_path / "same")


def test_exact_answers_have_no_noise(saved: Path, tmp_path: Path) -> None:
    run_study(small(saved, noise=True, exact=True, recheck=3), tmp_path / "run")
    run = fillerscope.open_run(tmp_path / "run")
    floors = [row for row in noise_floor(run[None]) if row.condition == "none"]
    assert [(row.answers, row.flips, row.texts) for row in floors] == [(5, 0, 0), (10, 0, 0)]
    assert run[None].facts["recheck"] == {"checked": 3, "same": 3, "margins": []}


def test_answers_written_one_at_a_time_have_no_neighbours(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = AnswerCheck("alone", 0.0, 1.0, 1, "float32")
    monkeypatch.setattr(answers, "answercheck", lambda *_: check)
    with pytest.raises(GenerationError, match=r"one at a time.*dtype: float32"):
        run_study(small(saved, noise=True), tmp_path / "run")
    assert not (tmp_path / "run" / "answers").exists()
    run_study(small(saved, noise=True, exact=True), tmp_path / "exact")


def test_exact_is_refused_where_rows_are_computed_in_several_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a device rounded the last row of a product otherwise."""
    engine = LocalGenerator(wrap(tiny_model("llama"), tiny_tokenizer()), 4, exact=True)
    requests = [Request(tuple(range(5 + n, 60))) for n in range(3)]
    exactcheck(engine, requests)
    noticed = engine._report_logits

    def otherwise(numbers: Any, logits: Any) -> None:
        if len(logits) == 4:
            logits[3] += 1e-6
        noticed(numbers, logits)

    monkeypatch.setattr(engine, "_report_logits", otherwise)
    with pytest.raises(GenerationError, match=r"exact cannot be kept on this device.*generation.rows to 1"):
        exactcheck(engine, requests)


# Shards that are answered together, as on a GPU

SHARDS = [Shard(number, 3 * number, ()) for number in range(5)]


def stage(saved: Path, kind: type[AnswerStage] = AnswerStage, own: int = 5) -> AnswerStage:
    study = small(saved, temperature=0, samples=1)
    work = ModelWork(study, study.models[0], resolve(str(saved)), MemoryStore(), Silent())
    return kind(work, SHARDS, SHARDS[:own])


def test_a_resumed_run_has_the_same_batches(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AnswerStage, "_at_once", lambda _: 2)
    groups = stage(saved)._groups([(SHARDS[number], f"file {number}") for number in (1, 4)])
    assert [([shard.index for shard in group], [name for _, name in wanted]) for group, wanted in groups] == [
        ([0, 1], ["file 1"]), ([4], ["file 4"]),
    ]  # fmt: skip


def test_shards_that_others_deal_out_are_answered_one_by_one(saved: Path) -> None:
    groups = stage(saved, own=0)._groups([(SHARDS[number], "") for number in (3, 1)])
    assert [[shard.index for shard in group] for group, _ in groups] == [[3], [1]]


@pytest.mark.parametrize(
    ("device", "kind", "own", "expected"),
    [
        ("cpu", AnswerStage, 5, 1), ("mps", AnswerStage, 5, 1), ("cuda", AnswerStage, 0, 1),
        ("cuda", AnswerStage, 5, 1024 // 6), ("cuda:all", AnswerStage, 5, 1024 // 6),
        ("cuda", RepeatStage, 5, 1024 // 3),
    ],
)  # fmt: skip
def test_a_gpu_is_given_as_many_answers_as_fill_it(
    saved: Path, monkeypatch: pytest.MonkeyPatch, device: str, kind: type[AnswerStage], own: int, expected: int
) -> None:
    monkeypatch.setattr(answers, "choose_device", lambda _: device)
    assert stage(saved, kind, own)._at_once() == expected


@pytest.mark.parametrize("missing", [(0, 1), (1,)])
def test_answers_are_stored_with_their_shards(
    saved: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: tuple[int, ...]
) -> None:
    """In float32 batches round too little to be seen here. A resumed run counts what is missing alone."""
    counted: dict[str, tuple[float, int | None]] = {}

    class Counting(Silent):
        def stage(self, text: str, done: float, total: int | None) -> None:
            counted[text] = done, total

    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    for number in missing:
        (folder / answers_name(str(saved), number)).unlink()
        (folder / repeated_answers_name(str(saved), number)).unlink()
    monkeypatch.setattr(AnswerStage, "_at_once", lambda _: 2)
    run_study(small(saved, noise=True), folder, Counting())
    assert tables(folder) == tables(finished)
    problems = 5 if len(missing) == 2 else 2
    assert [counts for text, counts in counted.items() if text.startswith("answering")] == [
        (pytest.approx(problems * 2 * 3), problems * 2 * 3), (pytest.approx(problems * 3), problems * 3),
    ]  # fmt: skip


def test_what_cannot_be_written_ends_the_run(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = RunStore.put_table

    def full(self: RunStore, name: str, columns: Any) -> None:
        if name == answers_name(str(saved), 1):
            raise StoreError("no space left")
        usual(self, name, columns)

    monkeypatch.setattr(RunStore, "put_table", full)
    with pytest.raises(StoreError, match="no space left"):
        run_study(small(saved), tmp_path / "run")
    assert [Path(name).name for name in tables(tmp_path / "run")] == ["00000.parquet"]
