"""What people see on the terminal, and what programs read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fillerscope.analysis.findings.finding import Finding
from fillerscope.analysis.flips import Flip
from fillerscope.analysis.heads import Column, HeadTable, head_table
from fillerscope.cli import layout, tables
from support.synthetic import Synthetic


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> HeadTable:
    return head_table(Synthetic().build(tmp_path_factory.mktemp("show") / "run")[None], "mless")


def test_json_is_strict(capsys: pytest.CaptureFixture[str]) -> None:
    value = {
        "nan": float("nan"), "inf": np.float32("inf"), "array": np.array([1.5, np.nan]), "count": np.int64(3),
        "nested": [{"x": (1, 2.5)}], "text": "Größe", "none": None, "yes": True, 7: "a number as a key",
    }  # fmt: skip
    tables.print_json(value)
    text = capsys.readouterr().out
    assert json.loads(text, parse_constant=_refuse) == {
        "nan": None, "inf": None, "array": [1.5, None], "count": 3, "nested": [{"x": [1, 2.5]}], "text": "Größe",
        "none": None, "yes": True, "7": "a number as a key",
    }  # fmt: skip
    assert "Größe" in text


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def test_heads_are_listed_strongest_first(table: HeadTable, capsys: pytest.CaptureFixture[str]) -> None:
    tables.heads(table, "drop", 3)
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0] == "Tiny-A, mless against none: 3 of 12 heads by drop; queries original, n = 12"
    rows = [line.split() for line in lines if line.startswith("│")]
    assert [(row[1], row[3]) for row in rows] == [("1", "1"), ("1", "2"), ("1", "3")]
    first = table.row(1, 1)
    assert f"{first['drop']:.3f} [{first['drop_low']:.3f}, {first['drop_high']:.3f}]" in out
    assert f"{first['mass']:.3f} [{first['mass_low']:.3f}, {first['mass_high']:.3f}]" in out
    assert "Split-half rank correlation of this ranking: 1.00." in out


def test_no_number_is_minus_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    value = np.array([[-0.0001]])
    column = Column(value, value, value, value[None])
    tables.heads(HeadTable("m", "M", "mless", "all", 2, dict.fromkeys((*SHOWN, "received"), column)), "mass", 5)
    out = capsys.readouterr().out
    assert "0.000 [0.000, 0.000]" in out
    assert "-0.000" not in out


SHOWN = ("drop", "mass", "peak", "entropy")  # nothing else is known of this run


def test_records_hold_what_the_table_shows(table: HeadTable) -> None:
    record = tables.head_records(table, "mass", 2)
    assert record["heads"] == [table.row(*place, SHOWN) for place in table.ranked("mass")[:2]]
    assert (record["model"], record["condition"], record["n"]) == ("tiny-a", "mless", 12)
    assert (record["ranked_by"], record["split_half"]) == ("mass", pytest.approx(1.0))
    assert len(tables.head_records(table, "mass", None)["heads"]) == 12


def test_a_sentence_in_a_pipe_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    long = "word " * 100 + "[0.1, 0.2]"
    tables.findings([Finding("a", long, "heads"), Finding("b", "short", "heads")])
    assert capsys.readouterr().out.splitlines() == [f" 1. {long}", " 2. short"]


def test_a_path_is_never_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from rich.console import Console

    monkeypatch.setattr(layout, "console", lambda: Console(width=40, force_terminal=True, color_system=None))
    path = tmp_path / ("a" * 60)
    tables.lines([f"Wrote some figures of the run to the file {path}"])
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "Wrote some figures of the run to the", "broken at a space to fit"
    assert str(path) in lines


def test_a_narrow_terminal_cuts_nothing(
    table: HeadTable, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.console import Console

    monkeypatch.setattr(layout, "console", lambda: Console(width=60, force_terminal=True, color_system=None))
    tables.heads(table, "drop", 2)
    tables.table("", ("name", "about"), [["qwen2.5-coder-1.5b-with-a-long-name", "word " * 20]])
    out = capsys.readouterr().out
    assert "…" not in out
    assert "qwen2.5-coder-1.5b-with-a-long-name" in out
    assert max(len(line) for line in out.splitlines()) <= 60
    assert f"{table.row(1, 1)['mass_high']:.3f}]" in out


def test_a_table_keeps_its_cells(capsys: pytest.CaptureFixture[str]) -> None:
    tables.table("[bold] is text", ("name", "n"), [["[red]x[/red]", "1"], ["y", "20"]])
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "[bold] is text"
    assert "[red]x[/red]" in out
    assert "│  1 │" in out, "numbers stand to the right"


def test_what_a_model_wrote_cannot_play_with_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "a\x1b[2Jb\x07c\u202ed\x00e\rf\n\tg [bold]h[/bold]"
    side = {"verdict": "wrong", "extracted": hostile, "text": hostile}
    tables.flips([Flip("id\x1b]0;", 1, hostile, "7", side, side)], ("none", "mless"), 5)
    printed = capsys.readouterr().out
    assert not any(mark in printed for mark in "\x1b\x07\u202e\x00\r")
    assert "g [bold]h[/bold]" in printed


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    monkeypatch.setattr(layout, "console", lambda: Console(width=80, force_terminal=True, color_system=None))


@pytest.mark.usefixtures("narrow")
def test_columns_that_do_not_fit_go_into_a_second_table_with_the_same_rows(capsys: pytest.CaptureFixture[str]) -> None:
    columns = ("layer", "head", *(f"measure {k}" for k in range(6)))
    rows = [[str(k), "1", *("0.800 [0.789, 0.811]" for _ in range(6))] for k in range(1, 4)]
    tables.table("A title", columns, rows, keys=2)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    shown = [line.strip("│").split("│") for line in lines if line.startswith("│")]
    assert [[cell.strip() for cell in row[:2]] for row in shown] == [[str(k), "1"] for k in (1, 2, 3)] * 3
    assert sum(line.count("0.800 [0.789, 0.811]") for line in lines) == 18, "no number is broken"
    assert [word for line in lines if "measure" in line for word in line.split() if word.isdigit()] == list("012345")


@pytest.mark.usefixtures("narrow")
def test_prose_is_broken_at_spaces_beside_short_columns(capsys: pytest.CaptureFixture[str]) -> None:
    tables.table("", ("check", "", "found"), [["memory", "ok", "word " * 40], ["python", "ok", "3.12"]])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.count("word") for line in lines) == 40
    assert sum("check" in line for line in lines) == 1, "one table"


@pytest.mark.usefixtures("narrow")
def test_an_interval_stays_with_its_number(capsys: pytest.CaptureFixture[str]) -> None:
    tables.lines([f"{'x' * 60} it is 0.123 [0.100, 0.150] of that"], indent="  ")
    assert capsys.readouterr().out.splitlines() == [f"{'x' * 60} it is", "  0.123 [0.100, 0.150] of that"]
