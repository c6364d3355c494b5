"""Texts measured: what every position of each of them receives, in as few and as full passes as memory allows.

What many texts begin with is run once, and their own rows add to what it receives. Knows nothing of conditions
or statistics; sums and the rows that voted are given as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fillerscope.capture.attention import Recorder, observe
from fillerscope.capture.memory import PendingCopy, to_device
from fillerscope.capture.packing import GROUPS, Packing, Text, passes, problems
from fillerscope.capture.probes import Collector, Probing, changed
from fillerscope.models.positions import length_limit, reset_positions
from fillerscope.models.structure import attention_modules, decoder_of, device_of, head_count, layer_count

REMEMBERED = 32  # prefixes whose keys and values are kept
Layout = Literal["shared", "packed", "apart"]  # texts in one row after shared prefixes; in one row; a row for each


@dataclass(frozen=True)
class TextAttention:
    """What was measured on one text. Sums, and the counts to divide them by."""

    received: NDArray[np.float32]  # [group, layer, head, position]: sums of rows below the diagonal
    diagonal: NDArray[np.float32]  # [layer, head, position]
    entropy: NDArray[np.float32]  # [group, layer, head]: sums over rows
    rows: NDArray[np.bool_]  # [group, position]: which rows voted

    def mean_received(self, diagonal: bool = False) -> NDArray[np.float64]:
        """[group, layer, head, position]; NaN where no row could vote."""
        total, count = self.received.astype(np.float64), row_counts(self.rows, diagonal)
        if diagonal:
            total = total + self.diagonal.astype(np.float64) * self.rows[:, None, None, :]
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(count[:, None, None, :] > 0, total / count[:, None, None, :], np.nan)

    def mean_entropy(self) -> NDArray[np.float64]:
        """[group, layer, head], in nats; NaN for a group without rows."""
        count = self.rows.sum(axis=1)[:, None, None]
        return np.where(count > 0, self.entropy.astype(np.float64) / np.maximum(count, 1), np.nan)


def row_counts(rows: NDArray[np.bool_], diagonal: bool) -> NDArray[np.float64]:
    """[group, position]: how many rows vote on each position of a text."""
    later = rows[:, ::-1].cumsum(axis=1)[:, ::-1] - rows  # rows strictly after each key
    return (later + rows if diagonal else later).astype(np.float64)


@dataclass(frozen=True)
class Measured:
    """What was measured on some texts, their positions one after another, on the device that measured it."""

    received: Tensor  # [layer, head, group, position] float32
    diagonal: Tensor  # [layer, head, position]
    entropy: Tensor  # [layer, text, head, group]
    texts: tuple[Text, ...]
    errors: Mapping[int, str] = field(default_factory=dict)  # by text, why it has no numbers
    probes: Mapping[str, Tensor] = field(default_factory=dict)  # [layer, text, ...]: see Collector
    without: tuple[int, ...] = ()  # layers that have no attention, and NaN in place of numbers
    sink_sums: Tensor | None = (
        None  # [layer, text, head, group]: sums of what rows give to learned sinks, where there are
    )

    @cached_property
    def starts(self) -> list[int]:
        """Where each text begins among the positions, and where the last one ends."""
        return [0, *np.cumsum([len(text) for text in self.texts]).tolist()]

    def text(self, number: int) -> TextAttention:
        place = slice(*self.starts[number : number + 2])
        arrays = (
            self.received[..., place].movedim(2, 0),
            self.diagonal[..., place],
            self.entropy[:, number].movedim(2, 0),
        )
        received, diagonal, entropy = (array.cpu().numpy() for array in arrays)
        if self.texts[number].row_weights is not None:  # all of its rows are original ones
            received, entropy = received[[0, 0, 2]], entropy[[0, 0, 2]]
        return TextAttention(received, diagonal, entropy, self.texts[number].rows)

    def finite(self) -> Callable[[], NDArray[np.bool_]]:
        """[text]: whether all of its numbers are numbers. Asked at once, and told when it is known."""
        totals = {"positions": self.received.sum(dim=(1, 2)), "texts": self.entropy.sum(dim=(2, 3))}
        for total in totals.values():
            for layer in self.without:
                total[layer] = 0.0
        totals = {name: total.sum(0) for name, total in totals.items()}
        arriving = PendingCopy.of({name: torch.isfinite(total) for name, total in totals.items()})

        def found() -> NDArray[np.bool_]:
            arrays = arriving.arrays()
            return np.asarray(np.logical_and.reduceat(arrays["positions"], self.starts[:-1]) & arrays["texts"])

        return found


@dataclass(frozen=True)
class Prefix:
    """What texts that begin alike share: keys and values of each layer, and what its rows give to one another."""

    cache: Mapping[int, tuple[Tensor, Tensor]]  # by layer, [kv_head, position, dim]
    received: Tensor  # [layer, head, group, position]
    diagonal: Tensor  # [layer, head, position]
    entropy: Tensor  # [layer, head, group]
    sink_sums: Tensor | None  # the same of learned sinks


class PassRunner:
    """A model that measures texts, inside `capturing`. Remembers the prefixes that it has run."""

    def __init__(
        self, model: nn.Module, tokens: int, block: int | None = None, probing: Probing | None = None,
        layout: Layout = "shared",
    ) -> None:  # fmt: skip
        self.model, self.tokens, self.block, self.probing = model, tokens, block, probing or Probing()
        self.layout, self.limit = layout, length_limit(model)
        attending = attention_modules(decoder_of(model))
        self.without = tuple(layer for layer in range(layer_count(model)) if layer not in attending)
        self._prefixes: dict[tuple[tuple[int, float], ...], Prefix] = {}

    def measure(self, texts: Sequence[Text], tick: Callable[[int], None] = lambda _: None) -> Measured:
        """Some texts, in their order. Where memory runs out a pass is tried again in halves."""
        if self.layout != "shared":
            texts = [replace(text, shared=0) for text in texts]
        parts: list[tuple[list[int], Measured]] = []
        for some in self._parts(texts):
            parts.append(some)
            tick(len(some[0]))
        return _in_order(parts, texts)

    def _parts(self, texts: Sequence[Text]) -> Iterator[tuple[list[int], Measured]]:
        """Texts beyond a length at which the model changes its arithmetic have a pass of their own."""
        beyond = [n for n, text in enumerate(texts) if self.limit is not None and text.room > self.limit]
        apart = {texts[number].problem for number in beyond} - {-1} if self.probing.affine else set()
        torn = [number for number, text in enumerate(texts) if text.problem in apart]
        reason = f"beyond {self.limit} tokens this model changes its positions, so prompts cannot share a pass"
        yield from (([number], self._nothing(texts[number], reason)) for number in torn)
        for number in sorted({*beyond} - {*torn}):
            yield from self._halving([replace(text, shared=0) for text in texts], [number])
        near = [number for number in range(len(texts)) if number not in {*beyond, *torn}]
        for numbers in passes([texts[number] for number in near], self.tokens):
            yield from self._halving(texts, [near[number] for number in numbers])

    def _halving(self, texts: Sequence[Text], numbers: list[int]) -> Iterator[tuple[list[int], Measured]]:
        tokens = sum(texts[number].own for number in numbers)
        apart = problems(texts, numbers)
        if len(apart) == 1 or tokens <= self.tokens:
            try:
                yield numbers, self.one_pass([texts[number] for number in numbers])
                return
            except (torch.OutOfMemoryError, RuntimeError) as error:
                if not _ran_out(error):
                    raise
                if len(apart) == 1:
                    reason = f"memory runs out: {str(error).partition(chr(10))[0]}"
                    yield from (([number], self._nothing(texts[number], reason)) for number in numbers)
                    return
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            self.tokens = max(1, tokens // 2)  # later passes need not try again
        half = len(apart) // 2
        for some in (apart[:half], apart[half:]):
            yield from self._halving(texts, [number for one in some for number in one])

    def _nothing(self, text: Text, reason: str) -> Measured:
        """A text that cannot be measured: numbers that are none, and the reason."""
        layers, heads, groups = layer_count(self.model), head_count(self.model), len(GROUPS)
        shapes = (layers, heads, groups, len(text)), (layers, heads, len(text)), (layers, 1, heads, groups)
        device = device_of(self.model)
        received, diagonal, entropy = (torch.full(shape, torch.nan, device=device) for shape in shapes)
        errors = {0: f"{len(text)} tokens, and {reason}"}
        return Measured(received, diagonal, entropy, (text,), errors, without=self.without)

    def one_pass(self, texts: Sequence[Text]) -> Measured:
        packing = Packing.apart(texts) if self.layout == "apart" else Packing.of(texts)
        reset_positions(self.model)
        known = {text.prefix: self._prefix(text) for text in texts if text.shared}
        prefixes = [known[prefix] for prefix in packing.prefixes]
        collector = Collector.of(self.probing, packing, device_of(self.model))
        recorder = Recorder.of(
            self.model, packing, prefixes=[b.cache for b in prefixes], block=self.block, attended=collector.attended,
            without=self.without,
        )  # fmt: skip
        with changed(self.model, packing), collector.listening(self.model):
            observe(self.model, recorder)
        return replace(_measured(recorder, prefixes), probes=collector.tensors(layer_count(self.model)))

    def _prefix(self, text: Text) -> Prefix:
        if text.prefix not in self._prefixes:
            if len(self._prefixes) >= REMEMBERED:
                self._prefixes.pop(next(iter(self._prefixes)))
            self._prefixes[text.prefix] = self._run_prefix(text)
        return self._prefixes[text.prefix]

    def _run_prefix(self, text: Text) -> Prefix:
        first = slice(text.shared)
        keeps = None if text.row_weights is None else text.row_weights[first]
        packing = Packing.of([Text(text.ids[first], text.counted_rows[first], ends=False, row_weights=keeps)])
        reset_positions(self.model)
        keeping = Recorder.of(self.model, packing, keep=True, block=self.block, without=self.without)
        recorder = observe(self.model, keeping)
        sums = _measured(recorder, [])
        sunk = None if sums.sink_sums is None else sums.sink_sums[:, 0]
        return Prefix(recorder.kept, sums.received, sums.diagonal, sums.entropy[:, 0], sunk)


def record(
    model: nn.Module, ids: Sequence[Sequence[int]], original: Sequence[NDArray[np.bool_]], block: int | None = None
) -> list[TextAttention]:
    """One forward pass over some texts inside `capturing`: attention received, text by text."""
    texts = [Text(tuple(one), mask) for one, mask in zip(ids, original, strict=True)]
    measured = PassRunner(model, sum(map(len, texts)), block).one_pass(texts)
    return [measured.text(number) for number in range(len(texts))]


def _measured(recorder: Recorder, prefixes: Sequence[Prefix]) -> Measured:
    """The sums of a pass in the order of its texts, without what filled them up, and with their prefixes'."""
    packing, device = recorder.packing, recorder.received.device
    received, diagonal, entropy = recorder.received, recorder.diagonal, recorder.entropy().to(device)
    if packing.groups != tuple(range(len(GROUPS))):
        groups = to_device(np.array(packing.groups), device)
        received, entropy = received.index_select(2, groups), entropy.index_select(3, groups)
    received = _select(received, packing.kept_keys())
    order = np.argsort([number for band in packing.bands for number in band.texts])
    entropy = entropy.index_select(1, to_device(order, device))
    sunk = recorder.sinks()
    if sunk is not None:
        sunk = sunk.to(device).index_select(1, to_device(order, device))
        sunk = sunk.index_select(3, to_device(np.array(packing.groups), device))
    if not prefixes:
        kept = _select(diagonal, packing.kept_queries())
        return Measured(received, kept, entropy, packing.texts, without=recorder.without, sink_sums=sunk)
    # What prefixes receive from their own rows is added to what they receive from later ones.
    before, texts, positions = packing.prefix_places()
    nothing = torch.zeros_like(prefixes[0].received[..., :1])
    own = torch.cat([*(b.received for b in prefixes), nothing], dim=-1).to(device)
    received += _select(own, before)
    entropies = torch.stack([*(b.entropy for b in prefixes), torch.zeros_like(prefixes[0].entropy)], dim=1)
    entropy += entropies.to(device).index_select(1, to_device(texts, device))
    if sunk is not None:
        before_sunk = [b.sink_sums for b in prefixes if b.sink_sums is not None]
        sunk += (
            torch.stack([*before_sunk, torch.zeros_like(before_sunk[0])], 1)
            .to(device)
            .index_select(1, to_device(texts, device))
        )
    diagonal = torch.cat([*(b.diagonal.to(device) for b in prefixes), diagonal], dim=-1)
    kept = _select(diagonal, positions)
    return Measured(received, kept, entropy, packing.texts, without=recorder.without, sink_sums=sunk)


