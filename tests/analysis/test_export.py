"""Tables in files: every row, the run's numbers, and the same bytes each time."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from filelock import FileLock, Timeout
from pyarrow import compute, csv, parquet

from fillerscope.analysis import export as tables
from fillerscope.analysis.accuracy import compare
from fillerscope.analysis.depth import depth_table
from fillerscope.analysis.export import FORMATS, export
from fillerscope.analysis.heads import head_table
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.run import Run, open_run
from fillerscope.errors import FigureError, StoreError
from fillerscope.store.array_file import Part
from fillerscope.store.lock import RESULTS_LOCK
from fillerscope.store.own_files import LISTING
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import METRICS, ProblemRecord
from support.answered import build, drawn_at_random
from support.swapping import swap_drafts
from support.synthetic import NONE, Synthetic

NAMES = ["profiles", "summaries", "heads", "depth", "problems"]


@pytest.fixture(scope="module")
def files(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    for kind in ("parquet", "csv"):
        assert export(run, folder, kind) == [folder / f"{name}.{kind}" for name in NAMES]
    return folder


@pytest.mark.parametrize("name", ["heads.csv", "problems.csv"])
def test_files_of_others_are_replaced_only_by_force(run: Run, tmp_path: Path, name: str) -> None:
    own = tmp_path / name
    own.write_text("mine")
    with pytest.raises(StoreError, match=f"{name} is there already, and nothing shows that .*--force"):
        export(run, tmp_path, "csv")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert own.read_text() == "mine"
    export(run, tmp_path, "csv", force=True)
    assert own.read_text() != "mine"
    export(run, tmp_path, "csv")  # they are ours now


def test_a_listing_of_others_gives_no_leave(run: Run, tmp_path: Path) -> None:
    (tmp_path / LISTING).write_text('["heads.csv"]')
    (tmp_path / "heads.csv").write_text("mine")
    with pytest.raises(StoreError, match=r"heads\.csv is there already"):
        export(run, tmp_path, "csv")


def table(files: Path, name: str) -> pa.Table:
    return parquet.read_table(files / f"{name}.parquet")


def rows(found: pa.Table, **where: object) -> dict[str, list[object]]:
    mask = None
    for key, value in where.items():
        equal = compute.equal(found[key], value)
        mask = equal if mask is None else compute.and_(mask, equal)
    chosen: dict[str, list[object]] = found.filter(mask).to_pydict()
    return chosen


def test_every_position_of_every_profile_is_a_row(files: Path, run: Run) -> None:
    found = table(files, "profiles")
    views = [("none", "whole"), ("none", "aligned")]
    views += [(name, view) for name in run.fillers for view in ("whole", "aligned", "difference", "logratio")]
    cells = [(run.profile(name, q, view).count > 0).sum() for name, view in views for q in ("all", "original", "last")]
    assert found.num_rows == sum(cells)
    profile = run.profile("random", "all", "whole")
    part = rows(found, condition="random", queries="all", view="whole", layer=2, head=3)
    there = profile.count[1, 2] > 0
    np.testing.assert_array_equal(part["position"], np.flatnonzero(there))
    np.testing.assert_array_equal(part["mean"], profile.mean[1, 2][there])
    np.testing.assert_array_equal(part["high"], profile.interval()[1][1, 2][there])
    assert set(part["model"]) == {"tiny-a"}


def test_every_problem_has_its_summaries(files: Path, run: Run, recipe: Synthetic) -> None:
    found = table(files, "summaries")
    assert found.num_rows == 3 * 3 * 12 * 3 * 4  # conditions, queries, problems, layers, heads
    part = rows(found, condition="mless", queries="last", problem="p07", layer=3, head=1)
    for metric in METRICS:
        assert part[metric] == [run.summary(metric, "mless", "last")[7, 2, 0]]
    assert part["peak_at"] == [recipe.peak_at(7, "mless")]


def test_heads_and_layers_are_the_tables_of_the_analysis(files: Path, run: Run) -> None:
    heads = table(files, "heads")
    assert heads.num_rows == 2 * 3 * 12
    part = rows(heads, condition="random", queries="original", layer=2, head=4)
    for key, value in head_table(run[None], "random", "original").row(2, 4).items():
        np.testing.assert_array_equal(part[key], [value])
    depth = table(files, "depth")
    assert depth.num_rows == 2 * 3 * 3
    part = rows(depth, condition="mless", queries="last")
    for key, column in depth_table(run[None], "mless", "last").columns().items():
        np.testing.assert_array_equal(part[key], column)


def test_failed_problems_stand_in_the_table_with_their_reason(tmp_path: Path) -> None:
    run = Synthetic(failed=(3,)).build(tmp_path / "run")
    export(run, tmp_path / "out")
    found = table(tmp_path / "out", "problems").to_pydict()
    assert found["number"] == list(range(12))
    assert found["status"] == ["ok"] * 3 + ["failed"] + ["ok"] * 8
    assert found["error"][3] == "9000 tokens, and the model takes 1024"
    assert found["error"][0] == ""
    assert found["tokens"][:4] == [45, 47, 49, 0]
    assert set(table(tmp_path / "out", "summaries")["problem"].to_pylist()) == {
        f"p{n:02d}" for n in range(12) if n != 3
    }


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.usefixtures("files")  # all of the run has been read before
def test_a_long_id_takes_no_room_in_other_rows(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def records(one: ModelRun, queries: str = "original") -> list[ProblemRecord]:
        first, *others = stored(one, queries)
        return cast(list[ProblemRecord], [first | {"id": "x" * 1_000_000}, *others])

    stored = ModelRun.records
    monkeypatch.setattr(ModelRun, "records", records)
    tracemalloc.start()
    try:
        for name in NAMES:
            tables.write_table(run, name, tmp_path, kind)
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()


def test_long_texts_are_written_in_pieces(
    files: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MOST_TEXT", 2000)
    for kind in ("parquet", "csv"):
        export(run, tmp_path, kind)
    for name in NAMES:
        assert repr(table(tmp_path, name).to_pydict()) == repr(table(files, name).to_pydict())
        assert (tmp_path / f"{name}.csv").read_bytes() == (files / f"{name}.csv").read_bytes()
    assert parquet.read_metadata(tmp_path / "summaries.parquet").num_row_groups > 9 + 3


def test_all_models_are_exported(tmp_path: Path) -> None:
    run = Synthetic(labels={"a": "A", "b": "B"}, problems=4).build(tmp_path / "run")
    export(run, tmp_path / "out")
    for name in NAMES:
        assert set(table(tmp_path / "out", name)["model"].to_pylist()) == {"a", "b"}


@pytest.mark.parametrize("name", NAMES)
def test_csv_and_parquet_hold_the_same(files: Path, name: str) -> None:
    wide = table(files, name)
    text = csv.read_csv(files / f"{name}.csv")
    assert text.column_names == wide.column_names
    for column in wide.column_names:
        ours, theirs = wide[column].to_pylist(), text[column].to_pylist()
        if name == "problems" and column == "error":
            continue  # all empty: the reader calls it null
        assert all(a == b or (a != a and (b is None or b != b)) for a, b in zip(ours, theirs, strict=True)), column


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_the_same_run_gives_the_same_bytes(files: Path, run: Run, tmp_path: Path, kind: str) -> None:
    for path in export(run, tmp_path / "again", kind):
        assert path.read_bytes() == (files / path.name).read_bytes(), path.name
    assert not list((tmp_path / "again").glob(".*"))


def test_a_run_without_filler_has_no_tables_of_comparisons(tmp_path: Path) -> None:
    run = Synthetic(conditions=(NONE,)).build(tmp_path / "run")
    export(Synthetic(problems=4).build(tmp_path / "earlier"), tmp_path / "out", "csv")
    assert (tmp_path / "out/heads.csv").exists()
    written = export(run, tmp_path / "out", "csv")
    assert [path.name for path in written] == ["profiles.csv", "summaries.csv", "problems.csv"]
    assert {path.name for path in (tmp_path / "out").glob("*.csv")} == {path.name for path in written}


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_answers_and_their_comparison_are_tables_too(tmp_path: Path, kind: str) -> None:
    """Without attention there are no others. Fewer samples have fewer pass@k: what is missing is no number."""
    draw = drawn_at_random(2)
    run = build(tmp_path / "run", draw, models=("a", "b"), temperature=[0, 0.7], samples=[1, 4])
    written = export(run, tmp_path / "out", kind)
    assert [path.name for path in written] == [f"accuracy.{kind}", f"answers.{kind}"]
    read = parquet.read_table if kind == "parquet" else csv.read_csv
    accuracy, every = (read(path).to_pylist() for path in written)
    rows = [row.record() for row in compare(run)]
    assert len(accuracy) == len(rows) == 2 * 3 * 3
    for found, row in zip(accuracy, rows, strict=True):
        for key, value in found.items():
            expected = row.get(key, np.nan)
            assert value == expected or (expected in ("", None) or expected != expected), key
            assert value != value or value in ("", None) or key in row, key
    assert {row["samples"] for row in accuracy if row["pass@4"] is not None and row["pass@4"] >= 0} == {4}
    assert len(every) == 2 * 11 * 3 * (1 + 4)
    for row in every:
        expected = draw((row["model"], row["number"], row["temperature"], row["condition"], row["sample"]))
        assert {key: str(row[key] if row[key] is not None else "") for key in expected} == {
            key: str(value) for key, value in expected.items()
        }
    again = {path.name: path.read_bytes() for path in export(run, tmp_path / "again", kind)}
    assert again == {path.name: path.read_bytes() for path in written}


def test_a_run_of_both_has_the_tables_of_both(tmp_path: Path) -> None:
    run = Synthetic(problems=4, right={"none": 0.5, "mless": 0.75}).build(tmp_path / "run")
    assert [path.stem for path in export(run, tmp_path / "out")] == [*NAMES, "accuracy", "answers"]


def test_tables_never_replace_the_files_of_a_run(run: Run) -> None:
    before = (run.path / "manifest.json").read_bytes()
    with pytest.raises(StoreError, match="is a run folder, whose own files tables would replace"):
        export(run, run.path, "parquet")
    assert (run.path / "manifest.json").read_bytes() == before
    assert run.store.verify() == []


def test_no_cell_of_a_csv_is_a_formula(tmp_path: Path) -> None:
    """Answers are a model's own words; Parquet holds them as they are."""
    run = build(tmp_path / "run", drawn_at_random(1), problems=2)
    name = next(name for name in run.store.manifest["files"] if name.startswith("answers/"))
    columns = run.store.get_table(name)
    run.store.put_table(name, columns | {"text": ["=HYPERLINK(1)", *columns["text"][1:]]})
    (text,) = (
        {path.name: path for path in export(open_run(run.path), tmp_path, "csv")}["answers.csv"]
        .read_text()
        .splitlines()[1:2]
    )
    assert "'=HYPERLINK(1)" in text
    export(open_run(run.path), tmp_path, "parquet")
    assert table(tmp_path, "answers")["text"][0].as_py() == "=HYPERLINK(1)"


