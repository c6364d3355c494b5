"""What the texts of a shard add up to: profiles as moments over problems, and the summary of every head.

Happens on the device that measured, some layers at a time, in float64; only what is kept leaves it. Knows nothing
of files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fillerscope.capture.memory import to_device
from fillerscope.capture.packing import GROUPS
from fillerscope.capture.passes import Measured, row_counts
from fillerscope.measure.head_summary import Tokens, summarise
from fillerscope.prompts.prompt import Prompt
from fillerscope.store.schema import ArrayName, Quantity
from fillerscope.study.study import AttentionProbe

Named = Iterator[tuple[ArrayName, Tensor]]
DTYPES = {"<f4": torch.float32, "<i4": torch.int32}  # of what is kept of every problem
SPREAD = 1.5  # of lengths that are worked on together
ELEMENTS = {"cpu": 1 << 20, "cuda": 1 << 25}  # values of one condition that are worked on at once


@dataclass(frozen=True)
class View:
    """Some positions of each problem's prompt, side by side, and whether anybody votes there."""

    places: Tensor  # [problem * position] into the positions that were measured
    voted: NDArray[np.bool_]  # [query, problem, position]
    marks: Tensor  # the same on the device, [query, problem, position, 1] float64

    @classmethod
    def of(cls, positions: Sequence[NDArray[np.int64]], count: NDArray[np.float64], device: torch.device) -> View:
        """`count` [query, position] of all that was measured, and of one more position that stands for none."""
        nowhere = count.shape[1] - 1
        places = np.full((len(positions), max(map(len, positions))), nowhere)
        for row, some in zip(places, positions, strict=True):
            row[: len(some)] = some
        voted = count[:, places] > 0
        return cls(to_device(places.ravel(), device), voted, to_device(voted[..., None].astype(np.float64), device))

    def take(self, means: Tensor) -> Tensor:
        """[query, problem, position, head] of [query, position, head], 0 where nobody votes."""
        return torch.unflatten(means.index_select(1, self.places), 1, self.voted.shape[1:])


@dataclass(frozen=True)
class Band:
    """Problems whose prompts are about as long as one another, so that little is worked on that nobody asked for."""

    whole: View  # all of their positions
    tokens: Tokens
    texts: Tensor  # [problem]: their numbers among the texts that were measured
    voters: Tensor  # [query, problem, 1]: how many rows vote


@dataclass(frozen=True)
class Sheet:
    """The prompts of one condition, problem by problem: profiles keep their first positions, heads see them all."""

    name: str
    whole: View
    aligned: View
    bands: tuple[Band, ...]
    order: Tensor  # [problem]: its place in the bands, one after another


@dataclass(frozen=True)
class Odds:
    """Texts whose rows count among `original` with what they would keep beside filler. All their rows are original
    ones, so that their `original` sums are those of `all`."""

    texts: NDArray[np.int64]
    positions: Tensor  # [position], 1 where one of these texts has it, else 0

    @classmethod
    def of(cls, measured: Measured, device: torch.device) -> Odds | None:
        texts = [number for number, text in enumerate(measured.texts) if text.row_weights is not None]
        marks = np.zeros(measured.starts[-1] + 1)
        for number in texts:
            marks[slice(*measured.starts[number : number + 2])] = 1.0
        return cls(np.array(texts), to_device(marks, device)) if texts else None

    def taken_out(self, means: Tensor) -> Tensor:
        """[1, position, head] of these texts, 0 elsewhere; in its place `means` [query, position, head] gets what the
        rows give in full."""
        marks = self.positions[:, None]
        odds = means[1] * marks
        means[1] += marks * (means[0] - means[1])
        return odds[None]

    def set_right(self, sums: Tensor | None) -> None:
        """The same for what is kept of texts [query, text, head]."""
        if sums is not None:
            sums[1, self.texts] = sums[0, self.texts]


