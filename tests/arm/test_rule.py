"""The rule against itself written slowly, with lists and sorted(): only the draws are shared."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fillerscope.arm import rng, rule
from fillerscope.arm.rule import redistribute
from fillerscope.study.arm_presets import ARM_PRESETS
from fillerscope.study.interventions import Redistribution
from support.grid import case, grid

SEED = 12345
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
SETTINGS = (
    {}, {"c": 0.0}, {"c": 1.0}, {"c": 50.0}, {"c": 0.5, "p_min": 0.0, "p_max": 1.0}, {"fraction": 0.25},
    {"fraction": 0.0}, {"fraction": 1.0}, {"p1": 0.0, "fraction": 0.5}, {"p1": 100.0, "fraction": 0.5},
    {"p_min": 0.5, "p_max": 0.5}, {"p_min": 0.0, "p_max": 0.0}, {"p1": 50, "fraction": 0.9},
    {"fraction": 0.0, "at_least_one": True}, {"p_min": 0.0, "c": 0.0, "at_least_one": True},
    {"p1": 85, "fraction": 0.25, "quantile_of": "sizes"}, {"p1": 0.0, "c": 1.0, "quantile_of": "sizes"},
)  # fmt: skip


def spec(kind="arm", **given):
    return Redistribution(kind=kind, **given)


def activations(*shape, seed=0, dtype=torch.float32):
    random = torch.Generator().manual_seed(seed)
    return torch.nn.functional.silu(torch.randn(*shape, generator=random, dtype=torch.float64) * 2).to(dtype)


def rank(ordered, share):
    return ordered[max(1, math.ceil(share * len(ordered))) - 1]


def near_zero(values, asked, wide):
    """The smallest elements' places by the definition, and how many were below eps."""
    sizes = [abs(value) for value in values]
    middle = rank(sorted(sizes), Fraction(1, 2))
    deviation = rank(sorted(abs(wide(size - middle)) for size in sizes), Fraction(1, 2))
    eps = wide(deviation * wide(1.4826 * asked.c))
    count = sum(size < eps for size in sizes)
    share = count / len(values)
    if asked.fraction is not None:
        wanted = round(asked.fraction * len(values))
    elif asked.p_min <= share <= asked.p_max:
        wanted = count
    else:
        wanted = round((asked.p_min if share < asked.p_min else asked.p_max) * len(values))
    return max(wanted, 1) if asked.at_least_one else wanted


def smallest(keys, wanted):
    return set(sorted(range(len(keys)), key=lambda place: (keys[place], place))[:wanted])


def slowly(row, asked, seed=SEED):
    """One row [element] by the definition: what comes out, and which elements were chosen."""
    if asked.kind == "arm":
        return unscaled(row, asked, seed)
    arm = asked.model_copy(update={"kind": "arm"})
    (scattered, chosen), (moved, _) = unscaled(row, asked, seed), unscaled(row, arm, seed)
    wide = rule.working(row.dtype)
    changes = [new.to(wide) - row.to(wide) for new in (scattered, moved)]
    own, length = (math.sqrt(math.fsum(change.double() ** 2)) for change in changes)
    factor = torch.tensor(length / own if own else 0.0, dtype=torch.float64).to(wide)
    return (row.to(wide) + changes[0] * factor).to(row.dtype), chosen


def unscaled(row, asked, seed):
    """The same before the change of a scattered row is made as long as ARM's."""
    wide = np.float64 if row.dtype == torch.float64 else np.float32
    values = [wide(value) for value in row.double().tolist()]
    seeds = torch.tensor([seed])
    shares = [wide(share) for share in rng.uniform(seeds, rng.MOVES, len(values), torch.float64)[0].tolist()]
    keys = [abs(value) for value in values]
    if asked.kind == "scatter":
        keys = rng.choices(seeds, len(values))[0].tolist()
    chosen = smallest(keys, near_zero(values, asked, wide))
    ranked = sorted(values) if asked.quantile_of == "values" else sorted(abs(value) for value in values)
    high = max(rank(ranked, Fraction(str(asked.p1)) / 100), wide(0))
    low = min(min(values), wide(0))
    result = list(values)
    for place in chosen:
        move = shares[place] * (low if values[place] < 0 else high)
        result[place] = move if asked.mode == "replace" else values[place] + move
    return torch.tensor(np.array(result), dtype=torch.float64).to(row.dtype), chosen


