"""A run as tidy tables in files: profiles, head summaries of every problem, ranked heads, layers, problems; the
affine picture, activations and where answers look, where they were measured.

The same run gives the same bytes, whatever happened while it was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from io import BufferedWriter
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fillerscope.analysis.accuracy import compare
from fillerscope.analysis.answer_attention import lookback_table
from fillerscope.analysis.depth import depth_table
from fillerscope.analysis.heads import head_table
from fillerscope.analysis.mechanism import activation_table, affine_table
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.noise import noise_floor
from fillerscope.analysis.run import Run
from fillerscope.display import spreadsheet_text
from fillerscope.errors import FigureError, StoreError
from fillerscope.files import digest_of, disk_errors, replacing
from fillerscope.store.own_files import OwnFiles
from fillerscope.store.schema import MANIFEST, METRICS, SINK_MASS, Array

FORMATS = ("parquet", "csv")
MOST_TEXT = 1 << 28  # characters of a piece of a table, beside those of one row
Columns = dict[str, Array]


def export(run: Run, folder: Path, kind: str = "parquet", force: bool = False) -> list[Path]:
    """Write every table of a run; returns the files. Files that are not ours are replaced only by force."""
    if kind not in FORMATS:
        raise FigureError(f"tables are written as {' or '.join(FORMATS)}, not {kind!r}")
    if (folder / MANIFEST).exists():
        raise StoreError(f"{folder} is a run folder, whose own files tables would replace; choose another with --out")
    run.store.refuse_damaged()
    names = tables_of(run)
    with (
        disk_errors(StoreError, f"tables to {folder}", "choose another folder with --out, or --force"),
        OwnFiles.writing(folder) as own,
    ):
        _clear(own, run, [f"{name}.{kind}" for name in names], force)
        written = [_export_table(run, name, own, kind) for name in names]
    return [path for path in written if path is not None]


def _clear(own: OwnFiles, run: Run, names: list[str], force: bool) -> None:
    """Remove our tables of another run, or of this one as it was: nothing would tell them from the new ones. In the
    run's own folder for them all tables are ours."""
    is_own = own.folder.resolve() == run.path.resolve() / "tables"
    is_other = own.of != (of := digest_of(run.store.manifest))
    unproven = own.unproven() if is_other else []
    if not (is_own or force):
        own.refuse_others([*names, *unproven])
    for name in _known() if is_other else ():
        if is_own or own.has(name) or name in unproven:
            own.remove(name)
        own.forget(name)
    own.of = of


def _export_table(run: Run, name: str, own: OwnFiles, kind: str) -> Path | None:
    """One table in a folder of ours; an earlier one is removed where it has no rows."""
    file = f"{name}.{kind}"
    if not _write(tables_of(run)[name](run), partial(own.replacing, file), kind):
        own.remove(file)
        return None
    return own.folder / file


def _known() -> set[str]:
    """The names of all tables that there can be."""
    return {f"{name}.{kind}" for name in TABLES for kind in FORMATS}


def tables_of(run: Run) -> dict[str, Callable[[Run], Iterator[Columns]]]:
    """The tables that a run has, by name."""
    probes = run.study.probes
    makers = (ATTENTION if run.has_attention else {}) | (AFFINE if probes.affine else {})
    makers |= (ACTIVATIONS if probes.activations else {}) | (LOOKBACK if probes.answering else {})
    return makers | (ANSWERS if run.has_answers else {}) | (NOISE if run.noise is not None else {})


def write_table(run: Run, name: str, folder: Path, kind: str) -> Path | None:
    """One table; nothing where it has no rows."""
    path = folder / f"{name}.{kind}"
    return path if _write(tables_of(run)[name](run), partial(replacing, path, sync=False), kind) else None


