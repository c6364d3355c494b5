"""Texts run as a study runs them, compared with each of them alone in the stock model.

The self-check gives both sides the same queries, keys and values, so it is blind to whatever a row of tokens does
beyond attention: a state carried from text to text, positions taken from the longest text of the row. Here hidden
states before and after every layer, its attention inputs and the attention received are compared. Every layer starts
from what the stock model gave it, so that the rounding of one layer is all that may differ; how much that is, is
measured on the model itself. Short texts go through all layers, texts as long as the study's through the first layer of
each kind.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fillerscope.capture.attention import active_recorder, captured_attention, capturing
from fillerscope.capture.layer_inputs import (
    AFTER_LAST,
    LayerInputs,
    Passes,
    TokenMatch,
    depth_of_kinds,
    layer_of,
    record_attention,
    recording_inputs,
)
from fillerscope.capture.masks import PLAIN_CAUSAL, MaskRule, mask_rule
from fillerscope.capture.memory import pass_tokens
from fillerscope.capture.packing import Packing, Text
from fillerscope.capture.passes import Layout, Measured, PassRunner
from fillerscope.capture.precision import in_float32
from fillerscope.capture.self_check import explained_failures
from fillerscope.display import first_line
from fillerscope.errors import CaptureError, FillerscopeError
from fillerscope.files import Json
from fillerscope.models.attention import attending
from fillerscope.models.loading import LoadedModel
from fillerscope.models.positions import length_limit, reset_positions
from fillerscope.models.structure import (
    carries_state,
    context_length,
    decoder_of,
    device_of,
    has_experts,
    layer_count,
    text_config,
)

ROWS, STOCK = "fillerscope_rows", "fillerscope_stock"
PREFIX = 6  # tokens that all texts begin with
LENGTHS = (3, 13, 29)  # tokens of the texts after it, and one more text as long as the study's longest
LONGEST = 256  # tokens, where no study says how long its prompts are
BEYOND = 24  # tokens past such a limit
FURTHEST = 2048  # tokens: whole matrices of longer texts do not fit; beyond a limit a text has a pass of its own
WINDOW = 8  # tokens that are judged together, so that one which rounding sends to another expert does not decide
SEVERAL = 3  # texts whose first tokens are judged together: what leaks through a convolution reaches no others
OFTEN = 8.0  # times the rounding that is seen on the model itself
HALF = (torch.bfloat16, torch.float16)
LEAST = {torch.float32: 5e-5, torch.float64: 5e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}
MOST = {torch.float32: 5e-4, torch.float64: 5e-4, torch.bfloat16: 2e-1, torch.float16: 5e-2}


@dataclass(frozen=True)
class RowCheck:
    """How texts may be laid out in rows, and how far that is from each text alone."""

    layout: Layout
    difference: float  # where it is largest against its tolerance: of a layer's inputs, relative to their size
    tolerance: float
    tokens: int  # of the longest text
    sinks: bool  # whether any layer has learned sinks
    windows: tuple[int | None, ...]  # of each layer: tokens that a row sees, None for all, 0 for another rule
    tried: tuple[str, ...] = ()  # why layouts before this one were given up

    def record(self) -> Json:
        return asdict(self)


_rows: ContextVar[Tensor | None] = ContextVar("fillerscope_query_rows", default=None)
_rules: ContextVar[dict[int, MaskRule]] = ContextVar("fillerscope_mask_rules")


@dataclass(frozen=True)
class _Sample:
    """Texts with what each gives alone, in all layers or the first `depth` of them."""

    texts: list[Text]
    alone: list[LayerInputs]
    depth: int | None

    def filling(self, tokens: int) -> _Sample:
        """The same texts as often as a row of so many tokens holds them: some models count places in the row."""
        times = max(1, -(-tokens // sum(text.own for text in self.texts)))
        return replace(self, texts=self.texts * times, alone=self.alone * times)

    def matches(self, packing: Packing | None) -> list[TokenMatch]:
        """Where a pass has its tokens from. What texts begin with is the same in all of them."""
        assert packing is not None
        known = {text.ids: inputs for text, inputs in zip(self.texts, self.alone, strict=True)}
        return [
            TokenMatch(place, known.get(text.ids, self.alone[0]), slice(text.shared, len(text.ids)))
            for place, text in zip(packing.places(), packing.texts, strict=True)
        ]


def check_rows(loaded: LoadedModel, longest: int = LONGEST, tokens: int | None = None) -> RowCheck:
    """The most economical layout in which texts of very unequal length give what each gives alone: prompts of up to
    `longest` tokens, and rows of so many `tokens` as a pass has. Where memory does not hold them, fewer are tried.

    Half precision hides small leaks in its rounding: there the layout is found in float32 first, where memory holds
    that, and a model that carries a state gets a row for each text where it does not."""
    tokens = pass_tokens(loaded.model) if tokens is None else tokens
    layouts: tuple[Layout, ...] = get_args(Layout)
    if _dtype(loaded.model) in HALF:
        with in_float32(loaded.model) as possible:
            if possible:
                first = _with_memory(loaded, longest, tokens, layouts).layout
            else:
                first = "apart" if carries_state(loaded.model) else "shared"
        layouts = layouts[layouts.index(first) :]
    return _with_memory(loaded, longest, tokens, layouts)


def _with_memory(loaded: LoadedModel, longest: int, tokens: int, layouts: Sequence[Layout]) -> RowCheck:
    try:
        return _checked(loaded, longest, tokens, layouts)
    except torch.OutOfMemoryError:
        if longest <= LENGTHS[-1]:
            raise
        return _with_memory(loaded, longest // 2, tokens // 2, layouts)


def _checked(loaded: LoadedModel, longest: int, tokens: int, layouts: Sequence[Layout]) -> RowCheck:
    with explained_failures(loaded.label):
        short = _sample(loaded, LENGTHS, None)
        long = _sample(loaded, _long(loaded, longest), depth_of_kinds(loaded.model)).filling(tokens)
    tried: list[str] = []
    for layout in layouts:
        try:
            with _keeping_rules() as rules:
                gaps = [gap for sample in (short, long) for gap in _layer_gaps(loaded, sample, layout)]
        except (FillerscopeError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # a model that cannot run this way at all
            tried.append(f"{layout}: {first_line(error)}")
            continue
        gap, allowed, layer = _worst(loaded, gaps, short)
        if gap <= allowed:
            sinks, tokens = any(inputs.sinks for inputs in short.alone), max(map(len, long.texts))
            return RowCheck(layout, gap, allowed, tokens, sinks, _windows(loaded.model, rules), tuple(tried))
        place = "after the last layer" if layer == AFTER_LAST else f"in layer {layer + 1}"
        tried.append(f"{layout}: {gap:.1e} {place}, {allowed:.0e} is allowed")
    raise CaptureError(
        f"{loaded.label} cannot be measured exactly: texts measured by fillerscope differ from the same texts alone in "
        f"the stock model ({'; '.join(tried)})"
    )


def _worst(loaded: LoadedModel, gaps: Sequence[tuple[float, int]], short: _Sample) -> tuple[float, float, int]:
    """The difference that is largest against its tolerance, that tolerance, and the layer. Rounding is measured where
    a difference asks for it."""
    least, most = (limits.get(_dtype(loaded.model), limits[torch.float32]) for limits in (LEAST, MOST))
    gap, layer = max(gaps)
    if gap <= least:
        return gap, least, layer
    allowed = {layer: min(most, least + OFTEN * one) for layer, one in _rounding(loaded, short).items()}
    return max(((gap, allowed[layer], layer) for gap, layer in gaps), key=lambda one: one[0] / one[1])


def _long(loaded: LoadedModel, longest: int) -> list[int]:
    """Tokens after the prefix: of short texts, of one as long as the study's prompts, up to where whole matrices fit,
    and where the study passes a limit of one that just keeps within it."""
    limit = length_limit(loaded.model)
    passed = [limit] if limit is not None and LENGTHS[-1] + PREFIX < limit < longest and limit <= FURTHEST else []
    most = max([FURTHEST, *(one + BEYOND for one in passed)])
    whole = [*passed, max(LENGTHS[-1] + PREFIX + 1, min(longest, most))]
    return [*LENGTHS, *(count - PREFIX for count in whole)]


def _sample(loaded: LoadedModel, lengths: Sequence[int], depth: int | None) -> _Sample:
    random = np.random.default_rng(0)
    size = text_config(loaded.model).vocab_size
    prefix = random.integers(0, size, PREFIX).tolist()
    texts = []
    for count in lengths:
        ids = (*prefix, *random.integers(0, size, count).tolist())
        original = random.random(len(ids)) < 0.5
        original[:PREFIX] = True
        texts.append(Text(ids, original, PREFIX))
    return _Sample(texts, [_alone(loaded.model, text.ids, text.rows, depth=depth) for text in texts], depth)


@torch.inference_mode()
def _alone(
    model: nn.Module,
    ids: Sequence[int],
    rows: NDArray[np.bool_],
    match: TokenMatch | None = None,
    depth: int | None = None,
) -> LayerInputs:
    """One text in the stock model, with its own eager attention and its own mask and positions. `rows` [group, row]
    are the query rows whose attention is added up."""
    _register()
    reset_positions(model)
    device = device_of(model)
    token = _rows.set(torch.tensor(rows, device=device, dtype=torch.float64))
    matches = [] if match is None else [match]
    try:
        with recording_inputs(model, lambda: None, lambda _: matches, depth) as passes, attending(model, STOCK):
            decoder_of(model)(input_ids=torch.tensor([ids], device=device), use_cache=False)
    finally:
        _rows.reset(token)
    return passes[None]


def _rounding(loaded: LoadedModel, sample: _Sample) -> dict[int, float]:
    """By layer, by how much its inputs and what is received differ where only rounding does: a text in a longer call,
    whose end a causal model cannot see, and by itself under our attention."""
    text, alone = sample.texts[-1], sample.alone[-1]
    whole, more = slice(0, len(text)), text.ids[: WINDOW + 1]
    longer = _alone(
        loaded.model, (*text.ids, *more), np.pad(text.rows, ((0, 0), (0, len(more)))), TokenMatch(whole, alone, whole)
    )
    passes, measured = _measured(loaded, replace(sample, texts=[replace(text, shared=0)], alone=[alone]), "packed")
    (mine,) = passes.values()
    received = measured.text(0).mean_received()
    rounding, flipping = {}, _flips(loaded.model)
    for layer in alone.layers:
        both = ([one[whole] for one in other.of(layer)] for other in (longer, mine))
        gaps = [_worst_of([_gaps(one, alone.of(layer))], flipping) for one in both]
        if layer in alone.received:
            expected = alone.received[layer].cpu().numpy()
            gaps.append(_received_gap(longer.received[layer].cpu().numpy()[..., whole], expected))
            gaps.append(_received_gap(received[:, layer], expected))
        rounding[layer] = max(gaps)
    return rounding


def _measured(loaded: LoadedModel, sample: _Sample, layout: Layout) -> tuple[Passes, Measured]:
    _register()
    runner = PassRunner(loaded.model, sum(map(len, sample.texts)), layout=layout)
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


def _layer_gaps(loaded: LoadedModel, sample: _Sample, layout: Layout) -> list[tuple[float, int]]:
    """How far a layer's inputs and what is received in it are from those alone, each with its layer."""
    passes, measured = _measured(loaded, sample, layout)
    flipping = _flips(loaded.model)
    runs = [(inputs, match) for packing, inputs in passes.items() for match in sample.matches(packing)]
    gaps = [
        (_worst_of([_gaps(*_pair(inputs, match, layer)) for inputs, match in runs], flipping), layer)
        for layer in sample.alone[0].layers
    ]
    for number, expected in enumerate(sample.alone):
        received = measured.text(number).mean_received()
        pairs = ((received[:, layer], one.cpu().numpy(), layer) for layer, one in expected.received.items())
        gaps += [(_received_gap(mine, theirs), layer) for mine, theirs, layer in pairs]
    return gaps


