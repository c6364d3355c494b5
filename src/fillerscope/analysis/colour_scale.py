"""Numbers as colours for the pictures of notebooks, and arrays of them as PNG images."""

from __future__ import annotations

import base64
import io
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# ColorBrewer's RdBu and Greens, as matplotlib has them for the figures.
FALL_TO_RISE = (
    "#053061", "#2166ac", "#4393c3", "#92c5de", "#d1e5f0", "#f7f7f7", "#fddbc7", "#f4a582", "#d6604d", "#b2182b",
    "#67001f",
)  # fmt: skip
LITTLE_TO_MUCH = ("#f7fcf5", "#e5f5e0", "#c7e9c0", "#a1d99b", "#74c476", "#41ab5d", "#238b45", "#006d2c", "#00441b")
SHADES = 128  # steps of a palette; one more is transparent
SMALLEST = 0.1  # log2 at the ends of a scale of ratios at least: changes of a few per cent stay pale


@dataclass(frozen=True)
class Scale:
    """Colours for numbers, evenly from `low` to `high` or evenly in their logarithms."""

    low: float
    high: float
    palette: tuple[str, ...]
    log: bool

    @classmethod
    def ratios(cls, values: Floats) -> Scale:
        """Around 1: blue is a fall, red a rise."""
        with np.errstate(divide="ignore", invalid="ignore"):
            changes = np.abs(np.log2(values))
        reach = float(np.max(changes, where=np.isfinite(changes), initial=SMALLEST))
        return cls(2.0**-reach, 2.0**reach, FALL_TO_RISE, True)

    @classmethod
    def differences(cls, values: Floats) -> Scale:
        """Around 0. The few largest may lie beyond the ends: one of them would leave all others pale."""
        sizes = np.abs(values[np.isfinite(values)])
        reach = float(np.percentile(sizes, 99)) or float(sizes.max()) if sizes.any() else 1.0
        return cls(-reach, reach, FALL_TO_RISE, False)

    @classmethod
    def amounts(cls, values: Floats) -> Scale:
        """From little to much, by factors: attention on the first token is hundreds of times that on others."""
        kept = values[np.isfinite(values) & (values > 0)]
        low, high = (float(np.percentile(kept, 2)), float(kept.max())) if kept.size else (0.1, 1.0)
        return cls(min(low, high / 2), high, LITTLE_TO_MUCH, True)

    def places(self, values: Floats) -> Floats:
        """From 0 to 1; NaN stays NaN."""
        ends = np.array([self.low, self.high])
        if self.log:
            with np.errstate(divide="ignore", invalid="ignore"):
                values, ends = np.log(values), np.log(ends)
        return np.asarray(np.clip((values - ends[0]) / (ends[1] - ends[0]), 0.0, 1.0), dtype=np.float64)

    def shades(self, values: Floats) -> NDArray[np.uint8]:
        """The step of the palette that a number falls on; `SHADES` where it is none."""
        places = self.places(values)
        steps = np.minimum(np.floor(np.nan_to_num(places) * SHADES), SHADES - 1)
        return np.where(np.isnan(places), SHADES, steps).astype(np.uint8)

    def colours(self) -> NDArray[np.uint8]:
        """[shade, channel]: red, green and blue of each step."""
        stops = np.array([list(bytes.fromhex(colour[1:])) for colour in self.palette])
        places = np.linspace(0, len(stops) - 1, SHADES)
        channels = [np.interp(places, range(len(stops)), channel) for channel in stops.T]
        return np.stack(channels, axis=1).round().astype(np.uint8)

    def marks(self) -> list[tuple[float, str]]:
        """Where the numbers beside the bar stand, from 0 at its top to 1, and their texts: both ends and the middle."""
        middle = math.sqrt(self.low) * math.sqrt(self.high) if self.log else (self.low + self.high) / 2
        return [(place, f"{value:.2g}") for place, value in ((0.0, self.high), (0.5, middle), (1.0, self.low))]

    def image(self, values: Floats) -> str:
        """The address of a PNG with a pixel for each number, transparent where it is none."""
        return self._png(self.shades(values))

    def bar(self) -> str:
        """The same of the scale itself, the largest number above."""
        return self._png(np.arange(SHADES, dtype=np.uint8)[::-1, None])

    def _png(self, shades: NDArray[np.uint8]) -> str:
        from PIL import Image

        image, data = Image.fromarray(shades), io.BytesIO()
        image.putpalette(self.colours().tobytes() + bytes(3))
        image.save(data, "png", transparency=SHADES, optimize=True)
        return f"data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}"
