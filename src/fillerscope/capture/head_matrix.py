"""The attention weights of one head on one text, query rows against keys.

Everything else in this package adds weights up and keeps no matrix. This keeps the matrix of a single head, for
somebody who looks at it: of all layers and heads, only the one that is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fillerscope.capture.attention import Recorder, capturing, observe
from fillerscope.capture.attention_inputs import AttentionInputs
from fillerscope.capture.blocks import LOWEST
from fillerscope.capture.packing import Packing, Text
from fillerscope.capture.probes import intervening
from fillerscope.errors import CaptureError
from fillerscope.models.positions import reset_positions
from fillerscope.models.structure import attention_modules, decoder_of, head_count, layer_count

LONGEST = 512  # tokens: a matrix of more is neither drawn nor read
SUMS_AGREE = 1e-4  # how far the matrix's means may be from those of the same pass


@dataclass(frozen=True)
class HeadMatrix:
    """Weights [query, key] of one head on one text. A row sums to 1, or to 1 less what a learned sink takes of it."""

    weights: NDArray[np.float32]
    sinks: NDArray[np.float32] | None  # [query]: what a learned sink takes; None where the model has none
    layer: int  # from 1
    head: int
    tokens: tuple[str, ...] = ()  # the text of each token

    def received(self, rows: NDArray[np.bool_] | None = None, diagonal: bool = False) -> NDArray[np.float64]:
        """[key]: mean weight that each token gets from the query rows after it, as a profile has it; NaN where there
        is none. `rows` says which rows count, all of them by default; `diagonal` counts a row's weight on itself."""
        counted = np.ones(len(self.weights), np.bool_) if rows is None else rows
        below = np.tril(np.ones(self.weights.shape, np.bool_), 0 if diagonal else -1) & counted[:, None]
        total = np.where(below, self.weights, 0.0).sum(axis=0, dtype=np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(total / below.sum(axis=0))


def head_matrix(model: nn.Module, text: Text, layer: int, head: int) -> HeadMatrix:
    """The matrix of a head, both numbers counted from 1, from one forward pass over a text of at most 512 tokens."""
    refuse_head(model, layer, head)
    refuse_long(len(text))
    packing = Packing.of([replace(text, shared=0, row_weights=None)])
    kept: dict[int, AttentionInputs] = {}
    with capturing(model):
        reset_positions(model)
        recorder = Recorder.of(model, packing, without=_without(model), inspect=(layer - 1, kept))
        with intervening(model, packing):
            observe(model, recorder)
    weights, sinks = _weights(kept[layer - 1], head - 1, packing.hidden(layer - 1))
    _refuse_other_sums(weights, recorder, layer, head)
    return HeadMatrix(weights.cpu().numpy(), None if sinks is None else sinks.cpu().numpy(), layer, head)


def refuse_long(tokens: int) -> None:
    if tokens > LONGEST:
        raise CaptureError(
            f"the prompt has {tokens} tokens, and attention token by token is shown for {LONGEST} at most: choose a "
            "shorter problem or a condition with less filler"
        )


def refuse_head(model: nn.Module, layer: int, head: int) -> None:
    """Raise an error for a head that the model lacks, or a layer without attention."""
    layers, heads = layer_count(model), head_count(model)
    if not (1 <= layer <= layers and 1 <= head <= heads):
        raise CaptureError(
            f"there is no layer {layer} head {head}: the model has layers 1 to {layers} and heads 1 to {heads}"
        )
    if layer - 1 in _without(model):
        raise CaptureError(f"layer {layer} of this model has no attention: choose another layer")


def _without(model: nn.Module) -> tuple[int, ...]:
    attending = attention_modules(decoder_of(model))
    return tuple(layer for layer in range(layer_count(model)) if layer not in attending)


def _weights(
    inputs: AttentionInputs, head: int, hidden: tuple[NDArray[np.bool_], NDArray[np.bool_]] | None
) -> tuple[Tensor, Tensor | None]:
    """[query, key] and what the sink takes [query], from queries and keys as the layer's attention got them."""
    rule, heads, tokens = inputs.rule, inputs.query.shape[0], inputs.query.shape[1]
    key = inputs.key[head // (heads // inputs.key.shape[0])].float()
    scores = (inputs.query[head].float() * rule.scaling) @ key.T
    if rule.softcap is not None:
        scores = (scores / rule.softcap).tanh() * rule.softcap
    scores.masked_fill_(rule.mask.hidden(range(tokens), range(tokens), scores.device), LOWEST)
    if hidden is not None:
        rows, keys = (torch.from_numpy(mask).to(scores.device) for mask in hidden)
        scores.masked_fill_(rows[:, None] & keys, LOWEST)
    if rule.sinks is None:
        return scores.softmax(-1), None
    with_sink = torch.cat([scores, rule.sinks[head].float().expand(tokens, 1)], dim=1).softmax(-1)
    return with_sink[:, :-1], with_sink[:, -1]


def _refuse_other_sums(weights: Tensor, recorder: Recorder, layer: int, head: int) -> None:
    """The pass added up the same weights by its own way: both must agree."""
    sums = recorder.received[layer - 1, head - 1, 0].to(weights.device)  # of all rows
    below = torch.tril(weights, -1).sum(0, dtype=torch.float64)
    later = torch.arange(len(sums) - 1, -1, -1, device=weights.device).clamp(min=1)  # rows that see each key
    gap = float(((below - sums).abs() / later).max())
    if not gap <= SUMS_AGREE:
        raise CaptureError(
            f"the matrix of layer {layer} head {head} differs from what the same pass added up by {gap:.1e} "
            f"({SUMS_AGREE:.0e} is allowed): this head cannot be shown exactly"
        )
