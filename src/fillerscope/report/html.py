"""A run as one HTML file that asks for nothing from outside: words and pictures stand in it, and come to life where
scripts may run. Tables and print versions lie in it packed.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fillerscope.analysis.accuracy import Accuracy
from fillerscope.analysis.export import tables_of, write_table
from fillerscope.analysis.findings.all import answers_there, compared_so_far, findings_of, missing_from
from fillerscope.analysis.findings.answers import drawing
from fillerscope.analysis.findings.attention import Finding
from fillerscope.analysis.run import Run
from fillerscope.display import number, shown
from fillerscope.errors import FigureError, StoreError
from fillerscope.figures.request import data_name
from fillerscope.report import payload
from fillerscope.report.headline import Headline, headline
from fillerscope.report.methods.page import as_text, methods
from fillerscope.report.panels import name_of
from fillerscope.report.pictures import Picture, pictures
from fillerscope.report.sections import Section
from fillerscope.report.wire import clean
from fillerscope.version import __version__

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none'"
)
LARGE = ("profiles", "summaries")  # every head at every position, every head of every problem
PAGES = (".html", ".htm")
MOST_FLIPS = 200  # of a condition, that the report shows
KINDS = {"csv": "text/csv", "pdf": "application/pdf", "svg": "image/svg+xml"}
Tell = Callable[[str, int, int | None], None]


def write_report(run: Run, path: Path, tell: Tell = lambda *_: None) -> Path:
    """Whole, or what was there before."""
    target = _target(path)
    page = render(run, tell)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(page, encoding="utf-8")
        os.replace(temporary, target)
    except OSError as error:
        with suppress(OSError):  # where it could not be made it cannot be removed
            temporary.unlink(missing_ok=True)
        raise _unwritable(path, error.strerror or str(error)) from None
    return path


def _target(path: Path) -> Path:
    """Refused before anything is drawn, and never a file that is something else: a run's own, a device, a folder."""
    try:
        found = path.resolve()
        if not path.name or found.is_dir():
            raise _unwritable(path, "it is a folder")
        if found.exists() and (found.suffix.lower() not in PAGES or not found.is_file()):
            raise _unwritable(path, "it is there already, and no HTML file")
        found.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(found if found.exists() else found.parent, os.W_OK):
            raise _unwritable(path, "Permission denied")
    except OSError as error:
        raise _unwritable(path, error.strerror or str(error)) from None
    return found


def _unwritable(path: Path, reason: str) -> FigureError:
    return FigureError(f"cannot write {path}: {reason}; choose another file with --out")


def render(run: Run, tell: Tell = lambda *_: None) -> str:
    """Of what is there, where the run was opened while it grows; else of a finished run."""
    missing = [] if run.partial else [reason for model in run.models for reason in missing_from(run, model)]
    if missing:
        raise StoreError(missing[0])
    drawn, missed = pictures(run, lambda done, total: tell("drawing", done, total))
    tell("writing", 0, None)
    compared = compared_so_far(run)
    told = {model: findings_of(run, model, compared) for model in run.models}
    tops = [headline(run, model, compared, found) for model, found in told.items()]
    sections = methods(run, missed, compared)
    kept = [*_tables(run), *_prints(drawn)]
    flips, noise = _flips(run), payload.noise_told(run)
    body = [
        _part("verdict", "Verdict", "".join(map(_headline, tops))),
        _part("findings", "Findings", "".join(_findings(run, model, found) for model, found in told.items())),
        _part("figures", "Figures", "".join(map(_figure, drawn)) + _missed(missed)),
        _part("comparison", "Comparison", _comparison(compared)) if compared else "",
        _part("noise", "Noise floor", _noise(noise)) if noise else "",
        _part("flips", "Problems that changed", _flip_places(flips)) if flips else "",
        _part("methods", "Methods", _methods(sections)),
        _part("tables", "Tables", _table_list(run, kept)),
    ]
    data = {
        "figures": {one.name: one.panels for one in drawn},
        "comparison": payload.rows_told(compared),
        "noise": noise,
        "flips": flips,
    }
    return _page(run, _head(run, body) + "".join(body), kept, data)


@dataclass(frozen=True)
class Kept:
    """A file that lies packed in the page."""

    name: str
    content: bytes

    @property
    def kind(self) -> str:
        return KINDS[self.name.rpartition(".")[2]]


