"""Where spans stand in the prompts of all problems of a file, and which texts their positions share.

Stored beside the records, so that what is asked of all prompts at once is known without reading those of very many.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, zip_longest

import numpy as np
from numpy.typing import NDArray

from fillerscope.files import parse_json
from fillerscope.prompts.prompt import FILLER, SPANS
from fillerscope.store.schema import ProblemRecord

DOT = "\u00b7"  # stands for a token of filler
Kind = tuple[tuple[int, int], ...]  # the spans of a prompt in their order, each with its number of tokens


def prompt_tokens(record: ProblemRecord, condition: str) -> list[str]:
    """The text of each token of a problem's prompt. Filler is shown as a dot."""
    texts = iter(record["tokens"])
    return [DOT if span == FILLER else next(texts) for span in record["prompts"][condition]["spans"]]


@dataclass(frozen=True)
class Layouts:
    """Of the problems of a file that did not fail, in their order."""

    kinds: tuple[Kind, ...]
    of: Mapping[str, NDArray[np.int64]]  # by condition, the number of each prompt's kind
    texts: Mapping[str, tuple[str, ...]]  # by condition, the text at each position, "" where problems differ

    def __post_init__(self) -> None:
        object.__setattr__(self, "spans", cache(self.spans))

    @classmethod
    def of_records(cls, records: Iterable[ProblemRecord]) -> Layouts:
        kinds: dict[Kind, int] = {}
        of: dict[str, list[int]] = {}
        texts: dict[str, list[str]] = {}
        for record in records:
            for condition, prompt in sorted(record.get("prompts", {}).items()):  # as files have them
                kind = tuple((span, len(list(tokens))) for span, tokens in groupby(prompt["spans"]))
                of.setdefault(condition, []).append(kinds.setdefault(kind, len(kinds)))
                own = prompt_tokens(record, condition)
                texts[condition] = _shared(texts[condition], own) if condition in texts else own
        numbers = {condition: np.array(one, dtype=np.int64) for condition, one in of.items()}
        return cls(tuple(kinds), numbers, {condition: tuple(one) for condition, one in texts.items()})

    @classmethod
    def joined(cls, parts: Sequence[Layouts]) -> Layouts:
        """Those of all problems of some files, one file after another: as `of_records` gives for all their records."""
        kinds: dict[Kind, int] = {}
        of: dict[str, list[NDArray[np.int64]]] = {}
        texts: dict[str, list[str]] = {}
        for part in parts:
            numbers = np.array([kinds.setdefault(kind, len(kinds)) for kind in part.kinds], dtype=np.int64)
            for condition, own in part.of.items():
                of.setdefault(condition, []).append(numbers[own])
                more = list(part.texts[condition])
                texts[condition] = _shared(texts[condition], more) if condition in texts else more
        joined = {condition: np.concatenate(some) for condition, some in of.items()}
        return cls(tuple(kinds), joined, {condition: tuple(one) for condition, one in texts.items()})

    def to_bytes(self) -> bytes:
        of = {condition: numbers.tolist() for condition, numbers in self.of.items()}
        return json.dumps({"kinds": self.kinds, "of": of, "texts": self.texts}, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes, problems: int, tokens: int) -> Layouts:
        """What `to_bytes` gave, of so many problems that did not fail, whose prompts have at most so many tokens
        together. Anything else is a ValueError."""
        try:
            given = dict(parse_json(data))
            kinds = tuple(tuple((int(span), int(count)) for span, count in kind) for kind in given["kinds"])
            of = {str(name): np.asarray(numbers, dtype=np.int64) for name, numbers in given["of"].items()}
            texts = {str(name): tuple(map(str, one)) for name, one in given["texts"].items()}
        except (TypeError, KeyError, AttributeError, OverflowError) as error:
            raise ValueError(f"its layouts cannot be read: {error}") from None
        counts = [count for kind in kinds for _, count in kind]
        if not {span for kind in kinds for span, _ in kind} <= set(range(len(SPANS))):
            raise ValueError("it has spans that no prompt has")
        if not all(kinds) or min(counts, default=1) < 1 or sum(counts) > tokens:
            raise ValueError("it has prompts that its records do not have")
        if of.keys() != texts.keys():
            raise ValueError("its layouts are of other conditions than its texts")
        for numbers in of.values():
            if numbers.shape != (problems,) or not ((numbers >= 0) & (numbers < len(kinds))).all():
                raise ValueError("its layouts are not those of its records")
        return cls(kinds, of, texts)

    def spans(self, number: int) -> NDArray[np.int8]:
        """[position]: the span of each token of prompts of a kind."""
        spans, tokens = zip(*self.kinds[number], strict=True)
        return np.repeat(np.array(spans, dtype=np.int8), tokens)

    def used(self, condition: str) -> tuple[list[int], NDArray[np.int64]]:
        """The numbers of the kinds that prompts of a condition have, and for each problem the place of its own."""
        numbers, places = np.unique(self.of[condition], return_inverse=True)
        return numbers.tolist(), places


def _shared(texts: list[str], own: list[str]) -> list[str]:
    if texts == own:
        return texts
    both = zip_longest(texts, own)
    return [one if other is None or one == other else other if one is None else "" for one, other in both]
