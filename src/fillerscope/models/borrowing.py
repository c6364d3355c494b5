"""A model of the caller, used for a while by one thread and given back as it came."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from weakref import WeakKeyDictionary

import torch
from torch import nn

from fillerscope.errors import ModelError
from fillerscope.models.attention import noted_attention
from fillerscope.models.structure import decoder_of

Restore = Callable[[], None]

_guard = threading.Lock()
_locks: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()


@contextmanager
def borrowed(model: nn.Module) -> Iterator[None]:
    """Inside the block a model is in eval mode, and other threads that want to measure with it wait for their turn.

    Afterwards, and after errors and interrupts, it is as it came: the mode of each module, its attention functions,
    and which parameters want gradients; no hook of ours is left."""
    refuse_autocast()
    with _lock_of(model), ExitStack() as stack:
        for restore in (_noted_modes(model), noted_attention(model), _noted_gradients(model), _noted_hooks(model)):
            stack.callback(restore)
        model.eval()
        yield


def refuse_autocast() -> None:
    """Raise inside a block of torch.autocast, where models compute in another dtype than what a run says of them."""
    if any(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda", "mps")):
        raise ModelError(
            "torch.autocast is on, which computes in another dtype than the model's: leave its block first"
        )


def _lock_of(model: nn.Module) -> threading.RLock:
    """The lock of a model, the same for all wrappers around one decoder."""
    with _guard:
        return _locks.setdefault(decoder_of(model), threading.RLock())


def _noted_modes(model: nn.Module) -> Restore:
    modes = [(module, module.training) for module in model.modules()]

    def restore() -> None:
        for module, is_training in modes:
            module.training = is_training

    return restore


def _noted_gradients(model: nn.Module) -> Restore:
    wanted = [(parameter, parameter.requires_grad) for parameter in model.parameters()]

    def restore() -> None:
        for parameter, is_wanted in wanted:
            if parameter.requires_grad != is_wanted:
                parameter.requires_grad_(is_wanted)

    return restore


def _noted_hooks(model: nn.Module) -> Restore:
    """Hooks and forwards of ours are removed where they are set; an interrupt may come between the two."""
    before = [(module, set(_hook_numbers(module)), vars(module).get("forward")) for module in model.modules()]

    def restore() -> None:
        for module, numbers, forward in before:
            for number in [one for one in _hook_numbers(module) if one not in numbers]:
                _remove_hook(module, number)
            if _is_ours(vars(module).get("forward")) and forward is None:
                del module.forward

    return restore


def _hook_numbers(module: nn.Module) -> list[int]:
    """The numbers of a module's hooks that are functions of this package."""
    hooks = (*module._forward_hooks.items(), *module._forward_pre_hooks.items())
    return [number for number, hook in hooks if _is_ours(hook)]


def _remove_hook(module: nn.Module, number: int) -> None:
    tables = (
        module._forward_hooks, module._forward_hooks_with_kwargs, module._forward_hooks_always_called,
        module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs,
    )  # fmt: skip
    for table in tables:
        table.pop(number, None)


def _is_ours(function: object) -> bool:
    return str(getattr(function, "__module__", "")).partition(".")[0] == __name__.partition(".")[0]
