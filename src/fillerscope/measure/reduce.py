"""The reduction of a shard's texts: profiles as moments over problems, and the summary of every head.

Runs on the device that measured, some layers at a time, in float64; only the stored arrays leave it. Knows nothing of
files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

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
DTYPES = {"<f4": torch.float32, "<i4": torch.int32}  # of arrays with a row for each problem
LENGTH_RATIO = 1.5  # of the longest to the shortest prompt of a length group
ELEMENTS = {"cpu": 1 << 20, "cuda": 1 << 26}  # values of one condition that are computed at once, at most: of fewer, a
# GPU has so many small kernels to launch that its queue is full of them, and the next shard's passes come too late
MEMORY_SHARE = 512  # bytes of a GPU's memory for each of them


@dataclass(frozen=True)
class PositionGrid:
    """Some positions of each problem's prompt as a rectangle, with a mask of those that any query row attends to."""

    index: Tensor  # [problem * position] into the measured positions
    valid: NDArray[np.bool_]  # [query, problem, position]
    mask: Tensor  # the same on the device, [query, problem, position, 1] float64

    @classmethod
    def of(
        cls, positions: Sequence[NDArray[np.int64]], rows: NDArray[np.float64], device: torch.device
    ) -> PositionGrid:
        """`rows` [query, position] counts the query rows of every measured position; the last one stands for none."""
        padding = rows.shape[1] - 1
        index = np.full((len(positions), max(map(len, positions))), padding)
        for line, some in zip(index, positions, strict=True):
            line[: len(some)] = some
        valid = rows[:, index] > 0
        return cls(to_device(index.ravel(), device), valid, to_device(valid[..., None].astype(np.float64), device))

    def take(self, means: Tensor) -> Tensor:
        """[query, problem, position, head] of [query, position, head], 0 where it is not valid."""
        return torch.unflatten(means.index_select(1, self.index), 1, self.valid.shape[1:])


@dataclass(frozen=True)
class LengthGroup:
    """Problems whose prompts are of similar length, so that grids have little padding."""

    grid: PositionGrid  # all positions of their prompts
    tokens: Tokens
    texts: Tensor  # [problem]: their numbers among the measured texts
    rows: Tensor  # [query, problem, 1]: how many query rows there are


@dataclass(frozen=True)
class ConditionPrompts:
    """The prompts of one condition, problem by problem. Profiles store the first positions; heads need them all."""

    name: str
    whole: PositionGrid
    aligned: PositionGrid
    groups: tuple[LengthGroup, ...]
    order: Tensor  # [problem]: its place in the groups, one after another


@dataclass(frozen=True)
class PromptGrids:
    """Makes the grids of conditions from the texts of a shard."""

    measured: Measured
    probe: AttentionProbe
    rows: NDArray[np.float64]  # [query, position]: query rows of every measured position, and a last 0
    device: torch.device

    def of(
        self, name: str, prompts: Sequence[Prompt], plain: Sequence[Prompt], numbers: Sequence[int]
    ) -> ConditionPrompts:
        """`plain` are the same problems' prompts of the baseline, `numbers` those of the texts."""
        starts = [self.measured.starts[number] for number in numbers]
        pairs = list(zip(prompts, starts, strict=True))
        limit = self.probe.positions
        whole = [start + np.arange(min(len(prompt), limit)) for prompt, start in pairs]
        aligned = [start + prompt.positions[:limit] for prompt, start in pairs]
        alike = _similar_lengths([len(prompt) for prompt in prompts])
        groups = tuple(
            self._group([prompts[i] for i in some], [plain[i] for i in some], [numbers[i] for i in some])
            for some in alike
        )
        order = to_device(np.argsort(np.concatenate(alike)), self.device)
        return ConditionPrompts(name, self._grid(whole), self._grid(aligned), groups, order)

    def _group(self, prompts: Sequence[Prompt], plain: Sequence[Prompt], numbers: Sequence[int]) -> LengthGroup:
        pairs = zip(prompts, numbers, strict=True)
        grid = self._grid([self.measured.starts[number] + np.arange(len(prompt)) for prompt, number in pairs])
        tokens = Tokens.of(prompts, plain, grid.valid, self.probe.skip_first, self.device)
        rows = np.stack([self.measured.texts[number].rows.sum(axis=1) for number in numbers], axis=1)[..., None]
        texts = to_device(np.array(numbers), self.device)
        return LengthGroup(grid, tokens, texts, to_device(rows.astype(np.float64), self.device))

    def _grid(self, positions: Sequence[NDArray[np.int64]]) -> PositionGrid:
        return PositionGrid.of(positions, self.rows, self.device)


