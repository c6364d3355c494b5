"""The commands for several jobs that share a study: merge, status."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fillerscope.cli.options import Json, RunPaths

part_app = typer.Typer()


@part_app.command(rich_help_panel="Studies")
def merge(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder of the whole run, or its address.")],
    parts: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PART", help="Parts, or folders that hold some; by default those in OUT/parts."),
    ] = None,
    mixed: Annotated[
        bool, typer.Option("--mixed", help="Accept parts whose machines decided differently: alike to rounding only.")
    ] = False,
    json: Json = False,
) -> None:
    """Make one run of the parts that several jobs measured (run --shard). Refuses what does not belong together.

    Jobs that shared no disk: `fillerscope merge runs/whole from-node-1 from-node-2 from-node-3`

    Example: `fillerscope merge runs/my-study-0123456789`
    """
    from fillerscope.cli.part_commands import merge_parts

    merge_parts(out, parts or [], mixed, json)


@part_app.command(rich_help_panel="Studies")
def status(runs: RunPaths, json: Json = False) -> None:
    """Tell how far runs and their parts are, who is at them, when each was last written, and which have stopped.

    Example: `fillerscope status runs/my-study-0123456789`
    """
    from fillerscope.cli.part_commands import show_status

    show_status(runs, json)
