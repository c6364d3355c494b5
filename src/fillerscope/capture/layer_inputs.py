"""Record the inputs of every layer of a forward pass, or replace them by those of another pass.

Two passes over the same tokens drift apart layer by layer through rounding alone, in half precision beyond any
comparison. Where each layer of the second pass starts from its inputs in the first, only the rounding of one layer is
left, whatever the depth. Knows nothing of what is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, cast

from torch import Tensor, nn

from fillerscope.capture.packing import Packing
from fillerscope.models.structure import decoder_of, layers_of

AFTER_LAST = -1  # stands for the hidden states after the last layer


@dataclass
class LayerInputs:
    """The inputs of all layers in one pass, by layer [token, feature]."""

    attention: dict[int, list[Tensor]] = field(default_factory=dict)  # queries, keys and values
    hidden: dict[int, Tensor] = field(default_factory=dict)
    received: dict[int, Tensor] = field(default_factory=dict)  # [group, head, position], of a text alone
    sinks: bool = False

    def of(self, layer: int) -> list[Tensor]:
        """All that was recorded of a layer: queries, keys, values and hidden states."""
        return [*self.attention.get(layer, []), *([self.hidden[layer]] if layer in self.hidden else [])]

    @property
    def layers(self) -> list[int]:
        """In the order in which they are run."""
        return sorted({*self.attention, *self.hidden}, key=lambda layer: (layer == AFTER_LAST, layer))


@dataclass(frozen=True)
class TokenMatch:
    """Some tokens of a pass, and the same tokens in another pass."""

    place: slice  # in the row of the pass
    other: LayerInputs  # of the other pass
    tokens: slice  # in the other pass


Passes = dict[Packing | None, LayerInputs]
MatchesOf = Callable[[Packing | None], Sequence[TokenMatch]]  # of a pass: None is a text alone
_passes: ContextVar[Passes] = ContextVar("fillerscope_layer_inputs")


def layer_of(module: nn.Module) -> int:
    """The number of an attention module's layer, from 0."""
    return int(cast(int, module.layer_idx))


def record_attention(packing: Packing | None, module: nn.Module, *tensors: Tensor) -> LayerInputs:
    """Record queries, keys and values [row, head, token, dim]; called by an attention function."""
    inputs = _passes.get().setdefault(packing, LayerInputs())
    inputs.attention[layer_of(module)] = [tensor.transpose(1, 2).flatten(2).flatten(0, 1) for tensor in tensors]
    return inputs


@contextmanager
def recording_inputs(
    model: nn.Module,
    current_pass: Callable[[], Packing | None],
    matches: MatchesOf = lambda _: (),
    depth: int | None = None,
) -> Iterator[Passes]:
    """Inside the block the inputs of layers are recorded. Where a pass has matches in another pass, layers start from
    the inputs that they had there. Layers beyond `depth` do nothing."""
    passes: Passes = {}
    token = _passes.set(passes)
    decoder = decoder_of(model)
    layers = layers_of(decoder)
    try:
        with ExitStack() as stack:
            for number, layer in enumerate(layers[:depth]):
                hook = _input_hook(number, passes, current_pass, matches)
                stack.callback(layer.register_forward_pre_hook(hook, with_kwargs=True).remove)
            stack.callback(decoder.register_forward_hook(_output_hook(passes, current_pass)).remove)
            if depth is not None:
                stack.enter_context(_skipping_layers(layers[depth - 1], layers[depth:]))
            yield passes
    finally:
        _passes.reset(token)


def _input_hook(
    number: int, passes: Passes, current_pass: Callable[[], Packing | None], matches: MatchesOf
) -> Callable[[Any, Any, Any], Any]:
    def hook(_module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        hidden = args[0] if args else named.get("hidden_states")
        if not isinstance(hidden, Tensor) or hidden.ndim != 3:  # several streams at once are left as they are
            return None
        packing = current_pass()
        flat = hidden.flatten(0, 1)
        passes.setdefault(packing, LayerInputs()).hidden[number] = flat.clone()
        started = [one for one in matches(packing) if number in one.other.hidden]
        if not started:
            return None
        changed = flat.clone()
        for one in started:
            changed[one.place] = one.other.hidden[number][one.tokens]
        changed = changed.view_as(hidden)
        return ((changed, *args[1:]), named) if args else (args, named | {"hidden_states": changed})

    return hook


def _output_hook(passes: Passes, current_pass: Callable[[], Packing | None]) -> Callable[[Any, Any, Any], None]:
    def hook(_module: nn.Module, _args: object, output: Any) -> None:
        hidden = output[0] if isinstance(output, tuple) else output.last_hidden_state
        passes[current_pass()].hidden[AFTER_LAST] = hidden.flatten(0, 1)

    return hook


@contextmanager
def _skipping_layers(last: nn.Module, beyond: Sequence[nn.Module]) -> Iterator[None]:
    """Inside the block the layers `beyond` return their input, in the form in which `last` returns its output."""
    form: list[Any] = []
    noted = last.register_forward_hook(lambda _module, _args, output: form.__setitem__(slice(None), [output]))

    def unchanged(*args: Any, **named: Any) -> Any:
        hidden = args[0] if args else named["hidden_states"]
        return (hidden, *form[0][1:]) if isinstance(form[0], tuple) else hidden

    before = [layer.__dict__.get("forward") for layer in beyond]
    for layer in beyond:
        layer.forward = unchanged
    try:
        yield
    finally:
        noted.remove()
        for layer, own in zip(beyond, before, strict=True):
            del layer.forward
            if own is not None:
                layer.forward = own


def depth_of_kinds(model: nn.Module) -> int:
    """How many of the first layers include one of each kind. Layers are alike if their modules, settings and hooks
    are; weights do not matter."""
    seen: dict[Hashable, int] = {}
    for number, layer in enumerate(layers_of(decoder_of(model)), start=1):
        seen.setdefault(_kind(layer), number)
    return max(seen.values())


def _kind(layer: nn.Module) -> Hashable:
    return tuple((type(module).__name__, _settings(module), _changes(module)) for module in layer.modules())


def _changes(module: nn.Module) -> tuple[int, int, bool]:
    """Changes that somebody made to a module: hooks before and after it, and another forward."""
    return len(module._forward_pre_hooks), len(module._forward_hooks), "forward" in vars(module)


def _settings(module: nn.Module) -> tuple[tuple[str, bool | int | float | str], ...]:
    values = {name: value for name, value in vars(module).items() if isinstance(value, bool | int | float | str)}
    return tuple(sorted((name, value) for name, value in values.items() if not _is_layer_number(name)))


def _is_layer_number(name: str) -> bool:
    return "idx" in name or "layer_id" in name or "layer_number" in name
