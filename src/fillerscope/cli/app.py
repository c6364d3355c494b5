"""The command line: parses, calls the library, prints. No logic of its own lives here."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from fillerscope import __version__
from fillerscope.cli.models import models_app
from fillerscope.cli.options import (
    Conditions,
    Device,
    File,
    Heads,
    Json,
    Layers,
    Licence,
    Limit,
    Model,
    Models,
    Out,
    Problems,
    Queries,
    RunModels,
    RunPath,
)
from fillerscope.errors import FillerscopeError, StudyError

app = typer.Typer(
    help="What do inserted filler tokens do to a decoder language model?",
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown",
)  # fmt: skip
app.add_typer(models_app, name="models")

INTERRUPTED = 130


def _version(wanted: bool) -> None:
    if wanted:
        print(f"fillerscope {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(out: Out = None, limit: Limit = None, json: Json = False) -> None:
    """Measure SmolLM2-135M on built-in problems, grade its answers, draw all figures and write the report.

    Example: `fillerscope demo`
    """
    from fillerscope.cli.run_commands import measure_and_show
    from fillerscope.study.overrides import Changes, ready_study

    measure_and_show(Changes(limit=limit).apply(ready_study("demo")), out, json, report=True)


@app.command()
def run(
    study: Annotated[Path, typer.Argument(help="A study file in YAML; studies/ has examples.")],
    out: Out = None, model: Models = None, limit: Limit = None, problems: Problems = None, device: Device = None,
    accept_licence: Licence = False,
    report: Annotated[bool, typer.Option("--report", help="Write the report as well.")] = False, json: Json = False,
) -> None:  # fmt: skip
    """Run a study, or resume one that was interrupted.

    Example: `fillerscope run my-study.yaml --limit 20`
    """
    from fillerscope.cli.run_commands import measure_and_show
    from fillerscope.study.overrides import Changes, data_path
    from fillerscope.study.study import Study

    changes = Changes(tuple(model or ()), limit, data_path(problems), device=device)
    measure_and_show(changes.apply(Study.load(study)), out, json, accept_licence, report)


@app.command()
def reproduce(
    name: Annotated[
        str, typer.Argument(help="composite, depth, fillers, headmap, heads, heads-llama, layers, length, ...")
    ],
    model: Models = None, layer: Layers = None, head: Heads = None, limit: Limit = None, problems: Problems = None,
    queries: Queries = None, out: Out = None, device: Device = None, accept_licence: Licence = False,
    json: Json = False,
) -> None:  # fmt: skip
    """Draw a published figure, with the published models and heads or with yours.

    Example: `fillerscope reproduce heads --model smollm2-135m --problems builtin --limit 16`
    """
    from fillerscope.cli.run_commands import measure_and_draw
    from fillerscope.study.overrides import Changes, data_path, ready_study

    layers, heads = tuple(layer or ()), tuple(head or ())
    changes = Changes(tuple(model or ()), limit, data_path(problems), layers, heads, device)
    measure_and_draw(changes.apply(ready_study(name)), out, queries or "", bool(heads), json, accept_licence)


@app.command()
def profile(
    text: Annotated[str, typer.Argument(help="A text, or the path of a text file.")],
    model: Annotated[str, typer.Option("--model", "-m", help="Catalogue name, hub id, folder or .gguf file.")] = (
        "smollm2-135m"
    ),
    layer: Annotated[int, typer.Option("--layer", "-l", min=1, help="The layer, from 1.")] = 1,
    head: Annotated[int | None, typer.Option("--head", min=1, help="The head, from 1; by default all.")] = None,
    queries: Annotated[str, typer.Option("--queries", "-q", help="Query rows: all, or last.")] = "all",
    top: Annotated[int, typer.Option("--top", min=1, help="How many tokens to list.")] = 15,
    out: Out = None, device: Device = None, accept_licence: Licence = False, json: Json = False,
) -> None:  # fmt: skip
    """Show which tokens of a text receive attention. Needs no study.

    Example: `fillerscope profile "The quick brown fox" --layer 1 --head 3`
    """
    from fillerscope.cli.model_commands import ProfileOptions, profile_text

    options = ProfileOptions(model, layer, head, queries, top, out, device or "auto", accept_licence)
    profile_text(text, options, json)


@app.command()
def figures(
    run: RunPath,
    names: Annotated[
        list[str] | None, typer.Argument(help="Figures to draw; by default the study's, or all.")
    ] = None,
    model: RunModels = None, condition: Conditions = None, layer: Layers = None, head: Heads = None,
    queries: Queries = None,
    band: Annotated[str, typer.Option("--band", help="Band: 95% interval, or sd.")] = "interval",
    skip_first: Annotated[bool | None, typer.Option("--skip-first/--keep-first", help="Leave out token 0.")] = None,
    out: Out = None, json: Json = False,
) -> None:  # fmt: skip
    """Draw the figures of a run as PDF, SVG and PNG, with their numbers as CSV.

    Example: `fillerscope figures runs/demo-0123456789 heads --head 2 --head 7`
    """
    from fillerscope.cli.figure_commands import draw_figures

    changes = {
        "models": tuple(model or ()), "conditions": tuple(condition or ()), "layers": tuple(layer or ()),
        "heads": tuple(head or ()), "strict": bool(head) or None, "queries": queries, "band": band,
        "skip_first": () if skip_first is None else (skip_first,),
    }  # fmt: skip
    draw_figures(run, names or [], changes, out, json)


@app.command()
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


@app.command()
def mechanism(
    run: RunPath,
    condition: Annotated[str | None, typer.Option("--condition", "-c", help="By default the first filler.")] = None,
    model: Model = None, json: Json = False,
) -> None:  # fmt: skip
    """Decide the published claims about the mechanism (scaling, bias, activations), and show them by layer.

    Example: `fillerscope mechanism runs/demo-0123456789 --condition mless`
    """
    from fillerscope.cli.show_commands import show_mechanism

    show_mechanism(run, condition, model, json)


@app.command()
def compare(
    run: RunPath,
    by: Annotated[
        str | None, typer.Option("--by", help="Group problems by one of their fields, such as level.")
    ] = None,
    model: RunModels = None, json: Json = False,
) -> None:  # fmt: skip
    """Compare accuracy between conditions: intervals, paired tests, smallest detectable difference.

    Example: `fillerscope compare runs/demo-0123456789 --by difficulty`
    """
    from fillerscope.cli.show_commands import show_comparison

    show_comparison(run, model or [], by, json)


@app.command()
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


@app.command()
def export(
    run: RunPath, out: Out = None,
    format: Annotated[str, typer.Option("--format", "-f", help="parquet or csv.")] = "parquet", json: Json = False,
) -> None:  # fmt: skip
    """Write all numbers of a run as tables, parquet or CSV.

    Example: `fillerscope export runs/demo-0123456789 --format csv --out tables`
    """
    from fillerscope.cli.figure_commands import export_tables

    export_tables(run, out, format, json)


@app.command()
def report(run: RunPath, out: File = None, json: Json = False) -> None:
    """Write a run as one HTML file that needs no network: verdict, findings, interactive figures, methods, tables.

    Example: `fillerscope report runs/demo-0123456789 --out report.html`
    """
    from fillerscope.cli.figure_commands import write_report

    write_report(run, out, json)


@app.command()
def view(
    runs: Annotated[list[Path], typer.Argument(help="One or several run folders, finished or in progress.")],
    port: Annotated[
        int | None, typer.Option("--port", "-p", min=0, max=65535, help="Else 8642, or a free one.")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the browser.")] = True,
) -> None:
    """Explore runs in the browser: heads, profiles, answers, activations. Served on this machine alone.

    Example: `fillerscope view runs/demo-0123456789`
    """
    from fillerscope.cli.show_commands import view_runs

    view_runs(runs, port, browser)


@app.command()
def verify(run: RunPath, json: Json = False) -> None:
    """Check every file of a run against its checksum, and that no problem is missing.

    Example: `fillerscope verify runs/demo-0123456789`
    """
    from fillerscope.cli.show_commands import verify_run

    if not verify_run(run, json):
        raise typer.Exit(1)


@app.command()
def doctor(json: Json = False) -> None:
    """Check this machine: versions, devices, memory, disk, cache, and that measured attention equals eager attention.

    Example: `fillerscope doctor`
    """
    from fillerscope.cli.doctor import examine

    if not examine(json):
        raise typer.Exit(1)


def main() -> NoReturn:
    """Every error a user can cause is one line and exit 1; wrong usage is exit 2; Ctrl-C says how to resume."""
    try:
        code = app(prog_name="fillerscope", standalone_mode=False) or 0
        if code == INTERRUPTED:  # typer swallows Ctrl-C and gives this
            raise KeyboardInterrupt
        sys.exit(code)
    except FillerscopeError as error:
        _stop(str(error), 2 if isinstance(error, StudyError) else 1)
    except (KeyboardInterrupt, typer.Abort):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not cut the goodbye short
        again = shlex.join(["fillerscope", *sys.argv[1:]])
        _stop(f"stopped. What is finished is kept; go on with: {again}", INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone; nothing to say
        sys.exit(1)
    except OSError as error:
        _stop(f"cannot read or write: {error}; check the path and the space on the disk", 1)
    except Exception as error:
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # wrong usage, as the parser found it
            _misused(error)
        if os.environ.get("FILLERSCOPE_DEBUG"):
            raise
        text = (str(error).splitlines() or [""])[0]
        _stop(f"unexpected {type(error).__name__}: {text} (set FILLERSCOPE_DEBUG=1 to see where)", 1)


def _misused(error: Any) -> NoReturn:
    """In one line, but for a command without arguments, whose message is its help."""
    message = str(error.format_message())
    if not message or "\n" in message:
        error.show()
        sys.exit(error.exit_code)
    asked = error.ctx.command_path if getattr(error, "ctx", None) else "fillerscope"
    _stop(f"{message.removesuffix('.')}; see {asked} --help", error.exit_code)


def _stop(message: str, code: int) -> NoReturn:
    print(f"fillerscope: {message}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
