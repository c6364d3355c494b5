"""The sections of the report as objects: what each of them shows, for a template to write."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fillerscope.analysis.accuracy import Accuracy
from fillerscope.analysis.export import tables_of
from fillerscope.analysis.findings.all import available_answers
from fillerscope.analysis.findings.brief import brief
from fillerscope.analysis.findings.finding import Finding
from fillerscope.analysis.findings.significance import drawing
from fillerscope.analysis.run import Run
from fillerscope.display import number
from fillerscope.figures.condition_text import name_of
from fillerscope.files import Json
from fillerscope.report import answer_payload
from fillerscope.report.attachments import LARGE, Attachment, prints_of
from fillerscope.report.headline import Headline
from fillerscope.report.methods.page import as_text
from fillerscope.report.pictures import Picture
from fillerscope.report.sections import Section
from fillerscope.study.conditions import BASELINE

MOST_FLIPS = 200  # of a condition, that the report shows


@dataclass(frozen=True)
class Part:
    """A section of the page; `template` says how its content is written."""

    id: str
    title: str
    template: str
    content: object


@dataclass(frozen=True)
class ModelFindings:
    """What is found of one model, below its name where there are several."""

    title: str
    findings: Sequence[tuple[str, Finding]]  # each with itself in one line


@dataclass(frozen=True)
class Figure:
    """A figure with its files, and a preview as the address of an image."""

    picture: Picture
    files: Sequence[Attachment]
    preview: str


@dataclass(frozen=True)
class Figures:
    """The figures that were drawn, and why others were not."""

    drawn: Sequence[Figure]
    missed: Mapping[str, str]


@dataclass(frozen=True)
class Table:
    """A plain table, which the page's script replaces by one that can be sorted; `source` is the table in full."""

    id: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    source: str


@dataclass(frozen=True)
class Flips:
    """The place of the problems that changed under a condition; the page's script fills it."""

    title: str
    total: int
    shown: int


@dataclass(frozen=True)
class Methods:
    """The methods, and the same as Markdown to be copied."""

    sections: Sequence[Section]
    markdown: str


@dataclass(frozen=True)
class TableList:
    """The tables in the page, and those that are too large for it and lie in the folder of the run."""

    files: Sequence[Attachment]
    large: Sequence[str]
    folder: str


def verdict(headlines: Sequence[Headline]) -> Part:
    return Part("verdict", "Verdict", "verdict.html.j2", headlines)


def findings(run: Run, by_model: Mapping[str, Sequence[Finding]]) -> Part:
    several = len(run.models) > 1
    content = [
        ModelFindings(run.label(model) if several else "", [(brief(finding), finding) for finding in of_model])
        for model, of_model in by_model.items()
    ]
    return Part("findings", "Findings", "findings.html.j2", content)


def figures(pictures: Sequence[Picture], missed: Mapping[str, str]) -> Part:
    drawn = [Figure(one, prints_of(one), _address(one.preview)) for one in pictures]
    return Part("figures", "Figures", "figures.html.j2", Figures(drawn, missed))


def _address(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def comparison(run: Run, rows: Sequence[Accuracy]) -> Part:
    columns = ("model", "drawn", "condition", "n", "accuracy %", "difference, points", "p Holm")
    table = Table("comparison-table", columns, [_accuracy(run, row) for row in rows], "accuracy")
    return Part("comparison", "Comparison", "table.html.j2", table)


def _accuracy(run: Run, row: Accuracy) -> list[str]:
    change = row.against
    difference = number(100 * change.difference, "+.1f") if change else ""
    adjusted = number(change.adjusted, ".3g") if change else ""
    accuracy = number(100 * row.accuracy, ".1f")
    return [row.label, drawing(row), name_of(run, row.condition), str(row.n), accuracy, difference, adjusted]


def noise(rows: Sequence[Mapping[str, object]]) -> Part:
    columns = ("model", "drawn", "condition", "changed", "verdicts", "verdict")
    keys = ("label", "drawing", "name", "flips", "answers", "verdict")
    table = Table("noise-table", columns, [[row[key] for key in keys] for row in rows], "noise")
    return Part("noise", "Noise floor", "table.html.j2", table)


def flips(told: Sequence[Json]) -> Part:
    several = len({one["model"] for one in told}) > 1
    content = [
        Flips(f"{one['model']}: {one['after']}" if several else one["after"], one["total"], len(one["flips"]))
        for one in told
    ]
    return Part("flips", "Problems that changed", "flips.html.j2", content)


def flips_told(run: Run) -> list[Json]:
    """Of each model that has answered, each condition against none, at the study's first temperature."""
    told = []
    for model in run.models:
        for condition in run.fillers if available_answers(run[model]) else []:
            changed = answer_payload.flipped(run[model], condition, BASELINE, None)["flips"]
            after, before = (name_of(run, name) for name in (condition, BASELINE))
            more = {"model": run.label(model), "total": len(changed), "flips": changed[:MOST_FLIPS]}
            told.append({"before": before, "after": after} | more)
    return told


def methods(sections: Sequence[Section]) -> Part:
    return Part("methods", "Methods", "methods.html.j2", Methods(sections, as_text(sections)))


def tables(run: Run, attachments: Sequence[Attachment]) -> Part:
    """The tables of the run and those of its figures."""
    inside = [one for one in attachments if one.ending == "csv"]
    large = [name for name in LARGE if name in tables_of(run)]
    return Part("tables", "Tables", "tables.html.j2", TableList(inside, large, run.path.resolve().name))
