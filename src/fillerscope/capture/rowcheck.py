"""Texts run as a study runs them, compared with each of them alone in the stock model.

The self-check gives both sides the same queries, keys and values, so it is blind to whatever a row of tokens does
beyond attention: a state carried from text to text, positions taken from the longest text of the row. Here the
attention inputs of every layer, the hidden states at the end and the attention received are compared. Rounding
differs with the shape of a pass; how much is measured on the model itself, so the tolerance grows with depth and
dtype as rounding does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fillerscope.capture.attention import captured_attention, capturing, recorder_at_work
from fillerscope.capture.masks import mask_rule
from fillerscope.capture.measuring import Gauge, Layout, Measured
from fillerscope.capture.packing import Packing, Text
from fillerscope.capture.selfcheck import refusing
from fillerscope.errors import CaptureError, FillerscopeError
from fillerscope.models.attending import attending
from fillerscope.models.loading import LoadedModel
from fillerscope.models.positions import length_limit, reset_positions
from fillerscope.models.structure import decoder_of, device_of, text_config
from fillerscope.models.wording import first_line

ROWS, STOCK = "fillerscope_rows", "fillerscope_stock"
PREFIX = 6  # tokens that all texts begin with
LENGTHS = (3, 17, 41)  # tokens of the texts behind it, and one more text as long as the study's longest
LONGEST = 256  # tokens, unless the configuration names a limit beyond which something changes
BEYOND = 24  # tokens past such a limit
FURTHEST = 2048  # tokens: whole matrices of longer texts do not fit; beyond a limit a text has a pass of its own
WINDOW = 8  # positions whose median difference is judged, so that one token sent to another expert does not decide
OFTEN = 8.0  # times the rounding that is seen on the model itself
LEAST = {torch.float32: 5e-5, torch.float64: 5e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}
MOST = {torch.float32: 5e-4, torch.float64: 5e-4, torch.bfloat16: 2e-1, torch.float16: 5e-2}
ENDED = -1  # stands for the hidden states behind the last layer


@dataclass(frozen=True)
class RowCheck:
    """How texts may be laid out in rows, and how far that is from each text alone."""

    layout: Layout
    difference: float  # where it is largest against its tolerance: of attention inputs, relative to their size
    tolerance: float
    tokens: int  # of the longest text
    sinks: bool  # whether any layer has learned sinks
    tried: tuple[str, ...] = ()  # why layouts before this one were given up

    def record(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class _Inputs:
    """What attention was given, by layer [token, feature], with the hidden states at the end."""

    inputs: dict[int, list[Tensor]] = field(default_factory=dict)  # queries, keys and values
    sinks: bool = False
    received: dict[int, Tensor] = field(default_factory=dict)  # [group, head, position], of a text alone


_heard: ContextVar[dict[Packing | None, _Inputs]] = ContextVar("fillerscope_row_inputs")
_rows: ContextVar[Tensor | None] = ContextVar("fillerscope_query_rows", default=None)


def rowcheck(loaded: LoadedModel, longest: int = LONGEST) -> RowCheck:
    """The most economical layout in which texts of very unequal length give what each gives alone. Where memory does
    not hold the longest text, a shorter one is tried."""
    try:
        return _checked(loaded, longest)
    except torch.OutOfMemoryError:
        if longest <= LENGTHS[-1]:
            raise
        return rowcheck(loaded, longest // 2)


def _checked(loaded: LoadedModel, longest: int) -> RowCheck:
    texts = _texts(loaded, longest)
    with refusing(loaded.label):
        alone = [_alone(loaded.model, text.ids, text.rows) for text in texts]
        rounding = _rounding(loaded, texts[len(LENGTHS) - 1], alone[len(LENGTHS) - 1])
    tried: list[str] = []
    for layout in get_args(Layout):
        try:
            gap, allowed, layer = _worst(loaded, texts, alone, rounding, layout)
        except (FillerscopeError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # a model that cannot run this way at all
            tried.append(f"{layout}: {first_line(error)}")
            continue
        if gap <= allowed:
            return RowCheck(layout, gap, allowed, max(map(len, texts)), alone[0].sinks, tuple(tried))
        place = "behind the last layer" if layer == ENDED else f"in layer {layer + 1}"
        tried.append(f"{layout}: {gap:.1e} {place}, {allowed:.0e} is allowed")
    raise CaptureError(
        f"{loaded.label} cannot be measured exactly: texts measured by fillerscope differ from the same texts alone in "
        f"the stock model ({'; '.join(tried)})"
    )


def _texts(loaded: LoadedModel, longest: int) -> list[Text]:
    limit = length_limit(loaded.model)
    most = LONGEST if limit is None or longest <= limit or limit > FURTHEST else limit + BEYOND
    random = np.random.default_rng(0)
    size = text_config(loaded.model).vocab_size
    prefix = random.integers(0, size, PREFIX).tolist()
    texts = []
    for count in (*LENGTHS, max(LENGTHS[-1], min(longest, most) - PREFIX)):
        ids = (*prefix, *random.integers(0, size, count).tolist())
        original = random.random(len(ids)) < 0.5
        original[:PREFIX] = True
        texts.append(Text(ids, original, PREFIX))
    return texts


@contextmanager
def _listening(model: Any) -> Iterator[dict[Packing | None, _Inputs]]:
    """Attention functions note what they are given, and the decoder what comes out of it."""
    _register()
    heard: dict[Packing | None, _Inputs] = {}
    token = _heard.set(heard)

    def ended(_module: Any, _inputs: Any, output: Any) -> None:
        hidden = output[0] if isinstance(output, tuple) else output.last_hidden_state
        next(reversed(heard.values())).inputs[ENDED] = [hidden.flatten(0, 1)]

    hook = decoder_of(model).register_forward_hook(ended)
    try:
        yield heard
    finally:
        hook.remove()
        _heard.reset(token)


@torch.inference_mode()
def _alone(model: Any, ids: Sequence[int], rows: NDArray[np.bool_] | None = None) -> _Inputs:
    """One text in the stock model, with its own eager attention and its own mask and positions. `rows` [group, row]
    are the query rows whose attention is added up."""
    reset_positions(model)
    device = device_of(model)
    token = _rows.set(None if rows is None else torch.tensor(rows, device=device, dtype=torch.float64))
    try:
        with _listening(model) as heard, attending(model, STOCK):
            decoder_of(model)(input_ids=torch.tensor([ids], device=device), use_cache=False)
    finally:
        _rows.reset(token)
    return heard[None]


def _rounding(loaded: LoadedModel, text: Text, alone: _Inputs) -> dict[int, float]:
    """By layer, by how much inputs differ where only rounding does: the text in a longer call, whose end a causal model
    cannot see, and by itself under our attention, which works in float32 whatever the model's dtype."""
    longer = _alone(loaded.model, (*text.ids, *text.ids[: WINDOW + 1]))
    heard, _ = _measured(loaded, [replace(text, shared=0)], "packed")
    (mine,) = heard.values()
    found, largest = {}, 0.0
    for layer in sorted(alone.inputs, key=lambda number: (number == ENDED, number)):
        for other in (longer, mine):
            some = [tensor[: len(text)] for tensor in other.inputs[layer]]
            largest = max(largest, _difference(some, alone.inputs[layer]))
        found[layer] = largest
    return found