def test_tables_of_another_run_do_not_stay_beside_the_new_ones(run: Run, tmp_path: Path) -> None:
    """Nothing would tell whose they are; files of others stay."""
    answered = Synthetic(problems=4, right={"none": 0.5, "mless": 0.75}).build(tmp_path / "answered")
    out = tmp_path / "out"
    for kind in FORMATS:
        export(answered, out, kind)
    assert {"answers.csv", "answers.parquet"} <= {path.name for path in out.iterdir()}
    (out / "mine.csv").write_text("x")
    written = export(run, out, "csv")
    assert {path.name for path in out.iterdir()} == {*(path.name for path in written), "mine.csv", LISTING}
    export(run, out, "parquet")  # of the same run: both formats may lie there
    assert {path.suffix for path in out.iterdir()} == {".csv", ".parquet", ".json"}


@pytest.mark.parametrize("is_copied", [False, True])
def test_tables_of_earlier_numbers_do_not_stay_in_the_folder_of_the_run(tmp_path: Path, is_copied: bool) -> None:
    """As after problems that had failed were measured again."""
    folder = tmp_path / "run"
    run, out = Synthetic(problems=4).build(folder), folder / "tables"
    for kind in FORMATS:
        export(run, out, kind)
    assert {path.suffix for path in out.iterdir()} == {".csv", ".parquet", ".json"}
    store = RunStore.open(folder)
    name = next(name for name in store.manifest["files"] if name.startswith("merged/"))
    part = store.get(name)
    with store.writing():
        store.put(name, Part({key: array * 2 for key, array in part.arrays.items()}, part.records))
    if is_copied:  # all files are as new as the copy
        for path in folder.rglob("*"):
            os.utime(path, (1, 1))
    export(open_run(folder), out, "parquet")
    assert {path.suffix for path in out.iterdir()} == {".parquet", ".json"}


