"""What a run of very many prompts costs beside its work: memory while it goes, and how soon the explorer shows it.

    python benchmarks/many_problems.py [--prompts 100000] [--workers 0] [--out FILE.json]

A model of two layers is measured by the command itself, with or without workers of Ray. Every second the memory of the
command and of all processes that it started is noted. The explorer is asked as the page asks it when it opens.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlencode

import psutil
import torch
from scale import small_model
from timing import write

MIB = 2**20
COMMAND = [str(Path(sys.executable).with_name("fillerscope"))]
CONDITIONS = ["none", "mless"]
ASKED = ("overview", "tokens", "map", "depth", "findings")  # by the page, until its first tabs stand


def main() -> None:
    asked = arguments()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        study = written_study(folder, asked.prompts // len(CONDITIONS))
        ray = ["--engine", "ray", "--workers", str(asked.workers)] if asked.workers else []
        start = time.perf_counter()
        process = subprocess.Popen(
            [*COMMAND, "run", str(study), "--out", str(folder / "run"), "--json", *ray], stdout=subprocess.DEVNULL
        )
        memory = watched(process)
        seconds = time.perf_counter() - start
        assert process.returncode == 0
        result = {
            "prompts": asked.prompts, "workers": asked.workers, "seconds": round(seconds, 1),
            "bytes": sum(file.stat().st_size for file in (folder / "run").rglob("*") if file.is_file()),
            "memory_mib": memory, "explorer_seconds": explored(folder / "run"),
        }  # fmt: skip
    print(json.dumps(result, indent=2))
    if asked.out:
        write(asked.out, torch.device("cpu"), [result])


def written_study(folder: Path, problems: int) -> Path:
    asked = "What is {} + 3? Tell the number alone."
    lines = (json.dumps({"id": str(n), "question": asked.format(n), "answer": str(n + 3)}) for n in range(problems))
    (folder / "problems.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    study = {
        "name": "many", "models": [str(small_model(folder / "small"))], "device": "cpu", "conditions": CONDITIONS,
        "problems": {"source": str(folder / "problems.jsonl")}, "batch": {"shard": 512},
    }  # fmt: skip
    (folder / "study.json").write_text(json.dumps(study), encoding="utf-8")
    return folder / "study.json"


def watched(process: subprocess.Popen[bytes]) -> dict[str, list[int]]:
    """In ten equal parts of the time, how much memory the command and the processes that it started had at most."""
    whole = psutil.Process(process.pid)
    own, started = [], []
    while process.poll() is None:
        try:
            own.append(whole.memory_info().rss // MIB)
            started.append(sum(_resident(child) for child in whole.children(recursive=True)) // MIB)
        except psutil.Error:
            break
        time.sleep(1)
    process.wait()
    return {"command": _tenths(own), "started": _tenths(started)}


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _tenths(values: list[int]) -> list[int]:
    edges = [len(values) * tenth // 10 for tenth in range(11)]
    return [max(values[start:stop] or [0]) for start, stop in pairwise(edges)]


def explored(run: Path) -> dict[str, float]:
    """Seconds until the explorer listens, and until it has answered each of what the page asks for."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [*COMMAND, "view", str(run), "--no-browser", "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        address = next(found[0] for line in process.stdout or () if (found := re.search(r"http://\S+token=\S+", line)))
        taken = {"until it listens": time.perf_counter() - start}
        base, token = address.split("/?token=")
        model = ""
        for name in ASKED:
            began = time.perf_counter()
            answer = _get(base, token, name, model)
            taken[name] = time.perf_counter() - began
            model = model or json.loads(answer)["models"][0]["name"]
        return {name: round(seconds, 2) for name, seconds in taken.items()}
    finally:
        process.terminate()
        process.wait()


def _get(base: str, token: str, name: str, model: str) -> bytes:
    asked = urlencode({"model": model, "condition": "mless", "queries": "original"} if model else {})
    request = urllib.request.Request(f"{base}/api/0/{name}?{asked}", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request) as answer:
        content: bytes = answer.read()
        return content


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=0, help="of Ray; 0 is the local engine")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
