"""Tables at any width: cells are broken or go into another table, and no number loses a digit."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fillerscope.cli import layout, run_list
from fillerscope.cli.app import app
from support.synthetic import Synthetic

WIDE, NARROW = 400, 80
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
EDGES = "┓┃┩│┘"
NUMBERS = re.compile(r"[+-]?\d[\d.,e+-]*\d|\d")

Printed = Callable[[int, Callable[[], object]], list[str]]


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Printed:
    """What a call prints on a terminal of some width, line by line."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")

    def lines(width: int, call: Callable[[], object]) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        capsys.readouterr()
        call()
        return CODES.sub("", capsys.readouterr().out).splitlines()

    return lines


def cells_of(lines: Sequence[str]) -> list[str]:
    """All cells of all tables among lines, each line of a cell by itself."""
    return [cell.strip() for line in lines if line[:1] in ("│", "┃") for cell in re.split("[│┃]", line)[1:-1]]


def assert_whole(lines: Sequence[str]) -> None:
    """Every line fits, and every line of a table has its right edge."""
    assert max(map(len, lines), default=0) <= NARROW
    assert not [line for line in lines if line[:1] in "┏┃┡│└" and line[-1:] not in EDGES]


names = st.text("abcdefgh-._", min_size=1, max_size=50)
shares = st.floats(-1000, 1000).map(lambda value: f"{value:+.3f} [{value - 1:+.3f}, {value + 1:+.3f}]")
chances = st.floats(1e-9, 1).map(lambda value: f"{value:.3g}")
headers = st.lists(st.text("abcdefgh", min_size=1, max_size=12), min_size=1, max_size=4).map(" ".join)
prose = st.lists(st.text("abcdefgh", min_size=1, max_size=30), min_size=5, max_size=12).map(" ".join)
columns = st.lists(st.tuples(headers, st.sampled_from([shares, chances, prose])), min_size=1, max_size=9)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_number_is_cut_or_broken_whatever_stands_beside_it(printed: Printed, data: st.DataObject) -> None:
    heads, kinds = zip(*data.draw(columns), strict=True)
    rows = [[data.draw(names), *(data.draw(kind) for kind in kinds)] for _ in range(3)]
    lines = printed(NARROW, lambda: layout.table("", ["name", *heads], rows))
    assert_whole(lines)
    shown = cells_of(lines)
    for row in rows:
        assert {cell for cell, kind in zip(row[1:], kinds, strict=True) if kind is not prose} <= set(shown)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with every kind of table, in a folder of runs, beside a study and a data file."""
    here = tmp_path_factory.mktemp("layout")
    right = {"none": 0.75, "mless": 0.25, "random": 0.5}
    recipe = Synthetic(problems=8, right=right, affine=True, activations=True)
    recipe.build(here / "runs" / "a-study-with-a-long-name-0123456789")
    (here / "data.csv").write_text("question,answer\nWhat is 17 + 25?,42\nWhat is 1234567.125 + 1?,1234568.125\n")
    (here / "study.yaml").write_text("name: own\nmodels: [smollm2-135m]\nproblems: {limit: 3}\n")
    return here


TABLES: dict[str, list[str]] = {
    "heads": ["heads", "latest"],
    "heads by mass": ["heads", "latest", "--by", "mass", "--top", "3"],
    "mechanism": ["mechanism", "latest"],
    "compare": ["compare", "latest"],
    "flips": ["flips", "latest"],
    "findings": ["findings", "latest", "--verbose"],
    "verify": ["verify", "latest"],
    "runs": ["runs"],
    "models": ["models"],
    "doctor": ["doctor"],
    "study": ["study"],
    "check": ["check", "study.yaml"],
    "fields": ["fields", "data.csv"],
}


def hold_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the age of a run and what is free on the machine be the same each time they are asked for."""
    now, memory, disk = time.time(), psutil.virtual_memory(), shutil.disk_usage(".")
    monkeypatch.setattr(run_list, "time", SimpleNamespace(time=lambda: now))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: disk)


@pytest.mark.parametrize("name", TABLES)
def test_every_command_shows_all_its_numbers_at_80_columns(
    name: str, folder: Path, printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("FILLERSCOPE_CACHE", str(folder / "cache"))
    hold_still(monkeypatch)

    def call() -> Any:
        return app(TABLES[name], standalone_mode=False)

    wide, narrow = printed(WIDE, call), printed(NARROW, call)
    assert_whole([line for line in narrow if line[:1] in "┏┃┡│└"])
    missing = set(NUMBERS.findall("\n".join(wide))) - set(NUMBERS.findall("\n".join(narrow)))
    assert wide
    assert not missing
