"""What a pass collects beside attention: outputs compared between texts, and activations counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from fillerscope.arm.hooks import TokenRange, redistributing
from fillerscope.capture.activations import Cells, Scale, activity, watching_activations
from fillerscope.capture.affine import Pairs, affine
from fillerscope.capture.packing import Packing, Text
from fillerscope.study.interventions import Redistribution


@dataclass(frozen=True)
class Probing:
    """What is wanted. A scale without classes, or the other way round, is nothing."""

    affine: bool = False
    scale: Scale | None = None
    classes: int = 0  # of tokens


@dataclass
class Collector:
    """One pass at work, layer by layer."""

    texts: int
    scale: Scale | None
    pairs: Pairs | None
    cells: Cells | None
    found: dict[str, dict[int, Tensor]] = field(default_factory=dict)  # by layer

    @classmethod
    def of(cls, probing: Probing, packing: Packing, device: torch.device) -> Collector:
        paired = probing.affine and len({text.problem for text in packing.texts}) < len(packing.texts)
        counted = probing.scale is not None and any(text.probed.any() for text in packing.texts)
        return cls(
            len(packing.texts),
            probing.scale,
            Pairs.of(packing, device) if paired else None,
            Cells.of(packing, probing.classes, device) if counted else None,
        )

    def attended(self, layer: int, output: Tensor) -> None:
        """Told the heads' outputs [token, head, dim]."""
        if self.pairs is not None:
            self._keep(layer, affine=affine(output, self.pairs, self.texts))

    def add_activations(self, layer: int, values: Tensor) -> None:
        """Told the output of the MLP's nonlinearity [row, token, width]."""
        assert self.cells is not None
        assert self.scale is not None
        self._keep(layer, activity=activity(values.flatten(0, 1), self.cells, self.scale, layer))

    def _keep(self, layer: int, **found: tuple[Tensor, Tensor]) -> None:
        for name, (numbers, more) in found.items():
            self.found.setdefault(name, {})[layer] = numbers
            self.found.setdefault(f"{name}_more", {})[layer] = more

    @contextmanager
    def listening(self, model: nn.Module) -> Iterator[None]:
        with watching_activations(model, self.add_activations) if self.cells is not None else nullcontext():
            yield

    def tensors(self, layers: int) -> dict[str, Tensor]:
        """By name, [layer, text, ...]: `affine` with the bias as its `_more`, `activity` with the histogram. Layers
        without attention have no affine picture: NaN."""
        missing = {name: torch.full_like(next(iter(some.values())), torch.nan) for name, some in self.found.items()
                   if len(some) < layers}  # fmt: skip
        return {
            name: torch.stack([some[layer] if layer in some else missing[name] for layer in range(layers)])
            for name, some in self.found.items()
        }


@contextmanager
def changed(model: nn.Module, packing: Packing) -> Iterator[None]:
    """What the texts of a pass want done to their activations, each to its own tokens alone."""
    wanted: dict[Redistribution, list[TokenRange]] = {}
    for text, place in zip(packing.texts, packing.places(), strict=True):
        if isinstance(text.change, Redistribution):
            wanted.setdefault(text.change, []).extend(_token_ranges(text, *divmod(place.start, packing.width)))
    with ExitStack() as stack:
        for spec, ranges in wanted.items():
            stack.enter_context(redistributing(model, spec, partial(tuple, ranges)))
        yield


def _token_ranges(text: Text, row: int, first: int) -> list[TokenRange]:
    """A prompt is changed as a whole, and each token of an answer alone, as when it was written."""
    prompt = len(text) - text.generated
    cuts = [(0, prompt), *((at, at + 1) for at in range(prompt, len(text)))]
    return [TokenRange(row, first + start, first + stop, text.key, start) for start, stop in cuts]