def _pair(inputs: LayerInputs, match: TokenMatch, layer: int) -> tuple[list[Tensor], list[Tensor]]:
    mine, theirs = inputs.of(layer), match.other.of(layer)
    return [one[match.place] for one in mine], [one[match.tokens] for one in theirs]


def _gaps(mine: Sequence[Tensor], expected: Sequence[Tensor]) -> list[Tensor]:
    """[token] of every tensor, relative to the size of what is compared: that of the token, or of the usual one where
    that is larger."""
    found = []
    for one, other in zip(mine, expected, strict=True):
        sizes = torch.linalg.vector_norm(other.float(), dim=-1)
        gaps = torch.linalg.vector_norm(one.float() - other.float(), dim=-1)
        gaps = gaps / sizes.clamp(min=max(float(sizes.median()), 1e-30))
        found.append(torch.where(gaps.isnan(), torch.inf, gaps).cpu())
    return found


def _worst_of(runs: Sequence[list[Tensor]], flipping: bool) -> float:
    """[run][tensor][token]: the largest. Where rounding may send a token to another expert, which puts it far off by
    itself, medians are taken: among neighbours, and among tokens at the same place of several runs."""
    worst = 0.0
    for tensors in zip(*runs, strict=True):
        if not flipping:
            worst = max(worst, *(float(gaps.max()) for gaps in tensors))
            continue
        whole = [one for gaps in tensors for one in gaps.split(WINDOW)]
        starts = [torch.stack(some) for some in zip(*(gaps[:WINDOW] for gaps in tensors), strict=False)]
        judged = whole if len(runs) < SEVERAL else [*whole, *starts]
        worst = max(worst, *(float(one.median()) for one in judged))
    return worst