def _select(tensor: Tensor, places: NDArray[np.int64]) -> Tensor:
    """Of the last axis, the places that are asked for; all of them in their order is no work."""
    if len(places) == tensor.shape[-1] and bool((np.diff(places) == 1).all()):
        return tensor
    return tensor.index_select(-1, to_device(places, tensor.device))


def _in_order(parts: Sequence[tuple[list[int], Measured]], texts: Sequence[Text]) -> Measured:
    """What several passes measured, put together in the order of the texts."""
    where: dict[int, tuple[Measured, int]] = {
        number: (measured, place) for numbers, measured in parts for place, number in enumerate(numbers)
    }
    if len(parts) == 1 and parts[0][0] == list(range(len(texts))):
        return parts[0][1]
    found = [where[number] for number in range(len(texts))]
    spans = [(part, place, slice(*part.starts[place : place + 2])) for part, place in found]
    devices = {part.received.device for _, part in parts}
    home = devices.pop() if len(devices) == 1 else torch.device("cpu")  # some were too large to stay
    return Measured(
        torch.cat([part.received[..., span].to(home) for part, _, span in spans], dim=-1),
        torch.cat([part.diagonal[..., span].to(home) for part, _, span in spans], dim=-1),
        torch.stack([part.entropy[:, place].to(home) for part, place, _ in spans], dim=1),
        tuple(texts),
        {number: part.errors[place] for number, (part, place) in enumerate(found) if place in part.errors},
        _probes([part for _, part in parts], found),
        parts[0][1].without,
        _sunk(found, home),
    )


def _sunk(found: Sequence[tuple[Measured, int]], home: torch.device) -> Tensor | None:
    """Text by text; NaN for one that could not be measured."""
    like = next((part.sink_sums[:, 0] for part, _ in found if part.sink_sums is not None), None)
    if like is None:
        return None
    missing = torch.full_like(like, torch.nan, device=home)
    return torch.stack([missing if p.sink_sums is None else p.sink_sums[:, at].to(home) for p, at in found], dim=1)


def _probes(parts: Sequence[Measured], found: Sequence[tuple[Measured, int]]) -> dict[str, Tensor]:
    """Text by text; what has no numbers, because memory did not hold it, has zeros."""
    like = {name: tensor[:, 0] for part in parts for name, tensor in part.probes.items()}
    return {
        name: torch.stack([p.probes[name][:, at] if name in p.probes else torch.zeros_like(one) for p, at in found], 1)
        for name, one in like.items()
    }


def _ran_out(error: Exception) -> bool:
    """CUDA has an error of its own; the host's allocator and Apple's only say so, and in more than one way."""
    said = str(error)
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in said or "out of memory" in said
