"""The row check: texts run as a study runs them are compared with each of them alone in the stock model.

The self-check gives both sides the same queries, keys and values, so it cannot see what a row of tokens does beyond
attention: a state carried from text to text, positions taken from the longest text of the row. Here hidden
states before and after every layer, its attention inputs and the attention received are compared. Every layer starts
from what the stock model gave it, so that the rounding of one layer is all that may differ; how much that is, is
measured on the model itself. Short texts go through all layers, texts as long as the study's through the first layer of
each kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fillerscope.capture.layer_inputs import (
    AFTER_LAST,
    LayerInputs,
    TokenMatch,
    depth_of_kinds,
)
from fillerscope.capture.masks import MaskRule
from fillerscope.capture.memory import pass_tokens
from fillerscope.capture.packing import Text
from fillerscope.capture.passes import Layout
from fillerscope.capture.precision import in_float32
from fillerscope.capture.row_samples import PREFIX, Sample, make_sample, recording_masks, run_alone, run_in_rows
from fillerscope.capture.self_check import explained_failures
from fillerscope.display import first_line
from fillerscope.errors import CaptureError, FillerscopeError
from fillerscope.files import Json
from fillerscope.models.loading import LoadedModel
from fillerscope.models.positions import length_limit
from fillerscope.models.structure import (
    carries_state,
    context_length,
    decoder_of,
    device_of,
    has_experts,
    layer_count,
)
from fillerscope.models.tensor_parallel import own_heads

LENGTHS = (3, 13, 29)  # tokens of the texts after it, and one more text as long as the study's longest
LONGEST = 256  # tokens, where no study says how long its prompts are
BEYOND = 24  # tokens past such a limit
FURTHEST = 2048  # tokens: whole matrices of longer texts do not fit; beyond a limit a text has a pass of its own
LONGEST_REACH = 1 << 20  # keys: whether a rule that reaches further is a window is tried no further
WINDOW = 8  # tokens that are judged together, so that one which rounding sends to another expert does not decide
SEVERAL = 3  # texts whose first tokens are judged together: a convolution leaks into those alone
OFTEN = 8.0  # times the rounding that is seen on the model itself
HALF = (torch.bfloat16, torch.float16)
LEAST = {torch.float32: 5e-5, torch.float64: 5e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}
MOST = {torch.float32: 5e-4, torch.float64: 5e-4, torch.bfloat16: 2e-1, torch.float16: 5e-2}


@dataclass(frozen=True)
class RowCheck:
    """The layout in which texts share a forward pass, and how far its numbers are from those of texts alone."""

    layout: Layout
    difference: float  # where it is largest against its tolerance: of a layer's inputs, relative to their size
    tolerance: float
    tokens: int  # of the longest text
    sinks: bool  # whether any layer has learned sinks
    windows: tuple[int | None, ...]  # of each layer: tokens that a row sees, None for all, 0 for another rule
    tried: tuple[str, ...] = ()  # why the layouts before this one were rejected

    def record(self) -> Json:
        return asdict(self)


def check_rows(loaded: LoadedModel, longest: int = LONGEST, tokens: int | None = None) -> RowCheck:
    """Return the cheapest layout in which texts of very unequal length give the same numbers as each text alone.

    Tries prompts of up to `longest` tokens in rows of `tokens` tokens; where memory runs out, fewer. Half precision
    hides small leaks in its rounding, so there the layout is chosen in float32 first. Where memory does not hold the
    float32 weights, a model that carries a state gets a row for each text."""
    tokens = pass_tokens(loaded.model) if tokens is None else tokens
    layouts: tuple[Layout, ...] = get_args(Layout)
    if _dtype(loaded.model) in HALF:
        with in_float32(loaded.model) as possible:
            if possible:
                first = _check_within_memory(loaded, longest, tokens, layouts).layout
            else:
                first = "apart" if carries_state(loaded.model) else "shared"
        layouts = layouts[layouts.index(first) :]
    return _check_within_memory(loaded, longest, tokens, layouts)


def check_texts(loaded: LoadedModel, texts: Sequence[Text]) -> RowCheck:
    """Return the cheapest layout in which these very texts give the same numbers as each text alone.

    For a few short texts in float32: they go through all layers with whole matrices, which are compared with what the
    capture measures. No other text has to be tried for their sake."""
    with explained_failures(loaded.label):
        alone = [run_alone(loaded.model, text.ids, text.rows) for text in texts]
    return _first_layout(loaded, [Sample(list(texts), alone, None)], get_args(Layout))


def _check_within_memory(loaded: LoadedModel, longest: int, tokens: int, layouts: Sequence[Layout]) -> RowCheck:
    try:
        return _check_layouts(loaded, longest, tokens, layouts)
    except torch.OutOfMemoryError:
        if longest <= LENGTHS[-1]:
            raise
        return _check_within_memory(loaded, longest // 2, tokens // 2, layouts)


def _check_layouts(loaded: LoadedModel, longest: int, tokens: int, layouts: Sequence[Layout]) -> RowCheck:
    with explained_failures(loaded.label):
        short = make_sample(loaded, LENGTHS, None)
        long = make_sample(loaded, _long_lengths(loaded, longest), depth_of_kinds(loaded.model)).filling(tokens)
    return _first_layout(loaded, [short, long], layouts)


def _first_layout(loaded: LoadedModel, samples: Sequence[Sample], layouts: Sequence[Layout]) -> RowCheck:
    """Try layouts in turn. The first sample, which goes through all layers, shows what rounding does."""
    short, longest = samples[0], max(len(text) for sample in samples for text in sample.texts)
    tried: list[str] = []
    for layout in layouts:
        try:
            with recording_masks() as masks:
                gaps = [gap for sample in samples for gap in _layer_gaps(loaded, sample, layout)]
        except (FillerscopeError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # a model that cannot run this way at all
            tried.append(f"{layout}: {first_line(error)}")
            continue
        gap, allowed, layer = _worst(loaded, gaps, short)
        if gap <= allowed:
            sinks = any(inputs.sinks for inputs in short.alone)
            return RowCheck(layout, gap, allowed, longest, sinks, _windows(loaded.model, masks), tuple(tried))
        place = "after the last layer" if layer == AFTER_LAST else f"in layer {layer + 1}"
        tried.append(f"{layout}: {gap:.1e} {place}, {allowed:.0e} is allowed")
    raise CaptureError(
        f"{loaded.label} cannot be measured exactly: texts measured by fillerscope differ from the same texts alone in "
        f"the stock model ({'; '.join(tried)})"
    )


def _worst(loaded: LoadedModel, gaps: Sequence[tuple[float, int]], short: Sample) -> tuple[float, float, int]:
    """Return the difference that is largest relative to its tolerance, that tolerance, and the layer. Rounding is
    measured only where a difference is above the smallest tolerance."""
    least, most = (limits.get(_dtype(loaded.model), limits[torch.float32]) for limits in (LEAST, MOST))
    gap, layer = max(gaps)
    if gap <= least:
        return gap, least, layer
    allowed = {layer: min(most, least + OFTEN * one) for layer, one in _rounding_of_layers(loaded, short).items()}
    return max(((gap, allowed[layer], layer) for gap, layer in gaps), key=lambda one: one[0] / one[1])


def _long_lengths(loaded: LoadedModel, longest: int) -> list[int]:
    """Tokens after the prefix: of short texts, of one as long as the study's prompts (at most what whole matrices
    allow), and of one just within the model's length limit where the study goes beyond it."""
    limit = length_limit(loaded.model)
    passed = [limit] if limit is not None and LENGTHS[-1] + PREFIX < limit < longest and limit <= FURTHEST else []
    most = max([FURTHEST, *(one + BEYOND for one in passed)])
    whole = [*passed, max(LENGTHS[-1] + PREFIX + 1, min(longest, most))]
    return [*LENGTHS, *(count - PREFIX for count in whole)]


