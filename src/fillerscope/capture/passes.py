"""Run texts through a model and collect the attention that every position receives, in as few passes as memory allows.

A prefix that texts share is run once, and the rows of each text add to what it receives. Knows nothing of conditions
or statistics: results are sums, with the query rows that were counted.
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
from fillerscope.capture.probes import Collector, Probing, intervening
from fillerscope.capture.small_operations import SmallOperations
from fillerscope.errors import CaptureError
from fillerscope.models.positions import length_limit, reset_positions
from fillerscope.models.structure import attention_modules, decoder_of, device_of, head_count, layer_count
from fillerscope.models.tensor_parallel import processes

REMEMBERED = 32  # prefixes whose keys and values stay in memory
Layout = Literal["shared", "packed", "apart"]  # texts in one row after shared prefixes; in one row; a row for each


@dataclass(frozen=True)
class TextAttention:
    """Attention measured on one text: sums, and the query rows that were counted."""

    received: NDArray[np.float32]  # [group, layer, head, position]: sums of rows below the diagonal
    diagonal: NDArray[np.float32]  # [layer, head, position]
    entropy: NDArray[np.float32]  # [group, layer, head]: sums over rows
    rows: NDArray[np.bool_]  # [group, position]: the query rows that were counted

    def mean_received(self, diagonal: bool = False) -> NDArray[np.float64]:
        """Mean attention received [group, layer, head, position]; NaN where no query row sees the position."""
        total, count = self.received.astype(np.float64), row_counts(self.rows, diagonal)
        if diagonal:
            total = total + self.diagonal.astype(np.float64) * self.rows[:, None, None, :]
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(count[:, None, None, :] > 0, total / count[:, None, None, :], np.nan)

    def mean_entropy(self) -> NDArray[np.float64]:
        """Mean row entropy [group, layer, head] in nats; NaN for a group without rows."""
        count = self.rows.sum(axis=1)[:, None, None]
        return np.where(count > 0, self.entropy.astype(np.float64) / np.maximum(count, 1), np.nan)


def row_counts(rows: NDArray[np.bool_], diagonal: bool) -> NDArray[np.float64]:
    """How many query rows see each position of a text [group, position]."""
    later = rows[:, ::-1].cumsum(axis=1)[:, ::-1] - rows  # rows strictly after each key
    return (later + rows if diagonal else later).astype(np.float64)


@dataclass(frozen=True)
class Measured:
    """Sums measured on some texts, their positions one after another, on the device that ran them."""

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

    def whole(self) -> Measured:
        """The same, where every text has numbers; else an error."""
        for number, error in self.errors.items():
            raise CaptureError(f"text {number + 1} could not be measured: {error}")
        return self

    def text(self, number: int) -> TextAttention:
        """The measurement of one text, on the host."""
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
        """Return a function that gives, for each text, whether all its numbers are finite. The check starts at once;
        only calling that function waits for it."""
        totals = {"positions": self.received.sum(dim=(1, 2)), "texts": self.entropy.sum(dim=(2, 3))}
        for total in totals.values():
            for layer in self.without:
                total[layer] = 0.0
        totals = {name: total.sum(0) for name, total in totals.items()}
        pending = PendingCopy.of({name: torch.isfinite(total) for name, total in totals.items()})

        def is_finite() -> NDArray[np.bool_]:
            arrays = pending.arrays()
            return np.asarray(np.logical_and.reduceat(arrays["positions"], self.starts[:-1]) & arrays["texts"])

        return is_finite


@dataclass(frozen=True)
class Prefix:
    """The run of a prefix that texts share: keys and values of each layer, and the attention among its own rows."""

    cache: Mapping[int, tuple[Tensor, Tensor]]  # by layer, [kv_head, position, dim]
    received: Tensor  # [layer, head, group, position]
    diagonal: Tensor  # [layer, head, position]
    entropy: Tensor  # [layer, head, group]
    sink_sums: Tensor | None  # [layer, head, group]: of learned sinks


class PassRunner:
    """Runs texts through a model and measures them, inside `capturing`. Keeps the prefixes that it has run."""

    def __init__(
        self, model: nn.Module, tokens: int, block: int | None = None, probing: Probing | None = None,
        layout: Layout = "shared", small: SmallOperations | None = None,
    ) -> None:  # fmt: skip
        self.model, self.tokens, self.block, self.probing = model, tokens, block, probing or Probing()
        self.small = small or SmallOperations()  # what kernels compute
        self.layout, self.limit = layout, length_limit(model)
        attending = attention_modules(decoder_of(model))
        self.without = tuple(layer for layer in range(layer_count(model)) if layer not in attending)
        self._prefixes: dict[tuple[tuple[int, float], ...], Prefix] = {}

    def measure(self, texts: Sequence[Text], tick: Callable[[int], None] = lambda _: None) -> Measured:
        """Measure some texts and return them in their order. Where memory runs out, a pass is split in halves."""
        if self.layout != "shared":
            texts = [replace(text, shared=0) for text in texts]
        parts: list[tuple[list[int], Measured]] = []
        with self.small.used():
            for some in self._parts(texts):
                parts.append(some)
                tick(len(some[0]))
        return _in_order(parts, texts)

    def _parts(self, texts: Sequence[Text]) -> Iterator[tuple[list[int], Measured]]:
        """Measure texts pass by pass. Those beyond the length at which the model changes its positions run alone."""
        beyond = [n for n, text in enumerate(texts) if self.limit is not None and text.position_count > self.limit]
        apart = {texts[number].problem for number in beyond} - {-1} if self.probing.affine else set()
        unpaired = [number for number, text in enumerate(texts) if text.problem in apart]
        reason = f"beyond {self.limit} tokens this model changes its positions, so prompts cannot share a pass"
        yield from (([number], self._without_numbers(texts[number], reason)) for number in unpaired)
        for number in sorted({*beyond} - {*unpaired}):
            yield from self._halving([replace(text, shared=0) for text in texts], [number])
        near = [number for number in range(len(texts)) if number not in {*beyond, *unpaired}]
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
                if not _is_out_of_memory(error) or processes() > 1:  # the others would wait for this pass
                    raise
                if len(apart) == 1:
                    reason = f"memory runs out: {str(error).partition(chr(10))[0]}"
                    yield from (([number], self._without_numbers(texts[number], reason)) for number in numbers)
                    return
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            self.tokens = max(1, tokens // 2)  # later passes need not try again
        half = len(apart) // 2
        for some in (apart[:half], apart[half:]):
            yield from self._halving(texts, [number for one in some for number in one])

    def _without_numbers(self, text: Text, reason: str) -> Measured:
        """The result of a text that cannot be measured: NaN everywhere, and the reason."""
        layers, heads, groups = layer_count(self.model), head_count(self.model), len(GROUPS)
        shapes = (layers, heads, groups, len(text)), (layers, heads, len(text)), (layers, 1, heads, groups)
        device = device_of(self.model)
        received, diagonal, entropy = (torch.full(shape, torch.nan, device=device) for shape in shapes)
        errors = {0: f"{len(text)} tokens, and {reason}"}
        return Measured(received, diagonal, entropy, (text,), errors, without=self.without)

    def packing(self, texts: Sequence[Text]) -> Packing:
        """How texts share a forward pass."""
        return Packing.apart(texts) if self.layout == "apart" else Packing.of(texts)

    def one_pass(self, texts: Sequence[Text]) -> Measured:
        """Measure some texts in one forward pass, after those of prefixes that were not run yet."""
        packing = self.packing(texts)
        reset_positions(self.model)
        known = {text.prefix: self._prefix(text) for text in texts if text.shared}
        prefixes = [known[prefix] for prefix in packing.prefixes]
        collector = Collector.of(self.probing, packing, device_of(self.model))
        recorder = Recorder.of(
            self.model, packing, prefixes=[b.cache for b in prefixes], block=self.block, attended=collector.add_outputs,
            without=self.without,
        )  # fmt: skip
        with intervening(self.model, packing), collector.watching(self.model):
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
        sink_sums = None if sums.sink_sums is None else sums.sink_sums[:, 0]
        return Prefix(recorder.kept, sums.received, sums.diagonal, sums.entropy[:, 0], sink_sums)


def record(
    model: nn.Module, ids: Sequence[Sequence[int]], original: Sequence[NDArray[np.bool_]], block: int | None = None
) -> list[TextAttention]:
    """Measure some texts in one forward pass, inside `capturing`, and return the attention of each."""
    texts = [Text(tuple(one), mask) for one, mask in zip(ids, original, strict=True)]
    measured = PassRunner(model, sum(map(len, texts)), block).one_pass(texts)
    return [measured.text(number) for number in range(len(texts))]


def _measured(recorder: Recorder, prefixes: Sequence[Prefix]) -> Measured:
    """The sums of a pass in the order of its texts, without padding and with those of their prefixes."""
    packing, device = recorder.packing, recorder.received.device
    received, diagonal, entropy = recorder.received, recorder.diagonal, recorder.entropy().to(device)
    if packing.groups != tuple(range(len(GROUPS))):
        groups = to_device(np.array(packing.groups), device)
        received, entropy = received.index_select(2, groups), entropy.index_select(3, groups)
    received = _select(received, packing.kept_keys())
    order = np.argsort([number for band in packing.bands for number in band.texts])
    entropy = entropy.index_select(1, to_device(order, device))
    sink_sums = recorder.sinks()
    if sink_sums is not None:
        sink_sums = sink_sums.to(device).index_select(1, to_device(order, device))
        sink_sums = sink_sums.index_select(3, to_device(np.array(packing.groups), device))
    if not prefixes:
        kept = _select(diagonal, packing.kept_queries())
        return Measured(received, kept, entropy, packing.texts, without=recorder.without, sink_sums=sink_sums)
    # The attention that prefixes receive from their own rows is added to that from later rows.
    before, texts, positions = packing.prefix_places()
    nothing = torch.zeros_like(prefixes[0].received[..., :1])
    own = torch.cat([*(b.received for b in prefixes), nothing], dim=-1).to(device)
    received += _select(own, before)
    entropies = torch.stack([*(b.entropy for b in prefixes), torch.zeros_like(prefixes[0].entropy)], dim=1)
    entropy += entropies.to(device).index_select(1, to_device(texts, device))
    if sink_sums is not None:
        prefix_sums = [b.sink_sums for b in prefixes if b.sink_sums is not None]
        sink_sums += (
            torch.stack([*prefix_sums, torch.zeros_like(prefix_sums[0])], 1)
            .to(device)
            .index_select(1, to_device(texts, device))
        )
    diagonal = torch.cat([*(b.diagonal.to(device) for b in prefixes), diagonal], dim=-1)
    kept = _select(diagonal, positions)
    return Measured(received, kept, entropy, packing.texts, without=recorder.without, sink_sums=sink_sums)


def _select(tensor: Tensor, places: NDArray[np.int64]) -> Tensor:
    """The given places of the last axis; the tensor itself where these are all places in order."""
    if len(places) == tensor.shape[-1] and bool((np.diff(places) == 1).all()):
        return tensor
    return tensor.index_select(-1, to_device(places, tensor.device))


def _in_order(parts: Sequence[tuple[list[int], Measured]], texts: Sequence[Text]) -> Measured:
    """The results of several passes, joined in the order of the texts."""
    where: dict[int, tuple[Measured, int]] = {
        number: (measured, place) for numbers, measured in parts for place, number in enumerate(numbers)
    }
    if len(parts) == 1 and parts[0][0] == list(range(len(texts))):
        return parts[0][1]
    located = [where[number] for number in range(len(texts))]
    spans = [(part, place, slice(*part.starts[place : place + 2])) for part, place in located]
    devices = {part.received.device for _, part in parts}
    home = devices.pop() if len(devices) == 1 else torch.device("cpu")  # some were too large to stay
    return Measured(
        torch.cat([part.received[..., span].to(home) for part, _, span in spans], dim=-1),
        torch.cat([part.diagonal[..., span].to(home) for part, _, span in spans], dim=-1),
        torch.stack([part.entropy[:, place].to(home) for part, place, _ in spans], dim=1),
        tuple(texts),
        {number: part.errors[place] for number, (part, place) in enumerate(located) if place in part.errors},
        _probes([part for _, part in parts], located),
        parts[0][1].without,
        _sink_sums(located, home),
    )


def _sink_sums(located: Sequence[tuple[Measured, int]], home: torch.device) -> Tensor | None:
    """Sums of learned sinks, text by text; NaN for a text that could not be measured."""
    like = next((part.sink_sums[:, 0] for part, _ in located if part.sink_sums is not None), None)
    if like is None:
        return None
    missing = torch.full_like(like, torch.nan, device=home)
    return torch.stack([missing if p.sink_sums is None else p.sink_sums[:, at].to(home) for p, at in located], dim=1)


def _probes(parts: Sequence[Measured], located: Sequence[tuple[Measured, int]]) -> dict[str, Tensor]:
    """Results of probes, text by text; zeros for a text that could not be measured."""
    like = {name: tensor[:, 0] for part in parts for name, tensor in part.probes.items()}
    return {
        name: torch.stack(
            [p.probes[name][:, at] if name in p.probes else torch.zeros_like(one) for p, at in located], 1
        )
        for name, one in like.items()
    }


def _is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out. CUDA has an error class; other allocators only say it in their message."""
    message = str(error)
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in message or "out of memory" in message
