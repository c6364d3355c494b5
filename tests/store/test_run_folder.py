"""The run folder: whole files or none, damage that is found, and one writer at a time."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from fillerscope.errors import StoreError
from fillerscope.files import digest_of, file_sha256, read_limited
from fillerscope.store import run_folder
from fillerscope.store.array_file import Part, Stacked
from fillerscope.store.manifest import sealed
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import (
    FORMAT,
    answer_attention_name,
    answers_name,
    merged_name,
    repeated_answers_name,
    shard_name,
    slug,
)
from support.forks import KILLED, in_a_fork

IDENTITY = {"study": {"seed": 0}, "models": [{"digest": "abc"}]}
STUDY = {"name": "tiny", "figures": []}
NAME = "shards/tiny/00000.safetensors"
PART = Part(
    {
        "none/whole/mean": np.linspace(0, 1, 24).reshape(2, 3, 4),
        "none/whole/count": np.arange(4, dtype=np.int64)[None, None],
        "none/heads": np.array([[0.5, np.nan]], dtype=np.float32),
    },
    [{"number": 0, "id": "a", "status": "ok"}, {"number": 1, "id": "\u00e9", "status": "failed", "error": "x"}],
)
OTHER = Part({"x": np.ones(5)}, [{"number": 2}])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "one"


@pytest.fixture
def store(path: Path) -> RunStore:
    return RunStore.create(path, IDENTITY, STUDY)


def everything(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def refused(message: str):
    """A StoreError of one line."""
    return pytest.raises(StoreError, match=rf"^[^\n]*{message}[^\n]*$")


def assert_same(found: Part, expected: Part) -> None:
    assert found.records == expected.records
    assert found.arrays.keys() == expected.arrays.keys()
    for key, array in expected.arrays.items():
        assert found.arrays[key].dtype == array.dtype
        np.testing.assert_array_equal(found.arrays[key], array)


def test_what_is_put_comes_back(store: RunStore) -> None:
    assert not store.has(NAME)
    store.put(NAME, PART)
    for reader in (store, RunStore.open(store.path)):
        assert reader.has(NAME)
        assert reader.is_sound(NAME)
        assert_same(reader.get(NAME), PART)
    assert_same(store.get(NAME, ["none/heads"]), Part({"none/heads": PART.arrays["none/heads"]}, []))
    assert_same(store.get(NAME, []), Part({}, PART.records))


TABLE = "answers/tiny/00000.parquet"
COLUMNS = {"number": [0, 0, 1], "temperature": [0.0, 0.7, 0.0], "note": ["", "", ""], "text": ["é\n\0", "", "…"]}


def test_a_table_comes_back_and_is_the_same_bytes_each_time(store: RunStore) -> None:
    """Nothing of when it was written is in it, and no column loses its kind to being empty."""
    store.put_table(TABLE, COLUMNS)
    before = (store.path / TABLE).read_bytes()
    for reader in (store, RunStore.open(store.path)):
        assert reader.is_sound(TABLE)
        found = reader.get_table(TABLE)
        assert found == COLUMNS
        assert list(found) == list(COLUMNS)
        assert {type(value) for value in found["note"]} == {str}
    store.put_table(TABLE, {key: list(values) for key, values in COLUMNS.items()})
    assert (store.path / TABLE).read_bytes() == before


def test_a_table_that_is_damaged_gone_or_none_is_one_line(store: RunStore) -> None:
    store.put_table(TABLE, COLUMNS)
    flip(store.path / TABLE)
    with refused("sha256 .* expected .*; the file is damaged; run the study again to restore it"):
        RunStore.open(store.path).get_table(TABLE)
    (store.path / TABLE).unlink()
    with refused("is missing or truncated; run the study again to restore it"):
        store.get_table(TABLE)
    store.put(TABLE, PART)  # in full, and something else
    with refused("is damaged .*; `fillerscope verify` tells more"):
        store.get_table(TABLE)


def forged(store: RunStore, table: pyarrow.Table, **options: object) -> RunStore:
    """A run whose table somebody else wrote, with the checksums of a sound one."""
    (store.path / TABLE).parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, store.path / TABLE, compression="zstd", **options)
    store.manifest["files"][TABLE] = {
        "bytes": (store.path / TABLE).stat().st_size,
        "sha256": file_sha256(store.path / TABLE),
    }
    store.note("problems", 1)
    return RunStore.open(store.path)


def many_nulls() -> pyarrow.Table:
    return pyarrow.table({"ids": pyarrow.ListArray.from_arrays([0, 2_000_000], pyarrow.nulls(2_000_000, "int32"))})


def one_text_often() -> pyarrow.Table:
    return pyarrow.table({"text": pyarrow.array(["x" * 1_000_000]).take(pyarrow.array([0] * 100, "int32"))})


def one_text_of_ids_often() -> pyarrow.Table:
    return pyarrow.table({"ids": pyarrow.array(["1 " * 500_000]).take(pyarrow.array([0] * 5, "int32"))})


def many_rows() -> pyarrow.Table:
    return pyarrow.table({"sample": pyarrow.repeat(pyarrow.scalar(0, "int64"), 1_000_000)})


@pytest.mark.parametrize("table", [many_nulls, one_text_often, one_text_of_ids_often, many_rows])
def test_a_small_table_that_would_fill_memory_is_refused(
    store: RunStore, table: Callable[[], pyarrow.Table], monkeypatch
) -> None:
    """With its checksum and that of the manifest, as whoever sends a run can write them."""
    monkeypatch.setattr(run_folder, "FREE", 60_000_000)
    other = forged(store, table(), row_group_size=1 << 30)
    assert other.verify() == []
    with refused("would take [0-9]+ MiB of memory, .* than any run of its size does; ask for the run again"):
        other.get_table(TABLE)


def test_tables_that_would_fill_memory_together_are_refused(store: RunStore, monkeypatch) -> None:
    monkeypatch.setattr(run_folder, "FREE", 9_000_000)
    names = [f"answers/tiny/{number:05d}.parquet" for number in range(5)]
    for name in names:
        store.put_table(name, {"text": ["x" * 1_000_000]})
    for name in [*names[:4], *names[:4]]:  # one that is read again counts once
        store.get_table(name)
    with refused(f"{names[4]} would take 1 MiB of memory, with the tables read before more than"):
        store.get_table(names[4])


def test_a_table_that_is_large_on_disk_may_take_as_much_more(store: RunStore, monkeypatch) -> None:
    monkeypatch.setattr(run_folder, "FREE", 0)
    ids = np.random.default_rng(0).integers(0, 50_000, 10_000).tolist()
    store.put_table(TABLE, {"ids": [ids]})
    assert store.get_table(TABLE) == {"ids": [ids]}


@pytest.mark.parametrize(
    "column",
    [
        {"other": [1]},
        {"ids": [[1]]},
        {"text": [["a"]]},
        {"number": ["1"]},
        {"id": ["a"], "id.x": [[1]]},
        {"text": pyarrow.array(["a"]).dictionary_encode()},
    ],
)
def test_a_table_with_columns_that_no_run_has_is_refused(store: RunStore, column: dict[str, object]) -> None:
    with refused("is damaged .it has a column .* as no run has"):
        forged(store, pyarrow.table(column)).get_table(TABLE)


def test_a_table_in_an_encoding_that_no_run_has_is_refused(store: RunStore) -> None:
    """Texts that each begin with all of the one before take more than their pages."""
    table = pyarrow.table({"text": ["a" * 1000] * 1000})
    with refused("its pages are encoded as no run has them"):
        forged(store, table, use_dictionary=False, column_encoding="DELTA_BYTE_ARRAY").get_table(TABLE)


def test_arrays_of_nothing_with_long_axes_are_refused(store: RunStore) -> None:
    """They take no byte of the file, and what is made for each of their layers fills memory."""
    store.put(NAME, Part({"x": np.zeros((0, 1 << 40)), "y": np.zeros((0, 3, 2))}, []))
    assert store.get(NAME, ["y"]).arrays["y"].shape == (0, 3, 2)
    with refused("is damaged .it has an array of the shape .0, 1099511627776"):
        store.get(NAME)


def test_records_that_would_fill_memory_are_not_made(store: RunStore, monkeypatch) -> None:
    monkeypatch.setattr("fillerscope.files.MOST_MEMORY", 1 << 20)
    store.put(NAME, Part({}, [{}] * 10_000))  # type: ignore[typeddict-item]
    with refused("is damaged .its values take more than 1 MiB of memory"):
        store.get(NAME)


def test_an_array_that_is_a_view_of_another_comes_back(store: RunStore) -> None:
    """safetensors writes the memory behind an array: a transposed one must not come back scrambled."""
    part = Part({"t": np.arange(6.0).reshape(2, 3).T, "s": np.arange(10)[::2]}, [])
    store.put(NAME, part)
    assert_same(store.get(NAME), part)


def test_a_shard_without_measured_problems_has_records_alone(store: RunStore) -> None:
    part = Part({}, [{"number": 0, "status": "failed", "error": "too long"}])
    store.put(NAME, part)
    assert_same(RunStore.open(store.path).get(NAME), part)


def test_the_same_part_is_the_same_bytes(store: RunStore) -> None:
    store.put(NAME, PART)
    backwards = Part(dict(reversed(PART.arrays.items())), [dict(reversed(r.items())) for r in PART.records])
    store.put("shards/tiny/00001.safetensors", backwards)
    entries = store.manifest["files"]
    assert entries[NAME] == entries["shards/tiny/00001.safetensors"]


def test_a_run_that_is_there_is_opened_as_it_is(store: RunStore) -> None:
    store.put(NAME, PART)
    store.note("environment", {"torch": "1"})
    before = everything(store.path)
    again = RunStore.create(store.path, json.loads(json.dumps(IDENTITY)), STUDY)
    assert again.has(NAME)
    assert again.manifest["environment"] == {"torch": "1"}
    assert again.study == STUDY
    assert everything(store.path) == before


def test_figures_asked_for_later_are_taken_up(store: RunStore) -> None:
    """Figures are not part of the identity, so the same folder is used; it must not keep the old wishes."""
    store.put(NAME, PART)
    changed = STUDY | {"figures": [{"name": "depth"}]}
    assert RunStore.create(store.path, IDENTITY, changed).study == changed
    assert_same(RunStore.open(store.path).get(NAME), PART)


# What can be wrong with a file, and what is said about it


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


DAMAGE = {"sha256": flip, "bytes, expected": cut, "missing": Path.unlink}


@pytest.mark.parametrize("said", DAMAGE)
def test_verify_names_what_is_damaged(store: RunStore, said: str) -> None:
    store.put(NAME, PART)
    store.put("merged/tiny.safetensors", OTHER)
    assert store.verify() == []
    DAMAGE[said](store.path / NAME)
    (line,) = RunStore.open(store.path).verify()
    assert line.startswith(f"{NAME}: ")
    assert said in line
    assert not store.is_sound(NAME)
    assert store.is_sound("merged/tiny.safetensors")


@pytest.mark.parametrize("between", ["put", "settled"])
@pytest.mark.parametrize("content", [OTHER, Part({"none/heads": np.zeros(3)}, [])], ids=["shorter", "another"])
def test_what_another_process_writes_again_is_not_damaged(store: RunStore, content: Part, between: str) -> None:
    """Neither once the manifest lists it nor in the moment before."""
    store.put(NAME, PART)
    readers = [RunStore.open(store.path) for _ in range(3)]
    if between == "put":
        store.put(NAME, content)
    else:
        store._list = lambda *_: refuse()
        with pytest.raises(StoreError, match="killed"):
            store.put(NAME, content)
    assert readers[0].verify() == []
    assert_same(readers[1].get(NAME), content)
    readers[2].refuse_damaged()
    cut(store.path / NAME)
    assert len(readers[0].verify()) == 1
    with refused("is missing or truncated"):
        readers[1].get(NAME)


def refuse() -> None:
    raise StoreError("killed")


def test_what_is_written_again_and_again_is_being_written(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(NAME, PART)
    reader, fault = RunStore.open(store.path), RunStore._fault_here
    made = iter(range(100))

    def late(self: RunStore, name: str) -> str:
        """Written again before it could be compared."""
        if self is reader:
            store.put(NAME, Part({"x": np.full(1, next(made))}, []))
        return fault(self, name)

    monkeypatch.setattr(RunStore, "_fault_here", late)
    for read in (reader.verify, reader.refuse_damaged):
        with refused("is being written by another process; wait for it, then try again"):
            read()
    monkeypatch.undo()
    assert reader.verify() == []


def test_what_is_no_longer_listed_and_written_again_is_being_written(store: RunStore) -> None:
    """As what is made of a shard that was replaced."""
    store.put(NAME, PART)
    store.put("merged/tiny.safetensors", PART)
    reader = RunStore.open(store.path)
    store.put(NAME, OTHER)
    (store.path / "merged/tiny.safetensors").write_bytes(b"not listed yet")
    with refused("is being written by another process"):
        reader.verify()


def test_another_run_in_the_place_of_one_is_not_taken_for_it(store: RunStore, path: Path, tmp_path: Path) -> None:
    store.put(NAME, PART)
    reader = RunStore.open(path)
    path.rename(tmp_path / "before")
    RunStore.create(path, IDENTITY | {"seed": 1}, STUDY).put(NAME, OTHER)
    assert len(reader.verify()) == 1
    with refused("is missing or truncated"):
        reader.get(NAME)


@pytest.mark.parametrize("damage", [cut, Path.unlink])
def test_reading_what_is_cut_short_or_gone_is_refused(store: RunStore, damage) -> None:
    store.put(NAME, PART)
    damage(store.path / NAME)
    assert not store.has(NAME)
    with refused("00000.safetensors is missing or truncated; run the study again to restore it"):
        store.get(NAME)


def test_no_damage_to_a_header_gives_anything_but_one_line(store: RunStore) -> None:
    """Every byte of the header in turn: the file is read, wrongly perhaps, or refused; never a traceback."""
    store.put(NAME, PART)
    whole = (store.path / NAME).read_bytes()
    end = 8 + int.from_bytes(whole[:8], "little")
    refusals = 0
    for place in range(end):
        data = bytearray(whole)
        data[place] ^= 64 if place % 2 else 1
        (store.path / NAME).write_bytes(data)
        assert not store.is_sound(NAME)
        try:
            store.get(NAME)
        except StoreError as error:
            assert "is damaged" in str(error)  # noqa: PT017
            assert "\n" not in str(error)  # noqa: PT017
            refusals += 1
    assert refusals > end / 2  # most of a header matters


def test_a_damaged_manifest_is_refused(store: RunStore) -> None:
    (store.path / "manifest.json").write_text('{"format": 2,')
    with refused(r"manifest\.json is damaged .*; restore it from a copy, or choose another folder with --out"):
        RunStore.open(store.path)


def test_every_fact_of_the_manifest_is_under_its_digest(store: RunStore) -> None:
    """A flipped bit anywhere is damage: in a self-check as in a checksum."""
    store.note("models", {"tiny": {"selfcheck": {"difference": 1e-7, "tolerance": 1e-5}, "label": "Tiny"}})
    store.put(NAME, PART)
    text = (store.path / "manifest.json").read_bytes()
    for place in range(0, len(text), 7):
        for bit in range(8):
            flipped = bytearray(text)
            flipped[place] ^= 1 << bit
            (store.path / "manifest.json").write_bytes(flipped)
            try:
                kept = RunStore.open(store.path).manifest
            except StoreError:
                continue
            assert kept == json.loads(text)  # white space
    (store.path / "manifest.json").write_bytes(text)
    assert RunStore.open(store.path).verify() == []


def test_a_manifest_without_its_digest_is_damaged(store: RunStore) -> None:
    manifest = json.loads((store.path / "manifest.json").read_text())
    del manifest["digest"]
    (store.path / "manifest.json").write_text(json.dumps(manifest))
    with refused(r"manifest\.json is damaged"):
        RunStore.open(store.path)


def test_a_folder_with_the_name_of_another_run_is_told(tmp_path: Path) -> None:
    named = tmp_path / f"tiny-{digest_of(IDENTITY)[:10]}"
    assert RunStore.create(named, IDENTITY, STUDY).verify() == []
    other = named.rename(tmp_path / "tiny-0123456789")
    (fault,) = RunStore.open(other).verify()
    assert "0123456789" in fault
    assert RunStore.open(other.rename(tmp_path / "renamed")).verify() == []


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
def test_an_error_of_reading_is_tried_again_and_is_not_damage(store: RunStore, monkeypatch, number: int) -> None:
    failing = [2]

    def fail(path: Path) -> bytes:
        if path.name == "manifest.json" and failing[0]:
            failing[0] -= 1
            raise OSError(number, os.strerror(number))
        return read_limited(path)

    monkeypatch.setattr("fillerscope.store.reading.read_limited", fail)
    assert RunStore.open(store.path).manifest == store.manifest
    failing[0] = 100
    with refused("nothing was changed: check the disk or network, then try again") as caught:
        RunStore.open(store.path)
    assert "remove" not in str(caught.value)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES])
def test_a_file_that_cannot_be_read_is_not_called_damaged(store: RunStore, monkeypatch, number: int) -> None:
    """Neither by `verify` nor by whatever uses it, a second process that resumes included."""
    store.put(NAME, PART)
    failing = [2]

    def fail(path: Path) -> str:
        if failing[0]:
            failing[0] -= 1
            raise OSError(number, os.strerror(number))
        return file_sha256(path)

    monkeypatch.setattr("fillerscope.store.reading.file_sha256", fail)
    monkeypatch.setattr("fillerscope.store.reading.WAITS", (0, 0, 0))
    if number != errno.EACCES:
        assert RunStore.open(store.path).verify() == []
    failing[0] = 1000
    opened = RunStore.open(store.path)
    for read in (opened.verify, opened.refuse_damaged, lambda: opened.is_sound(NAME), lambda: opened.get(NAME)):
        with pytest.raises(StoreError, match=r"cannot read|no permission to read") as caught:
            read()
        assert not re.search("remove|damaged|run the study again", str(caught.value))


def test_a_link_in_a_run_is_never_written_through(path: Path, tmp_path: Path) -> None:
    """A run folder comes from anybody: names that we will write to may be links to files of ours."""
    store = RunStore.create(path, IDENTITY, STUDY)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in (".manifest.json.tmp", "shards/tiny/.00000.safetensors.tmp", NAME):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).symlink_to(victim)
    store.put(NAME, PART)
    store.note("environment", {"python": "3"})
    assert victim.read_text() == "mine"
    assert not (path / NAME).is_symlink()
    assert_same(RunStore.open(path).get(NAME), PART)


def test_a_folder_that_leads_elsewhere_is_not_written_to(path: Path, tmp_path: Path) -> None:
    store = RunStore.create(path, IDENTITY, STUDY)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (path / "shards").symlink_to(elsewhere)
    with refused("would be written outside the run: a link leads there; remove it"):
        store.put(NAME, PART)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("number", [1, FORMAT + 1, None, "3"])
def test_a_run_of_another_format_is_refused(store: RunStore, number: object) -> None:
    store.note("format", number)
    with refused("was written by another version of fillerscope"):
        RunStore.open(store.path)


def entry_of(path: Path) -> dict[str, object]:
    return {"bytes": path.stat().st_size, "sha256": file_sha256(path)}


def test_token_ids_of_format_2_are_read(store: RunStore) -> None:
    """They were text with spaces; now they are lists of numbers."""
    store.put_table(TABLE, {"ids": [[3, 14], []]})
    assert store.get_table(TABLE) == {"ids": [[3, 14], []]}
    old = pyarrow.table({"ids": ["3 14", ""]})
    parquet.write_table(old, store.path / TABLE)
    store.manifest["files"][TABLE] = entry_of(store.path / TABLE)
    store.note("format", 2)
    assert RunStore.open(store.path).get_table(TABLE) == {"ids": [[3, 14], []]}


@pytest.mark.parametrize("left", [None, b"{", b"\xff", b"[" * 100_000])
def test_a_lost_study_is_told_and_mended_by_running_again(store: RunStore, left: bytes | None) -> None:
    (store.path / "study.json").unlink() if left is None else (store.path / "study.json").write_bytes(left)
    with refused(r"study\.json is (missing|damaged).*; run the study again"):
        _ = store.study
    assert RunStore.create(store.path, IDENTITY, STUDY).study == STUDY


def test_a_study_that_was_changed_is_refused_by_everybody_who_reads_it(store: RunStore) -> None:
    file = store.path / "study.json"
    file.write_text(json.dumps(STUDY | {"name": "other"}))
    with refused(r"study\.json is damaged; run the study again to restore it"):
        _ = store.study


def test_a_study_that_another_process_has_just_written_is_read(store: RunStore) -> None:
    other = {**STUDY, "name": "other"}
    RunStore.create(store.path, IDENTITY, other)
    assert store.study == other


# Folders that are not ours


def test_there_must_be_a_run_to_open(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for nothing in (tmp_path, tmp_path / "nowhere", tmp_path / "file"):
        with refused(r"no run at .*: it has no manifest\.json; `fillerscope run` makes one"):
            RunStore.open(nothing)


@pytest.mark.parametrize("manifest", ["[]", "null", '"text"', '{"name": "an extension"}', '{"format": 2}'])
def test_somebody_elses_manifest_is_refused_and_kept(path: Path, manifest: str) -> None:
    path.mkdir(parents=True)
    (path / "manifest.json").write_text(manifest)
    before = everything(path)
    for use in (lambda: RunStore.open(path), lambda: RunStore.create(path, IDENTITY, STUDY)):
        with refused("is not a fillerscope run"):
            use()
    assert everything(path) == before


@pytest.mark.parametrize("name", ["thesis.tex", "study.json", "sub/deep.txt", ".hidden"])
def test_a_folder_with_other_things_is_refused_and_kept(path: Path, name: str) -> None:
    (path / name).parent.mkdir(parents=True)
    (path / name).write_text("precious")
    with refused("exists and is not a fillerscope run; choose another folder with --out"):
        RunStore.create(path, IDENTITY, STUDY)
    assert everything(path) == {name: b"precious"}


def test_a_file_in_the_place_of_the_folder_is_refused_and_kept(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("precious")
    with refused("exists and is not a fillerscope run; choose another folder with --out"):
        RunStore.create(path, IDENTITY, STUDY)
    with refused("cannot write to .*: Not a directory; choose another folder with --out"):
        RunStore.create(path / "below", IDENTITY, STUDY)
    assert path.read_text() == "precious"


def test_an_empty_folder_is_welcome(path: Path) -> None:
    path.mkdir(parents=True)
    assert RunStore.create(path, IDENTITY, STUDY).study == STUDY


def test_the_run_of_another_identity_is_refused_and_kept(store: RunStore) -> None:
    store.put(NAME, PART)
    before = everything(store.path)
    with refused("holds another study's run.*; choose another folder with --out"):
        RunStore.create(store.path, {**IDENTITY, "study": {"seed": 1}}, STUDY)
    assert everything(store.path) == before


# Kills and faults


def test_what_a_kill_leaves_behind_is_written_over(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "lock").touch()
    (path / ".manifest.json.0123456789abcdef.tmp").write_bytes(b'{"form')
    store = RunStore.create(path, IDENTITY, STUDY)
    (path / "shards" / "tiny").mkdir(parents=True)
    (path / "shards" / "tiny" / ".00000.safetensors.0123456789abcdef.tmp").write_bytes(b"half")
    (path / ".report.html.0123456789abcdef.tmp").write_bytes(b"somebody is writing this")
    assert not store.has(NAME)
    with store.writing():
        store.put(NAME, PART)
    (path / ".report.html.0123456789abcdef.tmp").unlink()
    assert_same(RunStore.open(path).get(NAME), PART)
    assert not list(path.rglob(".*.tmp"))


def test_leftovers_that_cannot_be_listed_are_left(store: RunStore, monkeypatch) -> None:
    leftover = store.path / ".manifest.json.0123456789abcdef.tmp"
    leftover.write_bytes(b'{"form')

    def fail(*_: object) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    with monkeypatch.context() as broken:
        broken.setattr(os, "scandir", fail)
        with store.writing():
            assert leftover.exists()
    with store.writing():
        assert not leftover.exists()


def test_a_file_that_is_there_but_not_in_the_manifest_does_not_count(store: RunStore) -> None:
    """Killed between the two renames: nobody vouches for the file."""
    (store.path / "shards" / "tiny").mkdir(parents=True)
    (store.path / NAME).write_bytes(b"whole, perhaps")
    assert not store.has(NAME)
    assert not store.is_sound(NAME)
    store.put(NAME, PART)
    assert_same(store.get(NAME), PART)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_fault_on_the_way_leaves_the_old_file_and_no_half_one(store: RunStore, monkeypatch, step: str) -> None:
    store.put(NAME, PART)
    before = everything(store.path)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, step, fail)
    with refused("cannot write to .*: Input/output error; choose another folder with --out"):
        store.put(NAME, OTHER)
    assert everything(store.path) == before
    assert_same(RunStore.open(store.path).get(NAME), PART)


@pytest.fixture
def both(path: Path) -> dict[bytes, Part]:
    """A run with a shard, and what it is merged into, by the bytes of the manifest; and with another shard."""
    before, after = RunStore.create(path, IDENTITY, STUDY), RunStore.create(path.parent / "after", IDENTITY, STUDY)
    after.put(NAME, OTHER)
    before.put(NAME, PART)
    before.put("merged/tiny.safetensors", PART)
    return {(before.path / "manifest.json").read_bytes(): PART, (after.path / "manifest.json").read_bytes(): OTHER}


def replace(path: Path) -> None:
    """Replace the shard. What fails on the way is noted, as whatever comes before the end may be."""
    store = RunStore.open(path)
    with store.writing():
        try:
            store.put(NAME, OTHER)
        except StoreError:
            store.note("environment", {})
            store.manifest.pop("environment")
            store._save_manifest()


def assert_one_of(both: dict[bytes, Part], path: Path) -> Part:
    """That a run is what it was, or what it was to be, and that nothing else is left."""
    assert RunStore.open(path).verify() == []
    RunStore.open(path).tidy()
    assert not list(path.rglob(".*.tmp"))
    part = both[(path / "manifest.json").read_bytes()]
    assert_same(RunStore.open(path).get(NAME), part)
    return part


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and signals")
@pytest.mark.parametrize("share", [run_folder.SHARE, 1], ids=["a manifest for each file", "for all files"])
def test_killed_at_every_step_of_replacing_a_file(
    both: dict[bytes, Part], path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: int
) -> None:
    monkeypatch.setattr(run_folder, "SHARE", share)
    ends: list[Part] = []
    for step in range(1, 20):
        run = Path(shutil.copytree(path, tmp_path / str(step)))
        code = in_a_fork(lambda run=run: replace(run), {"die_at": step})
        assert code in (KILLED, 0)
        ends.append(assert_one_of(both, run))
        if code == 0:
            break
    assert len(ends) == 3 * 3 + 1  # the manifest that announces it, the file, and the manifest that lists it
    assert ends[0] is PART
    assert ends[-1] is OTHER


@pytest.mark.parametrize("operation", ["fsync", "replace"])
def test_any_write_fails_while_a_file_is_replaced(
    both: dict[bytes, Part], path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """The one that fails is not the last one."""
    real, left = getattr(os, operation), [0]

    def fail(*given: object) -> object:
        left[0] -= 1
        if left[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*given)

    monkeypatch.setattr(os, operation, fail)
    for number in range(1, 7 if operation == "fsync" else 4):
        run, left[0] = Path(shutil.copytree(path, tmp_path / str(number))), number
        replace(run)
        assert left[0] <= 0
        assert_one_of(both, run)


def test_files_are_synced_before_they_get_their_name(store: RunStore, monkeypatch) -> None:
    steps = []
    fsync, replace = os.fsync, os.replace

    def note_sync(fd: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{fd}")).name
        steps.append(("sync", re.sub(r"\.[0-9a-f]{16}\.tmp$", ".tmp", name)))
        fsync(fd)

    def note_replace(source: Path, target: Path) -> None:
        steps.append(("rename", Path(target).name))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_replace)
    store.put(NAME, PART)
    shard = Path(NAME).name
    assert steps == [
        ("sync", f".{shard}.tmp"),
        ("rename", shard),
        ("sync", "tiny"),
        ("sync", ".manifest.json.tmp"),
        ("rename", "manifest.json"),
        ("sync", store.path.name),
    ]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[object]:
    """A file system of its own: `mount(kilobytes)` makes it, `mount(readonly=True)` seals it."""
    place = tmp_path / "disk"
    place.mkdir()

    def make(kilobytes: int = 0, readonly: bool = False) -> Path:
        options = "remount,ro" if readonly else f"size={kilobytes}k"
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("there is no mount command here")
        if done.returncode:
            pytest.skip(f"a disk of its own cannot be mounted here: {done.stderr.strip()}")
        return place

    yield make
    if place.is_mount():
        subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_is_one_line_and_leaves_no_half_file(mount) -> None:
    path = mount(256) / "run"
    store = RunStore.create(path, IDENTITY, STUDY)
    store.put(NAME, PART)
    before = everything(path)
    large = Part({"x": np.zeros(100_000)}, [])
    for name in ("shards/tiny/00001.safetensors", NAME):
        with refused("no space left at .*; free some and run again, it resumes from here"):
            store.put(name, large)
        assert everything(path) == before
    store = RunStore.open(path)
    store.put("shards/tiny/00001.safetensors", OTHER)  # what does fit still goes in
    assert store.verify() == []
    assert_same(store.get(NAME), PART)


def test_a_disk_that_fills_up_anywhere_leaves_a_run_that_goes_on(mount) -> None:
    """Whatever the last free kilobytes are used up by: manifest, study, lock or shard."""
    disk = mount(64)
    for free in range(0, 44, 4):
        (disk / "ballast").write_bytes(b"")
        stat = os.statvfs(disk)
        (disk / "ballast").write_bytes(bytes(stat.f_bavail * stat.f_frsize - free * 1024))
        path = disk / f"run{free}"
        try:
            RunStore.create(path, IDENTITY, STUDY).put(NAME, PART)
        except StoreError as error:
            assert "no space left" in str(error)  # noqa: PT017
        assert not list(disk.rglob(".*.tmp"))
        (disk / "ballast").write_bytes(b"")
        store = RunStore.create(path, IDENTITY, STUDY)
        store.put(NAME, PART)
        assert store.verify() == []
        assert_same(store.get(NAME), PART)
        subprocess.run(["rm", "-r", str(path)], check=True)


def test_a_read_only_disk_is_one_line_and_can_be_read(mount) -> None:
    disk = mount(256)
    store = RunStore.create(disk / "run", IDENTITY, STUDY)
    store.put(NAME, PART)
    mount(readonly=True)
    unwritable = "cannot write to .*: Read-only file system; choose another folder with --out"
    with refused(unwritable):
        RunStore.create(disk / "another", IDENTITY, STUDY)
    store = RunStore.create(disk / "run", IDENTITY, STUDY)
    assert_same(store.get(NAME), PART)
    assert store.verify() == []
    with refused(unwritable), store.writing():
        pytest.fail("a pen on a read-only disk")
    with refused(unwritable):
        store.put(NAME, OTHER)


# One writer at a time

HOLD = """
import sys
from pathlib import Path
from fillerscope.store.manifest import sealed
from fillerscope.store import run_folder
from fillerscope.store.run_folder import RunStore
with RunStore.open(Path(sys.argv[1])).writing():
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_another_process_that_writes_is_respected_until_it_dies(store: RunStore) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(store.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"
        with refused("another process is writing .*; wait for it, or stop it"), store.writing():
            pytest.fail("two writers")
        with refused("another process is writing"):  # figures changed: the study would be written
            RunStore.create(store.path, IDENTITY, STUDY | {"figures": [{"name": "depth"}]})
        assert RunStore.create(store.path, IDENTITY, STUDY).study == STUDY  # reading needs no pen
        other.kill()
    with store.writing():
        store.put(NAME, PART)


def test_a_writer_sees_what_others_wrote_before_it(path: Path) -> None:
    first, second = (RunStore.create(path, IDENTITY, STUDY) for _ in range(2))
    with first.writing():
        first.put(NAME, PART)
    with second.writing():
        assert second.has(NAME)
        second.put("shards/tiny/00001.safetensors", OTHER)
    assert set(RunStore.open(path).manifest["files"]) == {NAME, "shards/tiny/00001.safetensors", "study.json"}


def test_two_that_begin_at_once_do_not_mix(path: Path, monkeypatch) -> None:
    """The second one comes while the first is writing the manifest that makes the folder a run."""
    fsync, second = os.fsync, []

    def begin_again(fd: int) -> None:
        fsync(fd)
        monkeypatch.setattr(os, "fsync", fsync)
        with refused("another process is writing .*; wait for it, or stop it"):
            RunStore.create(path, IDENTITY, STUDY)
        second.append("refused")

    monkeypatch.setattr(os, "fsync", begin_again)
    assert RunStore.create(path, IDENTITY, STUDY).study == STUDY
    assert second == ["refused"]


def test_the_pen_is_free_again_after_an_error(store: RunStore) -> None:
    with pytest.raises(KeyboardInterrupt), store.writing():
        raise KeyboardInterrupt
    with store.writing():
        pass


# Names of files


def test_names_of_catalogue_models_are_plain() -> None:
    assert shard_name("smollm2-135m", 3) == "shards/smollm2-135m/00003.safetensors"
    assert merged_name("qwen2.5-coder-1.5b") == "merged/qwen2.5-coder-1.5b.safetensors"


def test_different_models_never_share_files() -> None:
    long = ["x" * 300 + "/m", "y" * 300 + "/m"]
    names = ["a/b", "a_b", "./a/b", "a b", "a//b", "../a/b", "\u00e9", "\u00e8", ".", *long]
    slugs = [slug(name) for name in names]
    assert len(set(slugs)) == len(names)
    for made in slugs:
        assert made.isascii()
        assert not set(made) & set("/\\ :")
        assert 0 < len(made) < 100
        assert not made.startswith(".")


def test_a_flipped_byte_is_not_read(store: RunStore) -> None:
    store.put(NAME, PART)
    flip(store.path / NAME)
    with refused("sha256 .* expected .*; the file is damaged; run the study again to restore it"):
        RunStore.open(store.path).get(NAME)


@pytest.mark.parametrize(
    "change",
    [
        {"files": []},
        {"files": {"x": 3}},
        {"files": {"x": {"bytes": 1}}},
        {"files": {"../x": {"bytes": 1, "sha256": ""}}},
        {"files": {"/etc/x": {"bytes": 1, "sha256": ""}}},
        {"identity": 5},
        {"models": [1]},
        {"models": {"a": 1}},
    ],
)
def test_an_edited_manifest_is_called_damaged(store: RunStore, change: dict[str, object]) -> None:
    (store.path / "manifest.json").write_text(json.dumps(sealed(store.manifest | change)))
    with refused(r"manifest\.json is damaged( \(its `facts` of a\))?; restore it from a copy"):
        RunStore.open(store.path)


def test_arrays_that_are_fetched_piece_by_piece_are_written_as_one(tmp_path: Path) -> None:
    pieces = [np.arange(6, dtype=np.int32).reshape(3, 2), np.arange(4, dtype=np.int32).reshape(2, 2)]
    whole = np.concatenate(pieces)
    stacked = Stacked(whole.shape, whole.dtype, lambda: iter(pieces))
    one, other = (RunStore.create(tmp_path / name, {"a": 1}, {}) for name in ("one", "other"))
    with one.writing(), other.writing():
        one.put("x.safetensors", Part({"b": np.zeros((0, 3)), "a": stacked}, [{"number": 1}]))
        other.put("x.safetensors", Part({"b": np.zeros((0, 3)), "a": whole}, [{"number": 1}]))
    assert (one.path / "x.safetensors").read_bytes() == (other.path / "x.safetensors").read_bytes()
    again = RunStore.open(one.path).get("x.safetensors")
    np.testing.assert_array_equal(again.arrays["a"], whole)
    assert again.arrays["a"].dtype == np.int32
    assert again.arrays["b"].shape == (0, 3)
    assert again.records == [{"number": 1}]


def test_a_large_run_is_not_listed_anew_for_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Together its manifests would take bytes by the square of its files."""
    monkeypatch.setattr(run_folder, "SHARE", 5)
    store = RunStore.create(tmp_path / "run", {"study": 1}, {})
    listed = []
    with store.writing():
        for number in range(1, 25):
            store.put_bytes(f"shards/tiny/{number:05d}.safetensors", b"1")
            listed.append(len(RunStore.open(store.path).manifest["files"]) - 1)  # without study.json
    assert listed[:3] == [1, 2, 3]
    assert len(set(listed)) < 14
    assert listed[-1] < 24
    assert all(number - there <= (number + 1) // 5 for number, there in enumerate(listed, 1))
    assert RunStore.open(store.path).manifest["files"] == store.manifest["files"]
    assert store.verify() == []


# Files that are made of others


@pytest.mark.parametrize(
    ("name", "made"),
    [
        (shard_name("tiny", 3), {merged_name("tiny")}),
        (answers_name("tiny", 3), {answer_attention_name("tiny", 3), answer_attention_name("tiny")}),
        (answer_attention_name("tiny", 3), {answer_attention_name("tiny")}),
        (merged_name("tiny"), set()),
        (repeated_answers_name("tiny", 3, "float32"), set()),
    ],
)
@pytest.mark.parametrize("how", ["put", "adopt"])
def test_a_file_that_is_replaced_takes_those_made_of_it_out_of_the_manifest(
    store: RunStore, tmp_path: Path, how: str, name: str, made: set[str]
) -> None:
    """A kill may come before they are made anew: each would be sound by itself."""
    others = [*(answer_attention_name("tiny", shard) for shard in (3, 4, None)), merged_name("tiny"), merged_name("b")]
    written = {name, *others}
    for one in dict.fromkeys([name, *others]):
        store.put(one, PART)

    def replace(part: Part) -> set[str]:
        if how == "put":
            store.put(name, part)
            store.note("saved", part is OTHER)
        else:
            from_elsewhere = RunStore.create(tmp_path / str(part is OTHER), IDENTITY, STUDY)
            from_elsewhere.put(name, part)
            store.adopt({name: from_elsewhere})
        return RunStore.open(store.path).manifest["files"].keys() - {"study.json"}

    assert replace(PART) == written  # the same bytes
    assert replace(OTHER) == written - made


def test_files_that_come_together_stay_listed_together(store: RunStore, tmp_path: Path) -> None:
    answers, lookback = answers_name("tiny", 3), answer_attention_name("tiny", 3)
    from_elsewhere = RunStore.create(tmp_path / "other", IDENTITY, STUDY)
    for name in (answers, lookback):
        store.put(name, PART)
        from_elsewhere.put(name, PART)
    from_elsewhere.put(answers, OTHER)
    from_elsewhere.put(lookback, PART)
    store.adopt({answers: from_elsewhere, lookback: from_elsewhere})
    assert {answers, lookback} <= RunStore.open(store.path).manifest["files"].keys()


@pytest.mark.parametrize("mine", [True, False])
def test_a_file_that_changed_since_it_was_checked_is_checked_again(store: RunStore, mine: bool) -> None:
    """Whoever changed it, of the same size and with its old times."""
    store.put(NAME, PART)
    reader = store if mine else RunStore.open(store.path)
    assert_same(reader.get(NAME), PART)
    file = store.path / NAME
    times, content = file.stat(), bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    for keys in (None, [], ["none/heads"]):
        with refused("the file is damaged"):
            reader.get(NAME, keys)


@pytest.fixture
def private(tmp_path: Path) -> RunStore:
    """Another run of this user, with a file of the same name."""
    other = RunStore.create(tmp_path / "home" / "private", {"models": []}, STUDY)
    with other.writing():
        other.put(NAME, OTHER)
    return other


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no paths of open folders")
def test_a_run_that_is_exchanged_for_a_link_while_it_is_written_stays_the_one_that_is_written(
    store: RunStore, path: Path, private: RunStore
) -> None:
    """By somebody who may write to the folder of runs."""
    before = everything(private.path)
    with refused("was replaced by another folder while it was written; put it back"), store.writing():
        path.rename(path.with_name("gone"))
        path.symlink_to(private.path)
        store.put(NAME, PART)
    assert everything(private.path) == before
    assert_same(RunStore.open(path.with_name("gone")).get(NAME), PART)


def test_a_run_that_is_exchanged_before_it_is_locked_is_not_written(
    store: RunStore, path: Path, private: RunStore
) -> None:
    before = everything(private.path)
    path.rename(path.with_name("gone"))
    path.symlink_to(private.path)
    with refused("was replaced by the run of another study"), store.writing():
        store.put(NAME, PART)
    assert everything(private.path).items() >= before.items()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no paths of open folders")
@pytest.mark.parametrize("below", ["shards", "shards/tiny"])
def test_a_link_that_comes_after_it_was_looked_for_is_not_followed(
    store: RunStore, path: Path, private: RunStore, below: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fillerscope.store import inside

    with store.writing():
        store.put(NAME, PART)
    before = everything(private.path)
    (path / below).rename(path / "aside")
    (path / below).symlink_to(private.path / below)
    monkeypatch.setattr(inside, "is_inside", lambda *_: True)
    with refused("cannot write"), store.writing():
        store.put(NAME, OTHER)
    assert everything(private.path) == before
