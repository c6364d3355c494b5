"""The kernel counts what plain torch counts."""

from __future__ import annotations

import pytest
import torch

from fillerscope.capture.activations import BASE, HALF, pattern_counts

counting = pytest.importorskip(
    "fillerscope.capture.activation_kernels", reason="triton is not installed", exc_type=ImportError
)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("width", [1, 1000, 1024, 1500])
def test_the_kernel_counts_the_same(dtype: torch.dtype, width: int) -> None:
    random = torch.Generator().manual_seed(width)
    values = torch.randn(9, width, generator=random).exp() * torch.randn(9, width, generator=random)
    values[0, 0], values[1, :3], values[2, -1] = 0.0, 1e-30, -6e4
    values = values.to(dtype)
    cell = torch.tensor([0, 3, 1, 1, 0, 0, 3, 3, 3])
    counts = torch.zeros(4, 2, HALF, dtype=torch.int32, device=DEVICE)
    counting.count(values.to(DEVICE), cell.to(DEVICE), counts, BASE)
    assert torch.equal(counts.cpu(), pattern_counts(values, cell, 4)[0])
    assert counts.sum((1, 2)).tolist() == [3 * width, 2 * width, 0, 4 * width]