def test_tables_of_earlier_versions_do_not_stay_in_the_folder_of_the_run(tmp_path: Path) -> None:
    """They have no listing, so nothing tells which numbers they have."""
    run = Synthetic(problems=4).build(tmp_path / "run")
    out = run.path / "tables"
    out.mkdir()
    (out / "heads.csv").write_text("of an earlier version")
    export(run, out, "parquet")
    assert {path.suffix for path in out.iterdir()} == {".parquet", ".json"}


def test_files_that_a_user_put_in_the_place_of_ours_stay(tmp_path: Path) -> None:
    """Of a table that this run has and another one had not, and of one that was changed."""
    answered = Synthetic(problems=4, right={"none": 0.5, "mless": 0.75}).build(tmp_path / "answered")
    plain, out = Synthetic(problems=4).build(tmp_path / "plain"), tmp_path / "out"
    export(answered, out, "csv")
    export(plain, out, "csv")
    for name in ("answers.csv", "heads.csv"):
        (out / name).write_text("mine")
    export(answered, out, "parquet")
    assert [(out / name).read_text() for name in ("answers.csv", "heads.csv")] == ["mine", "mine"]
    assert {path.name for path in out.glob("*.csv")} == {"answers.csv", "heads.csv"}
    with pytest.raises(StoreError, match=r"answers\.csv is there already|heads\.csv is there already"):
        export(answered, out, "csv")


