"""What uniform attention would give, against whole matrices of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fillerscope.analysis.references import query_rows, received_uniform


def whole(original: np.ndarray, window: int | None, hides: bool) -> np.ndarray:
    """[row, key]: every row spreads its weight evenly over what it may see."""
    count = len(original)
    row, key = np.arange(count)[:, None], np.arange(count)
    seen = (key <= row) & (row - key < (window or count))
    if hides:
        seen &= ~(original[:, None] & ~original[None])
    return seen / seen.sum(1, keepdims=True)


def received(attention: np.ndarray, rows: np.ndarray, diagonal: bool) -> np.ndarray:
    count = len(attention)
    values = []
    for key in range(count):
        voters = [row for row in range(count) if rows[row] and (row > key or (diagonal and row == key))]
        values.append(np.mean([attention[row, key] for row in voters]) if voters else np.nan)
    return np.array(values)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.booleans(), min_size=1, max_size=14),
    st.one_of(st.none(), st.integers(1, 16)),
    st.booleans(), st.booleans(), st.integers(0, 2),
)  # fmt: skip
def test_it_is_what_whole_matrices_give(
    filler: list[bool], window: int | None, hides: bool, diagonal: bool, group: int
) -> None:
    original = ~np.array(filler)
    rows = query_rows(original, group)
    mine = received_uniform(original, rows, window, hides, diagonal)
    np.testing.assert_allclose(mine, received(whole(original, window, hides), rows, diagonal), atol=1e-12)


def test_a_prompt_twice_as_long_gives_each_token_less() -> None:
    plain, longer = (received_uniform(np.ones(n, bool), np.ones(n, bool))[1:-1].mean() for n in (40, 80))
    assert longer / plain == pytest.approx(0.518, abs=0.01)
