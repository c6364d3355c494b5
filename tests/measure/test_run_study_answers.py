"""A study with answers from end to end on a tiny model: what is written, what is reused, what names it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import fillerscope
from fillerscope.analysis.accuracy import compare
from fillerscope.analysis.export import export
from fillerscope.analysis.integrity import faults
from fillerscope.answers.local.engine import LocalGenerator
from fillerscope.answers.request import Reply, Request
from fillerscope.errors import GenerationError, ProblemError, StoreError
from fillerscope.files import digest_of
from fillerscope.measure import identity, prepare
from fillerscope.measure.engines import answers, local, model_work
from fillerscope.measure.identity import identify
from fillerscope.measure.prepare import Prepared
from fillerscope.measure.run_study import RunChoices, run_study
from fillerscope.models.resolve import resolve
from fillerscope.problems.sources import load_problems
from fillerscope.store.failures import files_with_failures
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import PROBLEMS, answer_attention_name, answers_name, merged_name, shard_name
from fillerscope.study.study import Study
from support.progress import Heard
from support.studies import CONDITIONS, save_model, study_of

GENERATION: dict[str, Any] = {"max_tokens": 6, "temperature": [0, 1.2], "samples": 2, "recheck": 3}
OFF = {"attention": False}


@pytest.fixture(scope="module", autouse=True)
def _surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FILLERSCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.chdir(tmp_path_factory.mktemp("work"))
        yield


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "tiny-llama")


def small(model: Path | str, **changes: Any) -> Study:
    """Five problems in three shards, answered once greedily and twice by chance; no attention unless asked for."""
    usual = {"problems": {"limit": 5}, "conditions": CONDITIONS[:3], "batch": {"shard": 2, "tokens": 512}}
    return study_of(model, **(usual | {"probes": OFF, "generation": GENERATION} | changes))


@pytest.fixture(scope="module")
def finished(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run of answers. Never changed: tests copy it."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    run_study(small(saved), folder)
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


class Listener:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.stages: list[tuple[str, int, int | None]] = []

    def stage(self, text: str, done: int, total: int | None) -> None:
        self.stages.append((text, done, total))

    def say(self, text: str) -> None:
        self.said.append(text)


def files(folder: Path, *kinds: str) -> dict[str, bytes]:
    found = (file for kind in kinds for file in folder.rglob(f"*.{kind}"))
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(found)}


def tables(folder: Path, out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in export(fillerscope.open_run(folder), out)}


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_work, "load_source", lambda *_: pytest.fail("the model was loaded"))


@pytest.fixture
def done_again(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What is measured and answered from now on, by shard, and whether answers are written a second time."""
    seen: list[tuple[str, int]] = []

    def noting(what: str, shard_of: Callable[..., int], function: Callable[..., Any]) -> Callable[..., Any]:
        def note(*arguments: Any, **named: Any) -> Any:
            seen.append((what, shard_of(*arguments)))
            return function(*arguments, **named)

        return note

    def launched(study: Study, prepared: Sequence[Any], *_: Any) -> int:
        return int(prepared[0].number) // study.batch.shard

    monkeypatch.setattr(local, "start_shard", noting("measured", launched, local.start_shard))
    taken = noting("answered", launched, answers.write_answers)
    monkeypatch.setattr(answers, "write_answers", taken)
    monkeypatch.setattr(answers, "recheck", noting("rechecked", lambda *_: 0, answers.recheck))
    return seen


# What is written


def test_answers_alone_need_no_attention(saved: Path, finished: Path) -> None:
    store = RunStore.open(finished)
    answers = [answers_name(str(saved), i) for i in range(3)]
    assert sorted(store.manifest["files"]) == sorted([PROBLEMS, "study.json", *answers])
    facts = store.manifest["models"][str(saved)]
    assert (facts["label"], facts["template"]) == ("tiny-llama", "chat")
    assert "selfcheck" not in facts
    assert not (finished / "shards").exists()
    assert store.verify() == faults(fillerscope.open_run(finished)) == []
    assert store.manifest["identity"]["libraries"].keys() >= {"math-verify", "sympy", "regex", "mpmath", "Unicode"}


