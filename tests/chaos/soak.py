"""Do everything again and again in one process, and print what it holds after each turn: memory, files, threads.

    python soak.py MODEL FOLDER SECONDS TURNS

until both are over.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

import fillerscope
from fillerscope.analysis.export import export
from fillerscope.analysis.run import open_run
from fillerscope.figures.registry import draw_and_save, names_for
from fillerscope.report.explorer.live_run import Watched
from fillerscope.report.html import write_report
from support.studies import settings


def main(model: str, folder: Path, seconds: float, turns: int) -> None:
    began, turn = time.monotonic(), 0
    while turn < turns or time.monotonic() - began < seconds:
        run = folder / "run"
        one_turn(model, run, turn)
        shutil.rmtree(run)
        gc.collect()
        print(json.dumps(held()), flush=True)
        turn += 1


def one_turn(model: str, folder: Path, seed: int) -> None:
    """Measure, answer, look, draw, export and report; each turn another study."""
    generation = {"max_tokens": 6, "recheck": 1}
    study: dict[str, Any] = settings(model, seed=seed, problems={"limit": 3, "seed": seed}, generation=generation)
    fillerscope.run(study | {"conditions": study["conditions"][:2]}, folder)
    run = open_run(folder)
    watched = Watched(folder)
    watched.check()
    while not watched.overview()["checked"]:
        time.sleep(0.01)
    for name in names_for(run)[:2]:
        draw_and_save(run, name)
    export(run, folder / "tables", "csv")
    write_report(run, folder / "report.html")


def held() -> dict[str, int]:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "memory": pages * os.sysconf("SC_PAGE_SIZE"),
        "files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
    }


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
