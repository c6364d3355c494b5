"""One process that works for long: what it holds does not grow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from support.chaos import is_long

SOAK = Path(__file__).parent / "soak.py"
SECONDS, TURNS = 50 * 60 if is_long() else 0, 8
WARM = 2  # turns until everything is imported and every cache is full
MORE = 1.05  # of memory, that fragments may take


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_what_a_process_holds_does_not_grow(model: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "HF_HUB_OFFLINE": "1"}
    environment |= {"FILLERSCOPE_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, str(SOAK), str(model), str(tmp_path), str(SECONDS), str(TURNS)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    turns = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")][WARM:]
    third = len(turns) // 3
    early, late = turns[:third], turns[-third:]
    for key, most in (("memory", MORE), ("files", 1), ("threads", 1)):
        before, after = (median(turn[key] for turn in part) for part in (early, late))
        assert after <= before * most, f"{key}: {before} at first, {after} at last, over {len(turns)} turns"
