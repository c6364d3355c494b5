"""What several jobs that share a study need: measure a part, merge all parts, tell how far each is."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fillerscope.analysis.findings.wording import plural
from fillerscope.cli import tables
from fillerscope.cli.run_list import age
from fillerscope.cli.scheduler import chosen_part
from fillerscope.files import Json
from fillerscope.models.tensor_parallel import rank
from fillerscope.progress import TerminalProgress
from fillerscope.store.addresses import address_of
from fillerscope.store.job_part import JobPart
from fillerscope.store.status import ABSENT, FINISHED, PartStatus, status_of
from fillerscope.study.study import Study


def part_of(shard: str | None, json: bool) -> JobPart | None:
    """The part that this job is for, by its option or by its scheduler, which is said."""
    part, told = chosen_part(shard, os.environ)
    if part is not None and shard is None:
        sys.argv += ["--shard", str(part)]  # what is said about going on: outside the array it would mean everything
    if told:
        with TerminalProgress(json) as reporter:
            reporter.say(told)
    return part


def measure_part(
    study: Study, out: Path | None, part: JobPart, json: bool, accept_licence: bool, retry_failed: bool = False
) -> None:
    """Measure one part of a study, and say what makes the run of all of them."""
    from fillerscope.measure.run_part import run_part

    if rank() > 0:  # the first of several processes tells of what all of them do
        run_part(study, part, out, accept_licence=accept_licence, retry_failed=retry_failed)
        return
    with TerminalProgress(json) as reporter:
        folder = run_part(study, part, out, progress=reporter, accept_licence=accept_licence, retry_failed=retry_failed)
    run = folder.parent.parent
    if json:
        tables.print_json({"part": str(part), "folder": str(folder), "run": str(run)})
        return
    merging = shlex.join(["fillerscope", "merge", address_of(run)])
    tables.lines([f"Part {part} is finished: {address_of(folder)}", f"When all {part.count} are: {merging}"])


def merge_parts(out: Path, parts: Sequence[Path], mixed: bool, json: bool) -> None:
    """Make the run of its parts, and say what it holds."""
    from fillerscope.api import merge

    with TerminalProgress(json) as reporter:
        reporter.stage("merging", 0, None)
        run = merge(out, *parts, mixed=mixed)
    several: Json = run.store.manifest.get("parts", {})
    problems = int(run.store.manifest.get("problems", 0))
    if json:
        tables.print_json({"run": str(run.path), "problems": problems, "models": run.models, "parts": several or None})
        return
    tables.lines([f"{address_of(run.path)}: {plural(problems, 'problem')}, {', '.join(run.models)}"])
    if several:
        machines = {str(machine) for machine in several["environments"].values()}
        told = f"Measured on {plural(len(machines), 'kind')} of machine: numbers agree to rounding."
        tables.lines([told, *several["differences"]])
    path = shlex.quote(address_of(run.path))
    tables.lines([f"Next: fillerscope findings {path}, fillerscope report {path}, fillerscope view {path}"])


def show_status(runs: Sequence[Path], json: bool) -> None:
    """Who is at what: a row for each run and part."""
    found = {run: status_of(run) for run in runs}
    if json:
        tables.print_json({str(run): [one.record() for one in rows] for run, rows in found.items()})
        return
    for run, rows in found.items():
        columns = ("part", "state", "problems", "at", "last write", "host", "process")
        tables.table(address_of(run), columns, [_cells(one) for one in rows])
        tables.lines(_notes(run, rows))


def _cells(one: PartStatus) -> list[str]:
    total = "" if one.problems_total is None else f"{one.problems} of {one.problems_total}"
    written = "" if one.last_written is None else f"{age(time.time() - one.last_written)} ago"
    alive = {True: "alive", False: "gone", None: "not known"}[one.alive]
    process = "" if one.pid is None else f"{one.pid}, {'ended' if one.state == FINISHED else alive}"
    return [one.part or "all", one.state, total, one.stage, written, one.host, process]


def _notes(run: Path, rows: Sequence[PartStatus]) -> list[str]:
    """What went wrong, what is left to start, and what to do when all parts are there."""
    notes = [f"{one.part or run}: {one.error}" for one in rows if one.error]
    parts = [one for one in rows if one.part]
    left = [one.part for one in parts if one.state == ABSENT]
    if left:
        notes.append(f"Not started here: {', '.join(left)}.")
    if parts and len(parts) == len(rows) and all(one.state == FINISHED for one in parts):
        notes.append(f"All parts are finished: {shlex.join(['fillerscope', 'merge', address_of(run)])}")
    return notes
