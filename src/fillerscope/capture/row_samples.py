"""Sample texts for the row check, run in two ways: each alone in the stock model, and together as a study runs them.

Both ways record what every layer is given. Every layer starts from what the stock model gave it, so that differences
do not grow from layer to layer.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fillerscope.capture.attention import active_recorder, captured_attention, capturing
from fillerscope.capture.layer_inputs import (
    LayerInputs,
    Passes,
    TokenMatch,
    layer_of,
    record_attention,
    recording_inputs,
)
from fillerscope.capture.masks import PLAIN_CAUSAL, MaskRule, mask_rule
from fillerscope.capture.packing import Packing, Text
from fillerscope.capture.passes import Layout, Measured, PassRunner
from fillerscope.capture.small_operations import SmallOperations
from fillerscope.errors import CaptureError
from fillerscope.models.attention import using_attention
from fillerscope.models.loading import LoadedModel
from fillerscope.models.positions import reset_positions
from fillerscope.models.structure import decoder_of, device_of, layer_count, text_config

ROWS, STOCK = "fillerscope_rows", "fillerscope_stock"
PREFIX = 6  # tokens that all texts begin with

_rows: ContextVar[Tensor | None] = ContextVar("fillerscope_query_rows", default=None)
_masks: ContextVar[dict[int, MaskRule]] = ContextVar("fillerscope_mask_rules")


@dataclass(frozen=True)
class Sample:
    """Texts with what each gives alone, in all layers or the first `depth` of them."""

    texts: list[Text]
    alone: list[LayerInputs]
    depth: int | None

    def filling(self, tokens: int) -> Sample:
        """The same texts, repeated to fill a row of so many tokens: some models count places in the row."""
        times = max(1, -(-tokens // sum(text.own for text in self.texts)))
        return replace(self, texts=self.texts * times, alone=self.alone * times)

    def matches(self, packing: Packing | None) -> list[TokenMatch]:
        """For the tokens of a pass, the same tokens of the text run alone; of a prefix, of a text that has it."""
        assert packing is not None
        return [
            TokenMatch(place, self._alone(text.ids), slice(text.shared, len(text.ids)))
            for place, text in zip(packing.places(), packing.texts, strict=True)
        ]

    def _alone(self, ids: tuple[int, ...]) -> LayerInputs:
        """What the first text that begins with these tokens gave alone."""
        pairs = zip(self.texts, self.alone, strict=True)
        return next(inputs for text, inputs in pairs if text.ids[: len(ids)] == ids)


def make_sample(loaded: LoadedModel, lengths: Sequence[int], depth: int | None) -> Sample:
    """Random texts with a common prefix and so many tokens after it, each run alone."""
    random = np.random.default_rng(0)
    size = text_config(loaded.model).vocab_size
    prefix = random.integers(0, size, PREFIX).tolist()
    texts = []
    for count in lengths:
        ids = (*prefix, *random.integers(0, size, count).tolist())
        original = random.random(len(ids)) < 0.5
        original[:PREFIX] = True
        texts.append(Text(ids, original, PREFIX))
    return Sample(texts, [run_alone(loaded.model, text.ids, text.rows, depth=depth) for text in texts], depth)


@torch.inference_mode()
def run_alone(
    model: nn.Module,
    ids: Sequence[int],
    rows: NDArray[np.bool_],
    match: TokenMatch | None = None,
    depth: int | None = None,
) -> LayerInputs:
    """Run one text in the stock model, with its own eager attention, mask and positions, and return its layer inputs.
    `rows` [group, row] are the query rows whose attention is added up."""
    _register()
    reset_positions(model)
    device = device_of(model)
    token = _rows.set(torch.tensor(rows, device=device, dtype=torch.float64))
    matches = [] if match is None else [match]
    try:
        with recording_inputs(model, lambda: None, lambda _: matches, depth) as passes, using_attention(model, STOCK):
            decoder_of(model)(input_ids=torch.tensor([ids], device=device), use_cache=False)
    finally:
        _rows.reset(token)
    return passes[None]


def run_in_rows(loaded: LoadedModel, sample: Sample, layout: Layout) -> tuple[Passes, Measured]:
    """Run the texts as a study does, and return what layers were given in each pass and what was measured."""
    _register()
    small = SmallOperations.for_passes(loaded.model)
    runner = PassRunner(loaded.model, sum(map(len, sample.texts)), layout=layout, small=small)
    if sample.depth is not None:
        runner.without = tuple({*runner.without, *range(sample.depth, layer_count(loaded.model))})
    with (
        recording_inputs(loaded.model, lambda: active_recorder().packing, sample.matches, sample.depth) as passes,
        capturing(loaded.model, ROWS),
    ):
        measured = runner.measure(sample.texts)
    if measured.errors:
        raise torch.OutOfMemoryError(next(iter(measured.errors.values())))
    return passes, measured


@contextmanager
def recording_masks() -> Iterator[dict[int, MaskRule]]:
    """Inside the block, the mask rule of every layer that runs is put into a dictionary."""
    token = _masks.set({})
    try:
        yield _masks.get()
    finally:
        _masks.reset(token)


def _mean_received(weights: Tensor, rows: Tensor) -> Tensor:
    """Mean attention received [group, head, position] from whole matrices [head, row, key]: the plain definition."""
    sums = torch.einsum("gr,hrk->ghk", rows, weights.double().tril(-1))
    counts = rows @ torch.ones_like(weights[0], dtype=torch.float64).tril(-1)
    return sums / counts[:, None]


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register(ROWS, _recorded_attention)
    AttentionMaskInterface.register(ROWS, mask_rule)
    AttentionInterface.register(STOCK, _stock_attention)
    AttentionMaskInterface.register(STOCK, eager_mask)


def _recorded_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: MaskRule | None, **more: Any
) -> tuple[Tensor, None]:
    """Our attention, with its inputs and its mask recorded."""
    record_attention(active_recorder().packing, module, query, key, value)
    _masks.get({})[layer_of(module)] = PLAIN_CAUSAL if attention_mask is None else attention_mask
    return captured_attention(module, query, key, value, attention_mask, **more)


def _stock_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *given: Any, **more: Any
) -> tuple[Tensor, Tensor]:
    """The model's own eager attention, in float32 as ours is, with its inputs and what it received recorded."""
    own = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    if own is None:
        raise CaptureError(f"{type(module).__name__} has no eager attention to compare with; it cannot be checked")
    inputs = record_attention(None, module, query, key, value)
    inputs.sinks |= more.get("s_aux") is not None
    output, weights = own(module, query.float(), key.float(), value.float(), *given, **more)
    rows = _rows.get()
    assert rows is not None
    inputs.received[layer_of(module)] = _mean_received(weights[0], rows)
    return output.to(query.dtype), weights
