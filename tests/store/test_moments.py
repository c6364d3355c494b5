"""What every reducer promises, and that moments are the mean and deviation that numpy gives."""

from __future__ import annotations

import io
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import skew

from fillerscope.errors import StoreError
from fillerscope.store.moments import Counts, Moments

Floats = NDArray[np.float64]
ROWS = 3  # cells beside positions: layers, heads


def padded(samples: list[Floats]) -> Floats:
    """[sample, row, position], NaN where a sample has ended."""
    values = np.full((len(samples), ROWS, max((sample.shape[-1] for sample in samples), default=0)), np.nan)
    for row, sample in zip(values, samples, strict=True):
        row[:, : sample.shape[-1]] = sample
    return values


def moments(samples: list[Floats]) -> Moments:
    values = padded(samples)
    return Moments.of(values, np.isfinite(values))


def counts(samples: list[Floats]) -> Counts:
    """How often a sample is above 0 in each cell."""
    return Counts.of(np.nan_to_num(padded(samples), nan=-1.0) > 0)


# A reducer made from samples [row, position], which differ in length and miss values. Adding one is a line.
REDUCERS: dict[str, Callable[[list[Floats]], Any]] = {
    "moments": moments,
    "counts": counts,
}
each_reducer = pytest.mark.parametrize("make", REDUCERS.values(), ids=REDUCERS)


@st.composite
def samples_of_unequal_length(draw: st.DrawFn, fewest: int = 0) -> list[Floats]:
    lengths = draw(st.lists(st.integers(0, 5), min_size=fewest, max_size=8))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    offset, scale = draw(st.sampled_from([(0.0, 1.0), (1e6, 1.0), (0.0, 1e3)]))
    missing = draw(st.sampled_from([0.0, 0.3, 1.0]))
    samples = [offset + scale * random.normal(size=(ROWS, length)) for length in lengths]
    return [np.where(random.random(sample.shape) < missing, np.nan, sample) for sample in samples]


def assert_same(a: Any, b: Any, tolerance: float = 0.0) -> None:
    assert type(a) is type(b)
    assert a.state().keys() == b.state().keys()
    for name, array in a.state().items():
        assert array.dtype == b.state()[name].dtype
        least = tolerance * max(1.0, a.m2.max(initial=0.0) ** 1.5) if name == "m3" else tolerance  # cubes cancel out
        np.testing.assert_allclose(array, b.state()[name], rtol=tolerance, atol=least, err_msg=name, strict=True)


@each_reducer
@settings(deadline=None)
@given(samples=samples_of_unequal_length(), cuts=st.lists(st.integers(0, 8), max_size=4))
def test_any_split_merged_in_order_equals_the_whole(make: Any, samples: list[Floats], cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(samples)) for cut in cuts), len(samples)]
    merged = make([])
    for start, stop in pairwise(edges):
        merged = merged.merge(make(samples[start:stop]))
    assert_same(merged, make(samples), 1e-8)


@each_reducer
@settings(deadline=None)
@given(parts=st.lists(samples_of_unequal_length(), min_size=3, max_size=3))
def test_merging_is_associative(make: Any, parts: list[list[Floats]]) -> None:
    a, b, c = (make(part) for part in parts)
    assert_same(a.merge(b).merge(c), a.merge(b.merge(c)), 1e-8)


@each_reducer
@settings(deadline=None)
@given(samples=samples_of_unequal_length())
def test_the_empty_one_is_the_identity_to_the_last_bit(make: Any, samples: list[Floats]) -> None:
    whole, empty = make(samples), make([])
    assert_same(whole.merge(empty), whole)
    assert_same(empty.merge(whole), whole)


@each_reducer
@settings(deadline=None)
@given(samples=samples_of_unequal_length())
def test_the_state_survives_a_round_trip(make: Any, samples: list[Floats]) -> None:
    whole, file = make(samples), io.BytesIO()
    np.savez(file, **whole.state())
    file.seek(0)
    with np.load(file) as stored:
        again = type(whole)(**stored)
    assert_same(again, whole)
    assert_same(again.merge(make(samples)), whole.merge(make(samples)))


@settings(deadline=None)
@given(samples=samples_of_unequal_length())
def test_moments_are_those_of_numpy(samples: list[Floats]) -> None:
    reduced = moments(samples)
    value, deviation = reduced.value(), reduced.deviation()
    for place in np.ndindex(value.shape):
        column = padded(samples)[(slice(None), *place)]
        column = column[np.isfinite(column)]
        assert reduced.counts[place] == len(column)
        expected = column.mean() if len(column) else np.nan
        np.testing.assert_allclose(value[place], expected, rtol=1e-12)
        expected = column.std(ddof=1) if len(column) > 1 else np.nan
        np.testing.assert_allclose(deviation[place], expected, rtol=1e-6, atol=1e-18)
        expected = skew(column, bias=False) if len(column) > 2 else 0.0
        np.testing.assert_allclose(reduced.skewness()[place], expected, rtol=1e-6, atol=1e-6)


@st.composite
def runs_whose_validity_depends_on(draw: st.DrawFn, axes: str) -> tuple[Floats, NDArray[np.bool_]]:
    """Values [sample, row, position] and a mask of size 1 along the axes that are not named."""
    shape = (draw(st.integers(1, 5)), ROWS, draw(st.integers(1, 5)))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    small = tuple(size if name in axes else 1 for name, size in zip("srp", shape, strict=True))
    return random.normal(size=shape), random.random(small) < 0.7


