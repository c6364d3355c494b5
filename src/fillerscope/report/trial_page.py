"""One question without and with filler as an HTML file that asks for nothing from outside and runs no script."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from fillerscope import __version__
from fillerscope.analysis.colour_scale import Scale
from fillerscope.analysis.markup import templates
from fillerscope.analysis.painted import RAMP, Piece, percent, pieces, scale_of
from fillerscope.analysis.trial import Side, Trial
from fillerscope.report.page_file import page_target, write_page

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
ENDINGS = {"stop": "", "length": ", truncated", "failed": ", failed"}


@dataclass(frozen=True)
class Column:
    """One side of the page: a prompt as pieces, and its answer."""

    title: str
    pieces: list[Piece]
    answer: str
    ending: str


def write_trial(trial: Trial, question: str, path: Path) -> Path:
    """Write the page of a trial: whole, or what was there before stays."""
    target = page_target(path)
    return write_page(render(trial, question), path, target)


def render(trial: Trial, question: str) -> str:
    """The page of a trial."""
    scale = scale_of(trial.plain.received, trial.filled.received)
    columns = [
        _column("Without filler", trial.plain, scale), _column(f"With {trial.filler}", trial.filled, scale)
    ]  # fmt: skip
    return templates("fillerscope.report").get_template("trial.html.j2").render(
        question=question, trial=trial, columns=columns, ramp=RAMP, ends=(percent(scale.low), percent(scale.high)),
        version=__version__, policy=Markup(POLICY), percent=percent,
    )  # fmt: skip


def _column(title: str, side: Side, scale: Scale) -> Column:
    shown = pieces(side.tokens, side.spans, side.received, scale, side.mass)
    if side.reply is None:
        return Column(title, shown, "", "")
    text = side.reply.error or side.reply.text.strip() or "(nothing)"
    return Column(title, shown, text, f"{side.reply.tokens} tokens{ENDINGS[side.reply.finish]}")
