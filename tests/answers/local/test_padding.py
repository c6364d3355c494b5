"""Prompts side by side: every token is at its own place, and padding is at none of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fillerscope.answers.local.padding import padded_behind, padded_in_front

TEXTS = st.lists(st.lists(st.integers(1, 99), min_size=1, max_size=8), min_size=1, max_size=5)


def test_texts_without_their_prefix_have_padding_at_their_ends() -> None:
    padded = padded_behind([(7, 8, 9), (), (5,)], start=4)
    assert padded.ids.tolist() == [[7, 8, 9], [0, 0, 0], [5, 0, 0]]
    assert padded.places.tolist() == [[4, 5, 6]] * 3


def test_nothing_is_left_to_compute_where_all_is_prefix() -> None:
    assert padded_behind([(), ()], start=4).width == 0


def test_whole_texts_end_together_and_padding_goes_to_the_next_place() -> None:
    padded = padded_in_front([(7, 8, 9), (5,)])
    assert padded.ids.tolist() == [[7, 8, 9], [0, 0, 5]]
    assert padded.places.tolist() == [[0, 1, 2], [1, 1, 0]]


@given(TEXTS)
def test_every_token_is_at_its_own_place(texts: list[list[int]]) -> None:
    for padded in (padded_behind(texts, start=0), padded_in_front(texts)):
        for ids, places, text in zip(padded.ids.tolist(), padded.places.tolist(), texts, strict=True):
            at = [(place, token) for place, token in zip(places, ids, strict=True) if place < len(text)]
            assert sorted(at) == list(enumerate(text))
