"""Parts that several jobs measured, made into one run: the bytes of a single run, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fillerscope.analysis.export import export
from fillerscope.analysis.integrity import faults
from fillerscope.api import open_run
from fillerscope.errors import StoreError
from fillerscope.measure.run_study import RunChoices, run_study
from fillerscope.store.job_part import JobPart
from fillerscope.store.join import join
from fillerscope.store.run_folder import RunStore
from fillerscope.study.study import Study
from support.studies import CONDITIONS, save_model, study_of

COUNT = 4


@pytest.fixture(scope="module", autouse=True)
def _surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FILLERSCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.chdir(tmp_path_factory.mktemp("work"))
        yield


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Every stage, six shards: parts 1 and 2 have two of them, 3 and 4 one. The first two problems cannot be measured,
    so that the recheck of answers is not that of the first part."""
    folder = tmp_path_factory.mktemp("study")
    problems = [{"id": str(n), "question": f"What is {n} + 5?", "answer": str(n + 5)} for n in range(6)]
    problems[0]["question"] = problems[1]["question"] = "x " * 3000
    (folder / "problems.jsonl").write_text("".join(json.dumps(one) + "\n" for one in problems), encoding="utf-8")
    return study_of(
        save_model(folder / "tiny"), problems={"source": str(folder / "problems.jsonl")},
        conditions=list(CONDITIONS[:2]), batch={"shard": 1},
        probes={"attention": {"positions": 110}, "affine": True, "activations": {}, "answering": True},
        generation={"max_tokens": 4, "temperature": [0, 1], "samples": 2, "recheck": 1, "noise": True},
    )  # fmt: skip


