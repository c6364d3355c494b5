"""Rows of a data file: those that can be read, and those that cannot, each with its place."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from decimal import Decimal
from typing import Self

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


class WrittenFloat(float):
    """A number with the text that it is written as, where Python would write it in another way or cannot hold it."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        number = super().__new__(cls, text)
        number.text = text
        return number


def parse_float(text: str) -> float:
    """A number with a point or an exponent that remembers how it is written."""
    number = float(text)
    return number if repr(number) == text else WrittenFloat(text)


def number_text(number: float) -> str:
    """A finite number as it is written; a whole one without a point or an exponent, as 18 for 18.0."""
    text = number.text if isinstance(number, WrittenFloat) else repr(number)
    if not number.is_integer():
        return text
    if not number:  # a zero, or too small for Python
        is_zero = not text.lower().partition("e")[0].strip("-+0.")
        return "0" if is_zero else text
    exact = Decimal(text)
    return f"{exact.to_integral_value():f}" if exact == exact.to_integral_value() else text


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
    numbers = {int: "a number", float: "a number", WrittenFloat: "a number"}
    return (names | numbers).get(type(value), f"a value of type {type(value).__name__}")
