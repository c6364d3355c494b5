"""The types of what the page is sent. `make page-types` writes them as TypeScript into web/src/data/types.ts.

Knows no run and computes nothing. A number that is missing is null on the page, hence `float | None`.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from fillerscope.answers.grading.grade import Verdict
from fillerscope.report.panel_types import Panel, Region, Scale

Tone = Literal["change", "no change", "cannot be told"]
Direction = Literal["gained", "lost"]


class ProblemName(TypedDict):
    """A problem in a list; its question is shortened."""

    number: int
    id: str
    question: str


class Model(TypedDict):
    """A model of the run; layers and heads are 0 until the first shard is stored."""

    name: str
    label: str
    layers: int
    heads: int
    measured: int
    failed: int
    problems: list[ProblemName]


class Condition(TypedDict):
    name: str
    label: str
    recipe: str
    filler: bool
    style: int
    dash: int


class Metric(TypedDict):
    """A measure of heads that a map can show."""

    name: str
    label: str
    scale: Scale


class Has(TypedDict):
    """What the run measured."""

    attention: bool
    answers: bool
    affine: bool
    activations: bool
    answering: bool


class Overview(TypedDict):
    """A run, as far as it does not change while it is measured."""

    name: str
    folder: str
    data: str
    main: str | None
    models: list[Model]
    conditions: list[Condition]
    queries: list[str]
    skip_first: bool
    metrics: list[Metric]
    has: Has
    classes: list[str]
    temperatures: list[float]


class Stage(TypedDict):
    model: str
    stage: str
    done: int
    total: int | None


class Progress(TypedDict):
    """`landed`: when the last file was written, in seconds since the epoch."""

    finished: bool
    stages: list[Stage]
    landed: float


class RunOverview(Overview):
    """With how far the run is. `checked` is empty while files are still compared with their checksums."""

    version: str
    progress: Progress
    checked: str
    damaged: bool


class Runs(TypedDict):
    """The runs that can be shown, by label and by the number that their addresses have, and why others cannot."""

    runs: list[str]
    numbers: list[int]
    overviews: list[RunOverview]
    unreadable: list[str]


# Attention


class Tokens(TypedDict):
    """The text at each position: without filler, and of whole prompts by condition."""

    aligned: list[str]
    whole: dict[str, list[str]]
    regions: list[Region]


class MapHeader(TypedDict):
    """Of packed maps of heads: how many problems they are over."""

    n: int
    condition: str
    queries: str


class ProfileHeader(TypedDict):
    """Of packed profiles: `reach` is, by condition, the first position that fewer than two problems have."""

    layer: int
    head: int
    queries: str
    view: str
    reach: dict[str, int]
    note: NotRequired[str]
    tokens: NotRequired[dict[str, list[str]]]  # of one problem, by condition


class MatrixHeader(TypedDict):
    """Of a packed matrix of one head: `filler` is where the filler stands, from and up to, null where there is none."""

    id: str
    condition: str
    layer: int
    head: int
    tokens: list[str]
    filler: tuple[int, int] | None
    note: str


class Ready(TypedDict):
    """Why one problem cannot be measured again here; empty where it can."""

    reason: str


# Answers


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


# Text


class Estimate(TypedDict):
    value: float | None
    low: float | None
    high: float | None
    n: int | None


class Finding(TypedDict):
    name: str
    line: str  # one claim, one number, one interval
    text: str  # all of it
    numbers: dict[str, float | None]
    table: str
    verdict: str | None
    reason: str
    condition: str
    estimates: dict[str, Estimate]


class Headline(TypedDict):
    model: str
    label: str
    subject: str
    lines: list[str]
    verdict: str  # subject and lines as one text
    tone: Tone
    facts: list[tuple[str, str, str]]
    left_out: list[str]


class ModelFindings(TypedDict):
    model: str
    label: str
    headline: Headline
    findings: list[Finding]


class Section(TypedDict):
    title: str
    paragraphs: list[str]
    facts: list[tuple[str, str]]
    code: str


class Methods(TypedDict):
    """The sections, and all of them as Markdown."""

    sections: list[Section]
    text: str


class Refusal(TypedDict):
    error: str


# The report in one file


class ConditionFlips(TypedDict):
    """The first of `total` flips of a condition; `before` and `after` are labels."""

    model: str
    before: str
    after: str
    total: int
    flips: list[Flip]


class Report(TypedDict):
    figures: dict[str, list[Panel]]
    comparison: list[ComparisonRow]
    noise: list[NoiseRow]
    flips: list[ConditionFlips]
