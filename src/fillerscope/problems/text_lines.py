"""The lines of a text file from elsewhere. A line that is too long or no text has a fault, and the next one follows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

LARGEST_LINE = 1 << 24  # bytes of a line, and characters of a cell: a question is shorter


@dataclass(frozen=True)
class Line:
    """A line with its number, from 1. Where there is a `fault`, bytes that are no text are lone surrogates."""

    number: int
    text: str
    fault: str = ""


def read_lines(file: BinaryIO) -> Iterator[Line]:
    """The lines of a file, each read no further than a line may reach; its rest is passed over by the next one."""
    number = 0
    while raw := file.readline(LARGEST_LINE + 1):
        number += 1
        yield _line(number, raw)
        while len(raw) > LARGEST_LINE and not raw.endswith(b"\n"):
            raw = file.readline(LARGEST_LINE + 1) or b"\n"


def _line(number: int, raw: bytes) -> Line:
    if len(raw) > LARGEST_LINE:
        advice = "write one problem a line, and a shorter one"
        return Line(number, "", f"a line of more than {LARGEST_LINE >> 20} MiB; {advice}")
    text, fault = decoded(raw)
    return Line(number, text, fault)


def decoded(raw: bytes) -> tuple[str, str]:
    """Bytes as text, and what is wrong with them."""
    try:
        return raw.decode("utf-8-sig"), ""  # editors on Windows put a byte order mark first
    except UnicodeDecodeError as error:
        fault = f"byte {error.start + 1} is not UTF-8; save the file as UTF-8 text"
        return raw.decode("utf-8-sig", errors="surrogateescape"), fault