def reduce(
    prompts: Mapping[str, Sequence[Prompt]],
    numbers: Mapping[str, Sequence[int]],
    measured: Measured,
    probe: AttentionProbe,
) -> dict[str, Tensor]:
    """Arrays by name. `prompts` are by condition, `none` first, and in the order of problems; `numbers` are those
    of their texts."""
    device = measured.received.device if measured.received.is_cuda else torch.device("cpu")
    count = np.concatenate(
        [*(row_counts(t.rows, probe.diagonal) for t in measured.texts), np.zeros((len(GROUPS), 1))], 1
    )
    sheets = [_sheet(name, prompts, numbers[name], measured, count, probe, device) for name in prompts]
    share = to_device(np.where(count > 0, 1.0 / np.maximum(count, 1.0), 0.0), device)
    odds = Odds.of(measured, device)
    found: dict[ArrayName, list[Tensor]] = {}
    for layers in _some_layers(measured, sheets):
        means = _means(measured, layers, share, probe.diagonal)
        entropies, sinks = (_by_head(some, layers, device) for some in (measured.entropy, measured.sink_sums))
        assert entropies is not None
        numbers_of_layers = []
        if odds is not None:
            numbers_of_layers += list(_odds(sheets[0], odds.taken_out(means)))
            odds.set_right(entropies)
            odds.set_right(sinks)
        for name, tensor in (*numbers_of_layers, *_numbers(sheets, means, entropies, sinks)):
            found.setdefault(name, []).append(torch.unflatten(tensor, -1, (-1, measured.received.shape[1])))
    counts = _counts(sheets, odds is not None)
    arrays = {name: _arranged(name.quantity, torch.cat(some, dim=-2)) for name, some in found.items()} | counts
    return {name.quantity.key(name.condition, name.part): array for name, array in arrays.items()}


def _sheet(
    name: str,
    prompts: Mapping[str, Sequence[Prompt]],
    numbers: Sequence[int],
    measured: Measured,
    count: NDArray[np.float64],
    probe: AttentionProbe,
    device: torch.device,
) -> Sheet:
    starts = np.array([measured.starts[number] for number in numbers])
    pairs = list(zip(prompts[name], starts, strict=True))
    whole = [start + np.arange(min(len(prompt), probe.positions)) for prompt, start in pairs]
    aligned = [start + prompt.positions[: probe.positions] for prompt, start in pairs]
    groups = _alike([len(prompt) for prompt in prompts[name]])
    bands = []
    for some in groups:
        view = View.of([starts[i] + np.arange(len(prompts[name][i])) for i in some], count, device)
        mine, plain = ([prompts[one][i] for i in some] for one in (name, "none"))
        rows = np.stack([measured.texts[numbers[i]].rows.sum(axis=1) for i in some], axis=1)[..., None]
        tokens = Tokens.of(mine, plain, view.voted, probe.skip_first, device)
        texts = to_device(np.array([numbers[i] for i in some]), device)
        bands.append(Band(view, tokens, texts, to_device(rows.astype(np.float64), device)))
    order = to_device(np.argsort(np.concatenate(groups)), device)
    return Sheet(name, View.of(whole, count, device), View.of(aligned, count, device), tuple(bands), order)


def _alike(lengths: Sequence[int]) -> list[list[int]]:
    """Numbers of prompts, those together that differ little in length."""
    groups: list[list[int]] = []
    for number in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if not groups or lengths[number] > SPREAD * lengths[groups[-1][0]]:
            groups.append([])
        groups[-1].append(number)
    return groups


