"""Results as people read them: tables and sentences on the terminal, or JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from fillerscope.analysis.heads import HeadTable
from fillerscope.findings import Finding


def print_json(value: Any) -> None:
    """Strict JSON: what is not a number is null."""
    print(json.dumps(_clean(value), indent=2, ensure_ascii=False, allow_nan=False))


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table of texts; columns that hold numbers stand to the right."""
    from rich.table import Table

    view = Table(header_style="bold")
    for index, name in enumerate(columns):
        numeric = bool(rows) and all(_is_number(row[index]) for row in rows)
        # Cells may be folded where a terminal is narrow, never cut; what stands first is often a name to type.
        view.add_column(name, justify="right" if numeric else "left", overflow="fold", no_wrap=index == 0)
    for row in rows:
        view.add_row(*(_plain(cell) for cell in row))
    if title:
        lines([title], style="bold")
    console().print(view)


def lines(texts: Sequence[str], style: str = "") -> None:
    """Broken at spaces to fit a terminal, never inside a word: a path stays a path. Elsewhere one line each."""
    out = console()
    for text in texts:
        parts = wrap(text, out.width, break_long_words=False, break_on_hyphens=False) if out.is_terminal else [text]
        out.print("\n".join(parts), style=style, markup=False, highlight=False, soft_wrap=True)


def console() -> Any:
    from rich.console import Console

    found = Console()
    # Without a terminal there is no width to respect, and a cut number is worse than a long line.
    return found if found.is_terminal else Console(width=200)


def heads(found: HeadTable, by: str, top: int) -> None:
    rows = []
    for layer, head in found.ranked(by)[:top]:
        row = found.row(layer, head)
        rows.append([
            str(layer), str(head), *(_interval(row, name) for name in ("drop", "mass", "peak", "entropy")),
        ])  # fmt: skip
    columns = ("layer", "head", "drop", "filler mass", "peak", "entropy")
    title = (
        f"{found.label}, {found.condition} against none: {len(rows)} of {found.shape[0] * found.shape[1]} heads "
        f"by {by}; queries {found.queries}, n = {found.problems}"
    )
    table(title, columns, rows)
    reliability = found.reliability(by)
    if math.isfinite(reliability):
        lines([f"Split-half rank correlation of this ranking: {reliability:.2f}."])
    lines(["Drop and peak: with / without filler; entropy: the difference, in nats; brackets: 95% interval."])


def head_records(found: HeadTable, by: str, top: int | None) -> dict[str, Any]:
    return {
        "model": found.model,
        "condition": found.condition,
        "queries": found.queries,
        "n": found.problems,
        "ranked_by": by,
        "split_half": found.reliability(by),
        "heads": [found.row(layer, head) for layer, head in found.ranked(by)[:top]],
    }


def findings(found: Sequence[Finding]) -> None:
    lines([f"{number}. {finding.text}" for number, finding in enumerate(found, start=1)])


def _interval(row: dict[str, Any], name: str) -> str:
    value, low, high = (f"{row[key]:z.3f}" for key in (name, f"{name}_low", f"{name}_high"))
    return f"{value} [{low}, {high}]" if math.isfinite(row[f"{name}_low"]) else value


def _plain(text: str) -> Any:
    from rich.text import Text

    return Text(text)


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).replace("-", "", 1).replace(",", "").isdigit()


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    if hasattr(value, "tolist"):
        return _clean(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
