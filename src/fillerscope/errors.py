"""Every error a user can cause, as one tree.

    FillerscopeError
    ├── StudyError      the study file asks for something that does not exist or does not fit
    ├── ProblemError    a data set, a file of problems, or one row of it
    ├── ModelError      weights that cannot be found, fetched, trusted or loaded
    ├── PromptError     a template or filler that does not give the tokens that were asked for
    ├── CaptureError    attention that cannot be measured exactly
    ├── GenerationError an endpoint or model that cannot write answers
    ├── StoreError      a run folder that is missing, locked, damaged or full
    ├── FigureError     a figure, layer, head or condition that the run does not hold
    └── ArgumentError   an argument of another kind than a function of the library takes

A message says what was expected, what came, and what to do. It is one line: the command line prints
it as it stands and exits with 1, and a notebook shows it without a traceback.
"""

import os
from collections.abc import Callable

from fillerscope.display import message


class FillerscopeError(Exception):
    """The root: whatever is not below it is a bug in fillerscope."""

    def __str__(self) -> str:
        """One short printable line: names and values of others are often part of it. Halves of characters, which no
        terminal or file takes, are written as escapes."""
        return message(super().__str__().encode(errors="backslashreplace").decode())

    @property
    def _render_traceback_(self) -> Callable[[], list[str]]:
        """What IPython shows in place of a traceback; missing, as IPython asks, where FILLERSCOPE_DEBUG is set."""
        if os.environ.get("FILLERSCOPE_DEBUG"):
            raise AttributeError("_render_traceback_")
        return lambda: [f"{type(self).__name__}: {self}"]


class StudyError(FillerscopeError):
    pass


class ProblemError(FillerscopeError):
    pass


class ModelError(FillerscopeError):
    pass


class PromptError(FillerscopeError):
    pass


class CaptureError(FillerscopeError):
    pass


class GenerationError(FillerscopeError):
    pass


class StoreError(FillerscopeError):
    pass


class UnreadableError(StoreError):
    """A file of a run cannot be read now, which does not say that it is damaged."""


class FigureError(FillerscopeError):
    pass


class ArgumentError(FillerscopeError):
    pass
