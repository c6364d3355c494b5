"""Pack texts into a forward pass: in one row of tokens, or each in a row of its own.

In one row no text is padded to the length of another: texts of about one length that begin alike stand side by side
in a band, each padded at its end to the longest of them, so that attention sees plain batches as views of the row.
Models that carry a state along a row need a row for each text. Knows nothing of models or scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fillerscope.study.interventions import Knockout, Redistribution

WASTE = 0.04  # of the tokens in a band may be padding
GROUPS = ("all", "original", "last")


@dataclass(frozen=True)
class Text:
    """The tokens of one text to be measured, which of them are not filler, and how long its shared prefix is."""

    ids: tuple[int, ...]
    original: NDArray[np.bool_]
    shared: int = 0
    ends: bool = True  # false for a prefix of texts: its last row is not the last of any text
    problem: int = -1  # texts of one problem share a pass, and the first is what the others are compared with
    probed: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))  # tokens that probes look at
    classes: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))  # of each token
    gap: tuple[int, int] = (0, 0)  # before which token, none of those shared, how many positions are left empty
    change: Redistribution | Knockout | None = None  # the intervention inside the model
    key: int = 0  # of the random numbers of that intervention
    query_rows: NDArray[np.bool_] | None = None  # query rows counted in place of the original ones
    generated: int = 0  # tokens at the end that the model generated, one by one
    row_weights: NDArray[np.float32] | None = None  # of each row among the original ones; None: 1

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def own(self) -> int:
        """How many tokens come after the prefix."""
        return len(self.ids) - self.shared

    @property
    def position_count(self) -> int:
        """How many positions it takes, those left empty included."""
        return len(self.ids) + self.gap[1]

    @cached_property
    def prefix(self) -> tuple[tuple[int, float], ...]:
        """The shared tokens, each with the weight of its row: the same ids with other weights are another prefix."""
        return tuple(zip(self.ids[: self.shared], self.weights[1, : self.shared].tolist(), strict=True))

    @property
    def counted_rows(self) -> NDArray[np.bool_]:
        """The query rows of the group `original`."""
        return self.original if self.query_rows is None else self.query_rows

    @property
    def positions(self) -> NDArray[np.int64]:
        """Position ids of the tokens after the prefix."""
        places = np.arange(self.shared, len(self.ids))
        at, by = self.gap
        return places + by * (places >= at)

    def hides(self, layer: int) -> bool:
        """Whether original rows must not look at the filler in a layer, counted from 0."""
        return isinstance(self.change, Knockout) and self.change.applies(layer)

    @property
    def rows(self) -> NDArray[np.bool_]:
        """[group, position]: the query rows of each group."""
        rows = np.zeros((len(GROUPS), len(self.ids)), dtype=np.bool_)
        rows[0], rows[1], rows[2, -1] = True, self.counted_rows, self.ends
        return rows

    @property
    def weights(self) -> NDArray[np.float32]:
        """[group, position]: how much each row counts."""
        weights = self.rows.astype(np.float32)
        if self.row_weights is not None:
            weights[1] *= self.row_weights
        return weights


@dataclass(frozen=True)
class Band:
    """Texts side by side: numbers into the pass's texts, and where they are in its row of queries and of keys."""

    texts: tuple[int, ...]
    width: int  # tokens of each, filled up
    start: int  # of the first text's queries
    key_start: int  # of its keys, its prefix's among them
    prefix: slice  # the prefix, among those of the pass; empty where there is none

    @property
    def shared(self) -> int:
        return int(self.prefix.stop - self.prefix.start)

    @property
    def span(self) -> int:
        """Keys of each text."""
        return self.shared + self.width

    @property
    def stop(self) -> int:
        return self.start + len(self.texts) * self.width

    @property
    def key_stop(self) -> int:
        return self.key_start + len(self.texts) * self.span

    def queries(self, tensor: Tensor) -> Tensor:
        """[text, head, width, ...] as a view of [head, token, ...]."""
        return torch.unflatten(tensor[:, self.start : self.stop], 1, (len(self.texts), self.width)).transpose(0, 1)

    def keys(self, tensor: Tensor) -> Tensor:
        """[text, ..., span] as a view of [..., key]."""
        some = tensor[..., self.key_start : self.key_stop]
        return torch.unflatten(some, -1, (len(self.texts), self.span)).movedim(-2, 0)