def _rounding_of_layers(loaded: LoadedModel, sample: Sample) -> dict[int, float]:
    """By layer, how much its inputs and the attention received differ through rounding alone: of a text in a longer
    call, whose end a causal model cannot see, and of the text by itself under our attention."""
    text, alone = sample.texts[-1], sample.alone[-1]
    whole, more = slice(0, len(text)), text.ids[: WINDOW + 1]
    longer = run_alone(
        loaded.model, (*text.ids, *more), np.pad(text.rows, ((0, 0), (0, len(more)))), TokenMatch(whole, alone, whole)
    )
    passes, measured = run_in_rows(loaded, replace(sample, texts=[replace(text, shared=0)], alone=[alone]), "packed")
    (mine,) = passes.values()
    received = measured.text(0).mean_received()
    rounding, rerouting = {}, _may_reroute(loaded.model)
    for layer in alone.layers:
        both = ([one[whole] for one in other.of(layer)] for other in (longer, mine))
        gaps = [_worst_of([_gaps(one, alone.of(layer))], rerouting) for one in both]
        if layer in alone.received:
            expected = alone.received[layer].cpu().numpy()
            gaps.append(_received_gap(longer.received[layer].cpu().numpy()[..., whole], expected))
            gaps.append(_received_gap(received[:, layer], expected))
        rounding[layer] = max(gaps)
    return rounding


