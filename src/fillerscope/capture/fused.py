"""Attention on CUDA: the usual fused kernel for the output, and one of ours for what every key receives.

The fused kernel leaves the log-sum-exp of each row, from which ours computes the weights again, tile by tile, and
adds up columns. Gives the same numbers as `blocks`, which takes over where this cannot serve.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from fillerscope.capture.attention_inputs import AttentionInputs, LayerSums
from fillerscope.capture.masks import MaskRule
from fillerscope.capture.memory import to_device
from fillerscope.capture.packing import Packing

if TYPE_CHECKING:
    from fillerscope.capture.kernels import Ragged, Rows

LARGEST_HEAD = 256
_log = logging.getLogger(__name__)


def can_serve(query: Tensor, rule: MaskRule, packing: Packing) -> bool:
    """Whether the kernels take this device, dtype and mask. On CUDA a refusal is logged, once."""
    if query.device.type != "cuda":
        return False
    obstacle = _obstacle(query, rule, packing)
    if obstacle and _log.isEnabledFor(logging.WARNING):
        _warn(obstacle)
    return not obstacle


@contextmanager
def without_warning() -> Iterator[None]:
    """Log no refusal inside the block: a check runs a model in another precision than the study does."""
    before = _log.level
    _log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        _log.setLevel(before)


def _obstacle(query: Tensor, rule: MaskRule, packing: Packing) -> str:
    if query.dtype not in (torch.bfloat16, torch.float16):
        return f"{str(query.dtype).removeprefix('torch.')} is not for tensor cores (bfloat16 and float16 are)"
    if query.shape[-1] > LARGEST_HEAD:
        return f"heads of size {query.shape[-1]} are larger than {LARGEST_HEAD}"
    if find_spec("triton") is None:
        return "triton is not installed"
    if not rule.is_window(max(band.span for band in packing.bands), query.device):
        return "a layer's mask is neither causal nor a sliding window"
    return ""


@cache
def _warn(obstacle: str) -> None:
    _log.warning("measuring in plain blocks, which is slower: %s", obstacle)


@dataclass(frozen=True)
class Places:
    """Where the texts of a pass are, in the form that the kernels take."""

    ragged: Ragged
    rows: Rows
    plain: bool  # texts of one length, without prefixes
    gather: Tensor | None  # for every key of every text, its place among the prefixes and in the row


@lru_cache(maxsize=2)
def _places(packing: Packing, dim: int, device: torch.device) -> Places:
    from fillerscope.capture.kernels import Ragged, Rows  # needs triton

    widths = np.concatenate([np.full(len(band.texts), band.width) for band in packing.bands])
    spans = np.concatenate([np.full(len(band.texts), band.span) for band in packing.bands])
    starts = [np.concatenate([[0], np.cumsum(n)]).astype(np.int32) for n in (widths, spans)]
    query_starts, key_starts = (to_device(one, device) for one in starts)
    ragged = Ragged(query_starts, key_starts, int(widths.max()), int(spans.max()))
    rows = Rows.of(packing.weights, starts[0], dim, device)
    plain = len(packing.bands) == 1 and not packing.prefixes
    return Places(ragged, rows, plain, to_device(_gather(packing), device) if packing.prefixes else None)


def _gather(packing: Packing) -> np.ndarray:
    before = sum(len(prefix) for prefix in packing.prefixes)
    pieces = [
        np.concatenate([np.r_[band.prefix], before + band.start + number * band.width + np.arange(band.width)])
        for band in packing.bands
        for number in range(len(band.texts))
    ]
    return np.concatenate(pieces).astype(np.int64)


def attend(inputs: AttentionInputs, packing: Packing, sums: LayerSums) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the same as `blocks.attend`, the entropies in as many parts as there are blocks of keys."""
    from fillerscope.capture import kernels  # needs triton

    scaling, softcap, sinks = inputs.rule.scaling, inputs.rule.softcap, inputs.rule.sinks
    places = _places(packing, inputs.query.shape[-1], inputs.query.device)
    query, key, value = (tensor.transpose(0, 1) for tensor in (inputs.query, inputs.key, inputs.value))
    if inputs.prefixes is not None and places.gather is not None:
        key, value = (
            torch.cat([before.transpose(0, 1), own]).index_select(0, places.gather)
            for before, own in zip(inputs.prefixes, (key, value), strict=True)
        )
    width = value.shape[-1]
    if width < query.shape[-1]:  # latent attention; the fused kernels want one size
        value = torch.nn.functional.pad(value, (0, query.shape[-1] - width))
    window = inputs.rule.mask.window(places.ragged.longest_key)
    if softcap is not None or width > query.shape[-1]:
        output, lse = kernels.forward(query, key, value, places.ragged, scaling, window, softcap)
    elif window is None and places.plain and _prefers_cudnn(query.device, query.dtype, query.shape[1], *key.shape[1:]):
        output, lse = _cudnn(query, key, value, len(packing.texts), scaling)
    else:
        output, lse = _flash(query, key, value, places.ragged, scaling, window)
    output, sink_sums = output[..., :width], None
    if sinks is not None:
        logits = sinks.float()[:, None]
        taken = torch.sigmoid(logits - lse)  # [head, token]
        output = (output * (1 - taken).T[..., None]).to(output.dtype)
        lse, sink_sums = torch.logaddexp(lse, logits), _by_text(taken, packing)
    entropy = kernels.column_sums(query, key, lse, places.rows, places.ragged, scaling, window, softcap, *sums)
    return output, entropy, sink_sums


def _by_text(taken: Tensor, packing: Packing) -> Tensor:
    """[text, head, group]: sums of [head, token] over the rows of each group, the texts in the order of the row."""
    weights = to_device(packing.weights, taken.device)
    bands = [band.queries(taken) @ band.queries(weights).transpose(1, 2) for band in packing.bands]
    return torch.cat(bands)


def _flash(
    query: Tensor, key: Tensor, value: Tensor, ragged: Ragged, scaling: float, window: int | None
) -> tuple[Tensor, Tensor]:
    """Output [token, head, dim] and log-sum-exp [head, token]."""
    output, lse, *_ = torch.ops.aten._flash_attention_forward(
        query, key, value, ragged.query_starts, ragged.key_starts, ragged.longest_query, ragged.longest_key,
        0.0, True, False, scale=scaling, window_size_left=-1 if window is None else window - 1,
        window_size_right=0,
    )  # fmt: skip
    return output, lse


@cache
def _prefers_cudnn(device: torch.device, dtype: torch.dtype, heads: int, kv_heads: int, dim: int) -> bool:
    """Whether torch would take cuDNN's kernel on this device: nearly twice as fast on Hopper, but for plain batches
    only, and it makes a plan for every new shape."""
    query, key = (torch.empty(1, count, 64, dim, device=device, dtype=dtype) for count in (heads, kv_heads))
    choice = torch._fused_sdp_choice(query, key, key, None, 0.0, True, enable_gqa=True)
    return bool(choice == SDPBackend.CUDNN_ATTENTION.value)


def _cudnn(query: Tensor, key: Tensor, value: Tensor, texts: int, scaling: float) -> tuple[Tensor, Tensor]:
    """The same for texts of one length."""
    batch = (torch.unflatten(tensor, 0, (texts, -1)).transpose(1, 2) for tensor in (query, key, value))
    output, lse, *_ = torch.ops.aten._scaled_dot_product_cudnn_attention(
        *batch, None, True, 0.0, True, False, scale=scaling
    )
    return output.transpose(1, 2).flatten(0, 1), lse.flatten(2).transpose(0, 1).flatten(1)
