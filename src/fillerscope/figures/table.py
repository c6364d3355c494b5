"""The numbers of a figure: rows of cells with names, and the columns of a CSV file that they make."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Cell = str | int | float | None
Row = Mapping[str, Cell]
Table = dict[str, NDArray[Any]]  # columns of numbers and columns of texts


def table_of_rows(rows: Sequence[Row]) -> Table:
    """Rows with different keys as columns; None, an empty cell, where a row does not have the key."""
    keys = dict.fromkeys(key for row in rows for key in row)
    table: Table = {}
    for key in keys:
        values = [row.get(key) for row in rows]
        table[key] = np.array(values, dtype=object if None in values else None)
    return table


def rows_of(table: Mapping[str, NDArray[Any]]) -> list[Row]:
    """A table row by row, without the cells that are empty."""
    columns: dict[str, list[Cell]] = {key: column.tolist() for key, column in table.items()}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


def stacked(parts: Sequence[tuple[str, Table]]) -> Table:
    """The tables of several conditions under one another."""
    names = np.concatenate([np.full(len(next(iter(part.values()))), name) for name, part in parts])
    keys = list(parts[0][1])
    return {"condition": names} | {key: np.concatenate([part[key] for _, part in parts]) for key in keys}


def groups(rows: Sequence[Row], *keys: str) -> Iterator[tuple[tuple[Cell, ...], list[Row]]]:
    """Rows that are alike in some keys, in the order of the first of each."""
    alike: dict[tuple[Cell, ...], list[Row]] = {}
    for row in rows:
        alike.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    yield from alike.items()


def where(rows: Sequence[Row], key: str, *values: Cell) -> list[Row]:
    """Rows whose cell has one of some values."""
    return [row for row in rows if row.get(key) in values]


def number(row: Row, key: str, scale: float = 1.0) -> float | None:
    """A cell times `scale`; None where there is no number in it."""
    value = row.get(key)
    return scale * value if isinstance(value, int | float) and math.isfinite(value) else None


def numbers(rows: Sequence[Row], key: str) -> list[float]:
    """The numbers of a column, from the first row on."""
    return [value for row in rows if isinstance(value := row.get(key), int | float)]