def test_attention_and_answers_are_what_each_would_be_alone(saved: Path, finished: Path, tmp_path: Path) -> None:
    probes = {"attention": {"positions": 110}}
    run_study(small(saved, probes=probes), tmp_path / "both")
    run_study(small(saved, probes=probes, generation=None), tmp_path / "attention")
    assert files(tmp_path / "both", "parquet") == files(finished, "parquet")
    assert files(tmp_path / "both", "safetensors") == files(tmp_path / "attention", "safetensors")
    assert not files(tmp_path / "attention", "parquet")
    run = fillerscope.open_run(tmp_path / "both")
    checks = {"selfcheck", "rowcheck", "answercheck", "recheck"}
    assert run[None].facts.keys() == {"label", "template", "batch_tokens"} | checks
    assert faults(run) == []
    # Attention was measured on the prompts that were answered.
    columns = run[str(saved)].answer_columns()
    lengths = {(r["number"], name): len(p["ids"]) for r in run[None].records() for name, p in r["prompts"].items()}
    keys = zip(columns["number"], columns["condition"], strict=True)
    assert columns["prompt_tokens"] == [lengths[key] for key in keys]


def test_the_problems_are_kept_with_what_is_known_of_them(saved: Path, finished: Path) -> None:
    problems = load_problems(small(saved).problems)
    assert fillerscope.open_run(finished).problems() == [
        {"id": p.id, "question": p.question, "answer": p.answer, "meta": dict(p.meta)} for p in problems
    ]
    assert problems[0].meta


def test_the_same_study_gives_the_same_bytes(saved: Path, finished: Path, tmp_path: Path) -> None:
    run_study(small(saved), tmp_path / "again")
    assert files(tmp_path / "again", "parquet", "json") == files(finished, "parquet", "json")


def test_progress_begins_at_nothing_and_ends_at_all(saved: Path, tmp_path: Path) -> None:
    listener = Listener()
    run_study(small(saved), tmp_path / "new", listener)
    steps = [(done, total) for text, done, total in listener.stages if text == "answering with tiny-llama"]
    assert (steps[0], steps[-1]) == ((0, 45), (45, 45))
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert "rechecking 3 answers of tiny-llama" in {text for text, *_ in listener.stages}


# What is there is taken as it is


@pytest.mark.usefixtures("no_model")
def test_a_complete_run_needs_no_model(saved: Path, folder: Path) -> None:
    listener = Listener()
    before = files(folder, "parquet", "json")
    run_study(small(saved), folder, listener)
    assert listener.said == [f"{folder} is complete already: nothing to measure"]
    # What only changes how answers are looked at is taken up without any being written.
    run_study(small(saved, generation=GENERATION | {"k": [1, 2], "recheck": 9}), folder)
    assert fillerscope.open_run(folder).study.generation.k == (1, 2)
    run_study(small(saved), folder)
    assert files(folder, "parquet", "json") == before


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 16
    file.write_bytes(content)


@pytest.mark.parametrize(("damage", "index"), [(Path.unlink, 0), (flip, 2), (lambda f: f.write_bytes(b""), 1)])
def test_only_the_damaged_shard_is_answered_again(
    saved: Path, finished: Path, folder: Path, tmp_path: Path, done_again: list[Any],
    damage: Callable[[Path], Any], index: int,
) -> None:  # fmt: skip
    damage(folder / answers_name(str(saved), index))
    assert len(RunStore.open(folder).verify()) == 1
    with pytest.raises(StoreError, match="run the study again"):
        compare(fillerscope.open_run(folder))
    listener = Listener()
    store = run_study(small(saved), folder, listener)
    assert done_again == [("answered", index)]
    assert listener.said == ["answering with tiny-llama: resuming, 2 of 3 shards are done"]
    assert store.verify() == []
    assert files(folder, "parquet", "json") == files(finished, "parquet", "json")
    assert tables(folder, tmp_path / "a") == tables(finished, tmp_path / "b")


@pytest.mark.parametrize("damage", [Path.unlink, flip])
@pytest.mark.usefixtures("no_model")
def test_damaged_problems_are_written_again(
    saved: Path, finished: Path, folder: Path, damage: Callable[[Path], Any]
) -> None:
    damage(folder / PROBLEMS)
    assert run_study(small(saved), folder).verify() == []
    assert files(folder, "parquet") == files(finished, "parquet")


