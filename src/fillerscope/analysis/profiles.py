"""A profile: for every layer, head and position, a mean over problems with its spread and interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fillerscope.errors import FigureError, FillerscopeError
from fillerscope.reducers import Moments
from fillerscope.stats import mean_interval

if TYPE_CHECKING:
    import pandas
    import xarray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Profile:
    """Arrays [layer, head, position]. Layers and heads are counted from 1 wherever a name asks for one."""

    name: str  # what was averaged, for titles and files
    moments: Moments
    problems: int
    tokens: tuple[str, ...] = ()  # the token at each position, where all problems share it, else ""

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
        """Student's interval of the mean over problems."""
        return mean_interval(self.count, self.sd, self.mean, level)

    def head(self, layer: int, head: int) -> Profile:
        """One head by its number, still as a profile of one layer and one head."""
        if not (1 <= layer <= self.layers and 1 <= head <= self.heads):
            raise FigureError(
                f"there is no layer {layer} head {head}: this model has layers 1 to {self.layers} and heads 1 to "
                f"{self.heads}"
            )
        cell = (slice(layer - 1, layer), slice(head - 1, head))
        parts = [np.broadcast_to(part, self.moments.mean.shape)[cell] for part in self.moments.state().values()]
        return Profile(f"{self.name} L{layer}H{head}", Moments(*parts), self.problems, self.tokens)

    def reach(self, share: float = 0.5) -> int:
        """How many positions, from the start, at least this share of the problems has."""
        enough = (self.count >= max(1.0, share * self.problems)).any(axis=(0, 1))
        return int(np.flatnonzero(enough)[-1]) + 1 if enough.any() else 0

    def columns(self) -> dict[str, NDArray[Any]]:
        """The tidy table: a row for each layer, head and position that has samples."""
        low, high = self.interval()
        kept = self.count > 0
        layer, head, position = np.nonzero(kept)
        return {
            "layer": layer + 1,
            "head": head + 1,
            "position": position,
            "n": self.count[kept],
            "mean": self.mean[kept],
            "sd": self.sd[kept],
            "low": low[kept],
            "high": high[kept],
        }

    def to_pandas(self) -> pandas.DataFrame:
        frame: pandas.DataFrame = _optional("pandas").DataFrame(self.columns())
        return frame

    def to_xarray(self) -> xarray.Dataset:
        xarray = _optional("xarray")
        low, high = self.interval()
        arrays = {"n": self.count, "mean": self.mean, "sd": self.sd, "low": low, "high": high}
        coordinates = {
            "layer": np.arange(1, self.layers + 1),
            "head": np.arange(1, self.heads + 1),
            "position": np.arange(self.positions),
        }
        return xarray.Dataset({key: (self.dims, array) for key, array in arrays.items()}, coordinates)


def _optional(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise FillerscopeError(f"this needs {name}: pip install 'fillerscope[tables]'") from None
