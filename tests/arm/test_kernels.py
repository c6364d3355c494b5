"""The kernels against the plain rule, bit for bit: on a GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from fillerscope.arm import rng, rule
from fillerscope.study.interventions import Redistribution
from support.grid import grid

CUDA = torch.cuda.is_available()
HERE = "fillerscope.arm.kernels"
kernels = pytest.importorskip(HERE, reason="triton is not installed", exc_type=ImportError)
seed_kernels = pytest.importorskip("fillerscope.arm.seed_kernels", exc_type=ImportError)

DEVICE = "cuda" if CUDA else "cpu"
BLOCK, LENGTH = 256, 530  # several blocks in short rows
SETTINGS = (
    {}, {"c": 0.0}, {"c": 50.0}, {"c": 0.7, "p_min": 0.0, "p_max": 1.0}, {"fraction": 0.25, "mode": "replace"},
    {"fraction": 0.0}, {"fraction": 1.0, "p1": 0.0}, {"fraction": 0.6, "p1": 100.0},
    {"fraction": 0.25, "p1": 85.0, "quantile_of": "sizes"}, {"p1": 0.0, "quantile_of": "sizes"},
    {"fraction": 0.0, "at_least_one": True},
)  # fmt: skip
FEWER = ({}, {"fraction": 0.25, "mode": "replace"}, {"fraction": 1.0}, {"p1": 85.0, "quantile_of": "sizes"})
ASKED = [("arm", one) for one in SETTINGS] + [("scatter", one) for one in FEWER] + [("gaussian", {})]


def rows():
    """Of every kind that may come: [kind, element]."""
    random = torch.Generator().manual_seed(3)
    normal = torch.randn(LENGTH, generator=random)
    kinds = [
        torch.nn.functional.silu(normal),
        (normal * 2).round() / 2,  # many ties
        normal.relu(),
        -normal.abs() - 0.1,
        torch.zeros(LENGTH),
        -torch.zeros(LENGTH),
        normal * 10.0 ** torch.randint(-30, 30, (LENGTH,), generator=random),
        torch.full((LENGTH,), -0.25),
    ]
    return torch.stack(kinds).bfloat16()


@pytest.fixture
def by_kernels(monkeypatch):
    """The rule with the kernels in its place on any device: a row in one program, or in blocks."""
    moved = kernels.moved

    def redistributed(values, asked, seeds, short):
        short = 5000 if short else 0
        with monkeypatch.context() as patch:
            patch.setattr(kernels, "moved", lambda *args, **given: moved(*args, **given, block=BLOCK, short=short))
            patch.setattr(rule, "suits_kernels", lambda _: True)
            return rule.redistribute(values.to(DEVICE), asked, seeds).cpu()

    return redistributed


def patterns(values):
    return values.view(torch.int16)


@pytest.mark.parametrize(("asked", "short"), grid(ASKED, [False, True]), ids=str)
@pytest.mark.filterwarnings("ignore:overflow")
def test_the_same_bits_as_the_plain_rule(asked, short, by_kernels):
    values, asked = rows(), Redistribution(kind=asked[0], **asked[1])
    seeds = torch.arange(len(values)) + 9
    found = by_kernels(values, asked, seeds, short)
    assert torch.equal(patterns(found), patterns(rule.redistribute(values, asked, seeds)))
    assert torch.equal(patterns(values), patterns(rows()))


@pytest.mark.parametrize(("count", "short"), grid([1, 2, 3, 256, 257], [False, True]))
def test_few_elements(count, short, by_kernels):
    values, asked, seeds = rows()[:1, :count], Redistribution(kind="arm", p_min=0.4, p_max=0.6), torch.tensor([4])
    found = by_kernels(values, asked, seeds, short)
    assert torch.equal(patterns(found), patterns(rule.redistribute(values, asked, seeds)))


@pytest.mark.parametrize(("fraction", "short"), grid([0.001, 0.5, 0.999], [False, True]))
def test_ties_that_end_in_any_block(fraction, short, by_kernels):
    values = torch.full((2, 1000), 0.5).bfloat16()
    asked = Redistribution(kind="arm", fraction=fraction, mode="replace", p1=100)
    found = by_kernels(values, asked, torch.tensor([1, 2]), short)
    assert torch.equal(patterns(found), patterns(rule.redistribute(values, asked, torch.tensor([1, 2]))))
    assert (found[:, round(fraction * 1000) :] == 0.5).all()


def test_every_pattern_is_counted_once():
    rows = torch.arange(-(2**15), 2**15).to(torch.int16)[None, :].to(DEVICE)
    words = rng.words(torch.tensor([1], device=DEVICE), rng.CHOICES)
    counts = kernels.counted(rows, words, False, 4096)[0]
    assert counts[0] == 2  # zeros of both signs
    assert counts[2**15] == 0
    assert (counts[1 : 2**15] == 1).all()
    assert (counts[2**15 + 1 :] == 1).all()


def test_draws_are_counted_as_they_are_drawn():
    seeds = torch.tensor([5, 6], device=DEVICE)
    rows = torch.zeros(2, 700, dtype=torch.int16, device=DEVICE)
    counts = kernels.counted(rows, rng.words(seeds, rng.CHOICES), True, BLOCK)
    for row, drawn in zip(counts, rng.choices(seeds, 700), strict=True):
        assert torch.equal(row, torch.bincount(drawn, minlength=2**16).to(torch.int32))


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("layer", [1, 2, 40])
def test_seeds_and_words_are_those_of_the_plain_ones(layer):
    """Also of a column of a table, whose numbers do not lie side by side, and of more than one program's."""
    random = torch.Generator().manual_seed(1)
    table = torch.randint(-(2**63), 2**63 - 1, (200, 3), generator=random).to(DEVICE)
    keys, steps = table[:, 0], table[:, 2] % 5000
    seeds = seed_kernels.step_seeds(keys, steps, layer)
    assert torch.equal(seeds, rng.step_seeds(keys, steps, layer))
    for words, stream in zip(seed_kernels.words(seeds), (rng.CHOICES, rng.MOVES), strict=True):
        assert torch.equal(words, rng.words(seeds, stream))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["arm", "scatter", "gaussian"])
@pytest.mark.parametrize("given", [{}, {"quantile_of": "sizes", "p1": 85.0, "mode": "replace"}], ids=str)
@pytest.mark.parametrize("count", [1000, 32_768, 32_769, 70_001])
def test_a_gpu_gives_what_a_cpu_gives(count, given, kind):
    random = torch.Generator().manual_seed(4)
    rows = torch.nn.functional.silu(torch.randn(3, count, generator=random)).bfloat16()
    asked, seeds = Redistribution(kind=kind, **given), torch.arange(3)
    found, expected = rule.redistribute(rows.cuda(), asked, seeds.cuda()).cpu(), rule.redistribute(rows, asked, seeds)
    if kind == "gaussian":
        assert torch.allclose(found.float(), expected.float(), rtol=1e-2, atol=1e-3)
    else:
        assert torch.equal(patterns(found), patterns(expected))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["arm", "scatter", "gaussian"])
@pytest.mark.parametrize("count", [1000, 32_768, 32_769, 70_001])
def test_the_host_waits_for_nothing(count, kind):
    rows, seeds = torch.randn(2, count, device="cuda").bfloat16(), torch.arange(2, device="cuda")
    rule.redistribute(rows, Redistribution(kind=kind), seeds)
    torch.cuda.set_sync_debug_mode("error")
    try:
        rule.redistribute(rows, Redistribution(kind=kind), seeds)
    finally:
        torch.cuda.set_sync_debug_mode("default")
