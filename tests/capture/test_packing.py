"""Many texts in one row: every token in its place once, little that only fills up, passes as full as can be."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fillerscope.capture.memory import to_device
from fillerscope.capture.packing import GROUPS, WASTE, Packing, Text, passes, problems
from fillerscope.study.interventions import Knockout

PREFIXES = ((), (5, 6, 7), (5, 6, 8, 9), (400,))


def make(own: int, prefix: int, seed: int, plain: bool = False) -> Text:
    """Ids that say to which text and which place they belong are not needed: they are drawn, and seldom alike."""
    random = np.random.default_rng(seed)
    ids = (*PREFIXES[prefix], *random.integers(10, 10_000, size=own).tolist())
    original = np.ones(len(ids), np.bool_)
    if not plain:
        original[len(PREFIXES[prefix]) :] = random.random(own) < 0.6
    return Text(ids, original, len(PREFIXES[prefix]))


lengths = st.one_of(st.integers(1, 12), st.integers(90, 110), st.integers(1, 400))
texts = st.builds(make, lengths, st.integers(0, 3), st.integers(0, 2**32))
several = st.lists(texts, min_size=1, max_size=14)
quick = settings(deadline=None, max_examples=60)


@quick
@given(several)
def test_every_text_stands_in_one_band_once(some: list[Text]) -> None:
    packing = Packing.of(some)
    assert sorted(number for band in packing.bands for number in band.texts) == list(range(len(some)))
    for band in packing.bands:
        assert {some[number].prefix for number in band.texts} == {some[band.texts[0]].prefix}
        assert band.shared == some[band.texts[0]].shared
        assert band.width == max(some[number].own for number in band.texts)


@quick
@given(several)
def test_bands_follow_each_other_without_gaps(some: list[Text]) -> None:
    packing = Packing.of(some)
    assert (packing.bands[0].start, packing.bands[0].key_start) == (0, 0)
    for band, following in pairwise(packing.bands):
        assert (following.start, following.key_start) == (band.stop, band.key_stop)
    assert packing.tokens == sum(len(band.texts) * band.width for band in packing.bands)
    assert packing.key_count == sum(len(band.texts) * (band.shared + band.width) for band in packing.bands)


@quick
@given(several)
def test_little_of_a_pass_only_fills_up(some: list[Text]) -> None:
    packing = Packing.of(some)
    for band in packing.bands:
        tokens = sum(some[number].own for number in band.texts)
        assert len(band.texts) * band.width - tokens <= WASTE * tokens
    total = sum(text.own for text in some)
    assert total <= packing.tokens <= (1 + WASTE) * total


def test_texts_of_about_one_length_stand_together() -> None:
    some = [make(own, prefix, own) for own, prefix in ((100, 1), (97, 1), (99, 0), (30, 1), (100, 0), (98, 1))]
    assert [band.texts for band in Packing.of(some).bands] == [(2, 4), (3,), (1, 5, 0)]


def test_texts_of_one_length_make_one_band_however_many() -> None:
    (band,) = Packing.of([make(7, 2, seed) for seed in range(50)]).bands
    assert band.texts == tuple(range(50))


@quick
@given(several)
def test_the_row_holds_every_token_at_its_position(some: list[Text]) -> None:
    packing = Packing.of(some)
    ids, positions = packing.row()
    assert ids.shape == positions.shape == (packing.tokens,)
    places = packing.kept_queries()
    assert len(set(places.tolist())) == len(places) == sum(text.own for text in some)
    np.testing.assert_array_equal(ids[places], np.concatenate([text.ids[text.shared :] for text in some]))
    wanted = np.concatenate([np.arange(text.shared, len(text)) for text in some])
    np.testing.assert_array_equal(positions[places], wanted)
    # What fills up stands behind its text, where causality hides it, and no further than the longest of the band.
    for band in packing.bands:
        for row in positions[band.start : band.stop].reshape(len(band.texts), band.width):
            np.testing.assert_array_equal(row, np.arange(band.shared, band.shared + band.width))


@quick
@given(several)
def test_rows_vote_in_their_groups_and_what_fills_up_nowhere(some: list[Text]) -> None:
    packing = Packing.of(some)
    weights = packing.weights[list(packing.groups)]
    places = packing.kept_queries()
    own = [text.rows[:, text.shared :] for text in some]
    np.testing.assert_array_equal(weights[:, places], np.concatenate(own, axis=1).astype(np.float32))
    filling = np.setdiff1d(np.arange(packing.tokens), places)
    assert not weights[:, filling].any()
    assert packing.weights.dtype == np.float32


def test_rows_of_a_text() -> None:
    original = np.array([True, False, True, False])
    text = Text((1, 2, 3, 4), original)
    np.testing.assert_array_equal(text.rows, [[True] * 4, original, [False, False, False, True]])
    assert not Text((1, 2, 3, 4), original, ends=False).rows[2].any()
    assert (len(text), text.own, Text((1, 2, 3, 4), original, 3).own) == (4, 4, 1)


@quick
@given(st.lists(st.tuples(lengths, st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=6), st.data())
def test_two_groups_do_where_all_rows_are_original(some: list[tuple[int, int, int]], data: st.DataObject) -> None:
    plain = [make(*each, plain=True) for each in some]
    assert Packing.of(plain).weights.shape[0] == 2
    assert Packing.of(plain).groups == (0, 0, 1)
    # One filler token anywhere is enough to need all three; among those that have been run it is not.
    text = data.draw(st.integers(0, len(plain) - 1))
    place = data.draw(st.integers(0, len(plain[text]) - 1))
    plain[text].original[place] = False
    collapsed = Packing.of([Text(t.ids, t.original, t.shared) for t in plain]).groups == (0, 0, 1)
    assert collapsed == (place < plain[text].shared)


@quick
@given(several)
def test_views_of_bands_write_where_the_kept_places_are(some: list[Text]) -> None:
    """Written band by band through views, read back text by text through places."""
    packing, heads = Packing.of(some), 2
    queries, keys = torch.zeros(heads, packing.tokens, 3), torch.zeros(heads, len(GROUPS), packing.key_count)
    for band in packing.bands:
        view, key_view = band.queries(queries), band.keys(keys)
        assert view.shape == (len(band.texts), heads, band.width, 3)
        assert key_view.shape == (len(band.texts), heads, len(GROUPS), band.span)
        for place, number in enumerate(band.texts):
            view[place] = 1000.0 * (number + 1) + torch.arange(band.width)[:, None]
            key_view[place] = 1000.0 * (number + 1) + torch.arange(band.span)
    own = [1000.0 * (i + 1) + np.arange(text.own) for i, text in enumerate(some)]
    whole = [1000.0 * (i + 1) + np.arange(len(text)) for i, text in enumerate(some)]
    np.testing.assert_array_equal(queries[1, packing.kept_queries(), 2], np.concatenate(own))
    np.testing.assert_array_equal(keys[1, 2, packing.kept_keys()], np.concatenate(whole))


@quick
@given(several)
def test_beginnings_are_found_once_each(some: list[Text]) -> None:
    packing = Packing.of(some)
    wanted = {text.prefix for text in some if text.shared}
    assert len(packing.prefixes) == len(wanted)
    assert set(packing.prefixes) == wanted
    together = [pair for prefix in packing.prefixes for pair in prefix]
    for band in packing.bands:
        assert tuple(together[band.prefix]) == some[band.texts[0]].prefix


def test_the_same_ids_with_other_filler_are_another_beginning() -> None:
    one, other = np.ones(6, np.bool_), np.ones(6, np.bool_)
    other[1] = False
    packing = Packing.of([Text((1, 2, 3, 4, 5, 6), one, 3), Text((1, 2, 3, 7, 8, 9), other, 3)])
    assert len(packing.prefixes) == len(packing.bands) == 2
    assert {(band.prefix.start, band.prefix.stop) for band in packing.bands} == {(0, 3), (3, 6)}


# Passes


@settings(deadline=None)
@given(st.lists(texts, max_size=40), st.integers(1, 2000))
def test_passes_hold_every_text_once_within_the_budget(some: list[Text], tokens: int) -> None:
    made = list(passes(some, tokens))
    assert sorted(number for numbers in made for number in numbers) == list(range(len(some)))
    sizes = [sum(some[number].own for number in numbers) for numbers in made]
    for numbers, size in zip(made, sizes, strict=True):
        assert numbers
        assert len(numbers) == 1 or size <= tokens
    for size, following in zip(sizes, made[1:], strict=False):  # none could have been fuller
        assert size + some[following[0]].own > tokens


@example([9, 1, 8, 2, 9], 18)
@given(st.lists(st.integers(1, 50), max_size=20), st.integers(1, 200))
def test_passes_put_like_to_like(sizes: list[int], tokens: int) -> None:
    made = list(passes([make(size, 0, size) for size in sizes], tokens))
    flat = [(sizes[number], number) for numbers in made for number in numbers]
    assert flat == sorted(flat)


def test_passes_count_what_is_left_to_run() -> None:
    some = [make(5, 2, seed) for seed in range(4)]  # nine tokens each, four of them shared
    assert list(passes(some, 10)) == [[0, 1], [2, 3]]
    assert list(passes([], 10)) == []


# Texts of one problem stay together


@st.composite
def texts_of_problems(draw: st.DrawFn) -> list[Text]:
    """In any order; some belong to no problem, and stand alone."""
    numbers = draw(st.lists(st.integers(-1, 5), max_size=30))
    return [replace(draw(texts), problem=number) for number in numbers]


@settings(deadline=None)
@given(texts_of_problems(), st.integers(1, 2000))
def test_problems_are_whole_in_passes_within_the_budget(some: list[Text], tokens: int) -> None:
    made = list(passes(some, tokens))
    assert sorted(number for numbers in made for number in numbers) == list(range(len(some)))
    for problem in {text.problem for text in some} - {-1}:
        holding = [numbers for numbers in made if any(some[number].problem == problem for number in numbers)]
        assert len(holding) == 1
    for numbers in made:
        alone = len(problems(some, numbers)) == 1
        assert alone or sum(some[number].own for number in numbers) <= tokens


@quick
@given(texts_of_problems(), st.data())
def test_problems_keep_the_order_of_their_texts(some: list[Text], data: st.DataObject) -> None:
    """The first text of a problem is what the others are compared with: it stays the first."""
    numbers = data.draw(st.permutations(range(len(some))))[: data.draw(st.integers(0, len(some)))]
    for chosen, found in ((range(len(some)), problems(some)), (numbers, problems(some, numbers))):
        assert sorted(number for one in found for number in one) == sorted(chosen)
        for one in found:
            assert one == [number for number in chosen if number in one]
            if len(one) > 1:
                assert len({some[number].problem for number in one}) == 1
                assert some[one[0]].problem >= 0
        firsts = [some[one[0]].problem for one in found if some[one[0]].problem >= 0]
        assert len(firsts) == len(set(firsts))


# Positions that are left empty, and keys that are hidden


@quick
@given(several, st.data())
def test_a_gap_moves_what_stands_behind_it(some: list[Text], data: st.DataObject) -> None:
    gaps = [(data.draw(st.integers(text.shared, len(text))), data.draw(st.integers(0, 40))) for text in some]
    packing = Packing.of([replace(text, gap=gap) for text, gap in zip(some, gaps, strict=True)])
    _, positions = packing.row()
    for text, (at, by), place in zip(some, gaps, packing.places(), strict=True):
        wanted = [number + (by if number >= at else 0) for number in range(text.shared, len(text))]
        assert positions[place].tolist() == wanted


@quick
@given(several, st.data())
def test_rows_that_must_not_look_and_what_they_must_not_look_at(some: list[Text], data: st.DataObject) -> None:
    layers = [data.draw(st.sampled_from([None, (), (1,), (2, 3)])) for _ in some]
    changes = [None if each is None else Knockout(kind="knockout", layers=each) for each in layers]
    packing = Packing.of([replace(text, change=change) for text, change in zip(some, changes, strict=True)])
    for layer in range(3):
        hiding = [each is not None and (not each or layer + 1 in each) for each in layers]
        found = packing.hidden(layer)
        assert (found is None) == (not any(hiding))
        if found is None:
            continue
        keys = np.split(found[1][packing.kept_keys()], np.cumsum([len(text) for text in some])[:-1])
        for text, hides, place, mine in zip(some, hiding, packing.places(), keys, strict=True):
            assert found[0][place].tolist() == (text.original[text.shared :] & hides).tolist()
            assert not hides or mine.tolist() == (~text.original).tolist()
        filling = np.setdiff1d(np.arange(packing.tokens), packing.kept_queries())
        assert not found[0][filling].any()


def test_rows_that_vote_may_be_others_than_the_original_ones() -> None:
    original, written = np.array([True, False, True, True]), np.array([False, False, False, True])
    text = Text((1, 2, 3, 4), original, 2, query_rows=written)
    np.testing.assert_array_equal(text.rows, [[True] * 4, written, [False, False, False, True]])
    assert text.prefix == ((1, False), (2, False))
    assert Text((1, 2, 3, 4), original, 2).prefix == ((1, True), (2, False))


def test_a_copy_for_the_device_has_the_same_values() -> None:
    array = np.arange(12).reshape(3, 4)[:, ::2]  # not contiguous
    np.testing.assert_array_equal(to_device(array, torch.device("cpu")).numpy(), array)
