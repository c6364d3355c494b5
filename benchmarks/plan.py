"""What `fillerscope plan` says of three studies of SmolLM2, and what they then take: seconds, memory, bytes.

    python benchmarks/plan.py [--problems 32] [--out FILE.json]

Each plan and each run is a process of its own, so that memory is theirs alone. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from timing import write

from fillerscope.measure.planning.study_plan import plan_study
from fillerscope.measure.run_study import run_study
from fillerscope.study.study import Study

KINDS = ("attention", "answers", "both")


def study_of(kind: str, problems: int) -> Study:
    asked: dict[str, Any] = {
        "name": "plan", "models": ["smollm2-135m"], "problems": {"limit": problems}, "device": "cpu",
        "conditions": ["none", "mless"], "batch": {"shard": 8},
    }  # fmt: skip
    asked |= {} if kind == "attention" else {"generation": {"max_tokens": 64}}
    asked |= {"probes": {"attention": False}} if kind == "answers" else {}
    return Study.model_validate(asked)


def planned(kind: str, problems: int) -> dict[str, float]:
    plan = plan_study(study_of(kind, problems))
    return {"seconds": plan.seconds, "memory": plan.process_memory, "bytes": plan.bytes}


def measured(kind: str, problems: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        store = run_study(study_of(kind, problems), Path(folder, "run"))
        seconds = time.perf_counter() - began
        size = sum(file.stat().st_size for file in store.path.rglob("*") if file.is_file())
    return {"seconds": seconds, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "bytes": size}


def alone(what: str, kind: str, problems: int) -> dict[str, float]:
    """The result of one of these functions in a process of its own."""
    words = [sys.executable, __file__, "--problems", str(problems), "--alone", what, kind]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    asked = arguments()
    if asked.alone:
        what, kind = asked.alone
        print(json.dumps({"plan": planned, "run": measured}[what](kind, asked.problems)))
        return
    results = []
    for kind in KINDS:
        plan, run = alone("plan", kind, asked.problems), alone("run", kind, asked.problems)
        results.append({"study": kind, "plan": plan, "run": run, "ratio": {key: plan[key] / run[key] for key in plan}})
        print(results[-1], flush=True)
    if asked.out:
        write(asked.out, torch.device("cpu"), results)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=32)
    parser.add_argument("--out", type=Path, help="a JSON file for every figure")
    parser.add_argument("--alone", nargs=2, metavar=("WHAT", "KIND"), help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
