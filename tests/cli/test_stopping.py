"""Signals end a command wherever they find it."""

from __future__ import annotations

import os
import signal
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fillerscope.cli import stopping

EITHER = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])


@pytest.fixture(autouse=True)
def _new_process() -> Iterator[None]:
    """The handlers of a new process: a command that was stopped in this one ignores further signals."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Thing:
    pass


class Finalized:
    def __init__(self, action: Callable[[], None]) -> None:
        self.action = action

    def __del__(self) -> None:
        self.action()


def in_a_callback(action: Callable[[], None]) -> None:
    thing = Thing()
    reference = weakref.ref(thing, lambda _: action())
    del thing
    assert reference() is None


def in_a_finalizer(action: Callable[[], None]) -> None:
    Finalized(action)


@EITHER
@pytest.mark.parametrize("place", [in_a_callback, in_a_finalizer])
def test_an_interrupt_that_python_drops_comes_again(place: Callable[[Callable[[], None]], None], number: int) -> None:
    def interrupted() -> None:
        os.kill(os.getpid(), number)
        time.sleep(0.01)

    before = sys.unraisablehook

    def working() -> None:
        place(interrupted)
        time.sleep(20)

    with pytest.raises(KeyboardInterrupt), stopping.stoppable():
        working()
    assert stopping.exit_code() == 128 + number
    assert sys.unraisablehook is before


def test_other_errors_that_python_drops_are_shown_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: shown.append(dropped.exc_type))

    def failing() -> None:
        raise ValueError

    with stopping.stoppable():
        in_a_callback(failing)
    assert shown == [ValueError]
