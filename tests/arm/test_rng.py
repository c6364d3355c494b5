"""Random numbers by place: the same whatever stands beside them, and as even as chance."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fillerscope.arm import rng

MANY = 1 << 18
STREAMS = (rng.MOVES, rng.CHOICES, rng.NOISE)
SEEDS = torch.tensor([0, 1, 2, 2**62, 2**63 - 1, -1])
WORD = 0xFFFFFFFF


def by_hand(seed, stream, index):
    """The mixing once more, with Python's own whole numbers."""
    first, second = (int(word) & WORD for word in rng.words(torch.tensor([seed]), stream)[0])
    mixed = (index * rng.SPREAD + first) & WORD
    for turn, (shift, factor) in enumerate(rng.ROUNDS):
        mixed = ((mixed ^ (mixed >> shift)) * factor) & WORD
        mixed ^= second if turn == 0 else 0
    return mixed ^ (mixed >> rng.LAST_SHIFT)


def flips(one, other):
    """How often each of 32 bits differs."""
    return np.array([float((((one ^ other) >> bit) & 1).float().mean()) for bit in range(32)])


@given(seed=st.integers(0, 2**63 - 1), stream=st.sampled_from(STREAMS), count=st.integers(1, 300))
@settings(max_examples=50, deadline=None)
def test_every_number_is_the_mixed_one_of_its_place(seed, stream, count):
    found = rng.bits(torch.tensor([seed]), stream, count)[0]
    assert int(found[-1]) & WORD == by_hand(seed, stream, count - 1)
    assert int(found[0]) & WORD == by_hand(seed, stream, 0)


@given(seeds=st.lists(st.integers(0, 2**63 - 1), min_size=2, max_size=5), count=st.integers(1, 50))
@settings(max_examples=30, deadline=None)
def test_neither_neighbours_nor_length_change_a_number(seeds, count):
    together = rng.bits(torch.tensor(seeds), rng.MOVES, count + 7)
    for row, seed in zip(together, seeds, strict=True):
        assert torch.equal(row[:count], rng.bits(torch.tensor([seed]), rng.MOVES, count)[0])


@pytest.mark.parametrize("stream", STREAMS)
def test_uniform_numbers_are_even(stream):
    for row in rng.uniform(SEEDS, stream, MANY, torch.float64):
        assert row.min() >= 0
        assert row.max() < 1
        assert stats.kstest(row.numpy(), "uniform").pvalue > 1e-4
        for part in (row, row * 4096 % 1):  # the upper bits, and the lower ones
            counts = torch.histc(part, 4096, 0, 1).numpy()
            assert stats.chisquare(counts).pvalue > 1e-4


def test_uniform_numbers_have_24_bits():
    found = rng.uniform(SEEDS, rng.MOVES, 1000)
    assert found.dtype == torch.float32
    assert torch.equal(found * 2**24, (found * 2**24).round())
    assert torch.equal(found.double(), rng.uniform(SEEDS, rng.MOVES, 1000, torch.float64))
    assert int((found * 2**24).long().remainder(2).sum()) > 2000  # the last bit is in use


def test_pairs_of_neighbours_are_even():
    row = rng.uniform(SEEDS[:1], rng.MOVES, MANY, torch.float64)[0]
    cells = (row[::2] * 32).floor() * 32 + (row[1::2] * 32).floor()
    assert stats.chisquare(torch.histc(cells, 1024, 0, 1024).numpy()).pvalue > 1e-4


@pytest.mark.parametrize("lag", [1, 2, 7, 64, 1536])
def test_neighbouring_numbers_do_not_go_together(lag):
    row = rng.uniform(SEEDS[:1], rng.MOVES, MANY, torch.float64)[0] - 0.5
    assert abs(float((row[lag:] * row[:-lag]).mean())) * 12 * MANY**0.5 < 4


def test_every_bit_of_seed_and_index_changes_half_of_the_bits():
    seeds = torch.arange(1 << 14)
    by_seed = rng.bits(seeds, rng.MOVES, 8)
    by_index = rng.bits(SEEDS[:1], rng.MOVES, 1 << 17)[0]
    for bit in range(14):
        assert abs(flips(by_seed, by_seed[seeds ^ (1 << bit)]) - 0.5).max() < 0.01
        assert abs(flips(by_index, by_index[torch.arange(1 << 17) ^ (1 << bit)]) - 0.5).max() < 0.01


def test_streams_steps_and_layers_have_nothing_in_common():
    keys, steps = list(range(2000)), [5] * 2000
    one = rng.step_seeds(keys, steps, 1)
    others = [rng.step_seeds(keys, [6] * 2000, 1), rng.step_seeds(keys, steps, 2)]
    base = rng.bits(one, rng.MOVES, 16)
    for other in (
        *(rng.bits(seeds, rng.MOVES, 16) for seeds in others),
        rng.bits(one, rng.CHOICES, 16),
    ):
        assert abs(flips(base, other) - 0.5).max() < 0.015
    assert len({*one.tolist(), *others[0].tolist(), *others[1].tolist()}) == 6000


def test_a_step_seed_depends_on_its_own_sequence_alone():
    together = rng.step_seeds([11, 22, 33], [0, 7, 9], 3)
    assert together.dtype == torch.int64
    assert together.tolist() == [int(rng.step_seeds([key], [step], 3)) for key, step in ((11, 0), (22, 7), (33, 9))]
    swapped = rng.step_seeds([5, 1], [1, 5], 1)
    assert swapped[0] != swapped[1]


def test_deep_layers_have_seeds_of_their_own_too():
    """Their numbers go beyond 64 bits, and wrap around."""
    seeds = [int(rng.step_seeds([5], [7], layer)) for layer in range(1, 200)]
    assert len(set(seeds)) == len(seeds)
    assert seeds[0] == 2011044823627198309


def test_numbers_never_change_from_one_version_to_the_next():
    """A stored run must come out the same when it is run again."""
    assert rng.sequence_seed(0, [1, 2, 3]) == 0x5051C611A74F3E87
    assert rng.step_seeds([1, 2], [0, 3], 1).tolist() == [-7554561687881249442, -6517060345333567813]
    assert rng.bits(torch.tensor([7]), 1, 4).tolist() == [[-702359134, 1145377506, 272565579, -1476659699]]


def test_sequence_seeds_tell_sequences_apart():
    seeds = {rng.sequence_seed(*given) for given in ((0, [1, 2]), (0, [12]), (1, [1, 2]), (0, [2, 1]), (0, []))}
    assert len(seeds) == 5
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_samples_have_seeds_of_their_own_and_the_first_that_of_its_prompt():
    seeds = [rng.sequence_seed(0, [1, 2], sample) for sample in range(20)]
    assert len(set(seeds)) == 20
    assert seeds[0] == rng.sequence_seed(0, [1, 2])
    assert rng.sequence_seed(0, [1, 2, 3]) not in seeds


def test_normal_numbers_are_normal_and_finite():
    for row in rng.normal(SEEDS, MANY, torch.float64):
        assert stats.kstest(row.numpy(), "norm").pvalue > 1e-4
        assert abs(row).max() < 4.4
        assert abs(row).min() > 0
        assert abs(float(row.mean())) < 0.01
        assert abs(float(row.std()) - 1) < 0.01


def test_choices_have_16_bits():
    found = rng.choices(SEEDS, MANY)
    assert (int(found.min()), int(found.max())) == (0, 65535)
    assert torch.equal(found, (rng.bits(SEEDS, rng.CHOICES, MANY) >> 16) & 0xFFFF)
