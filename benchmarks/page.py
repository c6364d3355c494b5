"""How quick the explorer is: first paint and steps from head to head, in a real browser, on a run or on a large one.

    python benchmarks/page.py runs/demo-0123456789
    python benchmarks/page.py --layers 32 --heads 32 --conditions 8 --positions 2048

The large run is made of random numbers of the right shapes, some gigabytes of them, in a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import environment

from fillerscope.store.array_file import Part
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import METRICS, merged_name
from fillerscope.study.study import Study

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
MODEL = "large"
FILLER = 55


def make_run(folder: Path, layers: int, heads: int, conditions: int, positions: int, problems: int) -> Path:
    """A finished run folder without a model behind it."""
    fillers = [{"name": f"filler-{i}", "kind": "repeat", "text": " /", "count": FILLER} for i in range(1, conditions)]
    study = Study.model_validate({
        "name": "large", "models": [MODEL], "problems": {"limit": problems}, "conditions": ["none", *fillers],
        "probes": {"attention": {"positions": positions}},
    })  # fmt: skip
    store = RunStore.create(folder / "large", {"study": study.measured()}, study.model_dump(mode="json"))
    random = np.random.default_rng(0)
    names = [condition.name for condition in study.conditions]
    arrays: dict[str, Any] = {}
    for name in names:
        for view in ("whole", "aligned") if name == "none" else ("whole", "aligned", "difference", "logratio"):
            shape = (3, layers, heads, positions)
            arrays[f"{name}/{view}/count"] = np.full((3, 1, 1, positions), problems)
            arrays[f"{name}/{view}/mean"] = random.random(shape) / positions
            arrays[f"{name}/{view}/m2"] = random.random(shape) / positions**2
        arrays[f"{name}/heads"] = random.random((problems, len(METRICS), 3, layers, heads)) + 0.5
        arrays[f"{name}/peak_at"] = random.integers(0, positions, (problems, 3, layers, heads), dtype=np.int32)
    plain = [0] * 20 + [2] * (positions - 20)
    filled = [0] * 20 + [1] * FILLER + [2] * (positions - 20)
    prompts = {name: {"ids": [], "spans": plain if name == "none" else filled} for name in names}
    tokens = [f" w{i}" for i in range(positions)]
    records: list[Any] = [
        {"number": i, "id": f"problem-{i}", "status": "ok", "tokens": tokens, "prompts": prompts}
        for i in range(problems)
    ]
    with store.writing():
        store.put(merged_name(MODEL), Part(arrays, records))
    return store.path


@contextmanager
def served(run: Path) -> Iterator[tuple[str, float]]:
    """The address of an explorer, and how long it took to answer."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "fillerscope.cli.app", "view", str(run), "--no-browser", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found, "the explorer did not start"
        yield found[0], time.perf_counter() - started
    finally:
        process.terminate()
        process.wait()


def look(address: str, steps: int) -> dict[str, Any]:
    """Seconds of everything a person does, in a browser of its own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})

        def updates() -> int:
            return int(page.evaluate("Number(document.body.dataset.ready ?? 0)"))

        def timed(act: Callable[[], object]) -> float:
            before, started = updates(), time.perf_counter()
            act()
            page.wait_for_selector(f'body:not([data-ready="{before}"])')
            return time.perf_counter() - started

        started = time.perf_counter()
        page.goto(address)
        page.wait_for_selector("body[data-ready]")
        found: dict[str, Any] = {"complete": time.perf_counter() - started}
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
        found["first paint"] = paint / 1000
        page.locator(".map canvas").focus()
        found["next head"] = [timed(lambda: page.keyboard.press("ArrowRight")) for _ in range(steps)]
        found["next layer"] = [timed(lambda: page.keyboard.press("ArrowDown")) for _ in range(steps)]
        views = ("whole", "aligned") * (steps // 2)
        found["other view"] = [timed(lambda view=view: page.click(f'[data-value="{view}"]')) for view in views]  # type: ignore[misc]
        metrics = ("mass", "drop") * (steps // 2)
        found["other metric"] = [timed(lambda m=m: page.select_option('[name="metric"]', m)) for m in metrics]  # type: ignore[misc]
        browser.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", type=Path, help="A run folder; without one a large run is made.")
    for name, usual in (("layers", 32), ("heads", 32), ("conditions", 8), ("positions", 2048), ("problems", 8)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--steps", type=int, default=10, help="How often each thing is done.")
    parser.add_argument("--out", type=Path, help="Write the numbers there as JSON.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fillerscope-page-") as folder:
        shape = (given.layers, given.heads, given.conditions, given.positions, given.problems)
        run = given.run or make_run(Path(folder), *shape)
        size = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
        with served(run) as (address, start):
            found = {"run": run.name, "bytes": size, "server answers": start} | look(address, given.steps)
    for name, value in found.items():
        if isinstance(value, list):
            print(f"{name}: median {statistics.median(value):.3f} s, slowest {max(value):.3f} s of {len(value)}")
        else:
            print(f"{name}: {value:.2f} s" if isinstance(value, float) else f"{name}: {value}")
    if given.out:
        told = {"environment": environment(torch.device("cpu")), "page": found}
        given.out.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
