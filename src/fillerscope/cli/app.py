"""The command line: its commands, their order in the help, and how errors end it.

A module `*_app` declares commands with their options and help; `*_commands` beside it does what they ask. The latter is
imported when its command is called, so that `--help` stays quick.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from io import TextIOWrapper
from typing import Annotated, Any, NoReturn, TextIO

import typer

from fillerscope import __version__, display
from fillerscope.cli import stopping
from fillerscope.cli.figure_app import figure_app
from fillerscope.cli.layout import is_unicode
from fillerscope.cli.machine_app import machine_app
from fillerscope.cli.part_app import part_app
from fillerscope.cli.process_setup import open_closed_streams, refuse_odd_numbers
from fillerscope.cli.run_app import run_app
from fillerscope.cli.show_app import show_app
from fillerscope.cli.study_app import study_app
from fillerscope.display import first_line
from fillerscope.errors import FillerscopeError, StudyError

app = typer.Typer(
    help="What do inserted filler tokens do to a decoder language model?",
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown",
)  # fmt: skip
for part in (run_app, part_app, study_app, show_app, figure_app, machine_app):
    app.add_typer(part)

INTERRUPTED = 130
_DASHED_TEXT = re.compile(r"-\d|-[^-\s=]*\s")  # an argument that is meant as a text, such as "-5 + 3"


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


def main() -> NoReturn:
    """Every error a user can cause is one line and exit 1; wrong usage is exit 2; Ctrl-C and SIGTERM say how to
    resume."""
    open_closed_streams()
    _write_what_fits(sys.stdout)
    _write_what_fits(sys.stderr)
    try:
        refuse_odd_numbers()
        with stopping.stoppable():
            code = app(prog_name="fillerscope", standalone_mode=False) or 0
        if code == INTERRUPTED:  # typer swallows Ctrl-C and gives this
            raise KeyboardInterrupt
        sys.exit(code)
    except FillerscopeError as error:
        _stop(str(error), 2 if isinstance(error, StudyError) else 1)
    except (KeyboardInterrupt, typer.Abort):
        stopping.ignore_further()
        again = shlex.join(["fillerscope", *sys.argv[1:]])
        _stop(f"stopped. What is finished is kept; go on with: {again}", stopping.exit_code())
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone; nothing to say
        sys.exit(1)
    except MemoryError:
        _stop("memory ran out; what is finished is kept: make room, or choose smaller batches, and run it again", 1)
    except OSError as error:
        _stop(f"cannot read or write: {error}; check the path and the space on the disk", 1)
    except Exception as error:
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # wrong usage, as the parser found it
            _misused(error)
        if os.environ.get("FILLERSCOPE_DEBUG"):
            raise
        _unexpected(error)
    except BaseException as error:  # a panic of a library in Rust, which is no Exception
        if isinstance(error, SystemExit) or os.environ.get("FILLERSCOPE_DEBUG"):
            raise
        _unexpected(error)


def _write_what_fits(stream: TextIO) -> None:
    """Let a stream that cannot hold every character, such as ASCII, write `?` instead of failing."""
    if isinstance(stream, TextIOWrapper) and not is_unicode(stream):
        stream.reconfigure(errors="replace")


def _unexpected(error: BaseException) -> NoReturn:
    _stop(f"unexpected {type(error).__name__}: {first_line(error)} (set FILLERSCOPE_DEBUG=1 to see where)", 1)


def _misused(error: Any) -> NoReturn:
    """In one line, but for a command without arguments, whose message is its help."""
    message = str(error.format_message())
    if not message or "\n" in message:
        error.show()
        sys.exit(error.exit_code)
    asked = error.ctx.command_path if getattr(error, "ctx", None) else "fillerscope"
    if message.startswith("No such option") and any(map(_DASHED_TEXT.match, sys.argv[1:])):
        message = f"{message.removesuffix('.')}; write -- before a text that begins with -"
    _stop(f"{message.removesuffix('.')}; see {asked} --help", error.exit_code)


def _stop(message: str, code: int) -> NoReturn:
    print(f"fillerscope: {display.message(message)}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