@pytest.fixture(scope="module")
def single(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process."""
    return run_study(study, tmp_path_factory.mktemp("single") / "run").path


@pytest.fixture(scope="module")
def measured(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with all parts, the last one measured first. Never changed: tests copy it."""
    run = tmp_path_factory.mktemp("measured") / "run"
    for number in reversed(range(1, COUNT + 1)):
        run_study(study, run, choices=RunChoices(part=JobPart(number, COUNT)))
    return run


@pytest.fixture
def run(measured: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(measured, tmp_path / "run"))


def part(run: Path, number: int) -> Path:
    return JobPart(number, COUNT).folder(run)


def whole(run: Path) -> dict[str, bytes]:
    """Every file of a run, without its parts."""
    files = (file for file in run.rglob("*") if file.is_file() and "parts" not in file.relative_to(run).parts)
    return {str(file.relative_to(run)): file.read_bytes() for file in files}


def change(folder: Path, **facts: Any) -> None:
    """Let a part say something else about itself."""
    store = RunStore.open(folder)
    for key, value in facts.items():
        store.note(key, value)


def model_of(folder: Path) -> str:
    return next(iter(RunStore.open(folder).manifest["models"]))


def change_model(folder: Path, **facts: Any) -> None:
    models = RunStore.open(folder).manifest["models"]
    name = next(iter(models))
    change(folder, models=models | {name: models[name] | facts})


def test_the_merged_run_has_the_bytes_of_a_single_run(single: Path, run: Path, tmp_path: Path) -> None:
    join(run, [])
    assert whole(run) == whole(single)
    assert faults(open_run(run)) == []
    assert RunStore.open(run).verify() == []
    tables = [{file.name: file.read_bytes() for file in export(open_run(one), tmp_path / one.parent.name)}
              for one in (single, run)]  # fmt: skip
    assert tables[0] == tables[1]
    assert {"answers.parquet", "histograms.parquet", "lookback.parquet", "noise.parquet"} <= tables[0].keys()


def test_facts_that_are_found_while_measuring_are_the_same_in_every_part(measured: Path) -> None:
    noted = [RunStore.open(part(measured, number)).manifest["models"] for number in range(1, COUNT + 1)]
    model = model_of(part(measured, 1))
    for key in ("batch_tokens", "selfcheck", "rowcheck", "answercheck", "calibration", "label", "template"):
        assert len({json.dumps(one[model][key]) for one in noted}) == 1, key


def test_the_recheck_is_that_of_the_first_shard_with_a_greedy_answer(measured: Path, run: Path) -> None:
    model, noted = model_of(part(run, 3)), {"checked": 1, "same": 0, "margins": [0.25]}
    assert "recheck" in RunStore.open(part(measured, 3)).manifest["models"][model]
    change_model(part(run, 3), recheck=noted)
    assert join(run, []).manifest["models"][model]["recheck"] == noted


def test_order_and_repetition_change_nothing(single: Path, run: Path, tmp_path: Path) -> None:
    parts = [part(run, number) for number in (3, 1, 4, 2, 3)]
    out = tmp_path / "out"
    join(out, parts)
    assert whole(out) == whole(single)
    before = {file: file.stat().st_mtime_ns for file in out.rglob("*.*")}
    join(out, list(reversed(parts)))
    assert {file: file.stat().st_mtime_ns for file in out.rglob("*.*")} == before


def test_parts_are_found_in_a_run_and_in_any_folder(single: Path, run: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "gathered"
    elsewhere.mkdir()
    for number in (2, 3):
        shutil.move(part(run, number), elsewhere / f"from-node-{number}")
    join(tmp_path / "out", [run, elsewhere])
    assert whole(tmp_path / "out") == whole(single)


def test_a_part_that_was_begun_twice_is_made_whole(single: Path, run: Path, tmp_path: Path) -> None:
    """A job was killed on one machine and repeated on another, which was killed as well."""
    copy = Path(shutil.copytree(part(run, 1), tmp_path / "again"))
    for folder, shard in ((part(run, 1), "00000"), (copy, "00004")):
        for file in folder.rglob(f"{shard}.*"):
            file.unlink()
    with pytest.raises(StoreError, match=re.escape("1 of 4 parts are missing: 1/4 (not finished)")):
        join(tmp_path / "out", [run])
    join(tmp_path / "out", [run, copy])
    assert whole(tmp_path / "out") == whole(single)


def test_a_merge_that_was_stopped_is_finished_by_the_next(single: Path, run: Path) -> None:
    join(run, [])
    store = RunStore.open(run)
    merged = next(name for name in store.manifest["files"] if name.startswith("merged/"))
    (run / merged).unlink()
    next((run / "shards").rglob("*.safetensors")).write_bytes(b"half")
    join(run, [])
    assert whole(run) == whole(single)


# What does not belong together


def test_missing_parts_are_named_with_the_command_that_makes_them(run: Path) -> None:
    shutil.rmtree(part(run, 2))
    shutil.rmtree(part(run, 4))
    with pytest.raises(StoreError) as caught:
        join(run, [])
    study = part(run, 1) / "study.json"
    assert str(caught.value) == (
        "2 of 4 parts are missing: 2/4 (not there), 4/4 (not there); "
        f"make it with: fillerscope run {study} --shard 2/4 --out {run}"
    )
    assert not (run / "manifest.json").exists()


def test_a_damaged_file_counts_as_missing(run: Path) -> None:
    file = next(part(run, 3).rglob("shards/**/*.safetensors"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(StoreError, match=re.escape("1 of 4 parts are missing: 3/4 (not finished)")):
        join(run, [])


def test_a_part_of_another_number_is_refused(run: Path) -> None:
    change(part(run, 4), part="4/16")
    with pytest.raises(StoreError, match=r"is part 4/16 and .* part 1/4: parts of one run are of one number"):
        join(run, [])


DIFFERENT = {
    "models": (lambda one: [one[0] | {"digest": "another"}], r"models differ: .*tiny \(digest\)"),
    "libraries": (lambda one: one | {"torch": "1.0"}, "libraries differ: torch 1.0, not 2"),
    "study": (lambda one: one | {"seed": 7}, "the study differs in seed"),
    "code": (lambda _: "0.0.1+abc", r"code differs: 0.0.1\+abc, not 0"),
    "device": (lambda _: "cuda", "device differs: cuda, not cpu"),
    "problems": (lambda _: "abc", "problems differs: abc, not"),
}


@pytest.mark.parametrize("key", DIFFERENT)
def test_a_part_of_another_run_is_refused_with_what_differs(run: Path, key: str) -> None:
    altered, told = DIFFERENT[key]
    identity = RunStore.open(part(run, 2)).manifest["identity"]
    change(part(run, 2), identity=identity | {key: altered(identity[key])})
    with pytest.raises(StoreError, match=f"2-of-4 is a part of another run than .*1-of-4: {told}"):
        join(run, [])


def test_the_same_part_with_other_numbers_is_refused(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(part(run, 2), tmp_path / "copy"))
    store = RunStore.open(copy)
    name = next(name for name in store.manifest["files"] if name.startswith("shards/"))
    other = RunStore.open(part(run, 1))
    store.put(name, other.get(next(name for name in other.manifest["files"] if "00004.safetensors" in name)))
    with pytest.raises(StoreError, match=f"hold different numbers in {name}: give one of them"):
        join(tmp_path / "out", [run, copy])


def test_parts_that_decided_differently_are_refused_unless_that_is_accepted(run: Path) -> None:
    change_model(part(run, 4), batch_tokens=64)
    with pytest.raises(
        StoreError, match=r"parts 1/4 and 4/4 were measured with different tokens of a pass \(256 and 64\)"
    ):
        join(run, [])
    store = join(run, [], mixed=True)
    assert store.manifest["models"][model_of(run)]["batch_tokens"] == 256
    (line,) = store.manifest["parts"]["differences"]
    assert "tokens of a pass" in line


@pytest.mark.parametrize("key", ["rowcheck", "answercheck", "calibration"])
def test_every_fact_that_decides_numbers_is_compared(run: Path, key: str) -> None:
    folder = part(run, 2)
    record = RunStore.open(folder).manifest["models"][model_of(folder)][key]
    changed = {"rowcheck": {"layout": "apart"}, "answercheck": {"engine": "alone"}, "calibration": {"eps": [0.5]}}[key]
    change_model(folder, **{key: record | changed})
    with pytest.raises(StoreError, match="parts 1/4 and 2/4 were measured with different"):
        join(run, [])


def test_of_checks_the_worst_is_kept(run: Path) -> None:
    folder = part(run, 3)
    record = RunStore.open(folder).manifest["models"][model_of(folder)]["selfcheck"]
    worse = record | {"difference": record["tolerance"] * 0.9}
    change_model(folder, selfcheck=worse)
    assert join(run, []).manifest["models"][model_of(folder)]["selfcheck"] == worse


def test_histograms_with_other_bins_are_never_added_up(run: Path) -> None:
    record = RunStore.open(part(run, 1)).manifest["models"][model_of(part(run, 1))]["calibration"]
    change_model(part(run, 2), calibration=record | {"eps": [0.11 for _ in record["eps"]]})
    change_model(part(run, 3), calibration=record | {"edges": [-2.0, 2.0]})
    with pytest.raises(StoreError, match="histograms of activations have other bins in part 3/4 than in part 1/4"):
        join(run, [], mixed=True)
    change_model(part(run, 3), calibration=record)
    join(run, [], mixed=True)


def test_results_that_a_finished_run_has_of_its_own_are_kept(run: Path, single: Path, tmp_path: Path) -> None:
    out = shutil.copytree(single, tmp_path / "out")
    store = RunStore.open(out)
    name = next(name for name in store.manifest["files"] if name.startswith("answers/"))
    table = store.get_table(name)
    with store.writing():
        store.put_table(name, table | {"text": ["another answer" for _ in table["text"]]})
    before = whole(out)
    with pytest.raises(StoreError, match=f"has a {name} of its own, which differs from that in .*: nobody can say"):
        join(out, [run])
    assert whole(out) == before
    (out / name).write_bytes(b"damaged")
    join(out, [run])
    assert whole(out) == whole(single)


def test_a_part_that_was_killed_before_it_began_may_come_first(single: Path, run: Path, tmp_path: Path) -> None:
    first = RunStore.open(part(run, 1))
    killed = tmp_path / "a-killed" / "parts" / part(run, 1).name
    RunStore.create(killed, first.manifest["identity"], first.study, first.part)
    assert str(killed) < str(run)
    assert whole(join(tmp_path / "out", [tmp_path / "a-killed", run]).path) == whole(single)


def test_machines_that_differ_are_listed(run: Path) -> None:
    other = RunStore.open(part(run, 2)).manifest["environment"] | {"processor": "another"}
    change(part(run, 2), environment=other)
    store = join(run, [])
    assert store.manifest["parts"]["environments"]["2/4"] == other
    assert store.manifest["environment"]["processor"] != "another"


def test_a_folder_without_parts_is_refused(tmp_path: Path, single: Path) -> None:
    with pytest.raises(StoreError, match=f"no parts at {tmp_path}; `fillerscope run STUDY --shard 1/4` makes"):
        join(tmp_path / "out", [tmp_path])
    with pytest.raises(StoreError, match="no parts at"):
        join(tmp_path / "out", [single])


def test_another_run_at_the_place_of_the_merged_one_is_kept(run: Path, single: Path, tmp_path: Path) -> None:
    there = Path(shutil.copytree(single, tmp_path / "there"))
    change(there, identity={"study": "another"})
    with pytest.raises(StoreError, match="holds another study's run"):
        join(there, [run])


@pytest.mark.slow
def test_more_parts_than_shards_leave_nothing_missing(study: Study, single: Path, tmp_path: Path) -> None:
    """The seventh of seven parts has no shard: nobody need run it."""
    for number in range(1, 7):
        run_study(study, tmp_path / "run", choices=RunChoices(part=JobPart(number, 7)))
    join(tmp_path / "run", [])
    assert whole(tmp_path / "run") == whole(single)


def test_a_study_that_was_changed_in_a_part_is_refused(run: Path) -> None:
    """The merged run takes from it what the identity does not hold, such as the labels of conditions."""
    file = part(run, 1) / "study.json"
    file.write_text(file.read_text().replace('"name":', '"name": "other", "name":', 1).replace("mless", "other"))
    with pytest.raises(StoreError, match=r"1-of-.*study.json is damaged; run the study again"):
        join(run, [])


def test_a_number_of_problems_beyond_all_measure_is_missing_parts(run: Path) -> None:
    for number in range(1, COUNT + 1):
        change(part(run, number), problems=10**15)
    with pytest.raises(StoreError, match=f"{COUNT} of {COUNT} parts are missing"):
        join(run, [])


def test_models_of_another_kind_are_another_run(run: Path) -> None:
    for number, models in ((1, ["a"]), (2, ["b"])):
        store = RunStore.open(part(run, number))
        store.note("identity", store.manifest["identity"] | {"models": models})
    with pytest.raises(StoreError, match="is a part of another run"):
        join(run, [])
