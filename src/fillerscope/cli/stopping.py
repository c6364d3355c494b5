"""Signals that end a command as Ctrl-C does: what is finished is kept, child processes end, one line says the rest."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
_received: list[int] = []


@contextmanager
def stoppable() -> Iterator[None]:
    """Inside the block SIGTERM and SIGHUP raise KeyboardInterrupt, unless the caller has told us to ignore them."""
    _received.clear()
    taken = [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    _received.append(number)
    raise KeyboardInterrupt


def ignore_further() -> None:
    """Ignore every signal that ends a command: a second one must not cut the goodbye short."""
    for number in (signal.SIGINT, *SIGNALS):
        signal.signal(number, lambda *_: None)  # unlike SIG_IGN, it is not inherited by child processes


def exit_code() -> int:
    """The exit code by custom: 128 and the signal's number; 130 for Ctrl-C, 143 for SIGTERM."""
    return 128 + (_received[0] if _received else signal.SIGINT)
