"""Shards put together in their order: moments merged, problems one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fillerscope.errors import ProblemError
from fillerscope.reducers import Moments
from fillerscope.store import Part


class Merger:
    """Takes shards as they are measured, and fetches those that were there before when it is their turn."""

    def __init__(self, names: Sequence[str], fetch: Callable[[str], Part]) -> None:
        self.ahead, self.fetch = list(names), fetch
        self._records: list[dict[str, Any]] = []
        self._moments: dict[str, Moments] = {}
        self._rows: dict[str, list[NDArray[Any]]] = {}

    def take(self, name: str, part: Part) -> None:
        while (first := self.ahead.pop(0)) != name:
            self.add(self.fetch(first))
        self.add(part)

    def merged(self) -> Part:
        while self.ahead:
            self.add(self.fetch(self.ahead.pop(0)))
        if not self._moments:
            first = next(record["error"] for record in self._records if record["status"] == "failed")
            raise ProblemError(f"none of the {len(self._records)} problems could be measured; the first says: {first}")
        moments = ((view, one.state()) for view, one in self._moments.items())
        arrays = {f"{view}/{key}": array for view, state in moments for key, array in state.items()}
        return Part(arrays | {key: np.concatenate(pieces) for key, pieces in self._rows.items()}, self._records)

    def add(self, part: Part) -> None:
        self._records += part.records
        views = {key.removesuffix("/m2") for key in part.arrays if key.endswith("/m2")}
        for view in sorted(views):
            piece = Moments(*(part.arrays[f"{view}/{key}"] for key in ("count", "mean", "m2")))
            self._moments[view] = self._moments[view].merge(piece) if view in self._moments else piece
        for key in sorted(part.arrays):
            if key.rpartition("/")[0] not in views:
                self._rows.setdefault(key, []).append(part.arrays[key])
