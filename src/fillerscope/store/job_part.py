"""The part of a run that one of several jobs measures: which shards are its own, and the folder that it writes.

A job writes to a folder of its own, `RUN/parts/3-of-16`, with its own manifest and lock: no two jobs share a file, so
nothing depends on how a network's file system locks. `join` makes one run of all parts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from fillerscope.errors import StudyError
from fillerscope.store.schema import PARTS_FOLDER


@dataclass(frozen=True, order=True)
class JobPart:
    """Part `number` of `count`, from 1. Shards are dealt out in turn: data are often sorted by how hard they are."""

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise StudyError(f"a part is from 1/{self.count} to {self.count}/{self.count}, not {self}")

    @classmethod
    def parse(cls, text: str) -> JobPart:
        """The part that is written as `3/16`."""
        found = re.fullmatch(r"\s*([0-9]{1,5})\s*/\s*([1-9][0-9]{0,4})\s*", text)
        if found is None:
            raise StudyError(f"a part is written as 3/16, the third of sixteen, not {text!r}")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def shards(self, count: int) -> range:
        """The shards of this part, of so many from 0."""
        return range(count)[self.number - 1 :: self.count]

    def has(self, shard: int) -> bool:
        """Whether a shard belongs to this part, by its index from 0."""
        return shard % self.count == self.number - 1

    def folder(self, run: Path) -> Path:
        """The folder of this part in that of the run."""
        return run / PARTS_FOLDER / f"{self.number}-of-{self.count}"


def is_part(text: object) -> bool:
    """Whether it is a text such as 3/16."""
    try:
        return isinstance(text, str) and bool(JobPart.parse(text))
    except StudyError:
        return False