def check(row, asked, seed=SEED):
    found = redistribute(row[None], asked, torch.tensor([seed]))[0]
    expected, chosen = slowly(row, asked, seed)
    others = [place for place in range(len(row)) if place not in chosen]
    assert found.dtype == row.dtype
    # The last bit of a factor depends on the order of a sum; rounded to float32 that is not seen.
    tolerance = 1e-12 if asked.kind == "scatter" and row.dtype == torch.float64 else 0
    assert torch.allclose(found, expected, rtol=tolerance, atol=tolerance)
    assert same_bits(found[others], row[others])
    return chosen


def same_bits(one, other):
    size = {2: torch.int16, 4: torch.int32, 8: torch.int64}[one.element_size()]
    return torch.equal(one.contiguous().view(size), other.contiguous().view(size))


@pytest.mark.parametrize(("given", "dtype"), grid(SETTINGS, DTYPES), ids=str)
def test_the_definition(given, dtype):
    for kind, count, mode in product(("arm", "scatter"), (1, 2, 3, 50, 333), ("add", "replace")):
        with case(kind, count, mode):
            check(activations(count, seed=count, dtype=dtype), spec(kind, mode=mode, **given))


ELEMENTS = st.one_of(
    st.floats(-100, 100, width=16),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5]),  # ties
)


@given(
    values=st.lists(ELEMENTS, min_size=1, max_size=60),
    kind=st.sampled_from(["arm", "scatter"]),
    mode=st.sampled_from(["add", "replace"]),
    c=st.floats(0, 5),
    limits=st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted),
    p1=st.floats(0, 100).map(lambda value: round(value, 2)),
    fraction=st.none() | st.floats(0, 1),
    released=st.sampled_from([{}, {"at_least_one": True}, {"quantile_of": "sizes"}]),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**63 - 1),
)
@settings(max_examples=200, deadline=None)
def test_the_definition_on_anything(values, kind, mode, c, limits, p1, fraction, released, dtype, seed):
    asked = spec(kind, mode=mode, c=c, p_min=limits[0], p_max=limits[1], p1=p1, fraction=fraction, **released)
    row = torch.tensor(values, dtype=dtype)
    before = row.clone()
    chosen = check(row, asked, seed)
    assert same_bits(row, before)
    assert len(chosen) <= len(values)


@pytest.mark.parametrize(
    "values",
    [[0.0] * 9, [-0.0] * 9, [-1.0, -2.0, -3.0], [1.0, 2.0, 3.0], [2.0] * 8, [-2.0] * 8, [5.0], [-5.0], [0.0]],
    ids=str,
)
def test_odd_rows_give_finite_numbers(values):
    row = torch.tensor(values)
    some = ({}, {"fraction": 1.0}, {"fraction": 0.0}, {"mode": "replace"})
    for kind, asked in product(("arm", "scatter", "gaussian"), some):
        with case(kind, asked):
            found = redistribute(row[None], spec(kind, **asked), torch.tensor([SEED]))[0]
            assert found.isfinite().all()
            if kind != "gaussian":
                check(row, spec(kind, **asked))
            if not any(values):
                assert torch.equal(found, row)


def test_all_negative_elements_move_down_and_all_positive_ones_up():
    row = activations(200).abs() + 0.1
    up = redistribute(row[None], spec(fraction=1.0), torch.tensor([SEED]))[0]
    down = redistribute(-row[None], spec(fraction=1.0), torch.tensor([SEED]))[0]
    assert (up >= row).all()
    assert (down <= -row).all()
    assert (up - row).max() <= row.max()
    assert (-row - down).max() <= row.max() * (1 + 1e-6)
    assert (-row - down).max() > 0.9 * row.max()


def test_moves_stay_within_the_range_and_fill_it():
    row = activations(20000, dtype=torch.float64)
    found = redistribute(row[None], spec(fraction=1.0, p1=90, mode="replace"), torch.tensor([SEED]))[0]
    top, bottom = rank(sorted(row.tolist()), Fraction(9, 10)), row.min()
    positive, negative = found[row >= 0], found[row < 0]
    assert 0 <= positive.min() < 0.01 * top < 0.99 * top < positive.max() <= top
    assert bottom <= negative.min() < 0.99 * bottom < 0.01 * bottom < negative.max() <= 0
    assert abs(float(positive.mean()) / top - 0.5) < 0.02


def test_zero_of_either_sign_counts_as_positive():
    row = torch.tensor([0.0, -0.0, 3.0, -3.0])
    found = redistribute(row[None], spec(fraction=0.5, p1=100), torch.tensor([SEED]))[0]
    assert (found[:2] > 0).all()
    assert torch.equal(found[2:], row[2:])