@dataclass(frozen=True, eq=False)
class Packing:
    """One pass: its texts, the prefixes that some of them start with, and their bands."""

    texts: tuple[Text, ...]
    prefixes: tuple[tuple[tuple[int, float], ...], ...]
    bands: tuple[Band, ...]
    rows: int = 1  # of tokens, all of one width

    @classmethod
    def apart(cls, texts: Sequence[Text]) -> Packing:
        """A row for each text, padded at its end; nothing is shared."""
        own = tuple(replace(text, shared=0) for text in texts)
        band = Band(tuple(range(len(own))), max(map(len, own)), 0, 0, slice(0, 0))
        return cls(own, (), (band,), len(own))

    @classmethod
    def of(cls, texts: Sequence[Text]) -> Packing:
        """One row, its bands in the order of prefixes and lengths."""
        prefixes = tuple(dict.fromkeys(text.prefix for text in texts if text.shared))
        ends = np.cumsum([len(prefix) for prefix in prefixes]).tolist()
        places = {b: slice(end - len(b), end) for b, end in zip(prefixes, ends, strict=True)} | {(): slice(0, 0)}
        bands: list[Band] = []
        start = key_start = 0
        for members in _bands(texts):
            last = texts[members[-1]]
            band = Band(tuple(members), last.own, start, key_start, places[last.prefix])
            bands.append(band)
            start, key_start = band.stop, band.key_stop
        return cls(tuple(texts), prefixes, tuple(bands))

    @property
    def tokens(self) -> int:
        """Queries in all rows, padding included."""
        return self.bands[-1].stop

    @property
    def key_count(self) -> int:
        return self.bands[-1].key_stop

    @property
    def width(self) -> int:
        """Tokens of a row."""
        return self.tokens // self.rows

    def row(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Token ids and positions [token], row after row."""
        ids, positions = np.zeros((2, self.tokens), dtype=np.int64)
        for band in self.bands:
            positions[band.start : band.stop] = np.tile(np.arange(band.shared, band.span), len(band.texts))
            for place, text in zip(self._places(band), band.texts, strict=True):
                ids[place] = self.texts[text].ids[band.shared :]
                positions[place] = self.texts[text].positions
        return ids, positions

    def hidden(self, layer: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]] | None:
        """Query rows [token] and the keys [key] that they must not see in a layer; None where nothing is hidden."""
        if not any(text.hides(layer) for text in self.texts):
            return None
        rows, keys = np.zeros(self.tokens, np.bool_), np.zeros(self.key_count, np.bool_)
        for band in self.bands:
            for number, (place, text) in enumerate(zip(self._places(band), band.texts, strict=True)):
                original = self.texts[text].original
                start = band.key_start + number * band.span
                keys[start : start + len(original)] = ~original
                rows[place] = original[band.shared :] & self.texts[text].hides(layer)
        return rows, keys

    @cached_property
    def weights(self) -> NDArray[np.float32]:
        """[group, token]: how much each row counts. `original` is left out where it is the same as `all`."""
        weights = np.zeros((len(GROUPS), self.tokens), dtype=np.float32)
        for band in self.bands:
            for place, text in zip(self._places(band), band.texts, strict=True):
                weights[:, place] = self.texts[text].weights[:, band.shared :]
        return weights if (weights[0] != weights[1]).any() else weights[[0, 2]]

    @property
    def groups(self) -> tuple[int, int, int]:
        """For each of GROUPS, its row in `weights`."""
        return (0, 1, 2) if len(self.weights) == len(GROUPS) else (0, 0, 1)

    def _places(self, band: Band) -> Iterator[slice]:
        for number, text in enumerate(band.texts):
            start = band.start + number * band.width
            yield slice(start, start + self.texts[text].own)

    def places(self) -> list[slice]:
        """Where every text's tokens after the prefix are in the row."""
        by_text = {
            text: place for band in self.bands for text, place in zip(band.texts, self._places(band), strict=True)
        }
        return [by_text[number] for number in range(len(self.texts))]

    def kept_queries(self) -> NDArray[np.int64]:
        """The places in the row of all texts' tokens, in the order of the texts, without padding."""
        return np.concatenate([np.r_[place] for place in self.places()])

    def kept_keys(self) -> NDArray[np.int64]:
        """The same among the keys, each text's prefix before its own."""
        starts = {
            text: band.key_start + number * band.span for band in self.bands for number, text in enumerate(band.texts)
        }
        return np.concatenate([starts[i] + np.arange(len(text)) for i, text in enumerate(self.texts)])

    def prefix_places(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Where what is known of the prefixes goes, these standing one after another: for every position of the
        texts its place among them, or after them all where it is a text's own; for every text the number of its
        prefix, or one more than there are; and for every position its place in prefixes and row together."""
        starts = np.cumsum([0, *map(len, self.prefixes)])
        numbers = {prefix: number for number, prefix in enumerate(self.prefixes)} | {(): len(self.prefixes)}
        texts = np.array([numbers[text.prefix] for text in self.texts])
        own = np.split(self.kept_queries() + starts[-1], np.cumsum([text.own for text in self.texts])[:-1])
        before: list[NDArray[np.int64]] = []
        places: list[NDArray[np.int64]] = []
        for text, number, tokens in zip(self.texts, texts, own, strict=True):
            shared = starts[number] + np.arange(text.shared)
            before += [shared, np.full(text.own, starts[-1])]
            places += [shared, tokens]
        return np.concatenate(before), texts, np.concatenate(places)


def _bands(texts: Sequence[Text]) -> Iterator[list[int]]:
    """Numbers of texts that share a prefix and differ little in length, the shortest first."""
    band: list[int] = []
    total = 0
    for number in sorted(range(len(texts)), key=lambda i: (texts[i].prefix, texts[i].own, i)):
        text = texts[number]
        new = bool(band) and texts[band[-1]].prefix != text.prefix
        if band and (new or (len(band) + 1) * text.own - total - text.own > WASTE * (total + text.own)):
            yield band
            band, total = [], 0
        band.append(number)
        total += text.own
    if band:
        yield band


def passes(texts: Sequence[Text], tokens: int) -> Iterator[list[int]]:
    """Numbers of texts for one pass after another, each within a budget of tokens, or a single problem above it.
    Texts with prefixes of one length come together, so that no pass has to run many of these first."""
    batch: list[int] = []
    total = 0
    for numbers in sorted(problems(texts), key=lambda some: (*_sizes(texts, some), some)):
        own = sum(texts[number].own for number in numbers)
        if batch and total + own > tokens:
            yield batch
            batch, total = [], 0
        batch += numbers
        total += own
    if batch:
        yield batch


def problems(texts: Sequence[Text], numbers: Sequence[int] | None = None) -> list[list[int]]:
    """Numbers of texts grouped by problem, which stay in one pass, in their order."""
    groups: dict[tuple[int, int], list[int]] = {}
    for number in range(len(texts)) if numbers is None else numbers:
        problem = texts[number].problem
        groups.setdefault((problem, number if problem < 0 else -1), []).append(number)
    return list(groups.values())


def _sizes(texts: Sequence[Text], numbers: Sequence[int]) -> tuple[int, int]:
    return max(texts[number].shared for number in numbers), sum(texts[number].own for number in numbers)
