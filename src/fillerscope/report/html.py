"""A run as one HTML file that asks for nothing from outside: words and pictures stand in it, and come to life where
scripts may run. Tables and print versions lie in it packed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

from fillerscope import __version__
from fillerscope.analysis.findings.all import available_comparison, findings_of, missing_parts
from fillerscope.analysis.markup import templates
from fillerscope.analysis.run import Run
from fillerscope.errors import StoreError
from fillerscope.figures.captions import data_name
from fillerscope.figures.saved import SavedFigure
from fillerscope.report import answer_payload, page_parts
from fillerscope.report.attachments import Attachment, attached_prints, attached_tables
from fillerscope.report.headline import headline
from fillerscope.report.methods.page import methods
from fillerscope.report.packed_arrays import clean
from fillerscope.report.page_file import page_target, write_page
from fillerscope.report.page_parts import Part
from fillerscope.report.pictures import pictures

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none'"
)
Tell = Callable[[str, int, int | None], None]
Ready = Mapping[str, SavedFigure]  # figures that were drawn already, by name


def write_report(run: Run, path: Path, tell: Tell = lambda *_: None, ready: Ready | None = None) -> Path:
    """Write the report of a run: whole, or what was there before stays. Figures in `ready` are not drawn again."""
    target = page_target(path)
    return write_page(render(run, tell, ready), path, target)


def render(run: Run, tell: Tell = lambda *_: None, ready: Ready | None = None) -> str:
    """The page of a finished run, or of what is there where the run was opened while it grows."""
    missing = [] if run.partial else [reason for model in run.models for reason in missing_parts(run[model])]
    if missing:
        raise StoreError(missing[0])
    if not run.partial:
        run.store.refuse_damaged()
    drawn, missed = pictures(run, lambda done, total: tell("putting figures into the report", done, total), ready)
    tell("writing the report", 0, None)
    compared = available_comparison(run)
    findings = {model: findings_of(run[model], compared) for model in run.models}
    attachments = [*attached_tables(run), *attached_prints(drawn)]
    flips, noise = page_parts.flips_told(run), answer_payload.noise_told(run)
    sections = [
        page_parts.verdict([headline(run, model, compared, told) for model, told in findings.items()]),
        page_parts.findings(run, findings),
        page_parts.figures(drawn, missed),
        *([page_parts.comparison(run, compared)] if compared else []),
        *([page_parts.noise(noise)] if noise else []),
        *([page_parts.flips(flips)] if flips else []),
        page_parts.methods(methods(run, missed, compared)),
        page_parts.tables(run, attachments),
    ]
    panels = {one.name: one.panels for one in drawn}
    data = {"figures": panels, "comparison": answer_payload.rows_told(run, compared), "noise": noise, "flips": flips}
    return _page(run, sections, attachments, data)


def _page(run: Run, sections: Sequence[Part], attachments: Sequence[Attachment], data: Mapping[str, Any]) -> str:
    static = files("fillerscope.report").joinpath("static")
    style, script = (Markup(static.joinpath(name).read_text(encoding="utf-8")) for name in ("style.css", "page.js"))
    return templates("fillerscope.report").get_template("page.html.j2").render(
        study=run.study.name, models=", ".join(run.label(model) for model in run.models), data=data_name(run.study),
        version=__version__, policy=Markup(POLICY), sections=sections,
        attachments=attachments, style=style, script=script, numbers=_json(data),
    )  # fmt: skip


def _json(data: Mapping[str, Any]) -> Markup:
    """JSON that can stand in a script element, because nothing in it can end one."""
    return Markup(json.dumps(clean(data), allow_nan=False).replace("<", "\\u003c"))