def test_what_is_missing_of_one_kind_is_not_made_of_the_other(
    saved: Path, tmp_path: Path, done_again: list[Any]
) -> None:
    study = small(saved, probes={"attention": {"positions": 110}})
    run_study(study, tmp_path / "run")
    before = files(tmp_path / "run", "parquet", "safetensors")
    assert done_again == [
        *(("measured", i) for i in range(3)), ("answered", 0), ("rechecked", 0), ("answered", 1), ("answered", 2),
    ]  # fmt: skip
    for name, what in ((answers_name(str(saved), 1), "answered"), (shard_name(str(saved), 1), "measured")):
        done_again.clear()
        (tmp_path / "run" / name).unlink()
        run_study(study, tmp_path / "run")
        assert done_again == [(what, 1)]
        assert files(tmp_path / "run", "parquet", "safetensors") == before
    (tmp_path / "run" / merged_name(str(saved))).unlink()
    done_again.clear()
    run_study(study, tmp_path / "run")
    assert done_again == []


# The recheck


def test_the_recheck_is_noted_once_and_counts(saved: Path, folder: Path, done_again: list[Any], tmp_path: Path) -> None:
    noted = RunStore.open(folder).manifest["models"][str(saved)]["recheck"]
    assert noted == {"checked": 3, "same": 3, "margins": []}  # float32: nothing is near enough to flip
    for index in range(3):
        (folder / answers_name(str(saved), index)).unlink()
    run_study(small(saved), folder)
    assert ("rechecked", 0) not in done_again
    for change in ({"recheck": 0}, {"temperature": 1.2}):
        store = run_study(small(saved, problems={"limit": 2}, generation=GENERATION | change), tmp_path / str(change))
        assert "recheck" not in store.manifest["models"][str(saved)]
    assert ("rechecked", 0) not in done_again


