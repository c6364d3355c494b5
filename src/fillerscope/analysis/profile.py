"""A profile: for every layer, head and position, a mean over problems with its spread and interval."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from fillerscope.analysis.colour_scale import Scale
from fillerscope.analysis.inline_svg import BLUE, ORANGE, Curve, Shaded, heat_map, line, strongest
from fillerscope.analysis.notebook_html import block, note
from fillerscope.analysis.rows import optional
from fillerscope.analysis.stats import mean_interval
from fillerscope.display import bounded, number, token
from fillerscope.errors import FigureError
from fillerscope.files import Json
from fillerscope.store.moments import Moments
from fillerscope.study.conditions import BASELINE

if TYPE_CHECKING:
    import pandas
    import xarray

Floats = NDArray[np.float64]
LABELS = {"difference": "Change in attention", "logratio": "Log ratio of attention"}  # of views; others: as it is


@dataclass(frozen=True, repr=False)
class Profile:
    """Arrays [layer, head, position]. Layers and heads are counted from 1 wherever a name asks for one."""

    name: str  # what was averaged, for titles and files
    moments: Moments
    problems: int
    tokens: tuple[str, ...] = ()  # the token at each position, where all problems share it, else ""
    condition: str = BASELINE
    view: str = ""  # one of the views of a run; empty for texts of any kind
    filler: tuple[int, int] | None = None  # first position and the one behind the last, where the filler is shown
    first: tuple[int, int] = (1, 1)  # the numbers of the first layer and the first head in it

    dims = ("layer", "head", "position")

    @property
    def layers(self) -> int:
        return int(self.moments.mean.shape[0])

    @property
    def heads(self) -> int:
        return int(self.moments.mean.shape[1])

    @property
    def positions(self) -> int:
        return int(self.moments.mean.shape[2])

    @property
    def count(self) -> NDArray[np.int64]:
        return self.moments.counts

    @property
    def mean(self) -> Floats:
        return self.moments.value()

    @property
    def sd(self) -> Floats:
        return self.moments.deviation()

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Interval of the mean over problems."""
        return mean_interval(self.moments, level)

    def head(self, layer: int, head: int) -> Profile:
        """One head by its number, still as a profile of one layer and one head."""
        if not (1 <= layer <= self.layers and 1 <= head <= self.heads):
            raise FigureError(
                f"there is no layer {layer} head {head}: this model has layers 1 to {self.layers} and heads 1 to "
                f"{self.heads}"
            )
        cell = (slice(layer - 1, layer), slice(head - 1, head))
        parts = [np.broadcast_to(part, self.moments.mean.shape)[cell] for part in self.moments.state().values()]
        first = self.first[0] + layer - 1, self.first[1] + head - 1
        return replace(self, name=f"{self.name} L{layer}H{head}", moments=Moments(*parts), first=first)

    def reach(self, share: float = 0.5) -> int:
        """How many positions, from the start, at least this share of the problems has."""
        enough = (self.count >= max(1.0, share * self.problems)).any(axis=(0, 1))
        return int(np.flatnonzero(enough)[-1]) + 1 if enough.any() else 0

    def columns(self) -> dict[str, NDArray[np.generic]]:
        """The tidy table: a row for each layer, head and position that has samples."""
        low, high = self.interval()
        kept = self.count > 0
        layer, head, position = np.nonzero(kept)
        return {
            "layer": layer + self.first[0],
            "head": head + self.first[1],
            "position": position,
            "n": self.count[kept],
            "mean": self.mean[kept],
            "sd": self.sd[kept],
            "low": low[kept],
            "high": high[kept],
        }

    def to_pandas(self) -> pandas.DataFrame:
        frame: pandas.DataFrame = optional("pandas").DataFrame(self.columns())
        return frame

    def to_xarray(self) -> xarray.Dataset:
        xarray = optional("xarray")
        low, high = self.interval()
        arrays = {"n": self.count, "mean": self.mean, "sd": self.sd, "low": low, "high": high}
        coordinates = {
            "layer": np.arange(self.layers) + self.first[0],
            "head": np.arange(self.heads) + self.first[1],
            "position": np.arange(self.positions),
        }
        return xarray.Dataset({key: (self.dims, array) for key, array in arrays.items()}, coordinates)

    def __repr__(self) -> str:
        shape = f"{self.layers} layers, {self.heads} heads, {self.positions} positions"
        return f"<Profile {self.name}: {shape}, n = {self.problems}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the curve of one head, else a map of layers, or of the heads of one layer."""
        shown = self.reach()
        if not shown:
            return block(f"{self.name}, n = {self.problems}", note("No position was measured."))
        is_one = self.layers == self.heads == 1
        picture, words = _curve(self, shown) if is_one else _map(self, shown)
        rest = f" {self.positions - shown} positions that fewer than half of the problems have are left out."
        words += rest * (shown < self.positions)
        return block(f"{self.name}, n = {self.problems}", picture, note(words))


