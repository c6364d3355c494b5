"""Count the MLP activations of chosen tokens during a pass; the activations themselves are not stored.

Values are counted by the upper half of their bits: sign, exponent and seven bits of the mantissa. All statistics of
their distribution come from these counts, exactly where a threshold is such a value itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from importlib.util import find_spec

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fillerscope.capture.memory import to_device
from fillerscope.capture.packing import Packing
from fillerscope.files import Json
from fillerscope.models.structure import activation_modules, decoder_of

LOWEST, HIGHEST = -24, 16  # octaves that are counted; smaller values count as zero
STEPS = 128  # in each octave
BASE = (127 + LOWEST) << 7  # the first of them among the upper halves of float32
HALF = (HIGHEST - LOWEST) * STEPS
COARSE = 32  # steps in one bin of the stored histogram
ELEMENTS = 1 << 24  # counted at once


@dataclass(frozen=True)
class Scale:
    """Thresholds and bins for activations, taken from prompts without filler before the first shard."""

    eps: tuple[float, ...]  # of each layer: smaller values are near zero
    median: tuple[float, ...]  # of absolute values, for each layer
    octaves: tuple[int, int]  # the histogram goes from one power of two to the other, on both sides of zero
    problems: int
    tokens: int

    @cached_property
    def edges(self) -> NDArray[np.float64]:
        """Edges of the histogram's bins; the outermost take all values beyond, the middle one both sides of zero."""
        steps = np.arange((self.octaves[1] - self.octaves[0]) * STEPS // COARSE + 1)
        side = values_of((self.octaves[0] - LOWEST) * STEPS + steps * COARSE)
        return np.concatenate([-side[::-1], side])

    def record(self) -> Json:
        return asdict(self) | {"edges": self.edges.tolist()}

    @classmethod
    def read(cls, record: Json) -> Scale:
        lists = {key: tuple(record[key]) for key in ("eps", "median", "octaves")}
        return cls(**lists, problems=record["problems"], tokens=record["tokens"])


@dataclass(frozen=True)
class Cells:
    """The tokens of a pass that are counted, and the text and class of each."""

    rows: Tensor  # [token]: places in the row
    cell: Tensor  # [token]: text * classes + class
    member: Tensor  # [cell, token] float64
    texts: int
    classes: int

    @classmethod
    def of(cls, packing: Packing, classes: int, device: torch.device) -> Cells:
        rows, cells = [], []
        for number, (place, text) in enumerate(zip(packing.places(), packing.texts, strict=True)):
            rows.append(place.start + np.flatnonzero(text.probed) - text.shared)
            cells.append(number * classes + text.classes[text.probed])
        cell = np.concatenate(cells)
        member = (cell == np.arange(len(packing.texts) * classes)[:, None]).astype(np.float64)
        row, own, members = (to_device(array, device) for array in (np.concatenate(rows), cell, member))
        return cls(row, own, members, len(packing.texts), classes)


def activity(values: Tensor, cells: Cells, scale: Scale, layer: int) -> tuple[Tensor, Tensor]:
    """Return the numbers of ACTIVATION_METRICS [text, class, metric] and the counts of the histogram
    [text, class, bin] of one layer's activations [token, width]. The first class is all tokens."""
    wanted = values.index_select(0, cells.rows)
    precise = torch.promote_types(wanted.dtype, torch.float32)
    plain = wanted.sum(-1, dtype=precise)
    length1, length2 = (torch.linalg.vector_norm(wanted, order, -1, dtype=precise) for order in (1, 2))
    per_token = torch.stack([plain, length1, length2, length2.square(), torch.ones_like(plain)], dim=1).double()
    sums = _with_all(torch.unflatten(cells.member @ per_token, 0, (cells.texts, cells.classes)))
    tallies = pattern_counts(wanted, cells.cell, len(cells.member))
    counts, above = (torch.unflatten(tally, 0, (cells.texts, -1)) for tally in tallies)
    upto = _with_all(counts.sum(-2)).double().cumsum(-1)
    total, l1, l2, squares, tokens = sums.unbind(-1)
    elements = tokens * values.shape[-1]
    mean = total / elements
    limits = index_of(scale.eps[layer]), index_of(scale.median[layer])
    below = [upto[..., limit - 1] / elements for limit in limits]
    numbers = [tokens, *below, mean, squares / elements - mean.square(), l1 / tokens, l2 / tokens]
    numbers.append(gini(upto, _with_all(above), even=wanted.dtype != torch.bfloat16))
    return torch.stack(numbers, dim=-1), _with_all(_histogram(counts, scale))


def _with_all(values: Tensor) -> Tensor:
    """[text, class, ...] with the sum of all classes put first."""
    return torch.cat([values.sum(1, keepdim=True), values], dim=1)


def pattern_counts(values: Tensor, cell: Tensor, cells: int) -> tuple[Tensor, Tensor]:
    """Count values [token, width] by their upper half, [cell, sign, step] int32, and add up their lower halves, which
    say how far they are above the start of their step, [cell, step] float64."""
    counts = torch.zeros(cells, 2, HALF, dtype=torch.int32, device=values.device)
    above = torch.zeros(cells, 2, HALF, dtype=torch.float64, device=values.device)
    if values.is_cuda and values.dtype == torch.bfloat16 and has_triton():
        from fillerscope.capture.activation_kernels import count

        count(values, cell, counts, BASE)
        return counts, above.sum(1)  # there are no lower halves
    step = max(1, ELEMENTS // values.shape[-1])
    for start in range(0, len(values), step):
        some = values[start : start + step]
        places = _patterns(some).add_(cell[start : start + step, None] * (2 * HALF)).flatten()
        counts += torch.bincount(places, minlength=counts.numel()).view_as(counts)
        if some.dtype != torch.bfloat16:  # whole numbers, whose sum is the same in any order
            lower = some.float().contiguous().view(torch.int32).bitwise_and(0xFFFF).flatten()
            above += torch.bincount(places, lower, minlength=counts.numel()).view_as(counts)
    return counts, above.sum(1)


@cache
def has_triton() -> bool:
    return find_spec("triton") is not None


def _patterns(values: Tensor) -> Tensor:
    """[..] int32: the step of each value's size, negative values after the positive."""
    upper = values.view(torch.int16) if values.dtype == torch.bfloat16 else _upper(values.float())
    steps = (upper & 0x7FFF).sub_(BASE).clamp_(0, HALF - 1)
    return steps.add_((upper >> 15).bitwise_and_(HALF)).int()


def _upper(values: Tensor) -> Tensor:
    """The upper halves of float32, which come second in memory."""
    return torch.unflatten(values.contiguous().view(torch.int16), -1, (-1, 2))[..., 1].contiguous()


def values_of(steps: NDArray[np.int64]) -> NDArray[np.float64]:
    """The values at which steps start."""
    return ((steps + BASE) << 16).astype(np.uint32).view(np.float32).astype(np.float64)


def index_of(limit: float) -> int:
    """The step that starts at a limit, which `rounded` gave."""
    return int((np.float32(limit).view(np.uint32) >> 16).item() - BASE)


def rounded(limit: float) -> float:
    """The nearest value at which a step starts, so that counts give exactly how many are below. Never the first step,
    which holds zero: where most values are zero, as after a ReLU, they must count as below."""
    steps = values_of(np.arange(1, HALF))
    return float(steps[np.abs(steps - limit).argmin()])


def gini(upto: Tensor, above: Tensor, even: bool) -> Tensor:
    """Gini coefficient of absolute values, from how many there are up to each step [..., step] and how far they are
    above its start. Within a step, a 128th of an octave, they are taken as evenly spread, or as equal if not `even`."""
    begin, width = (tensor.to(upto.device) for tensor in _steps())
    counts = upto.diff(dim=-1, prepend=torch.zeros_like(upto[..., :1]))
    sizes = counts * begin + above * (width / (1 << 16))
    number, total = upto[..., -1], sizes.sum(-1)
    between = (sizes * (2 * upto - counts - number[..., None])).sum(-1)
    within = (counts.square() - 1).clamp_(min=0.0) @ width / 6 if even else 0.0
    return (between + within) / (number * total)


@cache
def _steps() -> tuple[Tensor, Tensor]:
    """The start and the width of each step; the first step holds zero and all smaller values."""
    begin = torch.from_numpy(values_of(np.arange(HALF + 1)))
    width = begin.diff()
    begin[0] = width[0] = 0.0
    return begin[:-1].clone(), width


def _histogram(counts: Tensor, scale: Scale) -> Tensor:
    """Counts [..., bin] from counts [..., sign, step]."""
    low, high = ((octave - LOWEST) * STEPS for octave in scale.octaves)
    bins = torch.unflatten(counts[..., low:high], -1, (-1, COARSE)).sum(-1)
    bins[..., -1] += counts[..., high:].sum(-1)
    middle = counts[..., :low].sum((-1, -2))
    return torch.cat([bins[..., 1, :].flip(-1), middle[..., None], bins[..., 0, :]], dim=-1)


@contextmanager
def watching_activations(model: nn.Module, callback: Callable[[int, Tensor], None]) -> Iterator[None]:
    """Inside the block `callback(layer, activations)` is called with the output of every layer's nonlinearity."""
    modules = activation_modules(decoder_of(model))
    hooks = [
        module.register_forward_hook(lambda _, __, output, layer=layer: callback(layer, output))
        for layer, module in enumerate(modules)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