@pytest.mark.parametrize("axes", ["sp", "s", "sr", "p", ""])
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_a_small_count_means_the_same_as_a_full_one(axes: str, data: st.DataObject) -> None:
    parts = [data.draw(runs_whose_validity_depends_on(axes)) for _ in range(2)]
    small = [Moments.of(values, valid) for values, valid in parts]
    full = [Moments.of(values, np.broadcast_to(valid, values.shape)) for values, valid in parts]
    for a, b in (*zip(small, full, strict=True), (small[0].merge(small[1]), full[0].merge(full[1]))):
        np.testing.assert_array_equal(a.counts, b.counts)
        np.testing.assert_allclose(a.value(), b.value(), rtol=1e-12)
        np.testing.assert_allclose(a.deviation(), b.deviation(), rtol=1e-9)
    mixed = small[0].merge(full[1])
    np.testing.assert_allclose(mixed.value(), full[0].merge(full[1]).value(), rtol=1e-12)


def test_a_small_count_stays_small() -> None:
    values = np.ones((4, ROWS, 2))
    reduced = Moments.of(values, np.isfinite(values[:, :1]))
    assert reduced.count.shape == (1, 2)
    assert reduced.counts.shape == (ROWS, 2)


@pytest.mark.parametrize("pieces", [1, 7, 100])
def test_a_small_variance_on_a_large_offset_is_right(pieces: int) -> None:
    noise = np.random.default_rng(0).normal(scale=0.01, size=(700, 2, 5))
    values = 1e8 + noise
    reduced = Moments.of(values[:0], np.isfinite(values[:0]))
    for part in np.array_split(values, pieces):
        reduced = reduced.merge(Moments.of(part, np.isfinite(part)))
    exact = values - 1e8  # exact in floating point, so numpy's deviation of it is the true one
    np.testing.assert_allclose(reduced.deviation(), exact.std(axis=0, ddof=1), rtol=1e-6)
    np.testing.assert_allclose(reduced.value() - 1e8, exact.mean(axis=0), atol=1e-6)


def test_what_is_not_valid_is_never_looked_at() -> None:
    values = np.array([[1.0], [np.inf], [np.nan], [3.0]])
    reduced = Moments.of(values, np.isfinite(values))
    assert [part[0] for part in reduced.state().values()] == [2, 2.0, 2.0, 0.0]


@pytest.mark.filterwarnings("error")
def test_skewness_has_its_sign_its_limit_and_none_without_spread() -> None:
    one_far = np.append(np.zeros(6), 1.0)
    values = np.stack([one_far, -one_far, np.ones(7), 1e-150 * one_far, one_far - 0.5], axis=1)
    found = Moments.of(values, np.isfinite(values)).skewness()
    np.testing.assert_allclose(found, np.sqrt(7) * np.array([1, -1, 0, 0, 1]), atol=1e-12)
    few = np.array([[1.0, 5.0, np.nan], [3.0, np.nan, np.nan]])
    np.testing.assert_array_equal(Moments.of(few, np.isfinite(few)).skewness(), np.zeros(3))


def test_the_mean_of_nothing_is_missing_and_one_sample_has_no_deviation() -> None:
    values = np.array([[5.0, np.nan]])
    reduced = Moments.of(values, np.isfinite(values))
    np.testing.assert_array_equal(reduced.value(), [5.0, np.nan])
    np.testing.assert_array_equal(reduced.deviation(), [np.nan, np.nan])


@settings(deadline=None)
@given(samples=samples_of_unequal_length(fewest=1), cut=st.integers(0, 8))
def test_counts_merged_are_their_sum(samples: list[Floats], cut: int) -> None:
    merged = counts(samples[:cut]).merge(counts(samples[cut:])).counts
    expected = np.zeros_like(merged)
    for sample in samples:
        expected[:, : sample.shape[-1]] += sample > 0
    np.testing.assert_array_equal(merged, expected)
    assert merged.dtype == np.int64


@pytest.mark.parametrize(
    "shapes",
    [
        [(50_000, 1), (1, 50_000), (1, 50_000), (1, 50_000)],
        [(1, 1), (1, 5), (5, 1), (1, 5)],
        [(1, 1), (1, 5), (1, 5), (5, 5)],
        [(1, 3), (1, 5), (1, 5), (1, 5)],
        [(1, 1, 5), (1, 5), (1, 5), (1, 5)],
    ],
)
def test_arrays_that_would_be_spread_against_each_other_are_refused(shapes: list[tuple[int, ...]]) -> None:
    """Two of 400 KB would take 20 GB together."""
    with pytest.raises(StoreError, match=r"^moments of the shapes .* do not belong together; run the study again$"):
        Moments(*(np.zeros(shape) for shape in shapes))


def test_parts_of_other_shapes_are_not_merged() -> None:
    """The longer one would give its length to each row of the other."""
    one, other = (Moments(np.ones((1, 1), np.int64), *[np.zeros(shape)] * 3) for shape in ((1, 50_000), (50_000, 1)))
    with pytest.raises(StoreError, match=r"^parts of the shapes .* are not of one run; run the study again$"):
        one.merge(other)
    with pytest.raises(StoreError, match=r"^parts of the shapes .* are not of one run; run the study again$"):
        Counts(one.mean.astype(np.int64)).merge(Counts(other.mean.astype(np.int64)))
