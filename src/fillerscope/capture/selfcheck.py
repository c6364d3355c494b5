"""The capture compared with the model's own eager attention, before anybody trusts a number.

In every layer both get the same queries, keys and values, so what is compared is the measuring alone: the
rounding of earlier layers, large in half precision, plays no part, and one tolerance serves every dtype. Scores
of hundreds, which some models have, are rounded by more than others in float32, by whoever computes them: the
tolerance of a layer grows with its largest score.
"""

from __future__ import annotations

import sys
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fillerscope.capture.attention import TextAttention, captured_attention, capturing, record
from fillerscope.capture.masks import MaskRule, mask_rule
from fillerscope.errors import CaptureError
from fillerscope.models.loading import LoadedModel
from fillerscope.models.structure import text_config

NAME = "fillerscope_check"
TOLERANCE = 1e-5
ROUNDING = 2.0**-22  # of a score, from a sum of products in float32 whose last bit is worth 2^-24
BLOCK = 16  # rows, so that the seams between blocks are tried too
SHORT, LONGEST = 48, 1100  # tokens; a sliding window is checked where whole matrices can reach past it

_eager: ContextVar[dict[int, tuple[Tensor, float]]] = ContextVar("fillerscope_eager_weights")


@dataclass(frozen=True)
class SelfCheck:
    difference: float  # where it is largest against its tolerance, over layers, heads and positions
    tolerance: float  # in that layer
    tokens: int
    layer: int  # where that is, from 1
    head: int

    def record(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _BothMasks:
    rule: MaskRule
    whole: Tensor


def selfcheck(loaded: LoadedModel) -> SelfCheck:
    """One pass over two random texts of unequal length, all query groups; a mismatch is an error with the figure."""
    length = _length(loaded)
    random = np.random.default_rng(0)
    vocabulary = text_config(loaded.model).vocab_size
    texts = [random.integers(0, vocabulary, size=n).tolist() for n in (length, length // 2)]
    original = [random.random(len(text)) < 0.5 for text in texts]
    _register()
    whole: dict[int, tuple[Tensor, float]] = {}
    token = _eager.set(whole)
    try:
        with capturing(loaded.model, NAME):
            ours = record(loaded.model, texts, original, BLOCK)
    finally:
        _eager.reset(token)
    weights = torch.stack([whole[layer][0] for layer in sorted(whole)], 1).double().cpu().numpy()
    allowed = np.maximum(TOLERANCE, ROUNDING * np.array([whole[layer][1] for layer in sorted(whole)]))
    gaps = [
        _gap(mine, eager_received(matrix[..., : len(text), : len(text)], mine.rows))
        for mine, matrix, text in zip(ours, weights, texts, strict=True)
    ]
    gap = np.maximum(*gaps)
    layer, head = np.unravel_index(int((gap / allowed[:, None]).argmax()), gap.shape)
    worst = float(gap[layer, head]), float(allowed[layer])
    return _judge(SelfCheck(*worst, length, int(layer) + 1, int(head) + 1), loaded.label)


def eager_received(weights: NDArray[np.float64], rows: NDArray[np.bool_]) -> NDArray[np.float64]:
    """[group, layer, head, position] from whole matrices [layer, head, row, key]: the plain definition, for
    short texts only. `rows` [group, row] says who votes."""
    below = np.tril(weights, -1)
    voters = np.tril(np.ones(weights.shape[-2:]), -1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.stack([(below[..., group, :].sum(-2)) / voters[group].sum(0) for group in rows])


def _gap(mine: TextAttention, expected: NDArray[np.float64]) -> NDArray[np.float64]:
    """[layer, head]: the largest over groups and positions; NaN where either is not a number and should be one."""
    votes = mine.rows[:, ::-1].cumsum(axis=1)[:, ::-1] - mine.rows > 0
    gaps = np.abs(mine.mean_received() - expected)
    return np.asarray(np.where(votes[:, None, None], gaps, 0.0).max(axis=(0, -1)))


def _judge(result: SelfCheck, label: str) -> SelfCheck:
    if not result.difference <= result.tolerance:  # NaN is a mismatch too
        raise CaptureError(
            f"self-check failed on {label}: attention received differs from the model's eager attention by "
            f"{result.difference:.1e} in layer {result.layer} head {result.head} ({result.tolerance:.0e} is allowed); "
            "this model cannot be measured exactly"
        )
    return result


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, _both)
    AttentionMaskInterface.register(NAME, _both_masks)


def _both_masks(**given: Any) -> _BothMasks:
    from transformers.masking_utils import eager_mask

    return _BothMasks(mask_rule(**given), eager_mask(**(given | {"dtype": torch.float32})))


def _both(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: _BothMasks, **given: Any
) -> tuple[Tensor, None]:
    """Ours for the recorder, then the model's own in float32, whose output goes on to the next layer."""
    captured_attention(module, query, key, value, attention_mask.rule, **given)
    own = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    if own is None:
        raise CaptureError(f"{type(module).__name__} has no eager attention to compare with; it cannot be checked")
    output, weights = own(module, query.float(), key.float(), value.float(), attention_mask.whole, **given)
    _eager.get()[int(module.layer_idx)] = weights, _largest_score(query, key, given.get("scaling"))  # type: ignore[arg-type]
    return output.to(query.dtype), None


def _largest_score(query: Tensor, key: Tensor, scaling: float | None) -> float:
    stacked = query.float().reshape(*key.shape[:2], -1, key.shape[-1])
    scores = stacked @ key.float().transpose(-1, -2)
    return float(scores.abs().max()) * (query.shape[-1] ** -0.5 if scaling is None else float(scaling))


def _length(loaded: LoadedModel) -> int:
    window = getattr(text_config(loaded.model), "sliding_window", None) or 0
    return window + 16 if SHORT <= window + 16 <= LONGEST else SHORT
