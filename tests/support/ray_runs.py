"""A study of every stage for Ray's workers, clusters that last as long as some tests, and what a run leaves behind."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from fillerscope.analysis.export import export
from fillerscope.api import open_run
from fillerscope.measure.engines.ray.cluster import _closed
from support.studies import CONDITIONS, save_model, settings

CLOSED = _closed()  # one token for all tests of a process: Ray keeps the first
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


def study_settings(folder: Path, **changes: Any) -> dict[str, Any]:
    """Every stage, six shards. The first two problems cannot be measured, so that the recheck is not of the first."""
    problems = [{"id": str(n), "question": f"What is {n} + 5?", "answer": str(n + 5)} for n in range(6)]
    problems[0]["question"] = problems[1]["question"] = "x " * 3000
    (folder / "problems.jsonl").write_text("".join(json.dumps(one) + "\n" for one in problems), encoding="utf-8")
    return settings(
        save_model(folder / "tiny"), problems={"source": str(folder / "problems.jsonl")},
        conditions=list(CONDITIONS[:2]), batch={"shard": 1}, figures=[{"name": "depth"}],
        probes={"attention": {"positions": 110}, "affine": True, "activations": {}, "answering": True},
        generation={"max_tokens": 4, "temperature": [0, 1], "samples": 2, "recheck": 1, "noise": True},
        **changes,
    )  # fmt: skip


@contextmanager
def closed_ray() -> Iterator[None]:
    """The variables of a cluster of ours, before Ray is first imported: it reads some of them only then."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CLOSED.items():
            patch.setenv(name, value)
        patch.delenv("RAY_ADDRESS", raising=False)
        yield


def files(run: Path) -> dict[str, bytes]:
    """All files that a run has written, the manifest included, and its export."""
    opened = open_run(run)
    assert opened.store.verify() == []
    written = {name: (run / name).read_bytes() for name in (*opened.store.manifest["files"], "manifest.json")}
    return written | {file.name: file.read_bytes() for file in export(opened, run.parent / f"{run.name} tables")}


def processes_with(variable: str, value: str) -> list[psutil.Process]:
    """The processes that have a variable in their environment, and with it all that they started."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(variable) == value and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def wait_for(is_so: Callable[[], bool], what: str, most: float = 300) -> None:
    stop = time.monotonic() + most
    while not is_so():
        assert time.monotonic() < stop, what
        time.sleep(0.2)
