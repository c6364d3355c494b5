"""Shards put together in their order: moments merged, problems one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from fillerscope.errors import ProblemError
from fillerscope.files import Json
from fillerscope.store.moments import Counts, Moments
from fillerscope.store.run_folder import Part, Stacked
from fillerscope.store.schema import Array, ArrayName, ProblemRecord

Reducer = TypeVar("Reducer", Moments, Counts)
Fetch = Callable[[str, list[str] | None], Part]


class Merger:
    """Takes shards as they are measured, and fetches those that were there before when it is their turn.

    What is kept for every problem stays on disk until the merged file is written, and goes there shard by shard:
    memory does not grow with the number of problems."""

    def __init__(self, names: Sequence[str], fetch: Fetch) -> None:
        self.ahead, self.fetch = list(names), fetch
        self._records: list[ProblemRecord] = []
        self._moments: dict[ArrayName, Moments] = {}
        self._counts: dict[ArrayName, Counts] = {}
        self._rows: dict[
            str, list[tuple[str, tuple[int, ...], np.dtype[np.generic]]]
        ] = {}  # by array: shards that have it

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
        arrays: Json = {key: self._stacked(key) for key in self._rows}
        states = [(name, one.state()) for name, one in self._moments.items()]
        states += [(name, one.state()) for name, one in self._counts.items()]
        for name, state in states:
            arrays |= {name.quantity.key(name.condition, part): array for part, array in state.items()}
        return Part(arrays, self._records)

    def _add(self, name: str, part: Part) -> None:
        self._records += part.records
        names = dict.fromkeys(replace(ArrayName.parse(key), part="") for key in sorted(part.arrays))
        for array in names:
            arrays = [part.arrays[key] for key in array.quantity.keys(array.condition)]
            if array.quantity.merged == "moments":
                self._moments[array] = _merged(self._moments.get(array), Moments(*arrays))
            elif array.quantity.merged == "counts":
                self._counts[array] = _merged(self._counts.get(array), Counts(*arrays))
            else:
                key = array.quantity.key(array.condition)
                self._rows.setdefault(key, []).append((name, arrays[0].shape, arrays[0].dtype))

    def _stacked(self, key: str) -> Stacked:
        shards = self._rows[key]

        def pieces() -> Iterator[Array]:
            return (self.fetch(name, [key]).arrays[key] for name, *_ in shards)

        _, shape, dtype = shards[0]
        return Stacked((sum(one[0] for _, one, _ in shards), *shape[1:]), dtype, pieces)


def _merged(before: Reducer | None, more: Reducer) -> Reducer:
    return more if before is None else before.merge(more)
