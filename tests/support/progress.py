"""Progress for tests."""

from __future__ import annotations

from collections.abc import Callable

from fillerscope.progress import Silent


class Heard(Silent):
    """A progress that remembers the lines that were said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


class Told(Silent):
    """A progress that calls a function at every stage."""

    def __init__(self, listen: Callable[..., object]) -> None:
        self.listen = listen

    def stage(self, text: str, done: float, total: int | None) -> None:
        self.listen(text, done, total)
