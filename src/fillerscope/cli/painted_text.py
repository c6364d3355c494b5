"""Tokens on a terminal, coloured by the attention that they receive; with bars beside them where there is no colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fillerscope.analysis.colour_scale import Scale
from fillerscope.analysis.painted import BLOCKS, RAMP, Piece, percent

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

COLOURFUL = ("256", "truecolor", "windows")  # 16 colours are too few for the ramp


def print_painted(console: Console, title: str, pieces: Sequence[Piece]) -> None:
    """Print the tokens of a prompt below a title."""
    from rich.text import Text

    console.print(Text(f"\n{title}", style="bold"), soft_wrap=True)
    console.print(_painted(console, pieces), overflow="fold")


def print_legend(console: Console, scale: Scale) -> None:
    """Print the ramp with the numbers at its ends."""
    from rich.text import Text

    legend = Text("\nAttention received by a token: ").append(f"{percent(scale.low)} or less ")
    for step in range(len(RAMP)):
        legend.append(_mark(console, step), style=_style(console, step))
    legend.append(f" {percent(scale.high)} or more, of the weight of an average later token")
    console.print(legend, overflow="fold")


def _painted(console: Console, pieces: Sequence[Piece]) -> Text:
    from rich.text import Text

    text = Text()
    for piece in pieces:
        bar = "" if _has_colour(console) else _mark(console, piece.step)
        text.append(_encodable(console, _label(piece)) + bar, style=_style(console, piece.step))
        text.append("\n" if piece.breaks else "")
    text.rstrip()
    return text


def _label(piece: Piece) -> str:
    """A token as it is, a run of filler with its number and what it receives in all."""
    if piece.repeats == 1:
        return piece.text
    return f"[{piece.text.strip()} \u00d7 {piece.repeats}: {percent(piece.mass)}]"


def _has_colour(console: Console) -> bool:
    return console.is_terminal and not console.no_color and console.color_system in COLOURFUL


def _style(console: Console, step: int | None) -> str:
    if step is None or not _has_colour(console):
        return ""
    ground, letters = RAMP[step]
    return f"{letters} on {ground}"


def _mark(console: Console, step: int | None) -> str:
    """A step as a bar, as a digit where the terminal has no bars, or as room for a colour."""
    if _has_colour(console):
        return "  "
    if step is None:
        return ""
    return BLOCKS[step] if _encodable(console, BLOCKS) == BLOCKS else str(step)


def _encodable(console: Console, text: str) -> str:
    """The text with `?` for what the terminal's encoding does not have."""
    return text.encode(console.encoding, "replace").decode(console.encoding)
