"""ARM inside a stock model: inside a block, the outputs of some layers' nonlinearities are redistributed.

`arm` learns from the calls themselves which tokens belong to which sequence: one sequence a row, padding left out on
either side; later calls with the same cache continue the row. Random numbers depend on the first tokens of a sequence,
so it gets the same numbers in any batch; samples of one text differ where each call has its own seed. `redistributing`
takes the sequences from its caller and looks at no ids. Not for training: no gradients pass. Rows that hold several
sequences, distinguished by positions alone, are one sequence to `arm`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any
from weakref import WeakKeyDictionary

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from fillerscope.arm.rng import sent, sequence_seed, step_seeds
from fillerscope.arm.rule import redistribute, suits_kernels
from fillerscope.errors import ArgumentError, CaptureError, ModelError, StudyError
from fillerscope.models.structure import activation_modules, decoder_of, refuse_other
from fillerscope.study.arguments import check_arguments, shown
from fillerscope.study.interventions import Redistribution
from fillerscope.study.settings import first_fault


@dataclass(frozen=True)
class TokenRange:
    """The tokens [row, start:stop] of a call, all of one sequence, and the keys of its random numbers."""

    row: int
    start: int
    stop: int
    key: int  # of the sequence
    step: int  # how many tokens of the sequence came before this call

    @property
    def length(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class OneTokenRows:
    """A call with one token in every row; the keys of its random numbers are where the model is."""

    keys: Tensor  # [row] of the sequences
    steps: Tensor  # [row]: how many tokens of the sequence came before this call


TokenRanges = Sequence[TokenRange] | OneTokenRows


@contextmanager
def arm(model: nn.Module, spec: Redistribution | None = None, seed: int = 0, **settings: Any) -> Iterator[None]:
    """Inside the block a model runs with ARM.

    `arm(model, c=0.1, p1=95, layers=[1, 2])`, or `arm(model, preset="Qwen2.5-Math-7B")`, or with a spec."""
    if spec is not None and settings:
        raise TypeError(f"arm takes a spec or single settings, not both: {', '.join(settings)}")
    check_arguments({"seed": seed})
    refuse_other(model)
    chosen = _chosen_settings(settings) if spec is None else spec
    if not isinstance(chosen, Redistribution):
        raise ArgumentError(f"spec is a Redistribution, not {shown(spec)}; or give single settings, such as c=0.1")
    rows = _Rows(seed)
    with ExitStack() as stack:
        stack.enter_context(redistributing(model, chosen, lambda: rows.ranges))
        stack.enter_context(_following_calls(model, rows))
        yield


def _chosen_settings(settings: Mapping[str, object]) -> Redistribution:
    try:
        return Redistribution.model_validate({"kind": "arm", **settings})
    except ValidationError as error:
        raise StudyError(f"arm: {first_fault(error)}") from None


@contextmanager
def redistributing(model: nn.Module, spec: Redistribution, token_ranges: Callable[[], TokenRanges]) -> Iterator[None]:
    """Inside the block the activations of some tokens are redistributed.

    `token_ranges` is called once in every chosen layer of every call; tokens that it does not name stay unchanged."""
    modules = _chosen(model, spec.layers)
    with ExitStack() as stack:
        for number, module in modules.items():
            stack.callback(module.register_forward_hook(_hook(spec, number, token_ranges)).remove)
        yield


def _chosen(model: nn.Module, layers: Sequence[int]) -> dict[int, nn.Module]:
    """The activation modules of the chosen layers, by the layer's number from 1."""
    modules = activation_modules(decoder_of(model))
    beyond = sorted(layer for layer in layers if layer > len(modules))
    if beyond:
        raise ModelError(
            f"activations are to be redistributed in layer {beyond[0]}, but {type(model).__name__} has "
            f"{len(modules)} layers; choose from 1 to {len(modules)}"
        )
    return {layer: modules[layer - 1] for layer in layers}


