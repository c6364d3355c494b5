"""Probes of a pass beside attention: outputs compared between texts, and activations counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, partial

import torch
from torch import Tensor, nn

from fillerscope.arm.hooks import TokenRange, redistributing
from fillerscope.capture.activations import Cells, Scale, activity, watching_activations
from fillerscope.capture.affine import Pairs, affine
from fillerscope.capture.packing import Packing, Text
from fillerscope.study.interventions import Redistribution


@dataclass(frozen=True)
class Probing:
    """Which probes run. Activations need both a scale and classes."""

    affine: bool = False
    scale: Scale | None = None
    classes: int = 0  # of tokens


@dataclass
class Collector:
    """The probes of one pass, filled layer by layer."""

    texts: int
    scale: Scale | None
    pairs: Callable[[torch.device], Pairs] | None
    cells: Callable[[torch.device], Cells] | None
    device: torch.device  # where the results of all layers are wanted
    results: dict[str, dict[int, Tensor]] = field(default_factory=dict)  # by layer

    @classmethod
    def of(cls, probing: Probing, packing: Packing, device: torch.device) -> Collector:
        paired = probing.affine and len({text.problem for text in packing.texts}) < len(packing.texts)
        counted = probing.scale is not None and any(text.probed.any() for text in packing.texts)
        return cls(
            len(packing.texts),
            probing.scale,
            cache(partial(Pairs.of, packing)) if paired else None,
            cache(partial(Cells.of, packing, probing.classes)) if counted else None,
            device,
        )

    def add_outputs(self, layer: int, output: Tensor) -> None:
        """Take the outputs of a layer's heads [token, head, dim]."""
        if self.pairs is not None:
            self._add(layer, affine=affine(output, self.pairs(output.device), self.texts))

    def add_activations(self, layer: int, values: Tensor) -> None:
        """Take the output of a layer's MLP nonlinearity [row, token, width]."""
        assert self.cells is not None
        assert self.scale is not None
        self._add(layer, activity=activity(values.flatten(0, 1), self.cells(values.device), self.scale, layer))

    def _add(self, layer: int, **results: tuple[Tensor, Tensor]) -> None:
        for name, (numbers, more) in results.items():
            self.results.setdefault(name, {})[layer] = numbers.to(self.device)
            self.results.setdefault(f"{name}_more", {})[layer] = more.to(self.device)

    @contextmanager
    def watching(self, model: nn.Module) -> Iterator[None]:
        """Inside the block activations of the model are counted, where that is wanted."""
        with watching_activations(model, self.add_activations) if self.cells is not None else nullcontext():
            yield

    def tensors(self, layers: int) -> dict[str, Tensor]:
        """By name, [layer, text, ...]: `affine` with the bias as its `_more`, `activity` with the histogram. Layers
        without attention have no affine picture: NaN."""
        missing = {name: torch.full_like(next(iter(some.values())), torch.nan) for name, some in self.results.items()
                   if len(some) < layers}  # fmt: skip
        return {
            name: torch.stack([some[layer] if layer in some else missing[name] for layer in range(layers)])
            for name, some in self.results.items()
        }


@contextmanager
def intervening(model: nn.Module, packing: Packing) -> Iterator[None]:
    """Inside the block the interventions of the pass's texts are in place, each on its own tokens alone."""
    by_spec: dict[Redistribution, list[TokenRange]] = {}
    for text, place in zip(packing.texts, packing.places(), strict=True):
        if isinstance(text.change, Redistribution):
            by_spec.setdefault(text.change, []).extend(_token_ranges(text, *divmod(place.start, packing.width)))
    with ExitStack() as stack:
        for spec, ranges in by_spec.items():
            stack.enter_context(redistributing(model, spec, partial(tuple, ranges)))
        yield


def _token_ranges(text: Text, row: int, first: int) -> list[TokenRange]:
    """The prompt is one range, and each token of the answer another, as when it was generated."""
    prompt = len(text) - text.generated
    cuts = [(0, prompt), *((at, at + 1) for at in range(prompt, len(text)))]
    return [TokenRange(row, first + start, first + stop, text.key, start) for start, stop in cuts]
