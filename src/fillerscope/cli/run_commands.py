"""Commands that measure: run a study, then draw its figures and show what it says."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from fillerscope.analysis.accuracy import compare
from fillerscope.analysis.findings.all import findings_of
from fillerscope.analysis.findings.finding import Finding
from fillerscope.analysis.heads import head_table
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.run import ANSWER, Run
from fillerscope.cli import tables
from fillerscope.cli.figure_commands import draw_named, fresh_report, show_figures
from fillerscope.errors import FigureError
from fillerscope.figures.registry import check, names_for
from fillerscope.files import Json
from fillerscope.progress import TerminalProgress
from fillerscope.study.study import QUERIES, Study

TOP = 10


def measure(study: Study, out: Path | None, quiet: bool, accept_licence: bool) -> Run:
    check(study)
    with TerminalProgress(quiet) as reporter:
        from fillerscope.api import run

        return run(study, out, reporter, accept_licence)


def measure_and_show(
    study: Study, out: Path | None, json: bool, accept_licence: bool = False, report: bool = False
) -> None:
    """Run a study; then its figures, the ranked heads of each model, and what it says; with its report if asked."""
    run = measure(study, out, json, accept_licence)
    drawn, missed = draw_named(run, names_for(run), {}, None, json)
    compared = compare(run) if run.has_answers else None
    told = {model: findings_of(run[model], compared or []) for model in run.models}
    written = fresh_report(run, json) if report else None
    if json:
        rows = None if compared is None else [row.record() for row in compared]
        file = None if written is None else str(written)
        tables.print_json(_summary(run, drawn, told) | {"comparison": rows, "not_drawn": missed, "report": file})
        return
    for model in run.models:
        if run.fillers and run.has_attention:
            tables.heads(head_table(run[model], run.main), "drop", TOP)
    if compared is not None:
        tables.comparison(compared)
    for model in run.models:
        tables.lines(["", f"What {run.label(model)} shows:"])
        tables.findings(told[model])
        _show_failures(run[model])
    if not run.fillers:
        tables.lines(["Nothing to compare: the study has no condition with filler, such as mless."])
    figures = f"Figures: {run.path / 'figures'} ({', '.join(drawn) or 'none'})"
    me = "fillerscope" if shutil.which("fillerscope") else shlex.quote(sys.argv[0])
    folder = shlex.quote(str(run.path))
    look = [f"Report:  {written or f'{me} report {folder}'}", f"Explore: {me} view {folder}"]
    tables.lines(["", f"Run:     {run.path}", figures, *look])


def measure_and_draw(
    study: Study, out: Path | None, queries: str, strict: bool, json: bool, accept_licence: bool
) -> None:
    """Run a ready study and draw the figure that it is for."""
    known = (*QUERIES, ANSWER) if study.probes.answering else QUERIES
    if queries and queries not in known:
        raise FigureError(f"--queries takes {', '.join(known)}, not {queries!r}")
    run = measure(study, out, json, accept_licence)
    changes: Json = {"queries": queries, "strict": strict or None}
    spec = study.figures[0]
    changes |= {
        "layers": spec.layers,
        "heads": spec.heads,
        "skip_first": spec.skip_first,
        "y_max": spec.y_max,
    }
    show_figures(run, *draw_named(run, [spec.name], changes, None, json, strict=True), json)


def _summary(run: Run, drawn: dict[str, list[Path]], told: dict[str, list[Finding]]) -> Json:
    return {
        "run": str(run.path),
        "models": {
            one.name: {
                **_counts(one),
                "selfcheck": one.facts.get("selfcheck"),
                "rowcheck": one.facts.get("rowcheck"),
                "answercheck": one.facts.get("answercheck"),
                "recheck": one.facts.get("recheck"),
                "findings": [finding.record() for finding in told[one.name]],
                "heads": tables.head_records(head_table(one, run.main), "drop", TOP)
                if run.fillers and run.has_attention
                else None,
            }
            for one in run.model_runs
        },
        "figures": {name: [str(file) for file in files] for name, files in drawn.items()},
    }


def _counts(run: ModelRun) -> dict[str, int]:
    if not run.has_attention:
        return {"problems": len(run.problems())}
    return {"problems": len(run.records()), "measured": len(run.measured())}


def _show_failures(run: ModelRun) -> None:
    if run.has_attention:
        failed = [record for record in run.records() if record["status"] == "failed"]
        if failed:
            first = f"{failed[0]['id']}: {failed[0]['error']}"
            tables.lines([f"{len(failed)} problems could not be measured; the first, {first}"])
    if run.has_answers:
        columns = run.answer_columns()
        failed_at = [place for place, verdict in enumerate(columns["verdict"]) if verdict == "failed"]
        if failed_at:
            first = f"{columns['id'][failed_at[0]]}: {columns['note'][failed_at[0]]}"
            tables.lines([f"{len(failed_at)} answers failed and are not counted; the first, {first}"])