def _hook(
    spec: Redistribution, layer: int, token_ranges: Callable[[], TokenRanges]
) -> Callable[[nn.Module, object, Tensor], Tensor]:
    def hook(_module: nn.Module, _inputs: object, output: Tensor) -> Tensor:
        return _redistributed(output, spec, layer, token_ranges())

    return hook


def _redistributed(values: Tensor, spec: Redistribution, layer: int, ranges: TokenRanges) -> Tensor:
    """Return `values` [batch, token, width] redistributed, in a new tensor unless nothing is to be done."""
    if isinstance(ranges, OneTokenRows):
        _check(values, ())
        rows = OneTokenRows(ranges.keys.to(values.device), ranges.steps.to(values.device))
        return redistribute(values.flatten(1), spec, _row_seeds(values, rows, layer)).view(values.shape)
    _check(values, ranges)
    ordered = sorted(
        (token_range for token_range in ranges if token_range.length), key=lambda token_range: token_range.length
    )
    groups = [list(some) for _, some in groupby(ordered, key=lambda token_range: token_range.length)]
    if not groups:
        return values
    seeds = step_seeds([one.key for one in ordered], [one.step for one in ordered], layer)
    if _is_whole(values, groups[0]):
        return redistribute(values.flatten(1), spec, seeds).view(values.shape)
    tokens = values.detach().flatten(0, 1)
    result = tokens.clone()
    places = [_places(group, values.shape[1]) for group in groups]
    # All are sent at once: there may be as many groups as texts.
    sent_places = torch.split(sent(torch.cat(places), values.device), [len(some) for some in places])
    sent_seeds = torch.split(sent(seeds, values.device), [len(group) for group in groups])
    for here, its in zip(sent_places, sent_seeds, strict=True):
        changed = redistribute(tokens.index_select(0, here).view(len(its), -1), spec, its)
        result.index_copy_(0, here, changed.view(len(here), -1))
    return result.view(values.shape)


def _check(values: Tensor, ranges: Sequence[TokenRange]) -> None:
    if values.dim() != 3:
        raise CaptureError(
            f"activations of {values.dim()} dimensions came out of a nonlinearity, expected batch, token and width; "
            "this model is not supported"
        )
    for one in ranges:
        if not (0 <= one.row < values.shape[0] and 0 <= one.start <= one.stop <= values.shape[1]):
            raise CaptureError(f"{one} is not within the {values.shape[0]} x {values.shape[1]} tokens of the call")


def _is_whole(values: Tensor, group: Sequence[TokenRange]) -> bool:
    """Whether the group is the whole batch, row by row."""
    rows, tokens, _ = values.shape
    return len(group) == rows and all(
        (one.row, one.start, one.stop) == (row, 0, tokens) for row, one in enumerate(group)
    )


def _places(group: Sequence[TokenRange], tokens: int) -> Tensor:
    """Indices of the group's tokens in [batch * token]."""
    starts = torch.tensor([one.row * tokens + one.start for one in group])
    return (starts[:, None] + torch.arange(group[0].length)).flatten()


def _row_seeds(values: Tensor, rows: OneTokenRows, layer: int) -> Tensor:
    if suits_kernels(values):
        from fillerscope.arm import seed_kernels  # needs triton

        return seed_kernels.step_seeds(rows.keys, rows.steps, layer)
    return step_seeds(rows.keys, rows.steps, layer)