def _measured(loaded: LoadedModel, texts: list[Text], layout: Layout) -> tuple[dict[Packing | None, _Inputs], Measured]:
    gauge = Gauge(loaded.model, sum(map(len, texts)), layout=layout)
    with _listening(loaded.model) as heard, capturing(loaded.model, ROWS):
        measured = gauge.measure(texts)
    if measured.errors:
        raise torch.OutOfMemoryError(next(iter(measured.errors.values())))
    return heard, measured


def _worst(
    loaded: LoadedModel, texts: list[Text], alone: list[_Inputs], rounding: dict[int, float], layout: Layout
) -> tuple[float, float, int]:
    """The difference that is largest against its tolerance, that tolerance, and the layer."""
    heard, measured = _measured(loaded, texts, layout)
    least, most = (limits.get(_dtype(loaded.model), limits[torch.float32]) for limits in (LEAST, MOST))
    found = []
    for number, (text, expected) in enumerate(zip(texts, alone, strict=True)):
        received = measured.text(number).mean_received()
        mine = _own(heard, text)
        for layer, rounded in rounding.items():
            gaps = [_difference(*pair) for pair in _pairs(mine, expected, layer)]
            if layer in expected.received:
                gaps.append(_received_gap(received[:, layer], expected.received[layer].cpu().numpy()))
            allowed = min(most, least + OFTEN * rounded)
            found += [(gap, allowed, layer) for gap in gaps]
    return max(found, key=lambda one: one[0] / one[1])


