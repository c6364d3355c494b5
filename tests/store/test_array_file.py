"""Files of arrays and records: how records of very many problems are stored, and read only where they are asked for."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from fillerscope.errors import StoreError
from fillerscope.store import array_file
from fillerscope.store.array_file import Part, StoredRecord, file_pieces
from fillerscope.store.merge import Merger
from fillerscope.store.run_folder import RunStore

NAME = "merged/tiny.safetensors"
HEADER_LIMIT = 100_000_000  # bytes, of safetensors


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore.create(tmp_path / "run", {"study": 1}, {})


def record(number: int, tokens: int = 3) -> dict[str, Any]:
    prompt = {"ids": list(range(tokens)), "spans": [0] * tokens}
    return {
        "number": number, "id": str(number), "status": "ok", "tokens": ["a"] * tokens, "prompts": {"none": prompt},
    }  # fmt: skip


FAILED = {"number": 1, "id": "1", "status": "failed", "error": "too long"}


def part(*records: dict[str, Any]) -> Part:
    return Part({"none/heads": np.arange(6, dtype=np.float32).reshape(3, 2)}, list(records))


@pytest.mark.parametrize("kept", [0, 1 << 24])
def test_records_are_read_as_they_were_written(store: RunStore, monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    monkeypatch.setattr(array_file, "MOST_KEPT", kept)
    written = [record(0), FAILED, record(2, 500)]
    store.put(NAME, part(*written))
    found = store.get(NAME)
    assert list(found.arrays) == ["none/heads"]
    assert found.records == written
    assert [dict(one) for one in found.records] == written
    assert found.records[2] | {"number": 7} == written[2] | {"number": 7}
    assert store.get(NAME, []).records[0]["prompts"]["none"]["ids"] == [0, 1, 2]


def test_arrays_that_are_asked_for_are_those_of_the_whole_file(store: RunStore) -> None:
    arrays = {
        "none/heads": np.arange(6, dtype=np.float32).reshape(3, 2), "none/mean": np.arange(4.0),
        "none/peak_at": np.arange(3, dtype=np.int32), "none/empty": np.zeros((0, 2), np.float32),
    }  # fmt: skip
    store.put(NAME, Part(arrays, [record(0)]))
    for key, array in arrays.items():
        (found,) = store.get(NAME, [key]).arrays.values()
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    "header",
    [
        b"[]", b"{}", b"{", b'{"a": 1}', b'{"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',  # another size than its shape
        b'{"a": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}}',  # beyond the file
        b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]}}',
        b'{"a": {"dtype": "F32", "shape": ["1"], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [-900, -896]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [%d, %d]}}' % (1 << 70, (1 << 70) + 4),
    ],
)  # fmt: skip
@pytest.mark.parametrize("length", [None, 1 << 62, 3])
def test_an_array_that_is_not_where_the_header_says_is_damage(
    tmp_path: Path, header: bytes, length: int | None
) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header + bytes(4))
    with pytest.raises(StoreError, match=r"^[^\n]*x\.safetensors[^\n]*$"):
        array_file.read_part(file, ["a"])


def test_the_header_stays_short_however_long_prompts_are(store: RunStore) -> None:
    """Files with longer headers than this cannot be opened."""
    records = [record(number, 400_000) for number in range(32)]
    store.put(NAME, part(*records))
    file = store.path / NAME
    assert file.stat().st_size > HEADER_LIMIT
    assert int.from_bytes(file.read_bytes()[:8], "little") < 10_000
    assert len(RunStore.open(store.path).get(NAME).records[31]["tokens"]) == 400_000


def test_records_of_very_many_problems_are_not_kept_in_memory(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_file, "MOST_KEPT", 200)
    store.put(NAME, part(*map(record, range(3))))
    one = store.get(NAME).records[0]
    assert isinstance(one, StoredRecord)
    assert one["tokens"] == one["tokens"] == ["a"] * 3
    assert one._large is None


def test_merged_records_are_copied_from_their_shards(store: RunStore) -> None:
    names = [f"shards/tiny/0000{shard}.safetensors" for shard in range(2)]
    merger = Merger(names, store.get)
    for shard, name in enumerate(names):
        moments = {f"none/whole/{key}": np.ones((1, 1, 1, 1)) for key in ("mean", "m2", "m3")}
        counts = {"none/whole/count": np.ones((1, 1, 1, 1), dtype=np.int64)}
        measured = Part({**moments, **counts, "none/heads": np.ones((1, 2), dtype=np.float32)}, [record(shard)])
        store.put(name, measured)
        merger.add(name, measured)
    merged = merger.merged()
    assert all(isinstance(one, StoredRecord) for one in merged.records)
    store.put(NAME, merged)
    assert all(one._large is None for one in merged.records if isinstance(one, StoredRecord))  # those of all shards
    assert store.get(NAME).records == [record(0), record(1)]


@pytest.mark.parametrize(
    ("records", "sizes"),
    [
        ([{}], [3]),  # more bytes than there are
        ([{}, {}], [2]),
        ([{}], [1, 1]),
        ([{}], [-2, 4]),
        ([{}], "12"),
        ([{}], [2.0]),
        ({"a": 1}, [2]),
        (7, [2]),
        ([3], [2]),
    ],
)
def test_what_does_not_fit_together_is_damage(store: RunStore, records: Any, sizes: Any) -> None:
    bytes_ = np.frombuffer(b"{}", dtype=np.uint8)
    file = store.path / NAME
    file.parent.mkdir()
    save_file({"records": bytes_}, file, {"records": json.dumps(records), "sizes": json.dumps(sizes)})
    store.put_bytes(NAME, file.read_bytes())
    with pytest.raises(StoreError, match="damaged"):
        store.get(NAME).records[0]["tokens"]


def test_the_same_part_gives_the_same_bytes(store: RunStore) -> None:
    one = part(record(0), FAILED)
    store.put(NAME, one)
    again = b"".join(map(bytes, file_pieces(store.get(NAME))))
    assert again == b"".join(map(bytes, file_pieces(one))) == (store.path / NAME).read_bytes()