def _some_layers(measured: Measured, sheets: Sequence[Sheet]) -> Iterator[slice]:
    """As many at a time as fit the budget."""
    layers, heads, *_ = measured.received.shape
    widest = heads * max(view.voted.size for sheet in sheets for view in (sheet.whole, *(b.whole for b in sheet.bands)))
    step = max(1, ELEMENTS["cuda" if measured.received.is_cuda else "cpu"] // widest)
    return (slice(start, min(start + step, layers)) for start in range(0, layers, step))


def _means(measured: Measured, layers: slice, share: Tensor, diagonal: bool) -> Tensor:
    """[query, position, head] of some layers, and a last position that is 0."""
    sums = measured.received[layers].to(share.device).double()
    if diagonal:
        rows = to_device(np.concatenate([text.weights for text in measured.texts], axis=1), share.device)
        sums = sums + measured.diagonal[layers].to(share.device).double()[:, :, None] * rows
    # Positions before heads, so that a position is picked with all its heads at once.
    flat = sums.flatten(0, 1).permute(1, 2, 0)
    means = flat.new_zeros(flat.shape[0], flat.shape[1] + 1, flat.shape[2])
    torch.mul(flat, share[:, :-1, None], out=means[:, :-1])
    return means


def _by_head(sums: Tensor | None, layers: slice, device: torch.device) -> Tensor | None:
    """[query, text, head] of some layers, from [layer, text, head, query]."""
    return None if sums is None else sums[layers].to(device).double().permute(3, 1, 0, 2).flatten(2)


def _numbers(sheets: Sequence[Sheet], means: Tensor, entropies: Tensor, sinks: Tensor | None) -> Named:
    """Everything that is kept of some layers, by name, with heads on the last axis."""
    plain = sheets[0].aligned.take(means)
    for sheet in sheets:
        yield from _heads(sheet, means, entropies)
        if sinks is not None:
            shares = [sinks.index_select(1, band.texts) / band.voters for band in sheet.bands]
            yield ArrayName(sheet.name, Quantity.SINKS), torch.cat(shares, dim=1).index_select(1, sheet.order)
        yield from _moments(ArrayName(sheet.name, Quantity.WHOLE), sheet.whole.take(means), sheet.whole.marks)
        if sheet is sheets[0]:
            yield from _moments(ArrayName(sheet.name, Quantity.ALIGNED), plain, sheet.aligned.marks)
            continue
        aligned, both = sheet.aligned.take(means), sheet.aligned.marks * sheets[0].aligned.marks
        yield from _moments(ArrayName(sheet.name, Quantity.ALIGNED), aligned, sheet.aligned.marks)
        yield from _moments(ArrayName(sheet.name, Quantity.DIFFERENCE), aligned - plain, both)
        yield from _ratios(ArrayName(sheet.name, Quantity.LOG_RATIO), aligned, plain)


def _odds(plain: Sheet, means: Tensor) -> Named:
    """The reference of the same odds: the profile, and what original tokens receive on average."""
    yield from _moments(ArrayName(plain.name, Quantity.SAME_ODDS), plain.aligned.take(means), plain.aligned.marks[1:2])
    received = [band.tokens.shares[1:2, :, :1] @ band.whole.take(means) for band in plain.bands]
    order = torch.cat(received, dim=1).squeeze(2).index_select(1, plain.order)
    yield ArrayName(plain.name, Quantity.SAME_ODDS_HEADS), order


def _heads(sheet: Sheet, means: Tensor, entropies: Tensor) -> Named:
    found = []
    for band in sheet.bands:
        entropy = entropies.index_select(1, band.texts) / band.voters  # NaN for a group without rows
        found.append(summarise(band.whole.take(means), entropy, band.tokens))
    for quantity, some in zip((Quantity.HEADS, Quantity.PEAK_AT), zip(*found, strict=True), strict=True):
        yield ArrayName(sheet.name, quantity), torch.cat(some, dim=1).index_select(1, sheet.order)


def _moments(name: ArrayName, values: Tensor, marks: Tensor) -> Named:
    """Over the problems where anybody votes. How many these are does not depend on the head: see `_counts`."""
    mean = (values * marks).sum(1) / marks.sum(1).clamp(min=1.0)
    yield replace(name, part="mean"), mean
    apart = (values - mean[:, None]).mul_(marks)
    squares = apart.square()
    yield replace(name, part="m2"), squares.sum(1)
    yield replace(name, part="m3"), squares.mul_(apart).sum(1)


def _ratios(name: ArrayName, aligned: Tensor, plain: Tensor) -> Named:
    """Where both are above 0; nobody's vote and a vote of 0 have no logarithm alike."""
    ratios = torch.log(aligned) - torch.log(plain)
    marks = torch.isfinite(ratios)
    ratios.masked_fill_(~marks, 0.0)
    yield replace(name, part="count"), marks.sum(1)
    yield from _moments(name, ratios, marks)


def _counts(sheets: Sequence[Sheet], odds: bool) -> dict[ArrayName, Tensor]:
    """[query, 1, 1, position]: over how many problems each profile goes."""
    plain = sheets[0]
    voted: dict[ArrayName, NDArray[np.bool_]] = {}
    for sheet in sheets:
        voted[ArrayName(sheet.name, Quantity.WHOLE)] = sheet.whole.voted
        voted[ArrayName(sheet.name, Quantity.ALIGNED)] = sheet.aligned.voted
        if sheet is not plain:
            voted[ArrayName(sheet.name, Quantity.DIFFERENCE)] = sheet.aligned.voted & plain.aligned.voted
    if odds:
        voted[ArrayName(plain.name, Quantity.SAME_ODDS)] = plain.aligned.voted[1:2]
    counts = {name: some.sum(axis=1)[:, None, None] for name, some in voted.items()}
    return {replace(name, part="count"): torch.from_numpy(count) for name, count in counts.items()}


def _arranged(quantity: Quantity, tensor: Tensor) -> Tensor:
    """From [query, ..., layer, head] to the axes and the dtype in which a quantity is stored."""
    middle = [axis for axis in quantity.axes if axis not in ("query", "layer", "head")]
    worked = ("query", *middle, "layer", "head")
    stored = tensor.permute([worked.index(axis) for axis in quantity.axes])
    return stored.to(DTYPES.get(quantity.dtype, stored.dtype)).contiguous()
