"""The kernels against whole matrices in float64: on a GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate

import pytest
import torch

from fillerscope.errors import CaptureError
from support.grid import grid, some_fast

CUDA = torch.cuda.is_available()
kernels = pytest.importorskip("fillerscope.capture.kernels", reason="triton is not installed", exc_type=ImportError)

DEVICE = "cuda" if CUDA else "cpu"
DTYPES = (torch.bfloat16, torch.float16) if CUDA else (torch.float32, torch.float16)  # the interpreter has no bfloat16
SMALL = (16, 16, 4, 2, 255)  # many tiles in short texts
TEXTS = ((37, 0), (1, 0), (50, 21), (16, 16), (1, 30))  # queries, and the cached keys before them
FEW = ((35, 0), (1, 0), (17, 12))
SUMS = 1e-4 if CUDA else 1e-5  # the hardware's exp2 and its tensor cores round a little more than IEEE arithmetic


@dataclass(frozen=True)
class Case:
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    weights: torch.Tensor
    ragged: kernels.Ragged
    scaling: float


@dataclass(frozen=True)
class Expected:
    output: torch.Tensor
    lse: torch.Tensor
    received: torch.Tensor
    diagonal: torch.Tensor
    entropy: torch.Tensor


def starts(counts):
    return torch.tensor([0, *accumulate(counts)], dtype=torch.int32, device=DEVICE)


def make(texts=TEXTS, heads=3, kv_heads=1, dim=64, value_dim=None, groups=3, dtype=DTYPES[0]):
    random = torch.Generator().manual_seed(dim + heads)
    queries, keys = [n for n, _ in texts], [n + cached for n, cached in texts]

    def normal(*shape):
        return torch.randn(*shape, generator=random).to(DEVICE, dtype)

    return Case(
        query=normal(sum(queries), heads, dim) * 2,  # sharper than chance, so that a wrong score shows
        key=normal(sum(keys), kv_heads, dim),
        value=normal(sum(keys), kv_heads, value_dim or dim),
        weights=torch.randn(groups, sum(queries), generator=random).to(DEVICE),
        ragged=kernels.Ragged(starts(queries), starts(keys), max(queries), max(keys)),
        scaling=dim**-0.5,
    )


def expected(case, window=None, softcap=None):
    """The definition, text by text, with every matrix whole."""
    query, key, value, weights = (x.double().cpu() for x in (case.query, case.key, case.value, case.weights))
    sharing = query.shape[1] // key.shape[1]
    query_starts, key_starts = case.ragged.query_starts.tolist(), case.ragged.key_starts.tolist()
    pieces = []
    for text in range(len(query_starts) - 1):
        rows, columns = (slice(s[text], s[text + 1]) for s in (query_starts, key_starts))
        q, w = query[rows].transpose(0, 1), weights[:, rows]
        k, v = (x[columns].transpose(0, 1).repeat_interleave(sharing, 0) for x in (key, value))
        scores = case.scaling * q @ k.transpose(1, 2)
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        behind = torch.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1] - torch.arange(k.shape[1])[None, :]
        hidden = (behind < 0) | (behind >= (window or k.shape[1]))
        scores = scores.masked_fill(hidden, -torch.inf)
        lse = scores.logsumexp(-1)
        p = (scores - lse[..., None]).exp()
        pieces.append(
            Expected(
                output=(p @ v).transpose(0, 1),
                lse=lse,
                received=w @ p.masked_fill(behind == 0, 0.0),
                diagonal=p[:, behind == 0],
                entropy=-torch.xlogy(p, p).sum(-1) @ w.T,
            )
        )
    return Expected(
        output=torch.cat([x.output for x in pieces]),
        lse=torch.cat([x.lse for x in pieces], 1),
        received=torch.cat([x.received for x in pieces], 2),
        diagonal=torch.cat([x.diagonal for x in pieces], 1),
        entropy=torch.stack([x.entropy for x in pieces]),
    )


def check(case, window=None, softcap=None, tiles=SMALL):
    """Both kernels. The sums get the exact lse, so that an error in one kernel cannot hide one in the other."""
    want = expected(case, window, softcap)
    dtype = case.query.dtype
    output, lse = kernels.forward(
        case.query, case.key, case.value, case.ragged, case.scaling, window, softcap, tiles=tiles
    )
    assert output.dtype == dtype
    exact = dtype == torch.float32
    close(output, want.output, 1e-5 if exact else 2e-2 if dtype == torch.bfloat16 else 3e-3)
    close(lse, want.lse, SUMS)
    given = want.lse.float().to(DEVICE)
    sums = column_sums(case, given, window, softcap, tiles)
    # Products of halves are exact in float32: only the inputs are rounded, and the reference has the same ones.
    for got, right in zip(sums, (want.received, want.diagonal, want.entropy), strict=True):
        close(got, right, SUMS)
    return sums


def column_sums(case, lse, window=None, softcap=None, tiles=SMALL):
    """Received, diagonal and entropy."""
    total, heads, _ = case.query.shape
    received = torch.empty(heads, len(case.weights), case.key.shape[0], device=DEVICE)
    diagonal = torch.empty(heads, total, device=DEVICE)
    parts = kernels.column_sums(
        case.query, case.key, lse, rows_of(case, tiles), case.ragged, case.scaling, window, softcap, received, diagonal
    )
    return received, diagonal, parts.sum(-1, dtype=torch.float64).float()


def rows_of(case, tiles=SMALL):
    starts = case.ragged.query_starts.cpu().numpy()
    return kernels.Rows.of(case.weights.cpu().numpy(), starts, case.query.shape[-1], case.query.device, tiles)


def close(got, want, tolerance):
    torch.testing.assert_close(got.double().cpu(), want, rtol=tolerance, atol=tolerance)


@pytest.fixture(autouse=True)
def _poison(monkeypatch):
    """What nobody writes must not pass for a result."""
    empty = torch.empty

    def poisoned(*shape, **options):
        fresh = empty(*shape, **options)
        return fresh.fill_(torch.nan if fresh.is_floating_point() else -1)

    monkeypatch.setattr(torch, "empty", poisoned)


@pytest.mark.parametrize(("window", "softcap"), grid([1, None, 5, 40], [None, 5.0]))
def test_windows_and_caps(window, softcap):
    check(make(heads=1, dim=16), window, softcap)


@pytest.mark.parametrize(("dim", "dtype"), grid([64, 80, 128, 256], DTYPES), ids=str)
def test_head_sizes_and_dtypes(dim, dtype):
    check(make(texts=FEW, heads=1, dim=dim, dtype=dtype), window=20, tiles=None if CUDA else SMALL)


@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (6, 2), pytest.param(7, 1, marks=pytest.mark.slow)])
def test_heads_that_share_keys(heads, kv_heads):
    check(make(texts=((17, 3),), heads=heads, kv_heads=kv_heads, dim=16))


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_any_number_of_groups(groups):
    check(make(texts=FEW, heads=1, dim=16, groups=groups))


@pytest.mark.parametrize(("window", "tiles"), grid([None, 5, 40], [(16, 32, 4, 2, 255), (32, 16, 4, 2, 255)]), ids=str)
def test_tiles_do_not_show(tiles, window):
    check(make(texts=((70, 0), (1, 0), (20, 100)), heads=1, dim=16), window, tiles=tiles)


@pytest.mark.parametrize("window", some_fast([None, 40], None))
def test_the_usual_tiles(window):
    check(make(texts=((270, 0), (1, 0), (40, 300)), heads=1, dim=16), window, tiles=None)


@pytest.mark.gpu
@pytest.mark.parametrize("window", [None, 300])
@pytest.mark.parametrize("dim", [64, 96, 128, 256])
def test_long_texts_with_the_usual_tiles(dim, window):
    case = make(texts=((1500, 0), (700, 900), (3, 0), (129, 128)), heads=7, kv_heads=1, dim=dim)
    case.weights[0] = 1.0
    check(case, window, tiles=None)


def test_values_of_another_size():
    check(make(texts=FEW, heads=1, dim=16, value_dim=40))


@pytest.mark.parametrize("window", [None, 40])
def test_rows_that_are_alike(window):
    """Runs of tiles of one weight go another way: long ones, short ones, of 1, 0 and others, and mixed ones between."""
    case = make(texts=((118, 0), (1, 0), (20, 30)), heads=1, dim=16)
    case.weights[0] = 1.0
    case.weights[1] = torch.where(torch.arange(139, device=DEVICE) // 32 % 2 == 0, 1.0, 0.25)
    case.weights[2] = torch.arange(139, device=DEVICE) == 70
    assert rows_of(case).runs.tolist() == [2, 1, 2, 1, 0, 1, 1, 0, 0, 0, 0]
    check(case, window)


def test_strided_inputs():
    plain = make(texts=((18, 0), (1, 0), (3, 12)), heads=4, kv_heads=2, dim=16)
    fused = torch.cat([plain.query, torch.full_like(plain.query[:, :1], torch.nan)], 1)  # [row, head + 1, dim]
    key, value = torch.stack([plain.key, plain.value], 2).unbind(2)
    query = fused.transpose(0, 1).contiguous().transpose(0, 1)[:, :4]
    assert not any(x.is_contiguous() for x in (query, key, value))
    check(Case(query, key, value, plain.weights, plain.ragged, plain.scaling))


def test_texts_do_not_see_each_other():
    """Bit for bit, whatever stands beside a text."""
    together = make(texts=((19, 0), (1, 0), (34, 13), (1, 9)), heads=1, dim=16)
    sums = check(together)
    rows, columns = slice(20, 54), slice(20, 67)  # the third text
    ragged = kernels.Ragged(starts([34]), starts([47]), 34, 47)
    alone = Case(
        *(together.query[rows], together.key[columns], together.value[columns], together.weights[:, rows]),
        *(ragged, together.scaling),
    )
    received, diagonal, entropy = check(alone)
    assert torch.equal(received, sums[0][..., columns])
    assert torch.equal(diagonal, sums[1][:, rows])
    assert torch.equal(entropy[0], sums[2][2])


@pytest.mark.filterwarnings("ignore:overflow")  # of scores that are then hidden
def test_sharp_rows_stay_finite():
    """Scores in the hundreds: weights underflow to 0, and 0 * log 0 is 0."""
    case = make(texts=FEW, heads=1, dim=16)
    case.query.mul_(200)
    lse = expected(case).lse.float().to(DEVICE)
    sums = column_sums(case, lse)
    assert all(torch.isfinite(x).all() for x in sums)


def test_what_cannot_be_done_is_refused():
    case = make(heads=3, kv_heads=1, dim=16)
    lse = torch.zeros(3, case.query.shape[0], device=DEVICE)
    many = case.weights[:1].expand(5, -1)
    with pytest.raises(CaptureError, match="1 to 4 groups of rows, not 5"):
        rows_of(replace(case, weights=many))
    crossed = torch.stack([case.key, case.key], -1)[..., 0]
    with pytest.raises(CaptureError, match="last dimension of key must be contiguous"):
        column_sums(replace(case, key=crossed), lse)
    twice = case.key.repeat(1, 2, 1)
    with pytest.raises(CaptureError, match="3 query heads cannot share 2 key heads"):
        kernels.forward(case.query, twice, twice, case.ragged, case.scaling)
