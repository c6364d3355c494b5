"""Results on the terminal, as tables and text for people or as JSON for programs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence

from fillerscope.analysis.accuracy import Accuracy, Difference
from fillerscope.analysis.estimate import MISSING, Estimate
from fillerscope.analysis.findings.brief import brief
from fillerscope.analysis.findings.finding import Finding
from fillerscope.analysis.findings.noise import beyond_rounding, rounding
from fillerscope.analysis.findings.significance import drawing
from fillerscope.analysis.flips import Flip
from fillerscope.analysis.heads import LEAST_RECEIVED, RATIOS, HeadTable
from fillerscope.analysis.noise import Noise
from fillerscope.cli.layout import console, is_unicode, lines, plain, table
from fillerscope.display import escaped
from fillerscope.files import Json
from fillerscope.report.packed_arrays import clean
from fillerscope.study.conditions import BASELINE

__all__ = [
    "accuracies", "comparison", "console", "findings", "flips", "head_records", "heads", "layers",
    "lines", "noise", "print_json", "table",
]  # fmt: skip


def print_json(value: object) -> None:
    """Print strict JSON, with null for NaN and infinity; characters that a terminal would obey are escaped."""
    text = json.dumps(clean(value), indent=2, ensure_ascii=not is_unicode(sys.stdout), allow_nan=False)
    print(escaped(text))


HEADED = {
    "drop": "drop", "twin": "untrained", "beyond": "beyond length", "mass": "filler mass", "received": "received",
    "peak": "peak", "entropy": "entropy",
}  # fmt: skip


def heads(ranking: HeadTable, by: str, top: int) -> None:
    """Print the strongest heads, and how to read the table."""
    names = [name for name in HEADED if ranking.knows(name)]
    rows = [
        [str(layer), str(head), *(ranking.at(name, layer, head).ratio for name in names)]
        for layer, head in ranking.ranked(by)[:top]
    ]
    title = (
        f"{ranking.label}, {ranking.condition} against {BASELINE}: {len(rows)} of {len(ranking.ranked())} heads "
        f"by {by}; queries {ranking.queries}, n = {ranking.problems}"
    )
    table(title, ("layer", "head", *(HEADED[name] for name in names)), rows, keys=2)
    lines(_head_notes(ranking, by, names))


def _head_notes(ranking: HeadTable, by: str, names: Sequence[str]) -> list[str]:
    reliability, without = ranking.reliability(by), ", ".join(map(str, ranking.without))
    negligible = int(ranking.negligible.sum()) if by in RATIOS else 0
    others = " of all but the untrained" if "twin" in names else ""
    notes = {
        f"Layers without attention: {without}.": bool(without),
        f"Split-half rank correlation of this ranking: {reliability:.2f}.": math.isfinite(reliability),
        f"Heads ranked last, because their original tokens receive under {LEAST_RECEIVED:.0%} of what uniform "
        f"attention gives: {negligible}.": bool(negligible),
        "Beyond length: drop / the drop where rows keep their odds and filler draws as average tokens do; 1 is what "
        "length alone does.": "beyond" in names,
        "Untrained: the drop of twins with random weights, and its range over their heads of that layer.": bool(others),
        "Received: what original tokens receive without filler, as a ratio to uniform attention.": True,
        f"Drop and peak: ratios to {BASELINE}; entropy: the difference, in nats; brackets{others}: 95% interval.": True,
    }
    return [note for note, is_shown in notes.items() if is_shown]


def head_records(ranking: HeadTable, by: str, top: int | None) -> Json:
    """The same for programs."""
    names = [name for name in ranking.columns if ranking.knows(name)]
    return {
        "model": ranking.model,
        "condition": ranking.condition,
        "queries": ranking.queries,
        "n": ranking.problems,
        "ranked_by": by,
        "split_half": ranking.reliability(by),
        "heads": [ranking.row(layer, head, names) for layer, head in ranking.ranked(by)[:top]],
    }


LAYERED = {
    "lambda_fit": "lambda", "lambda_mass": "1 - mass", "explained": "explained", "direction": "direction",
    "near_zero_difference": "near zero, percentage points", "near_zero_adjusted": "p Holm",
    "variance_ratio": "variance ratio", "variance_adjusted": "p Holm, variance",
}  # fmt: skip


def layers(title: str, rows: Sequence[Json]) -> None:
    """Print the mechanism, a row for each layer, without columns that were not measured."""
    keys = [key for key in LAYERED if any(math.isfinite(row.get(key, math.nan)) for row in rows)]
    body = [[str(row["layer"]), *(_layered(row, key) for key in keys)] for row in rows]
    table(title, ("layer", *(LAYERED[key] for key in keys)), body)
    lines(["Brackets: 95% interval over problems; p: signs flipped at random, adjusted over the layers."])


def _layered(row: Json, key: str) -> str:
    if key.endswith("adjusted"):
        return _known(row[key], ".3g")
    estimate = Estimate(*(row.get(f"{key}{end}", math.nan) for end in ("", "_low", "_high")))
    return estimate.points(2) if key.endswith("difference") else estimate.ratio


def findings(shown: Sequence[Finding], verbose: bool = False) -> None:
    """Print findings as a numbered list: a line each, or with `verbose` all that they say."""
    texts = [finding.text if verbose else brief(finding) for finding in shown]
    lines([f"{number:2}. {text}" for number, text in enumerate(texts, start=1)], indent="    ")


def comparison(rows: Sequence[Accuracy]) -> None:
    """Print a table for each model and way of drawing, a row for each condition."""
    cells: dict[tuple[str, float, int], list[Accuracy]] = {}
    for row in rows:
        cells.setdefault((row.model, row.temperature, row.samples), []).append(row)
    for chosen in cells.values():
        columns = [name for name in COMPARED if _is_shown(name, chosen)]
        body = [[_compared(row)[name] for name in columns] for row in chosen]
        table(f"{chosen[0].label}, {drawing(chosen[0])}: accuracy under each condition", columns, body)
        if chosen[0].samples > 1:
            _passes(chosen)
    lines(LEGEND if not any(row.failed for row in rows) else (*LEGEND, FAILED))


def accuracies(rows: Sequence[Accuracy]) -> None:
    """Print the accuracies of one model in few columns: `comparison` has all of them."""
    several = len({(row.temperature, row.samples) for row in rows}) > 1
    counts = ["n", "pairs"] if any(row.failed for row in rows) else []
    columns = ["condition", *(["drawn"] if several else []), *counts, "accuracy %", "difference", "p Holm"]
    if any(row.cut_off for row in rows):
        columns.append("truncated %")
    table("", columns, [[_short(row)[name] for name in columns] for row in rows], keys=2 if several else 1)
    lines(["Difference: in percentage points, on the same problems; brackets: 95% interval."])


def _short(row: Accuracy) -> dict[str, str]:
    shown = _compared(row)
    return shown | {"drawn": drawing(row), "difference": shown["difference, percentage points"]}


def noise(rows: Sequence[Noise]) -> None:
    """Print the noise floor of a model: a table for each way of drawing, rounding first."""
    cells: dict[tuple[float, int], list[Noise]] = {}
    for row in rows:
        cells.setdefault((row.temperature, row.samples), []).append(row)
    for chosen in cells.values():
        body = [_noisy(row) for row in chosen]
        table(f"{chosen[0].label}, {drawing(chosen[0])}: verdicts that change", FLIPPED, body)
    if rows:
        lines(["Difference: to rounding, over problems; brackets: 95% interval; p Holm: over the rows of a model."])


FLIPPED = ("by", "n", "verdicts", "changed", "changed %", "texts", "difference, percentage points", "p", "p Holm", "")


def _noisy(row: Noise) -> list[str]:
    by = rounding(row) if row.condition == BASELINE else row.condition
    counts = [str(row.n), str(row.answers), str(row.flips), row.estimate.percent(), str(row.texts)]
    if row.condition == BASELINE:
        return [by, *counts, "", "", "", ""]
    change = row.difference_estimate.points()
    return [by, *counts, change, _known(row.p, ".3g"), _known(row.adjusted, ".3g"), beyond_rounding(row)]


LEGEND = (
    f"Brackets: 95% interval, not adjusted. + and -: problems answered better and worse than under {BASELINE}.",
    "p Holm: adjusted over all comparisons shown.",
    "Detectable: percentage points that one such comparison shows with 80% power.",
)
FAILED = "Failed problems: without any answer to judge, and in no n. Pairs: answered under both, and so compared."
COMPARED = (
    "group", "condition", "n", "failed problems", "failed answers", "accuracy %", "pairs",
    "difference, percentage points", "p Holm", "p", "+", "-", "detectable", "tokens", "truncated %", "no answer %",
)  # fmt: skip
SHOWN_WHERE: dict[str, Callable[[Accuracy], object]] = {  # other columns are always shown
    "group": lambda row: row.group,
    "failed problems": lambda row: row.failed,
    "failed answers": lambda row: row.failed_answers != row.failed,
    "pairs": lambda row: row.failed,
}


def _is_shown(name: str, rows: Sequence[Accuracy]) -> bool:
    """Columns that say nothing in any row are left out."""
    return name not in SHOWN_WHERE or any(map(SHOWN_WHERE[name], rows))


def _compared(row: Accuracy) -> dict[str, str]:
    change = row.against or Difference()
    shown = {
        "group": row.group,
        "condition": row.condition,
        "n": str(row.n),
        "failed problems": str(row.failed),
        "failed answers": str(row.failed_answers),
        "accuracy %": row.estimate.percent(),
        "tokens": _known(row.tokens, ".0f"),
        "truncated %": _known(100 * row.cut_off, ".0f"),
        "no answer %": _known(100 * row.unanswered, ".0f"),
    }
    against = {
        "pairs": str(change.pairs),
        "difference, percentage points": change.estimate.points(),
        "+": str(change.gained),
        "-": str(change.lost),
        "p": _known(change.p, ".3g"),
        "p Holm": _known(change.adjusted, ".3g"),
        "detectable": _known(100 * change.detectable, ".1f"),
    }
    return shown | (against if row.against else dict.fromkeys(against, ""))


def _known(value: float, form: str) -> str:
    return format(value, form) if math.isfinite(value) else MISSING


def _passes(rows: Sequence[Accuracy]) -> None:
    named = [name for name in ("group", "condition") if _is_shown(name, rows)]
    columns = (*named, *(f"pass@{k} %" for k in rows[0].passes), "distinct 2-grams")
    body = [
        [*(_compared(row)[name] for name in named), *(_pass(row, k) for k in row.passes), _known(row.diversity, ".3f")]
        for row in rows
    ]
    table(f"{rows[0].label}, {drawing(rows[0])}: unbiased pass@k and diversity", columns, body)
    if any(n < row.n for row in rows for n in row.passes_n.values()):
        lines(["pass@k: over problems of which k samples were judged under every condition; n where these are fewer."])


def _pass(row: Accuracy, k: int) -> str:
    shown, n = _known(100 * row.passes[k], ".1f"), row.passes_n[k]
    return f"{shown} (n = {n})" if 0 < n < row.n else shown


def flips(changed: Sequence[Flip], names: tuple[str, str], top: int) -> None:
    """Print both answers to each problem side by side."""
    gained = sum(flip.direction == "gained" for flip in changed)
    lines([f"{names[0]} to {names[1]}: {gained} gained, {len(changed) - gained} lost"], style="bold")
    for flip in changed[:top]:
        lines(["", f"{flip.id}, sample {flip.sample}: {flip.direction}; reference {flip.reference}", flip.question])
        sides = tuple(zip(names, (flip.before, flip.after), strict=True))
        side_by_side({
            f"{name}: {side['verdict']}, answer {side['extracted'] or '-'}": str(side["text"]).strip()
            for name, side in sides
        })  # fmt: skip
    if len(changed) > top:
        lines([f"{len(changed) - top} more; --top {len(changed)} shows all."])


def side_by_side(texts: Mapping[str, str]) -> None:
    """Print texts in columns of equal width, each below its title."""
    from rich.table import Table

    view = Table(header_style="bold", expand=True)
    for title in texts:
        view.add_column(plain(title), ratio=1, overflow="fold")
    view.add_row(*(plain(text) for text in texts.values()))
    console().print(view)
