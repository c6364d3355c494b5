"""Commands that draw figures and write reports and tables to files."""

from __future__ import annotations

from pathlib import Path

from fillerscope.analysis.run import Run, open_run
from fillerscope.cli import tables
from fillerscope.errors import FigureError
from fillerscope.figures.registry import asked, draw_and_save, names_for
from fillerscope.files import Json
from fillerscope.progress import TerminalProgress
from fillerscope.store.schema import MANIFEST


def draw_figures(path: Path, names: list[str], changes: Json, out: Path | None, json: bool) -> None:
    """What is asked for must be drawn; where nothing particular is, what the run does not allow is left out."""
    if changes.get("band") not in ("interval", "sd"):
        raise FigureError(f"--band takes interval or sd, not {changes['band']!r}")
    run = open_run(path)
    run.needed_fillers()
    strict = bool(names) or any(changes[key] for key in ("models", "conditions", "layers", "heads", "queries"))
    drawn, missed = draw_named(run, names or names_for(run), changes, out, json, strict)
    if missed and not drawn:
        raise FigureError(f"no figure was drawn; {next(iter(missed.values()))}")
    show_figures(run, drawn, missed, json)


def draw_named(
    run: Run, names: list[str], changes: Json, out: Path | None, quiet: bool, strict: bool = False
) -> tuple[dict[str, list[Path]], dict[str, str]]:
    """The files of each figure, and why others were not drawn; `strict` makes that an error."""
    drawn: dict[str, list[Path]] = {}
    missed: dict[str, str] = {}
    with TerminalProgress(quiet) as reporter:
        for number, name in enumerate(names):
            reporter.stage("drawing", number, len(names))
            try:
                drawn[name] = draw_and_save(run, name, asked(run, name).but(**changes), out)
            except Exception as error:  # what one figure cannot do must not cost the others, nor the findings
                if strict:
                    raise
                missed[name] = str(error)
                reporter.say(f"{name} was not drawn: {error}")
    return drawn, missed


def show_figures(run: Run, drawn: dict[str, list[Path]], missed: dict[str, str], json: bool) -> None:
    if json:
        figures = {name: [str(file) for file in files] for name, files in drawn.items()}
        tables.print_json({"run": str(run.path), "figures": figures, "not_drawn": missed})
    else:
        tables.lines([f"Wrote {file}" for files in drawn.values() for file in files])


def export_tables(path: Path, out: Path | None, kind: str, json: bool) -> None:
    from fillerscope.analysis.export import export

    run = open_run(path)
    with TerminalProgress(json) as reporter:
        reporter.stage("writing tables", 0, None)
        files = export(run, out or run.path / "tables", kind)
    if json:
        tables.print_json({"files": [str(file) for file in files]})
    else:
        tables.lines([f"Wrote {file}" for file in files])


def fresh_report(run: Run, quiet: bool) -> Path:
    """The report of a run, written again only where the run is newer."""
    file, manifest = run.path / "report.html", run.path / MANIFEST
    if file.exists() and file.stat().st_mtime >= manifest.stat().st_mtime:
        return file
    return _write_report(run, file, quiet)


def _write_report(run: Run, file: Path, quiet: bool) -> Path:
    from fillerscope.report.html import write_report as write

    with TerminalProgress(quiet) as reporter:
        return write(run, file, reporter.stage)


def write_report(path: Path, out: Path | None, json: bool) -> None:
    run = open_run(path)
    file = _write_report(run, out or run.path / "report.html", json)
    size = file.stat().st_size
    if json:
        tables.print_json({"run": str(path), "report": str(file), "bytes": size})
    else:
        tables.lines([f"Wrote {file} ({size / 1e6:.1f} MB): open it in any browser, or send it to somebody"])
