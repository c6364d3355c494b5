"""The commands that list runs and show what one holds: runs, findings, heads, compare, flips and others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fillerscope.cli.options import Json, Model, RunModels, RunPath, RunPaths, Verbose

show_app = typer.Typer()


@show_app.command(rich_help_panel="Results of a run")
def runs(
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder that holds the runs.")] = Path("runs"),
    verdicts: Annotated[
        bool, typer.Option("--verdicts", help="Work out every verdict that is not known yet, however long it takes.")
    ] = False,
    json: Json = False,
) -> None:
    """List the runs of a folder: models, conditions, problems, verdict, size, state and age.

    Wherever another command asks for RUN, the beginning of a name is enough, and `latest` is the newest.

    Example: `fillerscope runs --out runs`
    """
    from fillerscope.cli.run_list import show_runs

    show_runs(out, verdicts, json)


@show_app.command(rich_help_panel="Results of a run")
def findings(run: RunPath, model: RunModels = None, verbose: Verbose = False, json: Json = False) -> None:
    """List all findings of a run, a line each: claim, number, interval, verdict.

    Example: `fillerscope findings runs/demo-0123456789 --verbose`
    """
    from fillerscope.cli.verdict import show_findings

    show_findings(run, model or [], verbose, json)


@show_app.command(rich_help_panel="Results of a run")
def heads(
    run: RunPath,
    condition: Annotated[str | None, typer.Option("--condition", "-c", help="By default the first filler.")] = None,
    by: Annotated[str, typer.Option("--by", help="Rank by drop, beyond, mass or peak.")] = "drop",
    top: Annotated[int, typer.Option("--top", min=1, help="How many heads to list.")] = 20,
    queries: Annotated[
        str, typer.Option("--queries", "-q", help="Query rows: all, original (no filler), last or answer.")
    ] = "original",
    model: Model = None, json: Json = False,
) -> None:  # fmt: skip
    """Rank heads by how much attention filler takes from them.

    Example: `fillerscope heads runs/demo-0123456789 --by mass --top 10`
    """
    from fillerscope.cli.show_commands import HeadOptions, show_heads

    show_heads(run, HeadOptions(condition, by, top, queries, model), json)


@show_app.command(rich_help_panel="Results of a run")
def mechanism(
    run: RunPath,
    condition: Annotated[str | None, typer.Option("--condition", "-c", help="By default the first filler.")] = None,
    model: Model = None, verbose: Verbose = False, json: Json = False,
) -> None:  # fmt: skip
    """Decide the published claims about the mechanism (scaling, bias, activations), and show them by layer.

    Example: `fillerscope mechanism runs/demo-0123456789 --condition mless`
    """
    from fillerscope.cli.show_commands import show_mechanism

    show_mechanism(run, condition, model, verbose, json)


@show_app.command(rich_help_panel="Results of a run")
def compare(
    run: RunPath,
    by: Annotated[
        str | None, typer.Option("--by", help="Group problems by one of their fields, such as level.")
    ] = None,
    model: RunModels = None, verbose: Verbose = False, json: Json = False,
) -> None:  # fmt: skip
    """Compare accuracy between conditions: intervals, paired tests, smallest detectable difference.

    Example: `fillerscope compare runs/demo-0123456789 --by difficulty`
    """
    from fillerscope.cli.show_commands import show_comparison

    show_comparison(run, model or [], by, verbose, json)


@show_app.command(rich_help_panel="Results of a run")
def flips(
    run: RunPath,
    condition: Annotated[str | None, typer.Option("--condition", "-c", help="By default the first filler.")] = None,
    against: Annotated[str, typer.Option("--against", help="The condition to compare with.")] = "none",
    temperature: Annotated[float | None, typer.Option("--temperature", "-t", help="Else the study's first.")] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many problems to show.")] = 10,
    model: Model = None, json: Json = False,
) -> None:  # fmt: skip
    """List problems whose verdict differs between two conditions, with both answers side by side.

    Example: `fillerscope flips runs/demo-0123456789 --condition mless --top 3`
    """
    from fillerscope.cli.show_commands import FlipOptions, show_flips

    show_flips(run, FlipOptions(condition, against, model, temperature, top), json)


@show_app.command(rich_help_panel="Results of a run")
def view(
    runs: RunPaths,
    port: Annotated[int | None, typer.Option("--port", "-p", min=0, max=65535, help="Else a free one.")] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the browser.")] = True,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen at. Beyond this machine, others can read along.")
    ] = "127.0.0.1",
) -> None:
    """Explore runs in the browser: heads, profiles, answers, activations. Served on this machine alone.

    The address that is printed has a token, without which nothing is served.

    Example: `fillerscope view runs/demo-0123456789`
    """
    from fillerscope.cli.show_commands import view_runs

    view_runs(runs, port, browser, host)


@show_app.command(rich_help_panel="Results of a run")
def verify(run: RunPath, json: Json = False) -> None:
    """Check every file of a run against its checksum, and that no problem is missing.

    Example: `fillerscope verify runs/demo-0123456789`
    """
    from fillerscope.cli.show_commands import verify_run

    if not verify_run(run, json):
        raise typer.Exit(1)
