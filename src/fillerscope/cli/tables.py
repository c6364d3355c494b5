"""Results as people read them: tables and sentences on the terminal, or JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from textwrap import wrap
from typing import Any

from fillerscope.analysis.accuracy import Accuracy, Difference
from fillerscope.analysis.findings.answers import beyond_rounding, drawing, points, rounding
from fillerscope.analysis.findings.attention import Finding
from fillerscope.analysis.flips import Flip
from fillerscope.analysis.heads import HeadTable
from fillerscope.analysis.noise import Noise
from fillerscope.display import printable
from fillerscope.report.wire import clean


def print_json(value: Any) -> None:
    """Strict JSON: what is not a number is null."""
    print(json.dumps(clean(value), indent=2, ensure_ascii=False, allow_nan=False))


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
    for text in map(printable, texts):
        parts = wrap(text, out.width, break_long_words=False, break_on_hyphens=False) if out.is_terminal else [text]
        out.print("\n".join(parts), style=style, markup=False, highlight=False, soft_wrap=True)


def console() -> Any:
    from rich.console import Console

    found = Console()
    # Without a terminal there is no width to respect, and a cut number is worse than a long line.
    return found if found.is_terminal else Console(width=200)


HEADED = {
    "drop": "drop", "twin": "untrained", "beyond": "beyond length", "mass": "filler mass", "peak": "peak",
    "entropy": "entropy",
}  # fmt: skip


def heads(found: HeadTable, by: str, top: int) -> None:
    rows, names = [], [name for name in HEADED if found.knows(name)]
    for layer, head in found.ranked(by)[:top]:
        row = found.row(layer, head)
        rows.append([
            str(layer), str(head), *(_interval(row, name) for name in names),
        ])  # fmt: skip
    columns = ("layer", "head", *(HEADED[name] for name in names))
    title = (
        f"{found.label}, {found.condition} against none: {len(rows)} of {len(found.ranked())} heads "
        f"by {by}; queries {found.queries}, n = {found.problems}"
    )
    table(title, columns, rows)
    if found.without:
        lines([f"Layers without attention: {', '.join(map(str, found.without))}."])
    reliability = found.reliability(by)
    if math.isfinite(reliability):
        lines([f"Split-half rank correlation of this ranking: {reliability:.2f}."])
    if "beyond" in names:
        lines(
            [
                "Beyond length: drop / the drop where rows keep their odds and filler draws as average tokens do; 1 is "
                "what length alone does."
            ]
        )
    if "twin" in names:
        lines(["Untrained: the drop of twins with weights drawn anew, and its range over their heads of that layer."])
    others = " of all but the untrained" if "twin" in names else ""
    lines([f"Drop and peak: ratios to none; entropy: the difference, in nats; brackets{others}: 95% interval."])


def head_records(found: HeadTable, by: str, top: int | None) -> dict[str, Any]:
    return {
        "model": found.model,
        "condition": found.condition,
        "queries": found.queries,
        "n": found.problems,
        "ranked_by": by,
        "split_half": found.reliability(by),
        "heads": [found.row(layer, head, filter(found.knows, found.columns)) for layer, head in found.ranked(by)[:top]],
    }


LAYERED = {
    "lambda_fit": "lambda", "lambda_mass": "1 - mass", "explained": "explained", "direction": "direction",
    "near_zero_difference": "near zero, points", "near_zero_adjusted": "p Holm", "variance_ratio": "variance ratio",
    "variance_adjusted": "p Holm, variance",
}  # fmt: skip


def layers(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """The mechanism, a row for each layer; columns that nothing was measured for are left out."""
    keys = [key for key in LAYERED if any(math.isfinite(row.get(key, math.nan)) for row in rows)]
    body = [[str(row["layer"]), *(_layered(row, key) for key in keys)] for row in rows]
    table(title, ("layer", *(LAYERED[key] for key in keys)), body)
    lines(["Brackets: 95% interval over problems; p: signs flipped at random, adjusted over the layers."])


def _layered(row: dict[str, Any], key: str) -> str:
    if key.endswith("adjusted"):
        return _known(row[key], ".3g")
    form = partial(points, digits=2) if key.endswith("difference") else "{:z.3f}".format
    return _bounded(row[key], row.get(f"{key}_low", math.nan), row.get(f"{key}_high", math.nan), form)


def findings(found: Sequence[Finding]) -> None:
    lines([f"{number}. {finding.text}" for number, finding in enumerate(found, start=1)])


def comparison(rows: Sequence[Accuracy]) -> None:
    """A table for each model and way of drawing, a row for each condition."""
    cells: dict[tuple[str, float, int], list[Accuracy]] = {}
    for row in rows:
        cells.setdefault((row.model, row.temperature, row.samples), []).append(row)
    for chosen in cells.values():
        columns = [name for name in COMPARED if _is_told(name, chosen)]
        body = [[_compared(row)[name] for name in columns] for row in chosen]
        table(f"{chosen[0].label}, {drawing(chosen[0])}: accuracy under each condition", columns, body)
        if chosen[0].samples > 1:
            _passes(chosen)
    lines(LEGEND)


def noise(rows: Sequence[Noise]) -> None:
    """The noise floor of a model: a table for each way of drawing, rounding first."""
    cells: dict[tuple[float, int], list[Noise]] = {}
    for row in rows:
        cells.setdefault((row.temperature, row.samples), []).append(row)
    for chosen in cells.values():
        body = [_noisy(row) for row in chosen]
        table(f"{chosen[0].label}, {drawing(chosen[0])}: verdicts that change", FLIPPED, body)
    if rows:
        lines(["Difference: to rounding, over problems; brackets: 95% interval; p Holm: over the rows of a model."])


FLIPPED = ("by", "n", "verdicts", "changed", "changed %", "texts", "difference, points", "p", "p Holm", "")


def _noisy(row: Noise) -> list[str]:
    by = rounding(row) if row.condition == "none" else row.condition
    share = _bounded(row.share, row.low, row.high, lambda one: f"{100 * one:.1f}")
    counts = [str(row.n), str(row.answers), str(row.flips), share, str(row.texts)]
    if row.condition == "none":
        return [by, *counts, "", "", "", ""]
    change = _bounded(row.difference, row.difference_low, row.difference_high, points)
    return [by, *counts, change, _known(row.p, ".3g"), _known(row.adjusted, ".3g"), beyond_rounding(row)]


LEGEND = (
    "Brackets: 95% interval, not adjusted. + and -: problems answered better and worse than under none.",
    "p Holm: adjusted over all comparisons shown. Detectable: points that one such comparison shows with 80% power.",
)
COMPARED = (
    "group", "condition", "n", "failed", "accuracy %", "difference, points", "+", "-", "p", "p Holm", "detectable",
    "tokens", "truncated %", "no answer %",
)  # fmt: skip


def _is_told(name: str, rows: Sequence[Accuracy]) -> bool:
    """Columns that say nothing are left out."""
    return name not in ("group", "failed") or any(getattr(row, name) for row in rows)


def _compared(row: Accuracy) -> dict[str, str]:
    change = row.against or Difference()
    shown = {
        "group": row.group,
        "condition": row.condition,
        "n": str(row.n),
        "failed": str(row.failed),
        "accuracy %": _bounded(row.accuracy, row.low, row.high, lambda share: f"{100 * share:.1f}"),
        "tokens": _known(row.tokens, ".0f"),
        "truncated %": _known(100 * row.cut_off, ".0f"),
        "no answer %": _known(100 * row.unanswered, ".0f"),
    }
    against = {
        "difference, points": _bounded(change.difference, change.difference_low, change.difference_high, points),
        "+": str(change.gained),
        "-": str(change.lost),
        "p": _known(change.p, ".3g"),
        "p Holm": _known(change.adjusted, ".3g"),
        "detectable": _known(100 * change.detectable, ".1f"),
    }
    return shown | (against if row.against else dict.fromkeys(against, ""))


def _bounded(value: float, low: float, high: float, form: Callable[[float], str]) -> str:
    """A value with its interval, as far as there are any."""
    if not math.isfinite(value):
        return "-"
    return f"{form(value)} [{form(low)}, {form(high)}]" if math.isfinite(low) else form(value)


def _known(value: float, form: str) -> str:
    return format(value, form) if math.isfinite(value) else "-"


def _passes(rows: Sequence[Accuracy]) -> None:
    named = [name for name in ("group", "condition") if _is_told(name, rows)]
    columns = (*named, *(f"pass@{k} %" for k in rows[0].passes), "distinct 2-grams")
    body = [
        [*(str(getattr(row, name)) for name in named), *(_known(100 * share, ".1f") for share in row.passes.values()),
         _known(row.diversity, ".3f")]
        for row in rows
    ]  # fmt: skip
    table(f"{rows[0].label}, {drawing(rows[0])}: unbiased pass@k and diversity", columns, body)


def flips(found: Sequence[Flip], names: tuple[str, str], top: int) -> None:
    """Both answers side by side."""
    from rich.table import Table

    gained = sum(flip.direction == "gained" for flip in found)
    lines([f"{names[0]} to {names[1]}: {gained} gained, {len(found) - gained} lost"], style="bold")
    for flip in found[:top]:
        lines(["", f"{flip.id}, sample {flip.sample}: {flip.direction}; reference {flip.reference}", flip.question])
        view = Table(header_style="bold", expand=True)
        sides = tuple(zip(names, (flip.before, flip.after), strict=True))
        for name, side in sides:
            view.add_column(_plain(f"{name}: {side['verdict']}, answer {side['extracted'] or '-'}"), ratio=1)
        view.add_row(*(_plain(str(side["text"]).strip()) for _, side in sides))
        console().print(view)
    if len(found) > top:
        lines([f"{len(found) - top} more; --top {len(found)} shows all."])


def flip_records(found: Sequence[Flip]) -> list[dict[str, Any]]:
    return [
        {"id": flip.id, "sample": flip.sample, "direction": flip.direction, "question": flip.question,
         "reference": flip.reference, "before": flip.before, "after": flip.after}
        for flip in found
    ]  # fmt: skip


def _interval(row: dict[str, Any], name: str) -> str:
    value, low, high = (f"{row[key]:z.3f}" for key in (name, f"{name}_low", f"{name}_high"))
    return f"{value} [{low}, {high}]" if math.isfinite(row[f"{name}_low"]) else value


def _plain(text: str) -> Any:
    from rich.text import Text

    return Text(printable(text))


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).replace("-", "", 1).replace(",", "").isdigit()
