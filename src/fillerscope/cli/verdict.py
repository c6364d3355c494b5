"""What a run ends with on the terminal: the lines that its report begins with, a small table, and where to look."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten

from fillerscope.analysis.accuracy import Accuracy
from fillerscope.analysis.findings.all import available_comparison, findings_of
from fillerscope.analysis.findings.finding import Finding
from fillerscope.analysis.heads import head_table
from fillerscope.analysis.run import Run, open_run
from fillerscope.cli import tables
from fillerscope.figures.captions import data_name
from fillerscope.report.headline import Headline, headline
from fillerscope.store.addresses import address_of

QUESTION = 100  # characters of a question that are shown
TOP = 5  # heads, where there are no answers to show


@dataclass(frozen=True)
class Results:
    """What a run says, computed once: accuracies, findings by model, and headlines."""

    run: Run
    compared: list[Accuracy]
    findings: dict[str, list[Finding]]
    headlines: list[Headline]

    @classmethod
    def of(cls, run: Run) -> Results:
        compared = available_comparison(run)
        findings = {model: findings_of(run[model], compared) for model in run.models}
        return cls(run, compared, findings, [headline(run, model, compared, findings[model]) for model in run.models])

    def show_findings(self, verbose: bool) -> None:
        """Print all findings, in brief or in full."""
        for model, findings in self.findings.items():
            tables.lines(["", f"What {self.run.label(model)} shows:"], style="bold")
            tables.findings(findings, verbose)
            if not findings:
                tables.lines(["Nothing to compare: the study has no condition with filler, such as mless."])


def show_findings(path: Path, models: Sequence[str], verbose: bool, json: bool) -> None:
    """Show the findings of a finished run."""
    run = open_run(path)
    compared = available_comparison(run)
    findings = {run.model(model): findings_of(run[model], compared) for model in models or run.models}
    if json:
        records = {model: [finding.record() for finding in shown] for model, shown in findings.items()}
        tables.print_json({"run": str(path), "findings": records})
    else:
        Results(run, compared, findings, []).show_findings(verbose)


def show_verdict(results: Results, figures: Sequence[str], report: Path | None) -> None:
    """Print the verdict of every model, the accuracies or the strongest heads, and where to look next."""
    for top in results.headlines:
        tables.lines(["", f"{top.subject}:"], style="bold")
        tables.lines([f"- {line}" for line in top.lines], indent="  ")
        _show_table(results, top.model)
    tables.lines(["", *_where(results.run, figures, report)], indent="  ")


def _show_table(results: Results, model: str) -> None:
    run, rows = results.run, [row for row in results.compared if row.model == model]
    if rows:
        tables.lines([""])
        tables.accuracies(rows)
        tables.lines([_asked(run)])
    elif run.fillers and run.has_attention:
        tables.lines([""])
        tables.heads(head_table(run[model], run.main), "drop", TOP)


def _asked(run: Run) -> str:
    problems, data = run.problems(), data_name(run.study)
    kind = data if run.study.problems.source == "builtin" else f"problems of {data}"
    question, answer = (shorten(problems[0][key], QUESTION, placeholder=" ...") for key in ("question", "answer"))
    return f'Asked: {len(problems)} {kind}, the first: "{question}" (reference: {answer}).'


def _where(run: Run, figures: Sequence[str], report: Path | None) -> list[str]:
    me, folder = _command(), shlex.quote(address_of(run.path))
    return [
        f"Run:      {address_of(run.path)}",
        f"Figures:  {run.path / 'figures'} ({', '.join(figures) or 'none'})",
        f"Report:   {report or f'{me} report {folder}'}",
        f"Findings: {me} findings {folder}",
        f"Explore:  {me} view {folder}",
    ]


def _command() -> str:
    """How this command was called, as it can be called again."""
    if shutil.which("fillerscope"):
        return "fillerscope"
    if Path(sys.argv[0]).name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m fillerscope.cli"
    return shlex.quote(sys.argv[0])
