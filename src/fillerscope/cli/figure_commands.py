"""Commands that draw figures and write reports and tables to files."""

from __future__ import annotations

from pathlib import Path

from fillerscope.analysis.run import Run
from fillerscope.api import open_run
from fillerscope.cli import tables
from fillerscope.errors import FigureError
from fillerscope.figures.registry import asked, draw_and_save, draw_stamped, drawn_before, names_for
from fillerscope.figures.saved import SavedFigure, refuse_others
from fillerscope.files import Json
from fillerscope.progress import TerminalProgress

DRAWING = "drawing"  # the stage of progress


def draw_figures(
    path: Path, names: list[str], changes: Json, out: Path | None, force: bool, json: bool
) -> None:  # fmt: skip
    """What is asked for must be drawn; where nothing particular is, what the run does not allow is left out."""
    if changes.get("band") not in ("interval", "sd"):
        raise FigureError(f"--band takes interval or sd, not {changes['band']!r}")
    run = open_run(path)
    run.needed_fillers()
    strict = bool(names) or any(changes[key] for key in ("models", "conditions", "layers", "heads", "queries"))
    names = names or names_for(run)
    if out is not None and not force:
        refuse_others(out, names)
    drawn, missed = draw_named(run, names, changes, out, json, strict)
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
            reporter.stage(DRAWING, number, len(names))
            try:
                drawn[name] = draw_and_save(run, name, asked(run, name).but(**changes), out, force=True)
            except Exception as error:  # what one figure cannot do must not cost the others, nor the findings
                if strict:
                    raise
                missed[name] = str(error)
                reporter.say(f"{name} was not drawn: {error}")
    return drawn, missed


def show_figures(
    run: Run, drawn: dict[str, list[Path]], missed: dict[str, str], json: bool, note: str = ""
) -> None:  # fmt: skip
    """Say which files were written, and what is to be known of them."""
    if json:
        figures = {name: [str(file) for file in files] for name, files in drawn.items()}
        tables.print_json(
            {"run": str(run.path), "figures": figures, "not_drawn": missed} | ({"note": note} if note else {})
        )
    else:
        tables.lines(
            [*(f"Wrote {file}" for files in drawn.values() for file in files), *([f"Note: {note}"] if note else [])]
        )


def export_tables(path: Path, out: Path | None, kind: str, force: bool, json: bool) -> None:
    from fillerscope.analysis.export import export

    run = open_run(path)
    with TerminalProgress(json) as reporter:
        reporter.stage("writing tables", 0, None)
        files = export(run, out or run.store.folder("tables"), kind, force)
    if json:
        tables.print_json({"files": [str(file) for file in files]})
    else:
        tables.lines([f"Wrote {file}" for file in files])


def draw_run(run: Run, reporter: TerminalProgress) -> tuple[dict[str, SavedFigure], dict[str, str]]:
    """The figures of a run as its study asks for them, and why others were not drawn. Those that are there already, of
    this very run and code, are not drawn again."""
    drawn: dict[str, SavedFigure] = {}
    missed: dict[str, str] = {}
    names = names_for(run)
    for number, name in enumerate(names):
        if before := drawn_before(run, name):
            drawn[name] = before
            continue
        reporter.stage(DRAWING, number, len(names))
        try:
            drawn[name] = draw_stamped(run, name)
        except Exception as error:  # what one figure cannot do must not cost the others, nor the findings
            missed[name] = str(error)
            reporter.say(f"{name} was not drawn: {error}")
    return drawn, missed


def write_report(path: Path, out: Path | None, json: bool) -> None:
    from fillerscope.report.html import write_report as write

    run = open_run(path)
    with TerminalProgress(json) as reporter:
        file = write(run, out or run.path / "report.html", reporter.stage)
    size = file.stat().st_size
    if json:
        tables.print_json({"run": str(path), "report": str(file), "bytes": size})
    else:
        tables.lines([f"Wrote {file} ({size / 1e6:.1f} MB): open it in any browser, or send it to somebody"])
