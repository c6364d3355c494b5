"""Shards put together: in order, one in memory at a time, and nothing lost."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fillerscope.errors import ProblemError
from fillerscope.store.array_file import Part
from fillerscope.store.merge import Merger
from fillerscope.store.moments import Moments
from fillerscope.store.schema import MOMENTS
from support.studies import merge

SIZES = ((3, 9), (1, 4), (2, 12))  # problems and positions of each shard


def values(shard: int) -> np.ndarray:
    problems, positions = SIZES[shard]
    random = np.random.default_rng(shard)
    array = random.normal(size=(problems, 2, 2, positions)) * 10.0**shard + 5
    array[0, ..., positions // 2 :] = np.nan  # the first problem of each is shorter than the others
    return array


def part(shard: int) -> Part:
    samples = values(shard)
    first = sum(problems for problems, _ in SIZES[:shard])
    arrays: dict[str, Any] = {}
    for view in ("none/whole", "mless/difference"):
        moments = Moments.of(samples, np.isfinite(samples[:, :1, :1]))
        arrays |= {f"{view}/{key}": array for key, array in moments.state().items()}
    numbers = np.arange(first, first + len(samples))
    arrays["none/heads"] = np.broadcast_to(numbers[:, None], (len(samples), 4)).astype(np.float32)
    arrays["none/peak_at"] = numbers.astype(np.int32)
    arrays["none/histogram/counts"] = np.random.default_rng(shard).integers(0, 9, size=(2, 3, 5))
    return Part(arrays, [{"number": int(number), "status": "ok"} for number in numbers])


def failed(number: int) -> Part:
    return Part({}, [{"number": number, "status": "failed", "error": f"reason {number}"}])


def test_merged_is_as_if_all_had_been_one_shard() -> None:
    merged = merge(part(shard) for shard in range(3))
    samples = np.full((6, 2, 2, 12), np.nan)
    row = 0
    for shard in range(3):
        for one in values(shard):
            samples[row, ..., : one.shape[-1]] = one
            row += 1
    valid = np.isfinite(samples)
    count = valid.sum(axis=0)
    for view in ("none/whole", "mless/difference"):
        np.testing.assert_array_equal(np.broadcast_to(merged.arrays[f"{view}/count"], count.shape), count)
        np.testing.assert_allclose(merged.arrays[f"{view}/mean"], np.nanmean(samples, axis=0), rtol=1e-12)
        for power, key in ((2, "m2"), (3, "m3")):
            sums = np.nansum((samples - np.nanmean(samples, axis=0)) ** power, axis=0)
            np.testing.assert_allclose(merged.arrays[f"{view}/{key}"], sums, rtol=1e-9, atol=1e-9)


def test_moments_are_merged_from_the_first_shard_on() -> None:
    """Sums of floats depend on their order, and every byte must be the same each time."""
    merged = merge(part(shard) for shard in range(3))
    keys = [f"none/whole/{key}" for key in MOMENTS]
    first, second, third = (Moments(*(part(shard).arrays[key] for key in keys)) for shard in range(3))
    for key, array in first.merge(second).merge(third).state().items():
        np.testing.assert_array_equal(merged.arrays[f"none/whole/{key}"], array)


def test_problems_follow_each_other_in_shard_order() -> None:
    merged = merge(part(shard) for shard in range(3))
    assert [record["number"] for record in merged.records] == list(range(6))
    np.testing.assert_array_equal(merged.arrays["none/peak_at"], np.arange(6))
    np.testing.assert_array_equal(merged.arrays["none/heads"][:, 0], np.arange(6))
    assert merged.arrays["none/heads"].dtype == np.float32
    assert merged.arrays["none/peak_at"].dtype == np.int32


def test_counts_are_added_up() -> None:
    merged = merge(part(shard) for shard in range(3))
    wanted = sum(part(shard).arrays["none/histogram/counts"] for shard in range(3))
    np.testing.assert_array_equal(merged.arrays["none/histogram/counts"], wanted)
    assert merged.arrays["none/histogram/counts"].dtype == np.int64
    assert merged.arrays["none/histogram/counts"].shape == (2, 3, 5)


def test_shards_without_measured_problems_keep_their_records() -> None:
    parts = [failed(90), part(0), failed(91), part(1), failed(92)]
    merged, without = merge(parts), merge([part(0), part(1)])
    assert [record["number"] for record in merged.records] == [90, 0, 1, 2, 91, 3, 92]
    assert merged.arrays.keys() == without.arrays.keys()
    for key, array in without.arrays.items():
        np.testing.assert_array_equal(merged.arrays[key], array)


def test_one_shard_is_itself() -> None:
    merged = merge([part(2)])
    assert merged.records == part(2).records
    for key, array in part(2).arrays.items():
        np.testing.assert_array_equal(merged.arrays[key], array)


def test_where_all_failed_the_first_reason_is_told() -> None:
    with pytest.raises(ProblemError, match=r"^none of the 2 problems could be measured; the first says: reason 7$"):
        merge([failed(7), failed(8)])


@pytest.fixture
def _little_garbage() -> Iterator[None]:
    """Collecting looks at what the test makes, not at everything that was ever imported."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("_little_garbage")
def test_one_shard_is_held_at_a_time() -> None:
    """When the next shard is read, nothing holds on to the one before it but what was merged of it. When what is kept
    for every problem is read again to be written, one piece is read ahead."""
    alive: list[int] = []
    made: list[weakref.ref[Part]] = []

    def fetch(name: str, keys: list[str] | None) -> Part:
        gc.collect()
        alive.append(sum(reference() is not None for reference in made))
        one = part(int(name))
        if keys is not None:
            one = Part({key: one.arrays[key] for key in keys}, [])
        made.append(weakref.ref(one))
        return one

    merged = Merger(["0", "1", "2"], fetch).merged()
    for _ in merged.arrays["none/heads"].pieces():
        pass
    assert alive[:3] == [0] * 3
    assert len(alive) == 6
    assert max(alive) <= 1


@pytest.mark.parametrize("measured", [(), (0,), (1,), (0, 2), (1, 2), (0, 1, 2)])
def test_what_was_there_is_fetched_when_it_is_its_turn(measured: tuple[int, ...]) -> None:
    fetched: list[str] = []

    def fetch(name: str, keys: list[str] | None) -> Part:
        if keys is None:
            fetched.append(name)
        return part(int(name))

    merger = Merger(["0", "1", "2"], fetch)
    for shard in measured:
        merger.add(str(shard), part(shard))
    merged, expected = merger.merged(), merge(part(shard) for shard in range(3))
    assert fetched == [str(shard) for shard in range(3) if shard not in measured]
    assert merged.records == expected.records
    for key, array in expected.arrays.items():
        np.testing.assert_array_equal(merged.arrays[key], array)


def test_a_shard_is_merged_before_it_is_on_disk() -> None:
    """Its records are fetched when all is merged: until then they would take memory."""
    disk: list[str] = []

    def fetch(name: str, keys: list[str] | None) -> Part:
        assert name in disk
        assert keys == []
        return Part({}, part(int(name)).records)

    merger = Merger(["0", "1"], fetch)
    for shard in range(2):
        merger.add(str(shard), part(shard))
    disk += ["0", "1"]
    assert merger.merged().records == part(0).records + part(1).records
