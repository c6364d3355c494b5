"""Merging of shards in their order: moments are merged, rows of problems are stacked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from fillerscope.errors import ProblemError
from fillerscope.files import Json
from fillerscope.store.array_file import Part, Stacked
from fillerscope.store.layouts import Layouts
from fillerscope.store.moments import Counts, Moments
from fillerscope.store.schema import Array, ArrayName, ProblemRecord, Quantity, answer_attention_name, merged_name

Reducer = TypeVar("Reducer", Moments, Counts)
Fetch = Callable[[str, list[str] | None], Part]


class _Rows(NamedTuple):
    """An array with a row for each problem, as one shard has it."""

    name: str  # of the shard
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]


class Merger:
    """Merges shards as they are measured, and fetches those that an earlier process has written, in shard order.

    Rows of problems stay on disk until the merged file is written, and are then copied shard by shard: memory does
    not grow with the number of problems."""

    def __init__(self, names: Sequence[str], fetch: Fetch, unmeasured: Callable[[], Part] | None = None) -> None:
        """`names` are all shards in order; `fetch` reads one that is on disk, or some of its arrays. `unmeasured` gives
        the arrays where no problem was measured, which else is an error."""
        self.pending, self.fetch, self.unmeasured = list(names), fetch, unmeasured
        self._records: dict[str, list[ProblemRecord] | None] = {}  # by shard; None: still to be fetched
        self._moments: dict[ArrayName, Moments] = {}
        self._counts: dict[ArrayName, Counts] = {}
        self._rows: dict[str, list[_Rows]] = {}  # by array
        self._layouts: list[Layouts] = []  # of each shard

    @classmethod
    def of(cls, whole: str, names: Sequence[str], fetch: Fetch, model: str) -> Merger:
        """Merges the shards `names` of a model into its file `whole`. There may be no answers to look back from."""
        looks_back = whole == answer_attention_name(model)
        return cls(names, fetch, partial(_over_no_problem, model, fetch) if looks_back else None)

    def add(self, name: str, part: Part) -> None:
        """Merge a shard that was just measured, after the pending ones before it; it need not be on disk yet.

        Its records are fetched at the end: those on disk take less memory."""
        while (first := self.pending.pop(0)) != name:
            self._add(first, self.fetch(first, None))
        self._add(name, part)
        self._records[name] = None

    def append(self, name: str, part: Part) -> None:
        """Merge one more shard, which was read from disk, where none is pending."""
        assert not self.pending
        self._add(name, part)

    def merged(self) -> Part:
        """All shards merged; those still pending are fetched first."""
        while self.pending:
            first = self.pending.pop(0)
            self._add(first, self.fetch(first, None))
        records = list(self._all_records())
        if not self._moments and self.unmeasured is not None:
            return Part(self.unmeasured().arrays, records)
        if not self._moments:
            first = next(record["error"] for record in records if record["status"] == "failed")
            raise ProblemError(f"none of the {len(records)} problems could be measured; the first says: {first}")
        arrays: Json = {key: self._stacked(key) for key in self._rows}
        states = [(name, one.state()) for name, one in self._moments.items()]
        states += [(name, one.state()) for name, one in self._counts.items()]
        for name, state in states:
            arrays |= {name.quantity.key(name.condition, part): array for part, array in state.items()}
        return Part(arrays, records, Layouts.joined(self._layouts))

    def _all_records(self) -> Iterator[ProblemRecord]:
        for name, records in self._records.items():
            yield from self.fetch(name, []).records if records is None else records

    def _add(self, name: str, part: Part) -> None:
        self._records[name] = part.records
        self._layouts.append(part.layouts)
        names = dict.fromkeys(replace(ArrayName.parse(key), part="") for key in sorted(part.arrays))
        for array in names:
            arrays = [part.arrays[key] for key in array.quantity.keys(array.condition)]
            if array.quantity.merged == "moments":
                self._moments[array] = _merged(self._moments.get(array), Moments(*arrays))
            elif array.quantity.merged == "counts":
                self._counts[array] = _merged(self._counts.get(array), Counts(*arrays))
            else:
                key = array.quantity.key(array.condition)
                self._rows.setdefault(key, []).append(_Rows(name, arrays[0].shape, arrays[0].dtype))

    def _stacked(self, key: str) -> Stacked:
        shards = self._rows[key]

        def pieces() -> Iterator[Array]:
            with ThreadPoolExecutor(1) as thread:  # which reads one piece ahead
                ahead: Future[Part] | None = None
                for shard in shards:
                    before, ahead = ahead, thread.submit(self.fetch, shard.name, [key])
                    if before is not None:
                        yield before.result().arrays[key]
                if ahead is not None:
                    yield ahead.result().arrays[key]

        problems = sum(shard.shape[0] for shard in shards)
        return Stacked((problems, *shards[0].shape[1:]), shards[0].dtype, pieces)


def _over_no_problem(model: str, fetch: Fetch) -> Part:
    """The arrays of answers' attention over no problem, with the shapes that those of prompts have."""
    arrays: dict[str, Array] = {}
    for key, array in fetch(merged_name(model), None).arrays.items():
        quantity = ArrayName.parse(key).quantity
        if "query" in quantity.axes and quantity not in (Quantity.SAME_ODDS, Quantity.SAME_ODDS_HEADS):
            of_answer = np.take(array, [0], quantity.axes.index("query"))
            arrays[key] = of_answer[:0] if quantity.merged == "problems" else np.zeros_like(of_answer)
    return Part(arrays, [])


def _merged(before: Reducer | None, more: Reducer) -> Reducer:
    return more if before is None else before.merge(more)
