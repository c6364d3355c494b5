"""The footer of a Parquet file from elsewhere, checked before pyarrow reads it.

pyarrow makes objects of all of it at once: of three bytes about a column seven hundred of memory, and of the name of a
struct one copy for each column in it. Knows nothing of what a table holds.
"""

from __future__ import annotations

import os
from typing import BinaryIO

from fillerscope.problems.parquet_pages import MOST_COLUMNS, Compact

LARGEST_FOOTER = 1 << 23  # bytes: pyarrow takes up to 240 for each, which are 2 GiB
LARGEST_PATHS = 1 << 26  # bytes of the names of all columns, with those of the structs that each is in
LARGEST_NOTE = 1 << 20  # bytes of a key with its value: pyarrow makes up to 500 of each in its own note
_MAGIC = b"PAR1"
_SCHEMA, _NOTES = [2], [5]
# The kind of what is in a list, by the fields that lead to it. pyarrow takes this for granted, whatever the file says.
_KINDS = {
    (2,): 12, (4,): 12, (5,): 12, (7,): 12, (4, 1): 12, (4, 4): 12,
    (4, 1, 3, 2): 5, (4, 1, 3, 3): 8, (4, 1, 3, 8): 12, (4, 1, 3, 13): 12,
    (4, 1, 3, 16, 2): 6, (4, 1, 3, 16, 3): 6, (4, 1, 3, 17, 2): 5, (4, 1, 8, 2, 1): 8,
}  # fmt: skip


def refuse_large_footer(source: BinaryIO) -> None:
    """Raise a ValueError for a footer that would fill memory. A file that has none is left to pyarrow."""
    end = source.seek(0, os.SEEK_END) - 8
    source.seek(max(end, 0))
    tail = source.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or length > end:
        return
    if length > LARGEST_FOOTER:
        raise ValueError(f"its footer has more than {LARGEST_FOOTER / (1 << 20):g} MiB")
    source.seek(end - length)
    try:
        _Footer(source.read(length)).struct()
    except IndexError:
        raise ValueError("its footer is cut off") from None


class _Footer(Compact):
    """A footer, of which only the schema and the notes are looked at."""

    def _list(self, count: int, kind: int) -> None:
        if kind != _KINDS.get(tuple(self.path), kind):
            raise ValueError("its footer is damaged")
        if self.path == _SCHEMA:
            self._refuse_long_paths(count)
        elif self.path == _NOTES:
            self._refuse_long_notes(count)
        else:
            super()._list(count, kind)

    def _refuse_long_paths(self, count: int) -> None:
        if count > 4 * MOST_COLUMNS:  # a list has three elements
            raise ValueError(f"it has more than {MOST_COLUMNS:,} columns")
        around: list[tuple[int, int]] = []  # of each struct: how many elements are left in it, the length of its path
        total = 0
        for _ in range(count):
            start = self.place
            children = self.struct().get(5)
            left, before = around.pop() if around else (1, 0)
            length = before + self.place - start
            around += [(left - 1, before)] if left > 1 else []
            around += [(children, length)] if isinstance(children, int) and children else []
            total += length
            if total > LARGEST_PATHS or (isinstance(children, int) and not 0 <= children <= count):
                raise ValueError(f"the names of its columns take more than {LARGEST_PATHS >> 20} MiB")

    def _refuse_long_notes(self, count: int) -> None:
        for _ in range(count):
            start = self.place
            self.struct()
            if self.place - start > LARGEST_NOTE:
                raise ValueError(f"its footer has a note of more than {LARGEST_NOTE >> 20} MiB")