@dataclass(frozen=True)
class SameOdds:
    """Texts whose `original` sums are weighted with what each row would keep beside filler.

    All their rows are original ones, so that their unweighted `original` sums are those of `all`."""

    texts: Tensor
    positions: Tensor  # [position], 1 where one of these texts has it, else 0

    @classmethod
    def of(cls, measured: Measured, device: torch.device) -> SameOdds | None:
        texts = [number for number, text in enumerate(measured.texts) if text.row_weights is not None]
        has_text = np.zeros(measured.starts[-1] + 1)
        for number in texts:
            has_text[slice(*measured.starts[number : number + 2])] = 1.0
        return cls(to_device(np.array(texts), device), to_device(has_text, device)) if texts else None

    def split_off(self, means: Tensor) -> Tensor:
        """The weighted means [1, position, head] of these texts, 0 elsewhere. Those in `means` [query, position, head]
        are replaced by unweighted ones."""
        mask = self.positions[:, None]
        weighted = means[1] * mask
        means[1] += mask * (means[0] - means[1])
        return weighted[None]

    def unweight(self, sums: Tensor | None) -> None:
        """Replace the weighted sums of these texts [query, text, head] by unweighted ones."""
        if sums is not None:
            sums[1].index_copy_(0, self.texts, sums[0].index_select(0, self.texts))


def reduce(
    prompts: Mapping[str, Sequence[Prompt]],
    numbers: Mapping[str, Sequence[int]],
    measured: Measured,
    probe: AttentionProbe,
) -> dict[str, Tensor]:
    """The stored arrays of a shard, by name.

    `prompts` are by condition, the baseline first, in the order of problems; `numbers` are those of their texts."""
    device = measured.received.device if measured.received.is_cuda else torch.device("cpu")
    counts = [row_counts(text.rows, probe.diagonal) for text in measured.texts]
    rows = np.concatenate([*counts, np.zeros((len(GROUPS), 1))], 1)
    grids, plain = PromptGrids(measured, probe, rows, device), next(iter(prompts.values()))
    conditions = [grids.of(name, some, plain, numbers[name]) for name, some in prompts.items()]
    share = to_device(np.where(rows > 0, 1.0 / np.maximum(rows, 1.0), 0.0), device)
    odds = SameOdds.of(measured, device)
    pieces: dict[ArrayName, list[Tensor]] = {}
    for layers in _layer_slices(measured, conditions):
        means = _means(measured, layers, share, probe.diagonal)
        entropies, sinks = (_by_head(some, layers, device) for some in (measured.entropy, measured.sink_sums))
        assert entropies is not None
        named: list[tuple[ArrayName, Tensor]] = []
        if odds is not None:
            named += _odds(conditions[0], odds.split_off(means))
            odds.unweight(entropies)
            odds.unweight(sinks)
        for name, tensor in chain(named, _layer_arrays(conditions, means, entropies, sinks)):
            pieces.setdefault(name, []).append(torch.unflatten(tensor, -1, (-1, measured.received.shape[1])))
    arrays = {name: _stored(name.quantity, torch.cat(some, dim=-2)) for name, some in pieces.items()}
    arrays |= _counts(conditions, odds is not None)
    return {name.quantity.key(name.condition, name.part): array for name, array in arrays.items()}


def _similar_lengths(lengths: Sequence[int]) -> list[list[int]]:
    """Indices of prompts in groups of similar length."""
    groups: list[list[int]] = []
    for number in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if not groups or lengths[number] > LENGTH_RATIO * lengths[groups[-1][0]]:
            groups.append([])
        groups[-1].append(number)
    return groups


