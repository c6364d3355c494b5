"""Rows of a data file: those that can be read, and those that cannot, each with its place."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from fillerscope.errors import ProblemError
from fillerscope.files import Json

A_LIST: list[object] = [None]  # stand for arrays and objects in rows, of which no problem is made
AN_OBJECT: Json = {"": None}
LONGEST_REASON = 20_000  # characters that are looked at for one line


@dataclass(frozen=True)
class Row:
    """One row of a file."""

    place: str  # `file:line` in JSON Lines, CSV and TSV, `file: row n` elsewhere, both counted from 1
    fields: Json


class BadRow(ProblemError):
    """A row that cannot be read or is no problem. `problems.on_error` decides whether it stops a run or is skipped."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        self.place = place
        self.reason = reason

    def record(self) -> Json:
        """The same for programs and for the run folder."""
        return {"place": self.place, "reason": one_line(self.reason)}


def one_line(reason: object, width: int = 200) -> str:
    """A text on one line, shortened to a width."""
    return textwrap.shorten(str(reason)[:LONGEST_REASON], width, placeholder=" ...")


def kind_of(value: object) -> str:
    """What JSON calls a value, for people."""
    if value is None:
        return "null"
    names = {bool: "true or false", str: "text", list: "an array", dict: "an object"}
    numbers = {int: "a number", float: "a number"}
    return (names | numbers).get(type(value), f"a value of type {type(value).__name__}")
