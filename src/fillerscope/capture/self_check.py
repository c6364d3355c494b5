"""The self-check: the capture is compared with the model's own eager attention before anything is measured.

In every layer both get the same queries, keys and values, so the capture alone is compared: the rounding of earlier
layers, large in half precision, plays no part, and one tolerance serves every dtype. Scores of hundreds, which some
models have, lose more to rounding in float32, whoever computes them: the tolerance of a layer grows with its largest
score.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fillerscope.capture.attention import active_recorder, captured_attention, capturing
from fillerscope.capture.masks import MaskRule, mask_rule
from fillerscope.capture.packing import Packing, Text
from fillerscope.capture.passes import PassRunner, TextAttention
from fillerscope.display import first_line
from fillerscope.errors import CaptureError, FillerscopeError
from fillerscope.files import Json
from fillerscope.models.loading import LoadedModel
from fillerscope.models.structure import text_config
from fillerscope.models.tensor_parallel import own_heads

NAME = "fillerscope_check"
TOLERANCE = 1e-5
ROUNDING = 2.0**-22  # of a score, from a sum of products in float32 whose last bit is worth 2^-24
BLOCK = 16  # rows, so that the seams between blocks are tried too
SHORT, LONGEST = 48, 1100  # tokens; a sliding window is checked where whole matrices can reach past it


@dataclass(frozen=True)
class SelfCheck:
    """The largest difference from the model's eager attention, and where it is."""

    difference: float  # where it is largest against its tolerance, over layers, heads and positions
    tolerance: float  # in that layer
    tokens: int
    layer: int  # where that is, from 1
    head: int

    def record(self) -> Json:
        return asdict(self)


@dataclass
class _Eager:
    """Weights of the model's own attention, by pass in their order, by layer and by number of the text."""

    weights: dict[Packing, dict[int, dict[int, Tensor]]] = field(default_factory=dict)  # [head, row, key]
    largest: dict[int, float] = field(default_factory=dict)  # score of a layer

    def matrices(self, number: int) -> NDArray[np.float64]:
        """Weights [layer, head, row, key] of a text of the last pass; the rows of its prefix come from the first."""
        before, own = self.weights.values()
        return np.stack([_joined(before[layer][0], own[layer][number]) for layer in sorted(own)])


def _joined(before: Tensor, own: Tensor) -> NDArray[np.float64]:
    whole = torch.zeros(own.shape[0], own.shape[2], own.shape[2], dtype=torch.float64)
    whole[:, : before.shape[1], : before.shape[2]] = before
    whole[:, before.shape[1] :] = own
    return np.asarray(whole.numpy())


_eager: ContextVar[_Eager] = ContextVar("fillerscope_eager_weights")


@dataclass(frozen=True)
class _BothMasks:
    rule: MaskRule
    given: Json

    def whole(self, rows: int, keys: int) -> Tensor:
        """[1, 1, row, key], made by transformers for rows that are the last ones of a text."""
        from transformers.masking_utils import eager_mask

        size = {"batch_size": 1, "q_length": rows, "kv_length": keys, "q_offset": keys - rows, "kv_offset": 0}
        mask: Tensor = eager_mask(**(self.given | size | {"attention_mask": None, "dtype": torch.float32}))
        return mask