def _write(parts: Iterator[Columns], opened: Callable[[], AbstractContextManager[BufferedWriter]], kind: str) -> bool:
    """Write a table part by part, as a large run does not fit in memory. A table without parts has no file."""
    import pyarrow
    from pyarrow import csv, parquet

    tables = (
        pyarrow.table(piece if kind == "parquet" else {key: _flat(column) for key, column in piece.items()})
        for part in parts
        for piece in _pieces(part)
    )
    first = next(tables, None)
    if first is None:
        return False
    open_writer = parquet.ParquetWriter if kind == "parquet" else csv.CSVWriter
    with opened() as file, open_writer(file, first.schema) as writer:
        for table in chain([first], tables):
            writer.write_table(table)
    return True


def _pieces(part: Columns) -> Iterator[Columns]:
    """Rows of a part whose texts fit in memory: a long id stands in the row of every layer and head. Usually all."""
    length = _length(part)
    sizes = np.zeros(length, np.int64)
    for column in part.values():
        if column.dtype == object and length and isinstance(column[0], str):
            sizes += np.fromiter(map(len, column), np.int64, length)
    cuts = (np.flatnonzero(np.diff(np.cumsum(sizes) // MOST_TEXT)) + 1).tolist()
    for start, stop in pairwise([0, *cuts, length]):
        yield {key: column[start:stop] for key, column in part.items()}


def _flat(column: Array) -> Array:
    """A column for CSV: lists of numbers as text, and no text that a spreadsheet would run."""
    if column.dtype.kind not in "OU" or not len(column):
        return column
    return np.array([_cell(value) for value in column], dtype=object)


def _cell(value: object) -> object:
    if isinstance(value, np.ndarray):
        return " ".join(map(str, value))
    return spreadsheet_text(value) if isinstance(value, str) else value


def _profiles(run: Run) -> Iterator[Columns]:
    for one in run.model_runs:
        for condition in run.conditions:
            views = ("whole", "aligned") if condition == "none" else ("whole", "aligned", "difference", "logratio")
            for view in views:
                for queries in run.queries:
                    columns = one.profile(condition, queries, view).columns()
                    yield _keyed(columns, model=one.name, condition=condition, view=view, queries=queries)


def _summaries(run: Run) -> Iterator[Columns]:
    for one in run.model_runs:
        for condition in run.conditions:
            for queries in run.queries:
                ids = _column([record["id"] for record in one.measured(queries)])
                if not len(ids):  # no answer to look back from
                    continue
                metrics = (*METRICS, SINK_MASS) if one.has_sinks() else METRICS
                values = {metric: one.summary(metric, condition, queries) for metric in metrics}
                peak_at = one.peak_at(condition, queries)
                problem, layer, head = (axis.ravel() for axis in np.indices(peak_at.shape))
                columns: Columns = {"problem": ids[problem], "layer": layer + 1, "head": head + 1}
                columns |= {metric: array.ravel() for metric, array in values.items()} | {"peak_at": peak_at.ravel()}
                yield _keyed(columns, model=one.name, condition=condition, queries=queries)


def _heads(run: Run) -> Iterator[Columns]:
    for one, condition, queries in _comparisons(run):
        table = head_table(one, condition, queries)
        layers, heads = table.shape
        rows = [table.row(layer, head) for layer in range(1, layers + 1) for head in range(1, heads + 1)]
        columns = {key: _column([row[key] for row in rows]) for key in rows[0]}
        yield _keyed(columns, model=one.name, condition=condition, queries=queries)


def _depth(run: Run) -> Iterator[Columns]:
    for one, condition, queries in _comparisons(run):
        columns = depth_table(one, condition, queries).columns()
        yield _keyed(columns, model=one.name, condition=condition, queries=queries)


def _problems(run: Run) -> Iterator[Columns]:
    for one in run.model_runs:
        records = one.records()
        columns: Columns = {key: _column([record[key] for record in records]) for key in ("number", "id", "status")}
        columns["error"] = _column([record.get("error", "") for record in records])
        columns["tokens"] = np.array([len(record["tokens"]) if record["status"] == "ok" else 0 for record in records])
        yield _keyed(columns, model=one.name)


def _affine(run: Run) -> Iterator[Columns]:
    for one, condition in _pairs(run):
        yield _keyed(affine_table(one, condition).columns(), model=one.name, condition=condition)


def _affine_heads(run: Run) -> Iterator[Columns]:
    for one, condition in _pairs(run):
        yield _keyed(affine_table(one, condition).head_columns(), model=one.name, condition=condition)


def _activations(run: Run) -> Iterator[Columns]:
    for one, condition in _pairs(run):
        for cls in run.classes:
            columns = activation_table(one, condition, cls).columns()
            yield _keyed(columns, model=one.name, condition=condition, token_class=cls)


def _histograms(run: Run) -> Iterator[Columns]:
    """A row for each layer and bin; the first and the last bin take all that lies beyond."""
    for one in run.model_runs:
        edges = np.array(one.calibration()["edges"])
        for condition in run.conditions:
            for cls in run.classes:
                counts = one.histogram(condition, cls)
                layer, place = (axis.ravel() for axis in np.indices(counts.shape))
                columns: Columns = {"layer": layer + 1, "low": edges[place], "high": edges[place + 1]}
                columns["count"] = counts.ravel()
                yield _keyed(columns, model=one.name, condition=condition, token_class=cls)


def _lookback(run: Run) -> Iterator[Columns]:
    for one, condition in _pairs(run):
        if run.condition(condition).has_filler:
            yield _keyed(lookback_table(one, condition).columns(), model=one.name, condition=condition)


def _accuracy(run: Run) -> Iterator[Columns]:
    rows = [row.record() for row in compare(run)]
    keys = dict.fromkeys(key for row in rows for key in row)  # fewer samples have fewer pass@k
    yield {key: _column([row.get(key, np.nan) for row in rows]) for key in keys}


def _answers(run: Run) -> Iterator[Columns]:
    for one in run.model_runs:
        yield _keyed({key: _column(values) for key, values in one.answer_columns().items()}, model=one.name)


def _noise(run: Run) -> Iterator[Columns]:
    rows = [row.record() for one in run.model_runs for row in noise_floor(one)]
    if rows:
        yield {key: _column([row[key] for row in rows]) for key in rows[0]}


def _again(run: Run) -> Iterator[Columns]:
    """The second answers to prompts without filler."""
    for one in run.model_runs:
        if columns := one.again_columns():
            yield _keyed({key: _column(values) for key, values in columns.items()}, model=one.name)


def _column(values: list[Any]) -> Array:
    """Texts as objects: an array of texts takes as much room for each as for the longest."""
    if not values:
        return np.array(values)
    if isinstance(values[0], list):
        rows = np.empty(len(values), dtype=object)
        rows[:] = [np.array(row, dtype=np.int32) for row in values]
        return rows
    if isinstance(values[0], str):
        return np.array([str(value) for value in values], dtype=object)
    return np.array(values)


def _comparisons(run: Run) -> Iterator[tuple[ModelRun, str, str]]:
    return ((one, c, q) for one in run.model_runs for c in run.fillers for q in run.queries)


def _pairs(run: Run) -> Iterator[tuple[ModelRun, str]]:
    return ((one, condition) for one in run.model_runs for condition in run.fillers)


def _keyed(columns: Columns, **keys: str) -> Columns:
    length = _length(columns)
    kind = object if length else str  # of a column of no objects nobody could say that it is one of texts
    return {key: np.full(length, value, dtype=kind) for key, value in keys.items()} | columns


def _length(columns: Columns) -> int:
    return len(next(iter(columns.values())))


Makers = dict[str, Callable[[Run], Iterator[Columns]]]
ATTENTION: Makers = {
    "profiles": _profiles,
    "summaries": _summaries,
    "heads": _heads,
    "depth": _depth,
    "problems": _problems,
}
AFFINE: Makers = {"affine": _affine, "affine_heads": _affine_heads}
ACTIVATIONS: Makers = {"activations": _activations, "histograms": _histograms}
LOOKBACK: Makers = {"lookback": _lookback}
ANSWERS: Makers = {"accuracy": _accuracy, "answers": _answers}
NOISE: Makers = {"noise": _noise, "answers_again": _again}
TABLES = (*ATTENTION, *AFFINE, *ACTIVATIONS, *LOOKBACK, *ANSWERS, *NOISE)
