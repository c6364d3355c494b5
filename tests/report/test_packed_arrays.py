"""Numbers come back as they went, as 32-bit floats."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from fillerscope.report.packed_arrays import MAGIC, pack, unpack

SHAPES = array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
WIDE = arrays(np.float64, SHAPES, elements=st.floats(allow_nan=True, allow_infinity=True))
SOME = st.one_of(WIDE, arrays(np.int64, SHAPES, elements=st.integers(-(2**24), 2**24)))
HEADERS = st.dictionaries(st.text(max_size=5).filter(lambda key: key != "arrays"), st.one_of(st.text(), st.integers()))


@settings(max_examples=40, deadline=None)
@given(header=HEADERS, given_arrays=st.dictionaries(st.text(max_size=8), SOME, max_size=4))
def test_a_round_trip_rounds_to_32_bits_and_no_more(
    header: dict[str, Any], given_arrays: dict[str, NDArray[Any]]
) -> None:
    with np.errstate(over="ignore"):
        data = pack(header, given_arrays)
        wanted = {name: array.astype(np.float32) for name, array in given_arrays.items()}
    found, back = unpack(data)
    assert found == header
    assert list(back) == list(given_arrays)
    for name, array in wanted.items():
        assert back[name].dtype == np.float32
        assert back[name].shape == array.shape
        assert_array_equal(back[name], array)
    assert len(data) == floats_begin(data) + 4 * sum(array.size for array in given_arrays.values())


def floats_begin(data: bytes) -> int:
    return 8 + int(struct.unpack("<I", data[4:8])[0])


@pytest.mark.parametrize("length", range(9))
def test_floats_begin_at_a_multiple_of_four(length: int) -> None:
    """A browser lays an array of floats over them."""
    data = pack({"x": "a" * length}, {"y": np.array([1.0, np.nan, -0.0])})
    begin = floats_begin(data)
    assert begin % 4 == 0
    assert data[:4] == MAGIC == b"FSB1"
    assert json.loads(data[8:begin]) == {"x": "a" * length, "arrays": {"y": [3]}}
    assert data[begin:] == struct.pack("<3f", 1.0, float("nan"), -0.0)


def test_an_array_in_any_order_comes_row_by_row() -> None:
    values = np.arange(6.0).reshape(2, 3)
    for one in (np.asfortranarray(values), values.T.copy().T, values[:, ::-1][:, ::-1], values.astype(">f8")):
        assert_array_equal(unpack(pack({}, {"a": one}))[1]["a"], values)


def test_nothing_at_all() -> None:
    assert unpack(pack({}, {})) == ({}, {})
    _, found = unpack(pack({}, {"a": np.zeros((0, 3)), "b": np.array(2.5)}))
    assert found["a"].shape == (0, 3)
    assert found["b"].item() == 2.5


@pytest.mark.parametrize("data", [b"", b"FSB", b"FSB2" + bytes(8), b"{}", b"<html>"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not packed numbers of fillerscope"):
        unpack(data)


def test_a_header_that_json_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        pack({"n": float("nan")}, {})
