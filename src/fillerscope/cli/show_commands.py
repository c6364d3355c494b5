"""Commands that show a finished run: heads, the mechanism, accuracies, flips; and whether its files are whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fillerscope.analysis.findings.answers import answer_findings
from fillerscope.analysis.findings.repeated import repeated_findings
from fillerscope.analysis.noise import noise_floor
from fillerscope.analysis.run import Run
from fillerscope.api import open_run
from fillerscope.cli import tables
from fillerscope.files import Json
from fillerscope.store.addresses import address_of


@dataclass(frozen=True)
class HeadOptions:
    """Which heads to rank, by what, and how many to list."""

    condition: str | None
    by: str
    top: int
    queries: str
    model: str | None


def show_heads(path: Path, options: HeadOptions, json: bool) -> None:
    """Show the ranked heads of one model."""
    table = open_run(path).heads(options.condition, options.queries, options.model)
    if json:
        tables.print_json(tables.head_records(table, options.by, options.top))
    else:
        tables.heads(table, options.by, options.top)


def show_mechanism(path: Path, condition: str | None, model: str | None, verbose: bool, json: bool) -> None:
    """What a run says of the mechanism, and by layer."""
    run = open_run(path)
    mechanism = run.mechanism(condition, model)
    if json:
        tables.print_json({
            "run": str(path), "model": mechanism.model, "condition": mechanism.condition,
            "findings": mechanism.findings.records(), "layers": mechanism.layers.records(),
        })  # fmt: skip
        return
    if mechanism.layers:
        tables.layers(mechanism.layers.title, mechanism.layers)
    tables.findings(mechanism.findings, verbose)


def show_comparison(path: Path, models: list[str], by: str | None, verbose: bool, json: bool) -> None:
    """Show accuracies, the noise floor and what they say."""
    run = open_run(path)
    rows = run.compare(by, models)
    whole = rows if by is None else run.compare(models=models)
    floors = {model: noise_floor(run[model]) for model in models or run.models}
    repeated = repeated_findings(run)
    told = {model: repeated + answer_findings(run[model], whole, floor) for model, floor in floors.items()}
    if json:
        tables.print_json({
            "run": str(path), "rows": rows.records(),
            "findings": {model: [finding.record() for finding in found] for model, found in told.items()},
            "noise": {model: [row.record() for row in floor] for model, floor in floors.items()},
            "recheck": _rechecks(run),
        })  # fmt: skip
        return
    tables.comparison(rows)
    if by is None:
        for floor in floors.values():
            tables.noise(floor)
        for model, found in told.items():
            tables.lines([f"What {run.label(model)} shows:"] if len(told) > 1 else [])
            tables.findings(found, verbose)
        tables.lines(_recheck_lines(run))


def _rechecks(run: Run) -> Json:
    """Of each model for which some answers were written again alone, how many are the same."""
    return {one.name: one.facts["recheck"] for one in run.model_runs if "recheck" in one.facts}


def _recheck_lines(run: Run) -> list[str]:
    """What computing many answers at once changed."""
    told = []
    for model, found in _rechecks(run).items():
        text = f"{run.label(model)}: {found['same']} of {found['checked']} greedy answers are the same written alone"
        if found["margins"]:
            text += (
                f"; the others part where two tokens are within {max(found['margins']):.2g} of each other (rounding)"
            )
        told.append(f"{text}.")
    return told


@dataclass(frozen=True)
class FlipOptions:
    """Which answers to compare: without a condition, those of the main filler."""

    condition: str | None
    against: str
    model: str | None
    temperature: float | None
    top: int


def show_flips(path: Path, options: FlipOptions, json: bool) -> None:
    """Show the problems whose verdict changed between two conditions."""
    run = open_run(path)
    name, against = options.condition or run.main, options.against
    flips = run.flips(name, against, options.temperature, options.model)
    if json:
        tables.print_json({"condition": name, "against": against, "flips": flips.records()})
    else:
        tables.flips(flips, (against, name), options.top)


def verify_run(path: Path, json: bool) -> bool:
    """Whether all is well."""
    run = open_run(path)
    faults = run.verify()
    if json:
        tables.print_json({"run": str(path), "files": len(run.store.manifest["files"]), "faults": faults})
    elif faults:
        tables.lines([*faults, f"{path}: {len(faults)} faults; run the study again to mend missing or damaged files"])
    else:
        count = len(run.store.manifest["files"])
        tables.lines([f"{address_of(path)}: {count} files as they were written, all problems accounted for"])
    return not faults


def view_runs(paths: Sequence[Path], port: int | None, browse: bool, host: str) -> None:
    from fillerscope.report.explorer.start import serve

    serve(paths, port, browse, lambda text: tables.lines([text]), host)