def _tables(run: Run) -> list[Kept]:
    found = []
    with TemporaryDirectory(prefix="fillerscope-") as folder:
        for name in tables_of(run):
            path = None if name in LARGE else write_table(run, name, Path(folder), "csv")
            found += [Kept(path.name, path.read_bytes())] if path else []
    return found


def _prints(drawn: Sequence[Picture]) -> list[Kept]:
    """The numbers of a figure have its name before them: a table may be called the same."""
    return [
        Kept(f"figure-{one.name}.{kind}", one.files[kind]) for one in drawn for kind in ("csv", "pdf", "svg")
    ]  # fmt: skip


def _flips(run: Run) -> list[dict[str, Any]]:
    """Of each model that has answered, each condition against none, at the study's first temperature."""
    found = []
    for model in run.models:
        for condition in run.fillers if answers_there(run, model) else []:
            flips = payload.flipped(run, model, condition, "none", None)["flips"]
            after, before = (name_of(run, name) for name in (condition, "none"))
            more = {"model": run.label(model), "total": len(flips), "flips": flips[:MOST_FLIPS]}
            found.append({"before": before, "after": after} | more)
    return found


def text(words: str) -> str:
    """Any text as text: no markup, no hidden characters, and its direction its own affair."""
    return f"<bdi>{shown(words)}</bdi>"


def _head(run: Run, body: Sequence[str]) -> str:
    """Contents are the parts that there are."""
    models = ", ".join(run.label(model) for model in run.models)
    parts = [part.removeprefix('<section id="').partition('"')[0] for part in body if part]
    links = "".join(f'<a href="#{name}">{name.capitalize()}</a>' for name in parts)
    return (
        f"<header><div><h1>{text(run.study.name)}</h1><p>{text(models)} on {text(data_name(run.study))}. "
        f"What filler does to it, measured with fillerscope {escape(__version__)}.</p>"
        f'<nav class="contents" aria-label="Contents">{links}</nav></div>'
        '<button type="button" class="theme" title="Light or dark" aria-label="Light or dark">\u25d0</button></header>'
    )


def _part(name: str, title: str, content: str) -> str:
    return f'<section id="{name}"><h2>{title}</h2>{content}</section>'


def _headline(top: Headline) -> str:
    facts = "".join(
        f'<div class="fact"><span>{text(label)}</span><b>{text(value)}</b><small>{text(note)}</small></div>'
        for label, value, note in top.facts
    )
    missing = "".join(f'<p class="hint">{text(reason)}</p>' for reason in top.left_out)
    return (
        f'<div class="card"><p class="verdict">{text(top.verdict)}</p><div class="facts">{facts}</div>{missing}</div>'
    )


def _findings(run: Run, model: str, found: Sequence[Finding]) -> str:
    title = f"<h3>{text(run.label(model))}</h3>" if len(run.models) > 1 else ""
    if not found:
        return f"{title}<p>Nothing to compare: the study has no condition beside none.</p>"
    items = "".join(f"<li>{text(one.text)} {_link(one.table)}</li>" for one in found)
    return f"{title}<ol>{items}</ol>"


def _link(table: str) -> str:
    """To the table where a finding's numbers stand in full."""
    return f'<a href="#table-{escape(table)}">{escape(table)}</a>'


def _figure(one: Picture) -> str:
    image = base64.b64encode(one.preview).decode()
    buttons = "".join(_button(f"figure-{one.name}.{kind}", kind.upper()) for kind in ("pdf", "svg", "csv"))
    return (
        f'<figure id="figure-{escape(one.name)}"><h3>{text(one.title)}</h3><div class="panels" hidden></div>'
        f"<figcaption>{text(one.caption)}</figcaption>"
        f'<details class="print"{"" if one.panels else " open"}><summary>Print version</summary>'
        f'<p class="files">{buttons}</p><img alt="{escape(one.name)}, as it is printed" '
        f'src="data:image/png;base64,{image}"></details></figure>'
    )


def _button(file: str, label: str) -> str:
    kind = KINDS[file.rpartition(".")[2]]
    return f'<button type="button" class="file" data-file="{escape(file)}" data-kind="{kind}">{label}</button>'


def _missed(missed: Mapping[str, str]) -> str:
    items = "".join(f"<li>{text(name)}: {text(reason)}</li>" for name, reason in missed.items())
    return f"<h3>Not drawn</h3><ul>{items}</ul>" if missed else ""


