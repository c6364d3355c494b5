"""The tables of problems and answers of a run folder, joined from its shards in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import takewhile

from fillerscope.errors import FigureError, StoreError
from fillerscope.files import parse_json
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import PROBLEMS, AnsweredProblem, Columns, answers_name, repeated_answers_name
from fillerscope.study.study import Study


class AnswerTables:
    """The tables of a finished run or, where `is_partial`, of the shards written so far. Each table is read once."""

    def __init__(self, store: RunStore, study: Study, is_partial: bool) -> None:
        self.store, self.study, self.is_partial = store, study, is_partial
        self._read: dict[tuple[str, bool], Columns] = {}

    @cached_property
    def problems(self) -> list[AnsweredProblem]:
        """Id, question, answer and meta of each problem."""
        table = self.store.get_table(PROBLEMS)
        rows = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
        try:
            problems: list[AnsweredProblem] = [
                {"id": row["id"], "question": row["question"], "answer": row["answer"], "meta": parse_json(row["meta"])}
                for row in rows
            ]
        except (KeyError, TypeError, ValueError):
            problems = []
        if not problems or not all(isinstance(problem["meta"], dict) for problem in problems):
            path = self.store.path / PROBLEMS
            raise StoreError(f"{path} does not hold the problems; remove it and run the study again")
        return problems

    def answered(self, model: str) -> int:
        """How many problems a model has answered, up to its first missing shard."""
        if self.study.generation is None or (self.is_partial and not self.store.has(PROBLEMS)):
            return 0
        return self._covered(self._first_shards(partial(answers_name, model)))

    def answers(self, model: str) -> Columns:
        """The answers of a model."""
        if (model, False) not in self._read:
            if self.is_partial and not self.store.has(PROBLEMS):
                raise unfinished(self.store, model, "answers", self.is_partial)
            names = self._first_shards(partial(answers_name, model))
            if self._covered(names) < (1 if self.is_partial else len(self.problems)):
                raise unfinished(self.store, model, "answers", self.is_partial)
            self._read[model, False] = self._joined(names)
        return self._read[model, False]

    def again(self, model: str) -> Columns:
        """The repeated answers without filler; empty where a run in progress has none yet."""
        noise = self.study.generation.noise if self.study.generation else None
        if noise is None:
            raise FigureError(
                "this run has no noise floor; give `generation: {noise: on}` in its study and run it again"
            )
        if (model, True) not in self._read:
            names = self._first_shards(partial(repeated_answers_name, model, dtype=noise.dtype))
            if not self.is_partial and self._covered(names) < len(self.problems):
                raise unfinished(self.store, model, "noise floor", self.is_partial)
            self._read[model, True] = self._joined(names)
        return self._read[model, True]

    def _first_shards(self, named: Callable[[int], str]) -> list[str]:
        """The names of the shards from the first to the first missing one."""
        count = -(-len(self.problems) // self.study.batch.shard)
        return list(takewhile(self.store.has, map(named, range(count))))

    def _covered(self, names: Sequence[str]) -> int:
        """How many problems these shards hold."""
        return min(len(names) * self.study.batch.shard, len(self.problems))

    def _joined(self, names: Sequence[str]) -> Columns:
        tables = [self.store.get_table(name) for name in names]
        return {key: [item for table in tables for item in table[key]] for key in tables[0]} if tables else {}


def unfinished(store: RunStore, model: str, what: str, is_partial: bool) -> StoreError:
    if is_partial:
        return StoreError(f"{store.path} holds no {what} of {model} yet; wait for its first shard, or run it again")
    return StoreError(f"{store.path} is not finished for {model}; run the study again, it resumes from there")