def _own(heard: dict[Packing | None, _Inputs], text: Text) -> list[tuple[slice, slice, _Inputs]]:
    """Where a text was run: its tokens, their places in the row of a pass, and what was heard there. What stands behind
    a prefix has the prefix's own pass as well."""
    passes = [(packing, inputs) for packing, inputs in heard.items() if packing is not None]
    runs = [(one, place, inputs) for packing, inputs in passes
            for place, one in zip(packing.places(), packing.texts, strict=True)]  # fmt: skip
    own = [run for run in runs if run[0].ids == text.ids]
    prefixes = [run for run in runs if not run[0].ends] if any(one.shared for one, *_ in own) else []
    return [(slice(one.shared, len(one.ids)), place, inputs) for one, place, inputs in (*own, *prefixes)]


def _pairs(
    mine: list[tuple[slice, slice, _Inputs]], expected: _Inputs, layer: int
) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    for tokens, place, inputs in mine:
        yield [one[place] for one in inputs.inputs[layer]], [one[tokens] for one in expected.inputs[layer]]


def _difference(mine: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest median over neighbouring positions, relative to the size of what is compared."""
    worst = 0.0
    for one, other in zip(mine, expected, strict=True):
        size = torch.linalg.vector_norm(other.float(), dim=-1).square().mean().sqrt().clamp(min=1e-30)
        gaps = torch.linalg.vector_norm(one.float() - other.float(), dim=-1) / size
        medians = [float(gaps[start : start + WINDOW].median()) for start in range(0, len(gaps), WINDOW)]
        worst = max(worst, *(median if median == median else float("inf") for median in medians))
    return worst


def _received_gap(received: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """[group, head, position]: the largest; infinite where a number is missing that should be there."""
    gaps = np.abs(np.where(np.isfinite(expected), received - expected, 0.0))
    return float(np.where(np.isfinite(gaps), gaps, np.inf).max())


def _received(weights: Tensor, rows: Tensor) -> Tensor:
    """[group, head, position] from whole matrices [head, row, key]: the plain definition."""
    sums = torch.einsum("gr,hrk->ghk", rows, weights.double().tril(-1))
    voters = rows @ torch.ones_like(weights[0], dtype=torch.float64).tril(-1)
    return sums / voters[:, None]


def _dtype(model: Any) -> torch.dtype:
    return next(decoder_of(model).parameters()).dtype


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register(ROWS, _in_rows)
    AttentionMaskInterface.register(ROWS, mask_rule)
    AttentionInterface.register(STOCK, _stock)
    AttentionMaskInterface.register(STOCK, eager_mask)


def _in_rows(module: Any, query: Tensor, key: Tensor, value: Tensor, *given: Any, **more: Any) -> Any:
    _note(recorder_at_work().packing, module, query, key, value)
    return captured_attention(module, query, key, value, *given, **more)


def _stock(module: Any, query: Tensor, key: Tensor, value: Tensor, *given: Any, **more: Any) -> Any:
    own = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    if own is None:
        raise CaptureError(f"{type(module).__name__} has no eager attention to compare with; it cannot be checked")
    _note(None, module, query, key, value)
    _heard.get()[None].sinks |= more.get("s_aux") is not None
    output, weights = own(module, query, key, value, *given, **more)
    rows = _rows.get()
    if rows is not None:
        _heard.get()[None].received[int(module.layer_idx)] = _received(weights[0], rows)
    return output, weights


def _note(packing: Packing | None, module: Any, *tensors: Tensor) -> None:
    inputs = _heard.get().setdefault(packing, _Inputs())
    inputs.inputs[int(module.layer_idx)] = [tensor.transpose(1, 2).flatten(2).flatten(0, 1) for tensor in tensors]
