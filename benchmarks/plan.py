"""What `fillerscope plan` says of three studies of a model, and what they then take: seconds, memory, bytes.

    python benchmarks/plan.py [--problems 32] [--out FILE.json]      # SmolLM2 on CPU
    python benchmarks/plan.py --device cuda --shape Qwen2.5-7B --tokenizer FOLDER --problems 256

Each plan and each run is a process of its own, so that memory is theirs alone. Run it on an idle machine. A shape gets
random weights, on disk.
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
from timing import say, write

from fillerscope.measure.planning.study_plan import PlanOptions, plan_study
from fillerscope.measure.run_study import run_study
from fillerscope.study.study import Study

KINDS = ("attention", "answers", "both")


def study_of(kind: str, asked: argparse.Namespace) -> Study:
    record: dict[str, Any] = {
        "name": "plan", "models": [asked.model], "problems": {"limit": asked.problems}, "device": asked.device,
        "conditions": ["none", "mless"], "batch": {"shard": asked.shard},
    }  # fmt: skip
    record |= {} if kind == "attention" else {"generation": {"max_tokens": asked.tokens}}
    record |= {"probes": {"attention": False}} if kind == "answers" else {}
    return Study.model_validate(record)


def planned(kind: str, asked: argparse.Namespace) -> dict[str, float]:
    plan = plan_study(study_of(kind, asked), PlanOptions(asked.device))
    for model in plan.models:
        stages = {name: round(sum(stage.seconds), 2) for name, stage in model.stages.items()}
        say(f"planned for {model.label}: {stages}, and once {model.fixed}")
    return {"seconds": plan.seconds, "memory": plan.device_memory or plan.process_memory, "bytes": plan.bytes}


def measured(kind: str, asked: argparse.Namespace) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        store = run_study(study_of(kind, asked), Path(folder, "run"))
        seconds = time.perf_counter() - began
        size = sum(file.stat().st_size for file in store.path.rglob("*") if file.is_file())
    process = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    memory = process if asked.device == "cpu" else torch.cuda.max_memory_allocated()
    return {"seconds": seconds, "memory": memory, "bytes": size}


def alone(what: str, kind: str, asked: argparse.Namespace) -> dict[str, float]:
    """The result of one of these functions in a process of its own."""
    words = [sys.executable, __file__, "--alone", what, kind]
    for name in ("model", "device", "problems", "shard", "tokens"):
        words += [f"--{name}", str(getattr(asked, name))]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def save_shape(asked: argparse.Namespace, folder: str) -> None:
    from gpu import random_model
    from transformers import AutoTokenizer

    model = random_model(asked.shape, argparse.Namespace(tiny=False, device=asked.device, dtype="bfloat16"))
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(asked.tokenizer).save_pretrained(folder)


def main() -> None:
    asked = arguments()
    if asked.alone:
        what, kind = asked.alone
        print(json.dumps({"plan": planned, "run": measured}[what](kind, asked)))
        return
    results = []
    with tempfile.TemporaryDirectory() as folder:
        if asked.shape:
            save_shape(asked, folder)
            asked.model = folder
        for kind in asked.kinds:
            plan, run = alone("plan", kind, asked), alone("run", kind, asked)
            ratio = {key: plan[key] / run[key] for key in plan}
            results.append({"study": kind, "plan": plan, "run": run, "ratio": ratio})
            print(results[-1], flush=True)
    if asked.out:
        write(asked.out, torch.device(asked.device), results)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--shape", help="that of benchmarks/gpu.py, instead of a model")
    parser.add_argument("--tokenizer", help="a folder, for a shape")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--problems", type=int, default=32)
    parser.add_argument("--shard", type=int, default=8, help="problems of a shard")
    parser.add_argument("--tokens", type=int, default=64, help="of an answer at most")
    parser.add_argument("--out", type=Path, help="a JSON file for every figure")
    parser.add_argument("--alone", nargs=2, metavar=("WHAT", "KIND"), help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