def test_an_answer_that_differs_by_more_than_rounding_stops_the_run(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the fifth token of every answer had been written otherwise, many at once."""
    from fillerscope.answers.local.engine import LocalGenerator

    written = LocalGenerator.answer

    def otherwise(self: LocalGenerator, requests: Sequence[Request], *rest: Any) -> list[Reply]:
        replies = written(self, requests, *rest)
        if self.rows == 1 or self.on_logits:  # the check before the run sees that something is wrong
            return replies
        return [Reply(r.text, r.tokens, r.finish, r.error, (*r.ids[:4], r.ids[4] ^ 1, *r.ids[5:])) for r in replies]

    monkeypatch.setattr(LocalGenerator, "answer", otherwise)
    with pytest.raises(GenerationError, match="differs from the same one generated alone by more than rounding"):
        run_study(small(saved, problems={"limit": 1}), tmp_path / "run")
    assert not RunStore.open(tmp_path / "run").is_sound(answers_name(str(saved), 0))


# Answers that fail, or cannot be judged


def test_problems_that_do_not_fit_have_failed_and_the_rest_is_answered(saved: Path, tmp_path: Path) -> None:
    problems = load_problems(small(saved).problems)
    rows = [
        {"id": p.id, "question": p.question * (60 if n in (0, 1, 3) else 1), "answer": p.answer}
        for n, p in enumerate(problems)
    ]
    (tmp_path / "p.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    run = fillerscope.run(small(saved, problems={"source": str(tmp_path / "p.jsonl")}), tmp_path / "run")
    columns = run[str(saved)].answer_columns()
    failed = {number for number, finish in zip(columns["number"], columns["finish"], strict=True) if finish == "failed"}
    assert failed == {0, 1, 3}
    assert faults(run) == []
    for row in compare(run):
        assert (row.n, row.failed) == (2, 3)
        assert row.against is None or row.against.pairs == 2
    # The first shard has nothing to check again; the second has.
    assert run[None].facts["recheck"]["checked"] == 3


def test_where_no_problem_fits_the_run_says_so_and_ends(tmp_path: Path) -> None:
    short = save_model(tmp_path / "short", max_position_embeddings=40)
    run = fillerscope.run(small(short), tmp_path / "run")
    assert set(run[str(short)].answer_columns()["verdict"]) == {"failed"}
    assert all((row.n, row.failed) == (0, 5) for row in compare(run))
    assert "recheck" not in run[None].facts


def test_what_becomes_known_of_the_problems_later_is_kept(saved: Path, finished: Path, tmp_path: Path) -> None:
    """Another column in the file groups the same answers: none is written again."""
    rows = [
        {key: row[key] for key in ("id", "question", "answer")} for row in fillerscope.open_run(finished).problems()
    ]
    source, seen = tmp_path / "p.jsonl", []
    study = small(saved, problems={"source": str(source)})
    for extra in ({}, {"level": 3}):
        source.write_text("\n".join(json.dumps(row | extra) for row in rows))
        run = fillerscope.run(study, tmp_path / "run")
        seen.append(files(tmp_path / "run/answers", "parquet"))
        assert [problem["meta"] for problem in run.problems()] == [extra] * 5
        assert run.store.verify() == []
    assert seen[0] == seen[1]
    assert {row.group for row in compare(run, by="level")} == {"level 3"}


@pytest.mark.usefixtures("no_model")
def test_problems_without_answers_are_refused_before_anything_is_made(saved: Path, tmp_path: Path) -> None:
    source = tmp_path / "p.jsonl"
    source.write_text('{"id": "a", "question": "1?", "answer": "1"}\n{"id": "b", "question": "2?", "answer": " "}\n')
    with pytest.raises(ProblemError) as caught:
        run_study(small(saved, problems={"source": str(source)}), tmp_path / "run")
    assert str(caught.value) == (
        f"{source}: 1 of 2 problems have no answer to grade by, first 'b'; name the column in `problems.fields`, "
        "or leave `generation` out of the study"
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("no_model")
def test_a_server_beyond_this_machine_is_refused_before_anything_is_measured(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(GenerationError, match="send its questions to a; if that is meant"):
        run_study(small(saved, probes={}, **served(str(saved))), tmp_path / "run")


@pytest.mark.usefixtures("no_model")
def test_a_server_answers_without_the_weights(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    class Server:
        def __init__(self, spec: Any, name: str, tokenizer: Any, _: Any) -> None:
            asked.append((spec.url, name, tokenizer.eos_token))

        def answer(self, requests: Sequence[Request], _: Any, tick: Callable[[int], None]) -> list[Reply]:
            tick(len(requests))
            return [
                Reply("", 0, "failed", "busy") if n else Reply("\\boxed{3}", 4, "stop") for n in range(len(requests))
            ]

    monkeypatch.setattr(answers, "EndpointGenerator", Server)
    served = {"name": str(saved), "endpoint": {"url": "http://127.0.0.1:9/v1"}}
    run = fillerscope.run(small(saved, models=[served]), tmp_path / "run")
    assert asked == [("http://127.0.0.1:9/v1", str(saved), "<|im_end|>")]
    columns = run[str(saved)].answer_columns()
    assert len(columns["text"]) == 45
    assert columns["note"].count("busy") == columns["verdict"].count("failed") == 45 - 6  # of each call, the first
    assert "recheck" not in run[None].facts
    assert run[None].facts["template"] == "chat"


# What names a run


def name_of(study: Study) -> str:
    problems = load_problems(study.problems)
    return digest_of(identify(study, problems, {spec.name: resolve(spec.name) for spec in study.models}))


def served(name: str, **changes: Any) -> dict[str, Any]:
    return {"models": [{"name": name, "endpoint": {"url": "http://a/v1"} | changes}]}


DIFFERENT: dict[str, Callable[[str], dict[str, Any]]] = {
    "no answers": lambda _: {"generation": None, "probes": {}},
    "attention too": lambda _: {"probes": {}},
    "length": lambda _: {"generation": GENERATION | {"max_tokens": 7}},
    "temperature": lambda _: {"generation": GENERATION | {"temperature": [0, 1.3]}},
    "order of temperatures": lambda _: {"generation": GENERATION | {"temperature": [1.2, 0]}},
    "samples": lambda _: {"generation": GENERATION | {"samples": 3}},
    "top_p": lambda _: {"generation": GENERATION | {"top_p": 0.9}},
    "rows": lambda _: {"generation": GENERATION | {"rows": 3}},
    "seed": lambda _: {"seed": 1},
    "a server": lambda model: served(model),
    "another server": lambda model: served(model, url="http://b/v1"),
    "another model there": lambda model: served(model, model="other"),
    "prompts as text": lambda model: served(model, prompt="text"),
}
SAME: dict[str, Callable[[str], dict[str, Any]]] = {
    "k": lambda _: {"generation": GENERATION | {"k": [2]}},
    "recheck": lambda _: {"generation": GENERATION | {"recheck": 0}},
    "one value or a list": lambda _: {"generation": GENERATION | {"samples": [2]}},
}


def test_whatever_can_change_an_answer_changes_the_identity(saved: Path) -> None:
    names = {"nothing": name_of(small(saved))}
    names |= {what: name_of(small(saved, **change(str(saved)))) for what, change in DIFFERENT.items()}
    assert not {(a, b) for a in names for b in names if a < b and names[a] == names[b]}


def test_what_cannot_does_not(saved: Path) -> None:
    assert {name_of(small(saved, **change(str(saved)))) for change in SAME.values()} == {name_of(small(saved))}
    for change in ({"concurrency": 3}, {"timeout": 9.0}, {"retries": 1}, {"key": "MY_KEY"}):
        assert name_of(small(saved, **served(str(saved), **change))) == name_of(small(saved, **served(str(saved))))


def test_another_version_of_what_judges_is_another_identity_of_answers_alone(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attention = {"generation": None, "probes": {}}
    before = name_of(small(saved)), name_of(small(saved, **attention))
    real = identity.version
    monkeypatch.setattr(identity, "version", lambda name: "9" if name == "math-verify" else real(name))
    assert name_of(small(saved)) != before[0]
    assert name_of(small(saved, **attention)) == before[1]


def refuse(reason: str) -> None:
    raise StoreError(reason)


@pytest.mark.parametrize("kind", ["answers", "attention"])
def test_what_failed_is_tried_again_on_request(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """As after a server that was away, or a device that was broken: in the end nothing shows of it."""
    study = small(saved, probes={"attention": {"positions": 90}, "answering": True})
    sound = run_study(study, tmp_path / "sound")
    with monkeypatch.context() as broken:
        if kind == "answers":
            reply = LocalGenerator._reply
            failed = Reply("", 0, "failed", "the server has gone")
            broken.setattr(
                LocalGenerator,
                "_reply",
                lambda *given: failed if given[1].index == 1 and given[3].temperature else reply(*given),
            )
        else:
            real = prepare.prepare
            broken.setattr(
                prepare, "prepare",
                lambda *given: Prepared(1, given[4], {}, "broken") if given[3] == 1 else real(*given),
            )  # fmt: skip
        run = run_study(study, tmp_path / "run")
    assert files_with_failures(run, study, range(3))
    before = {name: entry["sha256"] for name, entry in run.manifest["files"].items()}
    again = run_study(study, tmp_path / "run")
    assert {name: entry["sha256"] for name, entry in again.manifest["files"].items()} == before
    heard, put = Heard(), RunStore.put
    with monkeypatch.context() as down:
        down.setattr(RunStore, "put", lambda *_: refuse("no space left"))
        down.setattr(LocalGenerator, "answer", lambda *_: refuse("the server has gone"))
        with pytest.raises(StoreError, match=r"no space left|the server has gone"):
            run_study(study, tmp_path / "run", heard, RunChoices(retry_failed=True))
    kept = RunStore.open(tmp_path / "run")
    assert {name: entry["sha256"] for name, entry in kept.manifest["files"].items()} == before
    run_study(study, tmp_path / "run", heard)
    assert heard.lines[-1] == f"{tmp_path / 'run'} is complete already: nothing to measure"
    with monkeypatch.context() as worse:
        gone, answered, prepared = Reply("", 0, "failed", "gone"), LocalGenerator._reply, prepare.prepare
        worse.setattr(LocalGenerator, "_reply", lambda *given: gone if given[3].temperature else answered(*given))
        worse.setattr(
            prepare, "prepare",
            lambda *given: Prepared(given[3], given[4], {}, "broken") if given[3] < 2 else prepared(*given),
        )  # fmt: skip
        kept = run_study(study, tmp_path / "run", heard, RunChoices(retry_failed=True))
    assert {name: entry["sha256"] for name, entry in kept.manifest["files"].items()} == before
    with monkeypatch.context() as full:

        def no_room(store: RunStore, name: str, part: Any) -> None:
            if name.startswith("lookback/") and name.count("/") == 1:  # merged, and written last
                raise StoreError("no space left")
            put(store, name, part)

        full.setattr(RunStore, "put", no_room)
        with pytest.raises(StoreError, match="no space left"):
            run_study(study, tmp_path / "run", heard, RunChoices(retry_failed=True))
    retried = run_study(study, tmp_path / "run", heard, RunChoices(retry_failed=True))
    assert retried.manifest["files"] == sound.manifest["files"]
    assert any("with failures: their shards are measured again" in line for line in heard.lines)
    run_study(study, tmp_path / "run", heard, RunChoices(retry_failed=True))
    assert heard.lines[-2:] == ["nothing failed", f"{tmp_path / 'run'} is complete already: nothing to measure"]


def test_answers_whose_measurement_failed_are_measured_again_on_request(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = small(saved, probes={"attention": {"positions": 90}, "answering": True})
    sound = run_study(study, tmp_path / "sound")
    real = local.measure_answers
    with monkeypatch.context() as short:
        short.setattr(
            local, "measure_answers",
            lambda study, items, *rest: real(
                study, [Prepared(0, items[0].problem, {}, "memory runs out"), *items[1:]], *rest
            ) if items[0].number == 0 else real(study, items, *rest),
        )  # fmt: skip
        run = run_study(study, tmp_path / "run")
    name = answer_attention_name(str(saved), 0)
    assert run.get(name, []).records[0]["error"] == "memory runs out"
    retried = run_study(study, tmp_path / "run", choices=RunChoices(retry_failed=True))
    assert retried.manifest["files"] == sound.manifest["files"]


def test_of_two_tries_every_answer_that_did_not_fail_is_kept(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer of a problem fails at the first try, and others at the second."""
    study = small(saved, probes={"attention": None}, generation={"max_tokens": 6, "recheck": 0, "temperature": 0.8})
    sound = run_study(study, tmp_path / "sound")
    reply, failed = LocalGenerator._reply, Reply("", 0, "failed", "the server has gone")
    for number, retry in ((1, False), (2, True)):
        with monkeypatch.context() as broken:
            broken.setattr(
                LocalGenerator,
                "_reply",
                lambda *given, n=number: failed if given[1].index == n and given[3].temperature else reply(*given),
            )
            run = run_study(study, tmp_path / "run", choices=RunChoices(retry_failed=retry))
        assert bool(files_with_failures(run, study, range(3))) is not retry
    assert run.manifest["files"] == sound.manifest["files"]


def test_a_study_whose_answers_are_all_empty_is_finished_read_and_drawn(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a model that ends at once after filler: there is nothing to look back from, and all else is known."""
    study = small(saved, probes={"attention": {"positions": 90}, "answering": True}, figures=[{"name": "lookback"}])
    monkeypatch.setattr(local, "answer_ids", lambda *_: {})
    run = fillerscope.run(study, tmp_path / "run")
    assert run.figures()
    assert run.verify() == []
    assert faults(run) == []
    (model,) = study.models
    assert {one["status"] for one in run[model.name].records("answer")} == {"failed"}
    assert not files_with_failures(run.store, study, range(3))  # another try would find no answers either
    assert [one.text for one in run.findings() if one.name == "lookback"] == [
        "Looking back, mless: no problem has an answer under every condition, so nothing is known of it."
    ]
    assert run.report().exists()
    for file in export(run, tmp_path / "tables"):
        assert file.stat().st_size
    for part in ("1/2", "2/2"):
        fillerscope.run_part(study, part, tmp_path / "parts")
    merged = fillerscope.merge(tmp_path / "parts")
    assert {name: entry["sha256"] for name, entry in merged.store.manifest["files"].items()} == {
        name: entry["sha256"] for name, entry in run.store.manifest["files"].items()
    }
