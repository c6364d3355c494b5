"""Shards put together in their order: moments merged, problems one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fillerscope.errors import ProblemError
from fillerscope.store.moments import PARTS, Counts, Moments
from fillerscope.store.run_folder import Part, Stacked

Fetch = Callable[[str, list[str] | None], Part]


class Merger:
    """Takes shards as they are measured, and fetches those that were there before when it is their turn.

    What is kept for every problem stays on disk until the merged file is written, and goes there shard by shard:
    memory does not grow with the number of problems."""

    def __init__(self, names: Sequence[str], fetch: Fetch) -> None:
        self.ahead, self.fetch = list(names), fetch
        self._records: list[dict[str, Any]] = []
        self._moments: dict[str, Moments] = {}
        self._counts: dict[str, Counts] = {}
        self._rows: dict[str, list[tuple[str, tuple[int, ...], np.dtype[Any]]]] = {}  # by array: shards that have it

    def take(self, name: str, part: Part) -> None:
        while (first := self.ahead.pop(0)) != name:
            self._add(first, self.fetch(first, None))
        self._add(name, part)

    def merged(self) -> Part:
        while self.ahead:
            first = self.ahead.pop(0)
            self._add(first, self.fetch(first, None))
        if not self._moments:
            first = next(record["error"] for record in self._records if record["status"] == "failed")
            raise ProblemError(f"none of the {len(self._records)} problems could be measured; the first says: {first}")
        reducers: dict[str, Moments | Counts] = self._moments | self._counts
        states = ((view, one.state()) for view, one in reducers.items())
        arrays = {f"{view}/{key}": array for view, state in states for key, array in state.items()}
        return Part(arrays | {key: self._stacked(key) for key in self._rows}, self._records)

    def _add(self, name: str, part: Part) -> None:
        self._records += part.records
        views = {key.removesuffix("/m2") for key in part.arrays if key.endswith("/m2")}
        for view in sorted(views):
            piece = Moments(*(part.arrays[f"{view}/{key}"] for key in PARTS))
            self._moments[view] = self._moments[view].merge(piece) if view in self._moments else piece
        for key in sorted(part.arrays):
            view, _, last = key.rpartition("/")
            if last == "counts":
                more = Counts(part.arrays[key])
                self._counts[view] = self._counts[view].merge(more) if view in self._counts else more
            elif view not in views:
                array = part.arrays[key]
                self._rows.setdefault(key, []).append((name, array.shape, array.dtype))

    def _stacked(self, key: str) -> Stacked:
        shards = self._rows[key]

        def pieces() -> Iterator[NDArray[Any]]:
            return (self.fetch(name, [key]).arrays[key] for name, *_ in shards)

        _, shape, dtype = shards[0]
        return Stacked((sum(one[0] for _, one, _ in shards), *shape[1:]), dtype, pieces)