def _flips(model: nn.Module) -> bool:
    """Whether rounding may send tokens to other experts."""
    return _dtype(model) in HALF and has_experts(model)


def _received_gap(received: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """[group, head, position]: the largest; infinite where a number is missing that should be there."""
    gaps = np.abs(np.where(np.isfinite(expected), received - expected, 0.0))
    return float(np.where(np.isfinite(gaps), gaps, np.inf).max())


@contextmanager
def _keeping_rules() -> Iterator[dict[int, MaskRule]]:
    token = _rules.set({})
    try:
        yield _rules.get()
    finally:
        _rules.reset(token)


def _windows(model: nn.Module, rules: dict[int, MaskRule]) -> tuple[int | None, ...]:
    longest, device = context_length(model) or LONGEST, device_of(model)
    length = min(longest, FURTHEST)
    return tuple(
        (rule.reach if rule.is_window(length, device) else 0) if (rule := rules.get(layer)) else None
        for layer in range(layer_count(model))
    )


def _received(weights: Tensor, rows: Tensor) -> Tensor:
    """[group, head, position] from whole matrices [head, row, key]: the plain definition."""
    sums = torch.einsum("gr,hrk->ghk", rows, weights.double().tril(-1))
    voters = rows @ torch.ones_like(weights[0], dtype=torch.float64).tril(-1)
    return sums / voters[:, None]


def _dtype(model: nn.Module) -> torch.dtype:
    return next(decoder_of(model).parameters()).dtype


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register(ROWS, _in_rows)
    AttentionMaskInterface.register(ROWS, mask_rule)
    AttentionInterface.register(STOCK, _stock)
    AttentionMaskInterface.register(STOCK, eager_mask)


def _in_rows(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **more: Any) -> Any:
    record_attention(active_recorder().packing, module, query, key, value)
    _rules.get({})[layer_of(module)] = PLAIN_CAUSAL if attention_mask is None else attention_mask
    return captured_attention(module, query, key, value, attention_mask, **more)


def _stock(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *given: Any, **more: Any) -> Any:
    """The model's own, in float32 as ours is."""
    own = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    if own is None:
        raise CaptureError(f"{type(module).__name__} has no eager attention to compare with; it cannot be checked")
    inputs = record_attention(None, module, query, key, value)
    inputs.sinks |= more.get("s_aux") is not None
    output, weights = own(module, query.float(), key.float(), value.float(), *given, **more)
    rows = _rows.get()
    assert rows is not None
    inputs.received[layer_of(module)] = _received(weights[0], rows)
    return output.to(query.dtype), weights
