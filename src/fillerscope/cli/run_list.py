"""The list of runs on the terminal."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

from fillerscope.analysis.findings.wording import plural
from fillerscope.cli import tables
from fillerscope.display import readable
from fillerscope.progress import TerminalProgress
from fillerscope.report.run_list import FINISHED, PATIENCE, RunEntry, list_runs

WIDE = 120  # columns of a terminal from which the list is a table
LONGEST = 40  # letters of all names of conditions together, up to which they are written out
AGES = {"s": 60, "min": 60, "h": 24, "d": math.inf}  # units, and how many of each make one of the next


def show_runs(folder: Path, all_verdicts: bool, json: bool) -> None:
    """List the runs of a folder, and what to do where verdicts are missing."""
    with TerminalProgress(json) as reporter:
        entries = list_runs(folder, math.inf if all_verdicts else PATIENCE, reporter)
    if json:
        tables.print_json({"folder": str(folder), "runs": [entry.record() for entry in entries]})
        return
    if not entries:
        tables.lines([f"No runs in {folder} yet: `fillerscope demo` makes one."])
        return
    if tables.console().width >= WIDE:
        columns = ("run", "models", "conditions", "n", "verdict", "size", "state", "age")
        tables.table("", columns, [_cells(entry) for entry in entries])
    else:
        for entry in entries:
            tables.lines([_first_line(entry)], style="bold")
            tables.lines([f"  {_second_line(entry)}"])
    tables.lines(_notes(entries))


def _cells(entry: RunEntry) -> list[str]:
    n = "" if entry.problems is None else str(entry.problems)
    return [
        entry.name, ", ".join(entry.models), _conditions(entry.conditions), n, entry.verdict, readable(entry.bytes),
        entry.state, age(time.time() - entry.changed),
    ]  # fmt: skip


def _conditions(names: Sequence[str]) -> str:
    """Their names where these are short, else how many there are."""
    text = ", ".join(names)
    return text if len(text) <= LONGEST else f"{len(names)} conditions"


def _first_line(entry: RunEntry) -> str:
    """The name, how far it got, and what came out."""
    return f"{entry.name}: {', '.join(filter(None, [entry.state, entry.verdict]))}"


def _second_line(entry: RunEntry) -> str:
    n = "" if entry.problems is None else f"n = {entry.problems}"
    ago = f"{age(time.time() - entry.changed)} ago"
    parts = [", ".join(entry.models), _conditions(entry.conditions), n, readable(entry.bytes), ago]
    return "; ".join(filter(None, parts))


def age(seconds: float) -> str:
    """A span of time in its largest whole unit."""
    for unit, size in AGES.items():
        if seconds < size:
            return f"{max(0, int(seconds))} {unit}"
        seconds /= size
    return ""


def _notes(entries: Sequence[RunEntry]) -> list[str]:
    notes = [f"{entry.name}: {entry.note}" for entry in entries if entry.note]
    unknown = sum(entry.state == FINISHED and not entry.verdict for entry in entries)
    if unknown:
        missing = f"{plural(unknown, 'verdict')} {'is' if unknown == 1 else 'are'} not worked out yet"
        notes.append(f"{missing}: fillerscope runs --verdicts does that.")
    return notes