def _layer_slices(measured: Measured, conditions: Sequence[ConditionPrompts]) -> Iterator[slice]:
    """Slices of layers, each of as many as `ELEMENTS` allows."""
    layers, heads, *_ = measured.received.shape
    grids = [grid for one in conditions for grid in (one.whole, *(group.grid for group in one.groups))]
    widest = heads * max(grid.valid.size for grid in grids)
    step = max(1, _most_elements(measured.received.device) // widest)
    return (slice(start, min(start + step, layers)) for start in range(0, layers, step))


def _most_elements(device: torch.device) -> int:
    if device.type != "cuda":
        return ELEMENTS["cpu"]
    return min(ELEMENTS["cuda"], torch.cuda.get_device_properties(device).total_memory // MEMORY_SHARE)


def _means(measured: Measured, layers: slice, share: Tensor, diagonal: bool) -> Tensor:
    """[query, position, head] of some layers, and a last position that is 0."""
    sums = measured.received[layers].to(share.device).double()
    if diagonal:
        rows = to_device(np.concatenate([text.weights for text in measured.texts], axis=1), share.device)
        sums = sums + measured.diagonal[layers].to(share.device).double()[:, :, None] * rows
    # Positions before heads, so that a position is selected with all its heads at once.
    flat = sums.flatten(0, 1).permute(1, 2, 0)
    means = flat.new_zeros(flat.shape[0], flat.shape[1] + 1, flat.shape[2])
    torch.mul(flat, share[:, :-1, None], out=means[:, :-1])
    return means


def _by_head(sums: Tensor | None, layers: slice, device: torch.device) -> Tensor | None:
    """[query, text, head] of some layers, from [layer, text, head, query]."""
    return None if sums is None else sums[layers].to(device).double().permute(3, 1, 0, 2).flatten(2)


def _layer_arrays(
    conditions: Sequence[ConditionPrompts], means: Tensor, entropies: Tensor, sinks: Tensor | None
) -> Named:
    """All stored arrays of some layers, with heads on the last axis."""
    baseline = conditions[0]
    plain = baseline.aligned.take(means)
    for condition in conditions:
        yield from _heads(condition, means, entropies)
        if sinks is not None:
            shares = [sinks.index_select(1, group.texts) / group.rows for group in condition.groups]
            yield ArrayName(condition.name, Quantity.SINKS), torch.cat(shares, dim=1).index_select(1, condition.order)
        yield from _moments(
            ArrayName(condition.name, Quantity.WHOLE), condition.whole.take(means), condition.whole.mask
        )
        if condition is baseline:
            yield from _moments(ArrayName(condition.name, Quantity.ALIGNED), plain, condition.aligned.mask)
            continue
        aligned, both = condition.aligned.take(means), condition.aligned.mask * baseline.aligned.mask
        yield from _moments(ArrayName(condition.name, Quantity.ALIGNED), aligned, condition.aligned.mask)
        yield from _moments(ArrayName(condition.name, Quantity.DIFFERENCE), aligned - plain, both)
        yield from _ratios(ArrayName(condition.name, Quantity.LOG_RATIO), aligned, plain)


def _odds(plain: ConditionPrompts, means: Tensor) -> Named:
    """The reference of the same odds: the profile, and what original tokens receive on average."""
    yield from _moments(ArrayName(plain.name, Quantity.SAME_ODDS), plain.aligned.take(means), plain.aligned.mask[1:2])
    received = [group.tokens.shares[1:2, :, :1] @ group.grid.take(means) for group in plain.groups]
    order = torch.cat(received, dim=1).squeeze(2).index_select(1, plain.order)
    yield ArrayName(plain.name, Quantity.SAME_ODDS_HEADS), order


def _heads(condition: ConditionPrompts, means: Tensor, entropies: Tensor) -> Named:
    """The summary of every head on every problem."""
    summaries = []
    for group in condition.groups:
        entropy = entropies.index_select(1, group.texts) / group.rows  # NaN without query rows
        summaries.append(summarise(group.grid.take(means), entropy, group.tokens))
    for quantity, some in zip((Quantity.HEADS, Quantity.PEAK_AT), zip(*summaries, strict=True), strict=True):
        yield ArrayName(condition.name, quantity), torch.cat(some, dim=1).index_select(1, condition.order)


def _moments(name: ArrayName, values: Tensor, mask: Tensor) -> Named:
    """Moments over the problems in the mask. Their count does not depend on the head: see `_counts`."""
    mean = (values * mask).sum(1) / mask.sum(1).clamp(min=1.0)
    yield replace(name, part="mean"), mean
    deviations = (values - mean[:, None]).mul_(mask)
    squares = deviations.square()
    yield replace(name, part="m2"), squares.sum(1)
    yield replace(name, part="m3"), squares.mul_(deviations).sum(1)


def _ratios(name: ArrayName, aligned: Tensor, plain: Tensor) -> Named:
    """Moments of the log ratio over the problems where both values are above 0."""
    ratios = torch.log(aligned) - torch.log(plain)
    mask = torch.isfinite(ratios)
    ratios.masked_fill_(~mask, 0.0)
    yield replace(name, part="count"), mask.sum(1)
    yield from _moments(name, ratios, mask)


def _counts(conditions: Sequence[ConditionPrompts], odds: bool) -> dict[ArrayName, Tensor]:
    """How many problems each position of a profile has, [query, 1, 1, position]."""
    plain = conditions[0]
    valid: dict[ArrayName, NDArray[np.bool_]] = {}
    for condition in conditions:
        valid[ArrayName(condition.name, Quantity.WHOLE)] = condition.whole.valid
        valid[ArrayName(condition.name, Quantity.ALIGNED)] = condition.aligned.valid
        if condition is not plain:
            valid[ArrayName(condition.name, Quantity.DIFFERENCE)] = condition.aligned.valid & plain.aligned.valid
    if odds:
        valid[ArrayName(plain.name, Quantity.SAME_ODDS)] = plain.aligned.valid[1:2]
    counts = {name: some.sum(axis=1)[:, None, None] for name, some in valid.items()}
    return {replace(name, part="count"): torch.from_numpy(count) for name, count in counts.items()}


def _stored(quantity: Quantity, tensor: Tensor) -> Tensor:
    """From [query, ..., layer, head] to the axes and the dtype in which a quantity is stored."""
    middle = [axis for axis in quantity.axes if axis not in ("query", "layer", "head")]
    computed = ("query", *middle, "layer", "head")
    stored = tensor.permute([computed.index(axis) for axis in quantity.axes])
    return stored.to(DTYPES.get(quantity.dtype, stored.dtype)).contiguous()
