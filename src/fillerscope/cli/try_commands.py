"""The command `try`: one question without and with filler, as coloured text, as a page or as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fillerscope.analysis.painted import pieces, scale_of
from fillerscope.analysis.trial import Side, Trial
from fillerscope.cli import tables
from fillerscope.cli.painted_text import print_legend, print_painted
from fillerscope.progress import TerminalProgress

if TYPE_CHECKING:
    from fillerscope.api import TrialOptions


def try_and_show(question: str, model: str, filler: str, options: TrialOptions, html: Path | None, json: bool) -> None:
    """Ask a question without and with filler, and show what changed."""
    from fillerscope.api import try_question
    from fillerscope.report.page_file import page_target
    from fillerscope.report.trial_page import write_trial

    if html is not None:
        page_target(html)  # refuses before anything is measured
    with TerminalProgress(json) as reporter:
        trial = try_question(question, model, filler, **(options | {"progress": reporter}))
    written = None if html is None else write_trial(trial, question, html)
    if json:
        tables.print_json({"question": question, **trial.record(), "html": None if written is None else str(written)})
        return
    show_prompts(trial)
    _show_answers(trial)
    tables.lines(["", trial.sentence])
    tables.lines(
        ["One question proves nothing: `fillerscope demo` and `fillerscope run` compare many, with intervals."]
    )
    if written is not None:
        tables.lines([f"Wrote {written}"])


def show_prompts(trial: Trial) -> None:
    """Print both prompts, on one scale of colours."""
    console, scale = tables.console(), scale_of(trial.plain.received, trial.filled.received)
    heads = "mean over heads" if trial.view.head is None else f"head {trial.view.head}"
    tables.lines([f"{trial.label}, layer {trial.view.layer}, {heads}"], style="bold")
    for title, side in (("Without filler", trial.plain), (f"With {trial.filler}", trial.filled)):
        print_painted(console, title, pieces(side.tokens, side.spans, side.received, scale, side.mass))
    print_legend(console, scale)


def _show_answers(trial: Trial) -> None:
    sides = {"answer without filler": trial.plain, "answer with filler": trial.filled}
    tables.side_by_side({f"{title}, {_ending(side)}": _answer(side) for title, side in sides.items()})


def _ending(side: Side) -> str:
    assert side.reply is not None
    return {"stop": f"{side.reply.tokens} tokens", "length": f"truncated at {side.reply.tokens} tokens"}.get(
        side.reply.finish, "failed"
    )


def _answer(side: Side) -> str:
    assert side.reply is not None
    return side.reply.error or side.reply.text.strip() or "(nothing)"
