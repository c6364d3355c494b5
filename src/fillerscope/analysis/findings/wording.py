"""Words that findings share: layers as people count them, ranges, and what a condition is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fillerscope.analysis.stored_run import StoredRun
from fillerscope.study.conditions import BASELINE


def compared_with(run: StoredRun, condition: str) -> str:
    """What the baseline is called beside a condition."""
    return "without filler" if run.condition(condition).has_filler else f"under {BASELINE}"


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def three_decimals(value: float) -> str:
    return f"{value:.3f}"


def span(values: Sequence[float], written: Callable[[float], str] = three_decimals) -> str:
    """The least and the largest of some numbers."""
    return f"{written(min(values))} to {written(max(values))}"


def untrained(values: Sequence[float], written: Callable[[float], str] = three_decimals) -> str:
    """The range over untrained models, in brackets; nothing where none were measured."""
    return f" (in {len(values)} untrained models: {span(values, written)})" if values else ""


def first_layer(layer: int) -> str:
    """The first layer with attention, counted from 0: in hybrid models not always the first of all."""
    return f"Layer {layer + 1}" if layer == 0 else f"Layer {layer + 1}, the first with attention"


def layer_span(layers: Sequence[int]) -> str:
    """Layers counted from 0, from the first to the last, as people count them."""
    if len(layers) == 1:
        return f"layer {layers[0] + 1}"
    gaps = layers[-1] - layers[0] >= len(layers)
    return f"layers {layers[0] + 1} to {layers[-1] + 1}{' that have attention' if gaps else ''}"


def layer_list(layers: Sequence[int]) -> str:
    """Layers counted from 0 as people write them: `layers 1-3, 7`."""
    if not layers:
        return "no layer"
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    shown = ", ".join(f"{r[0] + 1}-{r[-1] + 1}" if len(r) > 1 else str(r[0] + 1) for r in runs)
    return f"{'layers' if len(layers) > 1 else 'layer'} {shown}"
