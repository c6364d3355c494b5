"""Commands that measure: run a study, draw its figures as soon as they can be, and end with the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fillerscope.analysis.findings.finding import Finding
from fillerscope.analysis.heads import head_table
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.run import ANSWER, Run
from fillerscope.cli import tables
from fillerscope.cli.figure_commands import DRAWING, draw_run, show_figures
from fillerscope.cli.verdict import Results, show_verdict
from fillerscope.errors import FigureError
from fillerscope.figures.departure import departure
from fillerscope.figures.registry import check, draw, draw_and_save, names_for, names_of
from fillerscope.figures.request import Request
from fillerscope.figures.saved import SavedFigure, save_stamped, stamp_of
from fillerscope.files import Json
from fillerscope.measure.engines.ray.cluster import RayChoices
from fillerscope.models.tensor_parallel import rank
from fillerscope.problems.sources import skipped_rows
from fillerscope.progress import PlannedStage, TerminalProgress
from fillerscope.study.conditions import BASELINE
from fillerscope.study.study import QUERIES, FigureSpec, Study

TOP = 10  # heads
FIRST_FIGURES = ("heads", "depth")  # drawn as soon as attention is measured
FIGURE_COST = 8.0  # of a figure, in prompts measured


@dataclass(frozen=True)
class ShowOptions:
    """What a run ends with: JSON or text, with the report or all findings, in brief or in full."""

    json: bool = False
    report: bool = False
    findings: bool = False
    verbose: bool = False


def _report(run: Run, drawn: Mapping[str, SavedFigure], reporter: TerminalProgress) -> Path:
    from fillerscope.report.html import write_report

    return write_report(run, run.path / "report.html", reporter.stage, drawn)


def measure_and_show(
    study: Study, out: Path | None, options: ShowOptions, accept_licence: bool = False, ray: RayChoices | None = None,
    retry_failed: bool = False,
) -> None:  # fmt: skip
    """Run a study; then its figures, its report if asked, and its verdict."""
    from fillerscope.measure.run_study import RunChoices, run_study

    check(study)
    if rank() > 0:  # the first of several processes tells of what all of them do
        run_study(study, out, choices=RunChoices(accept_licence, retry_failed=retry_failed))
        return
    figures = PlannedStage(DRAWING, len(names_of(study)), cost=FIGURE_COST)
    with TerminalProgress(options.json, {DRAWING: figures}) as reporter:
        run = measure(study, out, reporter, accept_licence, ray, retry_failed)
        drawn, missed = draw_run(run, reporter)
        results = Results.of(run)
        report = _report(run, drawn, reporter) if options.report else None
        run.store.publish_others()
    if options.json:
        tables.print_json(_summary(results, drawn) | {"not_drawn": missed, "report": report and str(report)})
        return
    show_verdict(results, list(drawn), report)
    if options.findings or options.verbose:
        results.show_findings(options.verbose)
    _show_skipped(run)
    for model in run.models:
        _show_failures(run[model])


def allow_servers_of(study: Study, keys: Sequence[str] | None, hosts: Sequence[str] | None) -> None:
    """Remember that the study may send these environment variables, and its questions, to servers that it names."""
    if keys or hosts:
        from fillerscope.answers.endpoint.allowed import allow

        allow(keys or (), hosts or (), [model.endpoint for model in study.models if model.endpoint])


def measure(
    study: Study, out: Path | None, reporter: TerminalProgress, accept_licence: bool, ray: RayChoices | None = None,
    retry_failed: bool = False,
) -> Run:  # fmt: skip
    """Run a study. Its first figures are drawn as soon as attention is measured."""
    from fillerscope.api import run

    first = partial(draw_first, reporter=reporter)
    return run(
        study, out, progress=reporter, accept_licence=accept_licence, on_measured=first, retry_failed=retry_failed,
        ray=ray,
    )  # fmt: skip


def draw_first(run: Run, reporter: TerminalProgress) -> None:
    """Draw what needs attention alone, and say where it is. The same files are drawn again when the run is finished."""
    drawn: list[Path] = []
    for name in [name for name in FIRST_FIGURES if name in names_for(run)]:
        reporter.stage("drawing the first figures", len(drawn), None)
        try:
            drawn += [path for path in draw_and_save(run, name) if path.suffix == ".png"]
        except Exception as error:  # what a figure cannot do must not stop the run
            reporter.say(f"{name} was not drawn yet: {error}")
    if drawn:
        reporter.say(f"First figures, of attention as it is measured: {' '.join(map(str, drawn))}")


@dataclass(frozen=True)
class Drawing:
    """How `reproduce` draws: query rows, which of layers and heads were asked for by hand, and published colours."""

    queries: str
    layers: bool
    heads: bool
    published: bool


def measure_and_draw(
    study: Study, ready: Study, drawing: Drawing, out: Path | None, json: bool, accept_licence: bool
) -> None:
    """Run a ready study, or open a run that holds its numbers, and draw the figures that it is for."""
    known = (*QUERIES, ANSWER) if study.probes.answering else QUERIES
    if drawing.queries and drawing.queries not in known:
        raise FigureError(f"--queries takes {', '.join(known)}, not {drawing.queries!r}")
    check(study)
    with TerminalProgress(json) as reporter:
        from fillerscope.measure.run_study import RunChoices, run_study

        run = Run(run_study(study, out, reporter, RunChoices(accept_licence, reuse=True)))
        drawn: dict[str, tuple[list[Path], str]] = {}
        for number, spec in enumerate(study.figures):
            reporter.stage(DRAWING, number, len(study.figures))
            drawn[spec.name] = _draw(run, spec.name, _request(run, study, spec, drawing), ready)
    notes = dict.fromkeys(note for _, note in drawn.values() if note)
    show_figures(run, {name: files for name, (files, _) in drawn.items()}, {}, json, "; ".join(notes))


def _draw(run: Run, name: str, request: Request, ready: Study) -> tuple[list[Path], str]:
    """The files of a figure of a ready study, and how its heads differ from the published ones."""
    drawn = draw(run, name, request)
    note = departure(run, drawn, ready)
    if note:
        drawn = replace(drawn, caption=f"{drawn.caption} {note[0].upper()}{note[1:]}.")
    return list(save_stamped(drawn, run.store.folder("figures"), stamp_of(run, request)).paths), note


def _request(run: Run, study: Study, spec: FigureSpec, drawing: Drawing) -> Request:
    """A figure of a study, as far as a run has its layers, and with its conditions where the run has more."""
    there = {layer + 1 for layer in run[None].attention_layers()} if run.has_attention else set()
    layers = spec.layers if drawing.layers else tuple(layer for layer in spec.layers if layer in there)
    own = [condition.name for condition in study.conditions if condition.name != BASELINE]
    conditions = tuple(own) if not spec.conditions and own != run.fillers else spec.conditions
    made = replace(Request.of(spec), layers=layers, conditions=conditions, strict=drawing.heads)
    return made.but(queries=drawing.queries, published=drawing.published or None)


def _summary(results: Results, drawn: dict[str, SavedFigure]) -> Json:
    run = results.run
    return {
        "run": str(run.path),
        "models": {one.name: _model_summary(one, results.findings[one.name]) for one in run.model_runs},
        "verdict": {top.model: top.lines for top in results.headlines},
        "data": run.store.manifest.get("data"),
        "comparison": [row.record() for row in results.compared] if run.has_answers else None,
        "figures": {name: [str(path) for path in figure.paths] for name, figure in drawn.items()},
    }


def _model_summary(one: ModelRun, findings: list[Finding]) -> Json:
    ranked = one.fillers and one.has_attention
    checks = ("selfcheck", "rowcheck", "answercheck", "recheck")
    return {
        **_counts(one),
        **{name: one.facts.get(name) for name in checks},
        "findings": [finding.record() for finding in findings],
        "heads": tables.head_records(head_table(one, one.main), "drop", TOP) if ranked else None,
    }


def _counts(run: ModelRun) -> dict[str, int]:
    if not run.has_attention:
        return {"problems": len(run.problems())}
    return {"problems": len(run.records()), "measured": len(run.measured())}


def _show_skipped(run: Run) -> None:
    data = run.store.manifest.get("data", {})
    if data.get("skipped"):
        first = data["skipped_rows"][0]
        tables.lines([skipped_rows(data["rows"], data["skipped"], f"{first['place']}: {first['reason']}")])


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