def test_of_equal_sizes_the_first_move():
    row = torch.tensor([2.0, -1.0, 1.0, 3.0, 1.0, -1.0, 1.0, 4.0, 5.0, 9.0])
    found = redistribute(row[None], spec(fraction=0.3, p1=100), torch.tensor([SEED]))[0]
    assert (found != row).nonzero().flatten().tolist() == [1, 2, 4]


def test_the_share_near_zero_is_kept_within_its_limits():
    row = activations(1000)
    moved = [
        int((redistribute(row[None], spec(c=c, p_min=0.02, p_max=0.25), torch.tensor([SEED])) != row).sum())
        for c in (0.0, 0.13, 100.0)
    ]
    assert moved[0] == 20
    assert 20 < moved[1] < 250
    assert moved[2] == 250


def test_scatter_chooses_as_many_elsewhere_and_evenly():
    rows = activations(1, 400).repeat(500, 1)
    seeds = torch.arange(500)
    near = redistribute(rows, spec(fraction=0.2, mode="replace"), seeds) != rows
    scattered = redistribute(rows, spec("scatter", fraction=0.2, mode="replace"), seeds) != rows
    assert (near.sum(1) == 80).all()
    assert (scattered.sum(1) == 80).all()
    often = scattered.double().mean(0)
    assert abs(float(often.mean()) - 0.2) < 1e-9
    assert 0.1 < often.min() < often.max() < 0.3
    assert not torch.equal(scattered[0], scattered[1])


def rows_of(shape):
    """[4, 20,000]: as after a nonlinearity, heavy-tailed, normal, and short of negative ones."""
    random = torch.Generator().manual_seed(8)
    normal = torch.randn(4, 20_000, generator=random, dtype=torch.float64)
    shapes = {
        "silu": lambda: torch.nn.functional.silu(2 * normal),
        "normal": lambda: normal,
        "heavy-tailed": lambda: normal / torch.rand(4, 20_000, generator=random, dtype=torch.float64).sqrt(),
        "gelu": lambda: torch.nn.functional.gelu(3 * normal),
    }
    return shapes[shape]()


ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 5e-3, torch.float16: 1e-3}


@pytest.mark.parametrize("kind", ["scatter", "gaussian"])
@pytest.mark.parametrize(("shape", "dtype"), grid(["silu", "normal", "heavy-tailed", "gelu"], DTYPES), ids=str)
def test_the_change_of_a_control_is_as_long_as_arms(shape, dtype, kind):
    """In L2, for every row by itself."""
    rows, seeds = rows_of(shape).to(dtype), torch.arange(4)
    for asked in ({}, {"c": 0.5}, {"fraction": 0.25, "p1": 85}):
        for mode in ("add", "replace"):
            with case(asked, mode):
                moved, other = (
                    (redistribute(rows, spec(name, mode=mode, **asked), seeds).double() - rows.double()).norm(dim=1)
                    for name in ("arm", kind)
                )
                assert ((other / moved - 1).abs() < ROUNDING[dtype]).all(), other / moved


@pytest.mark.parametrize("kind", ["scatter", "gaussian"])
def test_where_arm_changes_nothing_a_control_does_not_either(kind):
    rows = torch.stack([-torch.zeros(50), activations(50)])
    found = redistribute(rows, spec(kind, fraction=0.0), torch.arange(2))
    assert torch.equal(found, rows)


def test_gaussian_noise_falls_on_every_element():
    rows, seeds = activations(3, 5000), torch.tensor([1, 2, 3])
    noise = redistribute(rows, spec("gaussian"), seeds) - rows
    expected = rng.normal(seeds, 5000)
    assert torch.allclose(
        noise / noise.norm(dim=1, keepdim=True), expected / expected.norm(dim=1, keepdim=True), atol=1e-5
    )
    assert (noise != 0).double().mean() > 0.99


@pytest.mark.parametrize(("dtype", "kind"), product(DTYPES, ["arm", "scatter", "gaussian"]), ids=str)
@pytest.mark.parametrize("given", [{}, {"c": 0.0}, {"fraction": 0.25}], ids=str)
def test_rows_beside_it_change_no_bit_of_a_row(given, dtype, kind, monkeypatch):
    rows, seeds = activations(7, 513, dtype=dtype), torch.arange(7) + 100
    rows[2] = 0
    rows[3] = rows[3].round()  # ties
    rows[4] *= 1e-3
    asked = spec(kind, **given)
    together = redistribute(rows, asked, seeds)
    alone = torch.cat([redistribute(rows[row : row + 1], asked, seeds[row : row + 1]) for row in range(7)])
    backwards = redistribute(rows.flip(0), asked, seeds.flip(0)).flip(0)
    monkeypatch.setattr(rule, "MOST_AT_ONCE", 1500)
    in_parts = redistribute(rows, asked, seeds)
    assert all(same_bits(together, other) for other in (alone, backwards, in_parts))