@dataclass
class _Rows:
    """The sequences of the call in progress, one a row."""

    seed: int
    ranges: Sequence[TokenRange] = ()
    outer: dict[str, Any] = field(default_factory=dict)  # what the model around the decoder was called with
    keys: list[int] = field(default_factory=list)  # of the call's rows
    keys_by_cache: WeakKeyDictionary[object, list[int]] = field(default_factory=WeakKeyDictionary)

    def start(self, given: dict[str, Any]) -> None:
        """Take the arguments of the decoder, by name, before it runs."""
        named = given if given.get("input_ids") is not None else self.outer
        ids, mask, cache = named.get("input_ids"), named.get("attention_mask"), given.get("past_key_values")
        if ids is None:
            raise CaptureError(
                "the model was called without input_ids, and ARM draws its numbers by the tokens of a sequence; call "
                "it with ids, not inputs_embeds, or name the sequences with redistributing"
            )
        cached = int(cache.get_seq_length()) if cache is not None else 0
        before, own = _unpadded(ids, mask, cached)
        spans = [_span(row) for row in own]
        self.keys = self._keys_of(cache, len(spans)) if cached else self._new_keys(ids, spans)
        self.ranges = [
            TokenRange(row, *span, key, step)
            for row, (span, key, step) in enumerate(zip(spans, self.keys, before, strict=True))
        ]

    def _new_keys(self, ids: Tensor, spans: Sequence[tuple[int, int]]) -> list[int]:
        rows = zip(ids.tolist(), spans, strict=True)
        return [sequence_seed(self.seed, row[start:stop]) for row, (start, stop) in rows]

    def _keys_of(self, cache: object, rows: int) -> list[int]:
        keys = self.keys_by_cache.get(cache)
        if keys is None:
            raise CaptureError(
                "the model was called with a cache that was not begun inside this arm block; begin the sequence inside "
                "it, or name the sequences with redistributing"
            )
        if len(keys) != rows:
            raise CaptureError(f"a cache begun with {len(keys)} rows was called with {rows}; begin the rows anew")
        return keys

    def stop(self, output: object) -> None:
        """Take the output of the decoder, or None, after it ran."""
        cache = getattr(output, "past_key_values", None)
        if cache is not None:
            self.keys_by_cache[cache] = self.keys
        self.ranges = ()


def _unpadded(ids: Tensor, mask: object, cached: int) -> tuple[list[int], list[list[bool]]]:
    """How many tokens of each row came before this call, and which of the call's tokens are not padding."""
    rows, tokens = ids.shape
    if mask is None:
        return [cached] * rows, [[True] * tokens] * rows
    expected = (rows, cached + tokens)
    if not isinstance(mask, Tensor) or mask.dim() != 2 or mask.shape[0] != rows or mask.shape[1] < expected[1]:
        shape = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise CaptureError(f"ARM needs an attention mask of shape {expected} to know padding from tokens, not {shape}")
    is_token = mask != 0
    numbers = torch.cat([is_token[:, :cached].sum(1, keepdim=True), is_token[:, cached : expected[1]]], 1).tolist()
    return [row[0] for row in numbers], [[bool(own) for own in row[1:]] for row in numbers]


def _span(own: Sequence[bool]) -> tuple[int, int]:
    """Where a row's tokens start and stop: padding comes before or after them, never between."""
    if not any(own):
        return 0, 0
    start, length = list(own).index(True), sum(own)
    if not all(own[start : start + length]):
        raise CaptureError("the attention mask has gaps inside a row; put padding before or after the tokens")
    return start, start + length


@contextmanager
def _following_calls(model: nn.Module, rows: _Rows) -> Iterator[None]:
    """Inside the block `rows` follows the calls. A multimodal model calls its decoder with embeddings: its ids are
    taken from the call to the model itself."""
    decoder = decoder_of(model)
    named, named_outside = _named(decoder), _named(model)

    def outside(_module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        rows.outer = named_outside(args, kwargs)

    def left(_module: nn.Module, _inputs: object, _output: object) -> None:
        rows.outer = {}

    with ExitStack() as stack:
        if model is not decoder:
            stack.callback(model.register_forward_pre_hook(outside, with_kwargs=True).remove)
            stack.callback(model.register_forward_hook(left, always_call=True).remove)
        before = decoder.register_forward_pre_hook(lambda _, *given: rows.start(named(*given)), with_kwargs=True)
        stack.callback(before.remove)
        after = decoder.register_forward_hook(lambda _, __, output: rows.stop(output), always_call=True)
        stack.callback(after.remove)
        yield


def _named(module: nn.Module) -> Callable[[Any, dict[str, Any]], dict[str, Any]]:
    signature = inspect.signature(module.forward)
    return lambda args, kwargs: dict(signature.bind_partial(*args, **kwargs).arguments)
