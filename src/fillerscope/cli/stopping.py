"""Signals that end a command as Ctrl-C does: what is finished is kept, child processes end, one line says the rest."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
AGAIN_AFTER = 0.05  # seconds: the code that has lost an interrupt has ended by then
_received: list[int] = []


@contextmanager
def stoppable() -> Iterator[None]:
    """Inside the block SIGTERM and SIGHUP raise KeyboardInterrupt, unless the caller has told us to ignore them, and
    no KeyboardInterrupt is lost."""
    _received.clear()
    taken = [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _interrupt)
    before, sys.unraisablehook = sys.unraisablehook, _sent_again(sys.unraisablehook)
    try:
        yield
    finally:
        sys.unraisablehook = before
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    _received.append(number)
    raise KeyboardInterrupt


def _sent_again(otherwise: Callable[[sys.UnraisableHookArgs], object]) -> Callable[[sys.UnraisableHookArgs], None]:
    """Python drops what is raised while a weak reference's callback or a finalizer runs: an interrupt that arrives just
    then is sent once more."""

    def hook(dropped: sys.UnraisableHookArgs) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            _thread.start_new_thread(_send, (exit_code() - 128,))  # without the locks of threading, which may be held
        else:
            otherwise(dropped)

    return hook


def _send(number: int) -> None:
    time.sleep(AGAIN_AFTER)
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, number)  # ends a wait of the main thread too
    else:
        _thread.interrupt_main(signal.Signals(number))


def ignore_further() -> None:
    """Ignore every signal that ends a command: a second one must not cut the goodbye short."""
    for number in (signal.SIGINT, *SIGNALS):
        signal.signal(number, lambda *_: None)  # unlike SIG_IGN, it is not inherited by child processes


def exit_code() -> int:
    """The exit code by custom: 128 and the signal's number; 130 for Ctrl-C, 143 for SIGTERM."""
    return 128 + (_received[0] if _received else signal.SIGINT)
