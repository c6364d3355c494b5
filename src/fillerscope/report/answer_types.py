"""The types of what the page is sent of answers: comparisons, flips and transcripts.

Part of `payload_types`, which says where they go.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from fillerscope.answers.grading.grade import Verdict

Direction = Literal["gained", "lost"]


class ComparisonRow(TypedDict):
    """A condition against none; `name` is what it is called everywhere. The row that is sent has more columns, those
    of the table `accuracy`."""

    model: str
    label: str
    drawing: str
    condition: str
    name: str
    group: str
    temperature: float
    samples: int
    n: int
    failed: int
    accuracy: float | None
    low: float | None
    high: float | None
    tokens: float | None
    cut_off: float | None
    unanswered: float | None
    pairs: int
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    gained: int
    lost: int
    p: float | None
    adjusted: float | None
    detectable: float | None
    verdict: str


class NoiseRow(TypedDict):
    """Verdicts that changed against the first answers without filler: by rounding (none), or under a condition."""

    model: str
    label: str
    drawing: str
    temperature: float
    samples: int
    condition: str
    name: str
    way: str
    n: int
    answers: int
    flips: int
    share: float | None
    low: float | None
    high: float | None
    texts: int
    pairs: int
    rounding: float | None
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    p: float | None
    adjusted: float | None
    verdict: str


class Comparison(TypedDict):
    """`fields`: what the table can be split by."""

    rows: list[ComparisonRow]
    fields: list[str]
    noise: list[NoiseRow]


class Side(TypedDict):
    """One answer with its grade."""

    id: str
    verdict: Verdict
    finish: str
    tokens: int
    extracted: str
    note: str
    text: str


class Flip(TypedDict):
    """A problem whose verdict changed, with both answers."""

    id: str
    sample: int
    direction: Direction
    question: str
    reference: str
    before: Side
    after: Side


class Flips(TypedDict):
    condition: str
    against: str
    flips: list[Flip]


class Answer(Side):
    condition: str
    sample: int
    question: str
    reference: str


class Transcripts(TypedDict):
    """Some of `total` answers, from number `start` on."""

    total: int
    start: int
    answers: list[Answer]