def test_names_without_checksums_are_refused_until_they_are_forced(run: Run, tmp_path: Path) -> None:
    """As earlier versions listed them: tables of another run beside the new ones would be taken for this one's."""
    (tmp_path / LISTING).write_text('{"tables of": "another", "written by fillerscope": ["heads.csv"]}')
    (tmp_path / "heads.csv").write_text("whose?")
    with pytest.raises(StoreError, match=r"heads\.csv is there already, and nothing shows .*--force"):
        export(run, tmp_path, "parquet")
    assert (tmp_path / "heads.csv").read_text() == "whose?"
    export(run, tmp_path, "parquet", force=True)
    assert not (tmp_path / "heads.csv").exists()


def test_one_export_at_a_time_writes_to_a_folder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the removal of others' tables to the last one: two runs would mix."""
    held: list[bool] = []

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *rest: held.append(is_alone(tmp_path)) or function(*rest)  # type: ignore[func-returns-value]

    for name in ("_clear", "_export_table"):
        monkeypatch.setattr(tables, name, watched(getattr(tables, name)))
    export(run, tmp_path)
    assert held == [True] * (1 + len(NAMES))


def is_alone(folder: Path) -> bool:
    try:
        with FileLock(folder / RESULTS_LOCK, timeout=0):
            return False
    except Timeout:
        return True


def test_what_cannot_be_written_is_one_line(run: Run, tmp_path: Path) -> None:
    with pytest.raises(FigureError, match=r"tables are written as parquet or csv, not 'xlsx'"):
        export(run, tmp_path, "xlsx")
    (tmp_path / "file").write_text("")
    with pytest.raises(
        StoreError, match=r"cannot write tables to .*file: File exists; choose another folder with --out"
    ):
        export(run, tmp_path / "file")


@pytest.mark.parametrize("kind", FORMATS)
def test_a_draft_that_is_replaced_by_a_link_is_not_followed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    swap_drafts(monkeypatch, victim := tmp_path / "victim")
    with pytest.raises(OSError, match="removed or replaced while it was written"):
        tables.write_table(run, "depth", tmp_path, kind)
    assert victim.read_text() == "mine"