def test_long_rows_do_not_depend_on_their_neighbours_either():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)  # sums over long rows are split between threads
    try:
        rows, seeds = activations(3, 100_000), torch.arange(3)
        together = redistribute(rows, spec("gaussian"), seeds)
        alone = torch.cat(
            [redistribute(rows[row : row + 1], spec("gaussian"), seeds[row : row + 1]) for row in range(3)]
        )
    finally:
        torch.set_num_threads(threads)
    assert same_bits(together, alone)


@pytest.mark.parametrize("kind", ["arm", "scatter", "gaussian"])
def test_without_looking_at_the_numbers_the_same_comes_out(kind, monkeypatch):
    """What a GPU does, where the host must not wait for a number."""
    rows, seeds = activations(5, 301), torch.arange(5)
    rows[1] = rows[1].round()
    rows[2] = 0
    expected = [redistribute(rows, spec(kind, **asked), seeds) for asked in SETTINGS]
    monkeypatch.setattr(rule, "_on_host", lambda _: False)
    for asked, before in zip(SETTINGS, expected, strict=True):
        found = redistribute(rows, spec(kind, **asked), seeds)
        same = torch.allclose(found, before, atol=1e-6) if kind == "gaussian" else same_bits(found, before)
        assert same, asked


PUBLISHED = [(name, task) for name, settings in ARM_PRESETS.items() for task in settings]


@pytest.mark.parametrize(("name", "task"), PUBLISHED)
@pytest.mark.parametrize("follows", ["text", "code"])
def test_published_settings(name, task, follows):
    row = activations(2000, seed=5)
    asked = spec(preset=name, benchmark=task, follows=follows)
    chosen = check(row, asked)
    assert asked.p_min <= len(chosen) / 2000 <= 0.25
    if asked.fraction:
        assert len(chosen) == 500


def test_the_percentile_of_sizes_is_above_that_of_values():
    """Where elements below zero are large: draws reach further."""
    row = -activations(4000, dtype=torch.float64)
    reached = [
        redistribute(row[None], spec(fraction=1.0, p1=90, mode="replace", quantile_of=what), torch.tensor([SEED]))
        for what in ("values", "sizes")
    ]
    tops = [rank(sorted(of.tolist()), Fraction(9, 10)) for of in (row, row.abs())]
    assert tops[1] > 2 * tops[0]
    for values, top in zip(reached, tops, strict=True):
        assert 0.99 * top < values.max() <= top


def test_at_least_one_element_is_moved_where_asked():
    row = activations(20)
    for asked in ({"fraction": 0.01}, {"c": 0.0, "p_min": 0.0}, {"p_min": 0.0, "p_max": 0.0}):
        moved = [
            (redistribute(row[None], spec(at_least_one=one, **asked), torch.tensor([SEED]))[0] != row).nonzero()
            for one in (False, True)
        ]
        assert [len(places) for places in moved] == [0, 1]
        assert int(moved[1]) == int(row.abs().argmin())


def test_ranks_are_exact():
    assert rule.Ranks.of(spec(p1=99.9), 1000).top == 999
    assert rule.Ranks.of(spec(p1=7.0), 100).top == 7  # 0.07 * 100 is above 7 in floating point
    assert rule.Ranks.of(spec(p1=0.0), 10).top == 1
    assert rule.Ranks.of(spec(p1=100.0), 10).top == 10
    assert rule.Ranks.of(spec(fraction=0.5), 5).most == 2  # halves to even
    assert rule.Ranks.of(spec(fraction=0.5), 7).most == 4


def test_nothing_comes_of_nothing_and_gradients_do_not_pass():
    assert redistribute(torch.zeros(0, 5), spec(), torch.zeros(0, dtype=torch.int64)).shape == (0, 5)
    values = activations(2, 50).requires_grad_()
    assert not redistribute(values, spec(), torch.arange(2)).requires_grad


def test_other_seeds_move_the_same_elements_elsewhere():
    row = activations(1000)[None]
    one, other = (redistribute(row, spec(), torch.tensor([seed])) for seed in (1, 2))
    assert torch.equal(one != row, other != row)
    assert not torch.equal(one, other)
