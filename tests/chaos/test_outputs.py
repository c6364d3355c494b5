"""Kills while figures, tables and the report are written: a file is whole or absent, and the next try writes it."""

from __future__ import annotations

import os
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from fillerscope.figures.saved import DRAWN
from fillerscope.store.own_files import LISTING
from support.chaos import is_long
from support.forks import KILLED, Forks, finishing
from support.grid import some_fast

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and signals")
COMMANDS = {
    "figures": ["figures", "{run}", "--out", "{out}"],
    "export": ["export", "{run}", "--out", "{out}"],
    "report": ["report", "{run}", "--out", "{out}/report.html"],
}


@pytest.fixture(scope="session")
def finished(forks: Forks, study: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("finished") / "run"
    assert forks.run(*finishing(study, run)) == 0
    return run


def files(folder: Path) -> dict[str, bytes]:
    """What somebody would take for a result: files that are not hidden."""
    found = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")] if folder.exists() else []
    return {path.name: path.read_bytes() for path in found}


@pytest.mark.parametrize("case", some_fast(list(product(COMMANDS, (True, False))), ("export", True)), ids=str)
def test_killed_while_writing_results(forks: Forks, finished: Path, tmp_path: Path, case: tuple[str, bool]) -> None:
    """Before a file gets its name, and while it is written."""
    name, half = case

    def command(out: Path) -> list[Any]:
        return [word.format(run=finished, out=out) for word in COMMANDS[name]]

    whole, log = tmp_path / "whole", tmp_path / "steps"
    assert forks.run(command(whole), steps=str(log)) == 0
    expected = files(whole)
    assert expected
    steps = len(log.read_text().splitlines())
    for step in range(1, steps + 1) if is_long() else sorted({1, (steps + 1) // 2, steps}):
        out = tmp_path / "out"
        assert forks.run(command(out), die_at=step, half=half) == KILLED
        left = {name: content for name, content in files(out).items() if name not in (DRAWN, LISTING)}
        assert {name: expected[name] for name in left} == left, f"half a file after a kill at step {step}"
        assert forks.run(command(out)) == 0
        assert files(out) == expected
        shutil.rmtree(out)