def _noise(rows: Sequence[dict[str, Any]]) -> str:
    """A plain table, which the page's script replaces."""
    cells = [
        (row["label"], row["drawing"], row["condition"], row["flips"], row["answers"], row["verdict"]) for row in rows
    ]
    head = "".join(f"<th>{name}</th>" for name in ("model", "drawn", "condition", "changed", "verdicts", "verdict"))
    body = "".join(f"<tr>{''.join(f'<td>{text(str(cell))}</td>' for cell in row)}</tr>" for row in cells)
    return f'<div class="card" id="noise-table"><table><tr>{head}</tr>{body}</table></div>{_link("noise")}'


def _comparison(rows: Sequence[Accuracy]) -> str:
    """Plain, for those who run no scripts; with them it can be sorted."""
    heads = ("model", "drawn", "condition", "n", "accuracy %", "difference, points", "p Holm")
    lines = [
        (row.label, drawing(row), row.condition, str(row.n), number(100 * row.accuracy, ".1f"),
         number(100 * row.against.difference, "+.1f") if row.against else "",
         number(row.against.adjusted, ".3g") if row.against else "")
        for row in rows
    ]  # fmt: skip
    body = "".join(f"<tr>{''.join(f'<td>{text(cell)}</td>' for cell in line)}</tr>" for line in lines)
    head = "".join(f"<th>{name}</th>" for name in heads)
    return f'<div class="card" id="comparison-table"><table><tr>{head}</tr>{body}</table></div>{_link("accuracy")}'


def _flip_places(flips: Sequence[Mapping[str, Any]]) -> str:
    several = len({one["model"] for one in flips}) > 1
    found = []
    for place, one in enumerate(flips):
        title = f"{one['model']}: {one['after']}" if several else str(one["after"])
        cut = len(one["flips"]) < one["total"]
        note = f'<p class="hint">The first {len(one["flips"])} of {one["total"]}.</p>' if cut else ""
        opened = " open" if place == 0 else ""
        found.append(
            f'<details class="card"{opened}><summary><b>{text(title)}</b> against none: {one["total"]} changed'
            f'</summary>{note}<div id="flips-{place}"></div></details>'
        )
    return "".join(found)


def _methods(sections: Sequence[Section]) -> str:
    copy = (
        '<p><button type="button" data-copy="methods-text">Copy as Markdown</button></p>'
        f'<pre class="methods" id="methods-text" hidden>{shown(as_text(sections))}</pre>'
    )
    return copy + "".join(map(_section, sections))


def _section(one: Section) -> str:
    words = "".join(f"<p>{text(paragraph)}</p>" for paragraph in one.paragraphs)
    facts = "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in one.facts)
    code = f'<pre class="study">{shown(one.code)}</pre>' if one.code else ""
    return f'<div class="card"><h3>{text(one.title)}</h3>{words}{f"<dl>{facts}</dl>" if facts else ""}{code}</div>'


def _table_list(run: Run, kept: Iterable[Kept]) -> str:
    items = "".join(
        f'<li id="table-{escape(one.name.removesuffix(".csv"))}">{_button(one.name, "CSV")} {escape(one.name)} '
        f'<span class="hint">{len(one.content) / 1000:,.0f} kB</span></li>'
        for one in kept
        if one.name.endswith(".csv")
    )
    large = "".join(
        f'<li id="table-{name}">{name}: too large for a page; from the run folder '
        f"<code>fillerscope export {escape(run.path.resolve().name)} --format csv</code> writes it</li>"
        for name in LARGE
        if name in tables_of(run)
    )
    return f'<ul class="tables">{items}{large}</ul>'


def _page(run: Run, body: str, kept: Iterable[Kept], data: Mapping[str, Any]) -> str:
    static = files("fillerscope.report").joinpath("static")
    style, script = (static.joinpath(name).read_text(encoding="utf-8") for name in ("style.css", "page.js"))
    packed = "".join(
        f'<script type="application/gzip" id="file-{escape(one.name)}">{_gzipped(one.content)}</script>\n'
        for one in kept
    )
    numbers = json.dumps(clean(data), allow_nan=False).replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{shown(run.study.name)} \u00b7 fillerscope</title>\n<link rel="icon" href="data:,">\n'
        f"<style>{style}</style>\n</head>\n"
        f'<body data-page="report"><main class="report">{body}</main>\n{packed}'
        f'<script type="application/json" id="report-data">{numbers}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _gzipped(content: bytes) -> str:
    """The same bytes every time: without the time in the header."""
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()
