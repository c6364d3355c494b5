"""What Ray costs beside the local engine, and what two workers gain, start-up aside.

    python benchmarks/ray_engine.py [--model smollm2-135m] [--problems 192] [--shard 8] [--rounds 1]

Each way runs in a process of its own with its number of threads. Its speed is counted from the first shard that is done
to the last, so that neither imports nor loading are part of it. Ways with equal threads must give equal files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fillerscope.analysis.export import export
from fillerscope.api import Run, run
from fillerscope.progress import Silent

WAYS = {  # threads of a process, and workers of Ray; 0 is the local engine
    "local, 2 threads": (2, 0),
    "Ray, 1 worker of 2 threads": (2, 1),
    "Ray, 2 workers of 2 threads": (2, 2),
    "local, 1 thread": (1, 0),
    "Ray, 1 worker of 1 thread": (1, 1),
    "Ray, 2 workers of 1 thread": (1, 2),
}


class Steps(Silent):
    """Notes when how much of measuring was done."""

    def __init__(self) -> None:
        self.done: list[tuple[float, float]] = []

    def stage(self, text: str, done: float, total: int | None) -> None:  # noqa: ARG002
        if text.startswith("measuring") and done and (not self.done or done > self.done[-1][1]):
            self.done.append((time.perf_counter(), done))


def main() -> None:
    asked = arguments()
    if asked.way:
        print(json.dumps(measured(asked)))
        return
    results: dict[str, list[dict[str, float | str]]] = {way: [] for way in WAYS}
    for _ in range(asked.rounds):
        for way, (threads, _) in WAYS.items():
            done = subprocess.run(
                [sys.executable, __file__, *sys.argv[1:], "--way", way], stdout=subprocess.PIPE, text=True, check=True,
                env=os.environ | {"OMP_NUM_THREADS": str(threads)},
            )  # fmt: skip
            results[way].append(json.loads(done.stdout.splitlines()[-1]))
            print(f"{way}: {results[way][-1]}", file=sys.stderr, flush=True)
    print(json.dumps(summary(results, asked), indent=2))


def measured(asked: argparse.Namespace) -> dict[str, float | str]:
    """The prompts of a second, the seconds of all, and the digest of all files of one way."""
    study = {
        "name": "ray", "models": [asked.model], "problems": {"limit": asked.problems}, "device": "cpu",
        "conditions": ["none", "mless", "random"], "batch": {"shard": asked.shard},
        "probes": {"affine": True, "activations": {}},
    }  # fmt: skip
    workers, steps = WAYS[asked.way][1], Steps()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        done = run(study, Path(folder) / "run", progress=steps, ray={"workers": workers} if workers else None)
        end = time.perf_counter()
        (first, before), total = steps.done[0], steps.done[-1][1]
        return {
            "prompts_a_second": round((total - before) / (steps.done[-1][0] - first), 3),
            "seconds": round(end - start, 1), "seconds_to_the_first": round(first - start, 1), "files": digest(done),
        }  # fmt: skip


def digest(done: Run) -> str:
    tables = export(done, done.path / "tables")
    return hashlib.sha256(b"".join(file.read_bytes() for file in tables)).hexdigest()[:16]


def summary(results: dict[str, list[dict[str, float | str]]], asked: argparse.Namespace) -> dict[str, object]:
    digests = {threads: {str(one["files"]) for way in WAYS if WAYS[way][0] == threads for one in results[way]}
               for threads, _ in WAYS.values()}  # fmt: skip
    assert all(len(found) == 1 for found in digests.values()), f"not the same files: {digests}"
    speed = {way: statistics.median(float(one["prompts_a_second"]) for one in ones) for way, ones in results.items()}
    return {
        "machine": platform.machine(), "cores": os.cpu_count(), "model": asked.model, "problems": asked.problems,
        "shard": asked.shard, "rounds": results, "prompts_a_second": speed,
        "overhead": round(speed["local, 2 threads"] / speed["Ray, 1 worker of 2 threads"] - 1, 4),
        "two_workers_beside_one_process": round(speed["Ray, 2 workers of 1 thread"] / speed["local, 2 threads"], 3),
    }  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--problems", type=int, default=192)
    parser.add_argument("--shard", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
