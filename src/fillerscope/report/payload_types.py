"""The types of what the page is sent. `make page-types` writes them as TypeScript into web/src/data/types.ts.

Knows no run and computes nothing. A number that is missing is null on the page, hence `float | None`.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from fillerscope.report.answer_types import ComparisonRow, Flip, NoiseRow
from fillerscope.report.panel_types import Panel, Region, Scale

Tone = Literal["change", "no change", "cannot be told"]


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
