"""The capture compared with the model's own eager attention, before anybody trusts a number."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fillerscope.capture.attention import capturing, record
from fillerscope.errors import CaptureError
from fillerscope.models.loading import LoadedModel
from fillerscope.models.structure import decoder_of, device_of, text_config

TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 5e-3}
SHORT, LONGEST = 48, 1100  # tokens; a sliding window is checked where eager attention can reach past it


@dataclass(frozen=True)
class SelfCheck:
    difference: float  # the largest, over layers, heads and positions
    tolerance: float
    tokens: int
    layer: int  # where the largest difference is, from 1
    head: int

    def record(self) -> dict[str, Any]:
        return asdict(self)


def selfcheck(loaded: LoadedModel) -> SelfCheck:
    """Two random texts of unequal length, in one batch against one at a time in eager mode."""
    length = _length(loaded)
    random = np.random.default_rng(0)
    vocabulary = text_config(loaded.model).vocab_size
    texts = [random.integers(0, vocabulary, size=n).tolist() for n in (length, length // 2)]
    with capturing(loaded.model):
        ours = record(loaded.model, texts, [np.ones(len(text), dtype=np.bool_) for text in texts])
    gaps = [
        np.abs(mine.mean_received()[0] - eager_received(loaded.model, text))[..., :-1]
        for mine, text in zip(ours, texts, strict=True)
    ]
    worst = np.maximum(*(gap.max(axis=-1) for gap in gaps))
    layer, head = np.unravel_index(int(worst.argmax()), worst.shape)
    result = SelfCheck(float(worst.max()), TOLERANCE[loaded.dtype], length, int(layer) + 1, int(head) + 1)
    if not result.difference <= result.tolerance:
        raise CaptureError(
            f"self-check failed on {loaded.label}: attention received differs from the model's eager attention by "
            f"{result.difference:.1e} in layer {result.layer} head {result.head} ({result.tolerance:.0e} is allowed); "
            "this model cannot be measured exactly"
        )
    return result


def eager_received(model: Any, ids: list[int]) -> NDArray[np.float64]:
    """[layer, head, position]: the plain definition, from whole matrices. For short texts only."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            tokens = torch.tensor([ids], device=device_of(model))
            weights = decoder_of(model)(input_ids=tokens, output_attentions=True, use_cache=False).attentions
    finally:
        model.set_attn_implementation(before)
    matrix = torch.stack([layer[0] for layer in weights]).double().cpu().numpy()
    below = np.tril(matrix, -1).sum(axis=-2)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(below / np.arange(len(ids) - 1, -1, -1))


def _length(loaded: LoadedModel) -> int:
    window = getattr(text_config(loaded.model), "sliding_window", None) or 0
    return window + 16 if SHORT <= window + 16 <= LONGEST else SHORT
