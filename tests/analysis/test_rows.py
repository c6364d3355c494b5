"""Rows as text: aligned, short, and never silent on what they leave out."""

from __future__ import annotations

import pytest

from fillerscope.analysis.rows import Rows
from fillerscope.files import Json


def table(count: int) -> Rows[Json]:
    return Rows("Made up", [{"name": f"n{i}", "value": i / 8, "text": "long " * 90} for i in range(count)], SHOWN)


SHOWN = ("name", "value", "text")


def test_columns_are_aligned_and_numbers_stand_to_the_right() -> None:
    rows = Rows("T", [{"name": "a", "value": 1.5}, {"name": "longer", "value": 10.25}], ("name", "value"))
    assert str(rows) == "T (2 rows)\nname    value\na         1.5\nlonger  10.25"


@pytest.mark.parametrize("count", [0, 1, 12, 13, 270])
def test_the_rows_that_are_shown_and_those_that_are_counted_are_all_rows(count: int) -> None:
    title, header, *lines = repr(table(count)).splitlines()
    assert title == f"Made up ({count} row{'s' * (count != 1)})"
    assert header.split() == list(SHOWN)
    shown = [line for line in lines if line.startswith("n")]
    assert len(shown) == min(count, 12)
    assert lines[len(shown) :] == ([f"... {count - 12} more; records() has all rows and columns"] if count > 12 else [])


def test_a_long_text_is_cut_and_a_line_break_does_not_break_the_table() -> None:
    rows = Rows("T", [{"name": "two\nlines \x1b[31m", "text": "x" * 999}], ("name", "text"))
    assert len(str(rows).splitlines()) == 3
    assert "\x1b" not in str(rows)
    assert max(map(len, str(rows).splitlines())) < 200


def test_a_last_column_that_is_too_long_is_given_in_brief() -> None:
    rows = Rows("T", [{"name": "a", "text": "first. second"}], ("name", "text"), lambda row: row["text"].split(".")[0])
    assert str(rows[:1]).splitlines()[-1] == "a     first"
    assert "first. second" in rows._repr_html_()