def check_capture(loaded: LoadedModel) -> SelfCheck:
    """Compare two random texts of unequal length with a common prefix; a mismatch is an error with the number."""
    length = _length(loaded)
    random = np.random.default_rng(0)
    ids = random.integers(0, text_config(loaded.model).vocab_size, size=length).tolist()
    shared = length // 4
    other = [*ids[:shared], *ids[-(length // 4) :]]
    original = random.random(length) < 0.5
    texts = [Text(tuple(text), original[: len(text)], shared) for text in (ids, other)]
    with _recording_eager() as eager, capturing(loaded.model, NAME), explained_failures(loaded.label):
        measured = PassRunner(loaded.model, 2 * length, BLOCK).one_pass(texts)
    allowed = np.maximum(TOLERANCE, ROUNDING * np.array([eager.largest[layer] for layer in sorted(eager.largest)]))
    results = [measured.text(number) for number in range(len(texts))]
    layers = sorted(eager.largest)
    gaps = [
        _gap(mine, eager_received(eager.matrices(number), mine.rows), layers) for number, mine in enumerate(results)
    ]
    gap = np.maximum(*gaps)
    layer, head = np.unravel_index(int((gap / allowed[:, None]).argmax()), gap.shape)
    worst = float(gap[layer, head]), float(allowed[layer])
    head += own_heads(loaded.heads).start
    return _judge(SelfCheck(*worst, length, layers[int(layer)] + 1, int(head) + 1), loaded.label)


@contextmanager
def explained_failures(label: str) -> Iterator[None]:
    """Turn whatever a forward pass raises under a registered attention function into a CaptureError with a reason."""
    try:
        yield
    except (FillerscopeError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        message = f"{type(error).__name__}: {first_line(error)}"
        why = f"its forward pass does not work with a registered attention function ({message})"
        if "Mask" in message:  # it used the mask rule as if it were a tensor
            why = "it works on the attention mask itself, as sparse and dynamic-mask attention do"
        raise CaptureError(f"{label} cannot be measured: {why}") from error


@contextmanager
def _recording_eager() -> Iterator[_Eager]:
    _register()
    token = _eager.set(_Eager())
    try:
        yield _eager.get()
    finally:
        _eager.reset(token)


def eager_received(weights: NDArray[np.float64], rows: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Mean attention received [group, layer, head, position] from whole matrices [layer, head, row, key]: the plain
    definition, for short texts only. `rows` [group, row] are the query rows."""
    below = np.tril(weights, -1)
    visible = np.tril(np.ones(weights.shape[-2:]), -1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.stack([(below[..., group, :].sum(-2)) / visible[group].sum(0) for group in rows])


def _gap(mine: TextAttention, expected: NDArray[np.float64], layers: list[int]) -> NDArray[np.float64]:
    """Largest difference [layer, head] over groups and positions, of layers that have attention; NaN where either
    number is NaN and should not be."""
    seen = mine.rows[:, ::-1].cumsum(axis=1)[:, ::-1] - mine.rows > 0
    received = mine.mean_received()[:, layers]
    gaps = np.abs(received[:, :, own_heads(received.shape[2])] - expected)
    return np.asarray(np.where(seen[:, None, None], gaps, 0.0).max(axis=(0, -1)))


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
    return _BothMasks(mask_rule(**given), given)


def _both(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: _BothMasks, **given: Any
) -> tuple[Tensor, None]:
    """Our attention for the recorder, then the model's own in float32, text by text, whose output is returned."""
    captured_attention(module, query, key, value, attention_mask.rule, **given)
    own = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    if own is None:
        raise CaptureError(f"{type(module).__name__} has no eager attention to compare with; it cannot be checked")
    recorder, layer, eager = active_recorder(), int(module.layer_idx), _eager.get()  # type: ignore[arg-type]
    output = query.new_empty(1, query.shape[2], query.shape[1], value.shape[-1])
    before = recorder.prefix_of_layer(layer)
    for band in recorder.packing.bands:
        for number, text in enumerate(band.texts):
            place = slice(band.start + number * band.width, band.start + (number + 1) * band.width)
            q, k, v = (tensor[:, :, place].float() for tensor in (query, key, value))
            if before is not None:
                k, v = (torch.cat([b[None, :, band.prefix].float(), t], 2) for b, t in zip(before, (k, v), strict=True))
            mixed, weights = own(module, q, k, v, attention_mask.whole(q.shape[2], k.shape[2]), **given)
            output[:, place] = mixed.to(output.dtype)
            eager.weights.setdefault(recorder.packing, {}).setdefault(layer, {})[text] = weights[0].double().cpu()
            eager.largest[layer] = max(eager.largest.get(layer, 0.0), _largest_score(q, k, given.get("scaling")))
    return output, None


def _largest_score(query: Tensor, key: Tensor, scaling: float | None) -> float:
    stacked = query.float().reshape(*key.shape[:2], -1, key.shape[-1])
    scores = stacked @ key.float().transpose(-1, -2)
    return float(scores.abs().max()) * (query.shape[-1] ** -0.5 if scaling is None else float(scaling))


def _length(loaded: LoadedModel) -> int:
    window = getattr(text_config(loaded.model), "sliding_window", None) or 0
    return window + 16 if SHORT <= window + 16 <= LONGEST else SHORT
