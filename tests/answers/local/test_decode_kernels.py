"""The kernels of decode steps against plain torch: on a GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fillerscope.answers.local.slot_scoring import Scoring

CUDA = torch.cuda.is_available()
kernels = pytest.importorskip(
    "fillerscope.answers.local.decode_kernels", reason="triton is not installed", exc_type=ImportError
)

DEVICE = "cuda" if CUDA else "cpu"
DTYPES = (torch.float32, torch.bfloat16, torch.float16) if CUDA else (torch.float32,)  # the interpreter has no bfloat16
ROUNDING = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
BLOCK = 16
LENGTHS = (1, 70, 15, 16, 17, 64, 65, 140)  # also at the edges of blocks, of parts, and of the slots
WIDTH = 140


@dataclass(frozen=True)
class Case:
    """One token for each row of slots that are filled up to `lengths`."""

    query: torch.Tensor  # [row, kv_head, query_head, dim]
    key: torch.Tensor  # [row, kv_head, key, dim]
    value: torch.Tensor
    positions: torch.Tensor  # [row, 1]
    mask: torch.Tensor  # [row, 1, 1, key]


def make(heads=2, group=3, dim=32, value_dim=None, window=None, hidden=None, dtype=torch.float32, lengths=LENGTHS):
    """What comes after a row's last key is not a number: nothing of it may be read."""
    random = torch.Generator().manual_seed(dim + group)

    def normal(*shape):
        return torch.randn(*shape, generator=random).to(DEVICE, dtype)

    width = max(WIDTH, *lengths)
    positions = torch.tensor(lengths, device=DEVICE)[:, None] - 1
    places = torch.arange(width, device=DEVICE)
    mask = places <= positions
    if window:
        mask = mask & (places > positions - window)
    if hidden:
        mask = mask & ~((places >= hidden[0]) & (places < hidden[1]) & (positions >= hidden[1]))
    rows = len(lengths)
    key, value = normal(rows, heads, width, dim), normal(rows, heads, width, value_dim or dim)
    for tensor in (key, value):
        tensor.masked_fill_((places > positions)[:, None, :, None], float("nan"))
    return Case(normal(rows, heads, group, dim) * 2, key, value, positions, mask[:, None, None])


def expected(case, scoring):
    """In float64, without what comes after the last keys."""
    key, value = (torch.nan_to_num(tensor.double()) for tensor in (case.key, case.value))
    scale = case.query.shape[-1] ** -0.5 if scoring.scaling is None else scoring.scaling
    scores = case.query.double() @ key.transpose(-1, -2) * scale
    if scoring.softcap is not None:
        scores = torch.tanh(scores / scoring.softcap) * scoring.softcap
    scores = scores.masked_fill(~case.mask, -torch.inf)
    if scoring.sinks is not None:
        sinks = scoring.sinks.double().expand(len(scores), -1, -1, 1)
        return (torch.cat([scores, sinks], -1).softmax(-1)[..., :-1] @ value).float()
    return (scores.softmax(-1) @ value).float()


def difference(result, wanted):
    assert bool(result.isfinite().all())
    return float((result.float() - wanted).norm() / wanted.norm())


def attended(case, scoring, parts, block=BLOCK):
    """Attention by the kernels; cut as they choose where there is no number of parts."""
    tiling = kernels.Tiling(parts, block) if parts else None
    return kernels.attend(case.query, case.key, case.value, case.mask, case.positions, scoring, tiling)


PLAIN = Scoring(None, None, None)
SHAPES = (
    {}, {"group": 1, "dim": 24}, {"heads": 1, "group": 17, "dim": 16}, {"value_dim": 8}, {"window": 20},
    {"hidden": (3, 15)}, {"hidden": (0, 32)}, {"window": 9, "hidden": (40, 60)},
)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_attention_is_that_of_whole_matrices(shape, parts, dtype):
    case = make(**shape, dtype=dtype)
    assert difference(attended(case, PLAIN, parts), expected(case, PLAIN)) < ROUNDING[dtype]


@given(st.lists(st.integers(1, 100), min_size=1, max_size=3), st.sampled_from([1, 2, 8]), st.sampled_from([16, 64]))
@settings(max_examples=15, phases=[Phase.generate])  # smaller examples would take the interpreter minutes
def test_rows_of_any_length_are_cut_anywhere(lengths, parts, block):
    case = make(heads=1, group=2, dim=16, lengths=lengths)
    assert difference(attended(case, PLAIN, parts, block), expected(case, PLAIN)) < 1e-5


def test_keys_are_cut_as_the_kernels_choose():
    case = make(heads=1, lengths=(1, 127, 128, 129, 513))
    assert kernels.Tiling.of(5, case.key).parts == 4
    assert difference(attended(case, PLAIN, parts=None), expected(case, PLAIN)) < 1e-5


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize(("scaling", "softcap", "sunk"), [(0.3, None, False), (None, 2.0, False), (None, 5.0, True)])
def test_scales_softcaps_and_sinks(scaling, softcap, sunk, parts):
    case = make()
    sinks = torch.linspace(-2, 3, 6, device=DEVICE).reshape(1, 2, 3, 1) if sunk else None
    scoring = Scoring(scaling, softcap, sinks)
    result, wanted = attended(case, scoring, parts), expected(case, scoring)
    assert difference(result, wanted) < 1e-5
    assert difference(result, expected(case, PLAIN)) > 1e-2


def test_strides_are_those_of_the_tensors():
    """Slots beyond the rows, queries that were transposed, and a mask that is the same for all rows."""
    case = make()
    whole = torch.full((len(LENGTHS) + 2, 2, WIDTH + 9, 32), float("nan"), device=DEVICE)
    whole[: len(LENGTHS), :, :WIDTH] = case.key
    turned = case.query.transpose(1, 2).contiguous().transpose(1, 2)
    everywhere = torch.ones(1, 1, 1, WIDTH, dtype=torch.bool, device=DEVICE).expand(len(LENGTHS), 1, 1, WIDTH)
    other = replace(case, query=turned, key=whole[: len(LENGTHS), :, :WIDTH], mask=everywhere)
    assert torch.equal(attended(other, PLAIN, 1), attended(case, PLAIN, 1))


def test_a_token_goes_to_its_own_place_in_its_slot():
    random = torch.Generator().manual_seed(0)
    keys, values = (torch.randn(7, 2, 30, dim, generator=random).to(DEVICE) for dim in (24, 8))
    key, value = (torch.randn(5, 1, 2, dim, generator=random).to(DEVICE).transpose(1, 2) for dim in (24, 8))
    positions = torch.tensor([[0], [29], [3], [3], [17]], device=DEVICE)
    wanted = keys.clone(), values.clone()
    for slots, new in zip(wanted, (key, value), strict=True):
        for row, place in enumerate(positions[:, 0].tolist()):
            slots[row + 1, :, place] = new[row, :, 0]
    kernels.append(key, value, keys[1:6], values[1:6], positions)
    assert torch.equal(keys, wanted[0])
    assert torch.equal(values, wanted[1])


def test_few_rows_are_computed_by_several_programs_each():
    def parts(rows, width):
        return kernels.Tiling.of(rows, torch.empty(rows, 2, width, 128, dtype=torch.bfloat16, device="meta")).parts

    assert parts(512, 4096) == 1
    assert parts(64, 4096) == 8
    assert parts(1, 4096) == 32
    assert parts(1, 600) == 4
    assert parts(1, 100) == 1