def _layer_gaps(loaded: LoadedModel, sample: Sample, layout: Layout) -> list[tuple[float, int]]:
    """How far each layer's inputs and the attention received in it are from those of texts alone, with the layer."""
    passes, measured = run_in_rows(loaded, sample, layout)
    rerouting = _may_reroute(loaded.model)
    runs = [(inputs, match) for packing, inputs in passes.items() for match in sample.matches(packing)]
    gaps = [
        (_worst_of([_gaps(*_pair(inputs, match, layer)) for inputs, match in runs], rerouting), layer)
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
    """Differences [token] of every tensor, relative to the token's norm, or to the median norm where that is larger."""
    result = []
    for one, other in zip(mine, expected, strict=True):
        sizes = torch.linalg.vector_norm(other.float(), dim=-1)
        gaps = torch.linalg.vector_norm(one.float() - other.float(), dim=-1)
        gaps = gaps / sizes.clamp(min=max(float(sizes.median()), 1e-30))
        result.append(torch.where(gaps.isnan(), torch.inf, gaps).cpu())
    return result


def _worst_of(runs: Sequence[list[Tensor]], rerouting: bool) -> float:
    """The largest of [run][tensor][token]. Where rounding may send single tokens to another expert, the largest of
    medians: over neighbours, and over tokens at the same place of several runs."""
    worst = 0.0
    for tensors in zip(*runs, strict=True):
        if not rerouting:
            worst = max(worst, *(float(gaps.max()) for gaps in tensors))
            continue
        whole = [one for gaps in tensors for one in gaps.split(WINDOW)]
        starts = [torch.stack(some) for some in zip(*(gaps[:WINDOW] for gaps in tensors), strict=False)]
        judged = whole if len(runs) < SEVERAL else [*whole, *starts]
        worst = max(worst, *(float(one.median()) for one in judged))
    return worst


def _may_reroute(model: nn.Module) -> bool:
    """Whether rounding may send tokens to other experts."""
    return _dtype(model) in HALF and has_experts(model)


def _received_gap(received: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """The largest difference over [group, head, position]; infinite where an expected number is missing. Where several
    processes share a model, the stock model has the heads of this one."""
    if received.shape[1] > expected.shape[1]:
        received = received[:, own_heads(received.shape[1])]
    gaps = np.abs(np.where(np.isfinite(expected), received - expected, 0.0))
    return float(np.where(np.isfinite(gaps), gaps, np.inf).max())


def _windows(model: nn.Module, masks: dict[int, MaskRule]) -> tuple[int | None, ...]:
    """Rules are tried on texts that are longer than they reach: a chunk ends where a window would move on."""
    longest, device = context_length(model) or LONGEST, device_of(model)

    def window(rule: MaskRule) -> int | None:
        length = min(longest, max(FURTHEST, min(rule.reach or 0, LONGEST_REACH) + 2))
        return rule.reach if rule.is_window(length, device) else 0

    return tuple(window(masks[layer]) if layer in masks else None for layer in range(layer_count(model)))


def _dtype(model: nn.Module) -> torch.dtype:
    return next(decoder_of(model).parameters()).dtype
