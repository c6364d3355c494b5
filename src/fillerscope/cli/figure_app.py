"""The commands that write files from a run: figures, report, export."""

from __future__ import annotations

from typing import Annotated

import typer

from fillerscope.cli.options import (
    Conditions,
    File,
    Force,
    Heads,
    Json,
    Layers,
    Out,
    Published,
    Queries,
    RunModels,
    RunPath,
)

figure_app = typer.Typer()


@figure_app.command(rich_help_panel="Results of a run")
def figures(
    run: RunPath,
    names: Annotated[
        list[str] | None, typer.Argument(help="Figures to draw; by default the study's, or all.")
    ] = None,
    model: RunModels = None, condition: Conditions = None, layer: Layers = None, head: Heads = None,
    queries: Queries = None,
    band: Annotated[str, typer.Option("--band", help="Band: 95% interval, or sd.")] = "interval",
    skip_first: Annotated[bool | None, typer.Option("--skip-first/--keep-first", help="Leave out token 0.")] = None,
    published: Published = False, out: Out = None, force: Force = False, json: Json = False,
) -> None:  # fmt: skip
    """Draw the figures of a run as PDF, SVG and PNG, with their numbers as CSV.

    Example: `fillerscope figures runs/demo-0123456789 heads --head 2 --head 7`
    """
    from fillerscope.cli.figure_commands import draw_figures

    changes = {
        "models": tuple(model or ()), "conditions": tuple(condition or ()), "layers": tuple(layer or ()),
        "heads": tuple(head or ()), "strict": bool(head) or None, "queries": queries, "band": band,
        "skip_first": () if skip_first is None else (skip_first,), "published": published or None,
    }  # fmt: skip
    draw_figures(run, names or [], changes, out, force, json)


@figure_app.command(rich_help_panel="Results of a run")
def report(run: RunPath, out: File = None, json: Json = False) -> None:
    """Write a run as one HTML file that needs no network: verdict, findings, interactive figures, methods, tables.

    Example: `fillerscope report runs/demo-0123456789 --out report.html`
    """
    from fillerscope.cli.figure_commands import write_report

    write_report(run, out, json)


@figure_app.command(rich_help_panel="Results of a run")
def export(
    run: RunPath, out: Out = None,
    format: Annotated[str, typer.Option("--format", "-f", help="parquet or csv.")] = "parquet",
    force: Force = False, json: Json = False,
) -> None:  # fmt: skip
    """Write all numbers of a run as tables, parquet or CSV.

    Example: `fillerscope export runs/demo-0123456789 --format csv --out tables`
    """
    from fillerscope.cli.figure_commands import export_tables

    export_tables(run, out, format, force, json)
