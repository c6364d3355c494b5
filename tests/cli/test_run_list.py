"""`fillerscope runs` as it is printed: a table where there is room, two lines a run where there is not."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest

from fillerscope.cli import tables
from fillerscope.cli.run_list import show_runs
from fillerscope.store.schema import MANIFEST
from support.synthetic import Synthetic


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run of three hours ago, and a folder that is none."""
    monkeypatch.setenv("FILLERSCOPE_CACHE", str(tmp_path / "cache"))
    Synthetic(problems=4).build(tmp_path / "runs" / "demo-0123456789")
    (tmp_path / "runs" / "notes").mkdir()
    written = time.time() - 3.5 * 3600
    os.utime(tmp_path / "runs" / "demo-0123456789" / MANIFEST, (written, written))
    return tmp_path / "runs"


def printed(folder: Path, capsys: pytest.CaptureFixture[str], verdicts: bool = True, json: bool = False) -> list[str]:
    capsys.readouterr()
    show_runs(folder, verdicts, json)
    return capsys.readouterr().out.splitlines()


def test_a_wide_terminal_shows_a_table(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(runs, capsys)
    row = next(re.split(r"\s*│\s*", line)[1:-1] for line in lines if "demo-0123456789" in line)
    assert row[0] == "demo-0123456789"
    assert row[3] == "4"
    assert row[6:] == ["finished", "3 h"]
    assert lines[-1] == "notes: it has no manifest.json"


def test_a_narrow_terminal_shows_two_lines_a_run(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.console import Console

    monkeypatch.setattr(tables, "console", lambda: Console(width=80, force_terminal=True, no_color=True))
    monkeypatch.setenv("NO_COLOR", "1")
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in printed(runs, capsys)]
    assert max(map(len, lines)) <= 80
    first = next(place for place, line in enumerate(lines) if line.startswith("demo-0123456789: finished, "))
    assert lines[first + 1].startswith("  ")
    assert lines[first + 1].endswith("3 h ago")


def test_programs_get_all_of_it(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = json.loads("\n".join(printed(runs, capsys, json=True)))
    assert [entry["state"] for entry in shown["runs"]] == ["not a run", "finished"]
    assert shown["runs"][1]["verdict"]


def test_verdicts_that_were_not_worked_out_are_said(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fillerscope.cli.run_list.PATIENCE", 0.0)
    assert "1 verdict is not worked out yet: fillerscope runs --verdicts does that." in printed(runs, capsys, False)
    Synthetic(problems=4).build(runs / "another")
    assert "2 verdicts are not worked out yet: fillerscope runs --verdicts does that." in printed(runs, capsys, False)


def test_no_runs_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(tmp_path, capsys) == [f"No runs in {tmp_path} yet: `fillerscope demo` makes one."]