def top_tokens(profile: Profile, layer: int, head: int | None, top: int) -> list[Json]:
    """The tokens that receive most in a head, or on average over the heads of a layer."""
    profile.head(layer, head or 1)  # raises where there is no such head
    mean = profile.mean[layer - 1]
    values = mean.mean(axis=0) if head is None else mean[head - 1]
    order = np.argsort(-np.where(np.isfinite(values), values, -np.inf), kind="stable")
    shown = [int(position) for position in order if np.isfinite(values[position])][:top]
    return [{"position": p, "token": profile.tokens[p], "received": float(values[p])} for p in shown]


def _curve(profile: Profile, stop: int) -> tuple[Markup, str]:
    """One head. What the first token receives is cut where all else would lie flat below it."""
    mean, (low, high) = profile.mean[0, 0, :stop], (bound[0, 0, :stop] for bound in profile.interval())
    places, step = strongest(mean[None])
    kept = places[0]
    condition, view = profile.condition, profile.view
    curve = Curve(BLUE if condition == BASELINE else ORANGE, kept, mean[kept], low[kept], high[kept])
    tips = [f"{_named(profile, at)}: {bounded(mean[at], low[at], high[at], '.3g')}" for at in kept]
    others = np.concatenate([mean[1:], high[1:]])
    top = float(np.max(others, where=np.isfinite(others), initial=0.0))
    is_cut = top > 0 and mean[0] > 3 * top
    words = "Band: 95% interval of the mean over problems." if np.isfinite(low).any() else "One problem: no interval."
    words += f" Position 0 receives {mean[0]:.3g}, beyond the frame." * bool(is_cut)
    words += f" Each point is the largest of {step} positions." * (step > 1)
    label = LABELS.get(view, "Attention received")
    return line(curve, label, tips, _filler(profile), top if is_cut else None), words


def _map(profile: Profile, stop: int) -> tuple[Markup, str]:
    """Layer by position on average over heads, or head by position where there is one layer."""
    mean = profile.mean[..., :stop]
    rows, noun = (_mean(mean), "layer") if profile.layers > 1 else (mean[0], "head")
    kept, step = strongest(rows)
    values = np.take_along_axis(rows, kept, axis=1)
    view = profile.view
    is_change = view in LABELS or bool((values < 0).any())
    scale = Scale.differences(values) if is_change else Scale.amounts(values)
    best = np.nan_to_num(np.abs(values), nan=-1.0).argmax(axis=0)
    tips = [
        f"{_named(profile, at)}: strongest in {noun} {row + 1}, {number(rows[row, at], '.3g')}"
        for row, at in zip(best.tolist(), kept[best, range(len(best))].tolist(), strict=True)
    ]
    labels = (noun.capitalize(), "Position", LABELS.get(view, "Attention received"))
    words = f"Mean over problems{' and heads' * (noun == 'layer')}."
    words += f" Each column is the strongest of {step} positions." * (step > 1)
    return heat_map(values, scale, labels, [tips], step), words


def _named(profile: Profile, position: int) -> str:
    """A position with the token that stands there, where all problems share it."""
    text = profile.tokens[position] if position < len(profile.tokens) else ""
    return f"position {position}, {token(text)}" if text else f"position {position}"


def _mean(values: Floats) -> Floats:
    """Over heads, leaving out what was not measured."""
    kept = np.isfinite(values)
    total, count = np.where(kept, values, 0.0).sum(axis=1), kept.sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _filler(profile: Profile) -> Shaded | None:
    return Shaded(*profile.filler, "filler") if profile.filler else None
