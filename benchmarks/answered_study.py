"""Wall time of the answering half of a study on a GPU: shard by shard, several shards together, and by vLLM.

    python benchmarks/answered_study.py math500.jsonl [--model smollm2-135m] [--limit 500] [--tokens 512] [--vllm]

Each contender is a whole run, from the hashed weights to the last table, with the start of its engine; all take turns
in one process, after a short run of each engine. Everything is answered under `none` and `mless`, greedy, in shards of
32 problems.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from timing import say, write

from fillerscope.analysis.run import open_run
from fillerscope.measure import answer_groups
from fillerscope.measure.run_study import run_study
from fillerscope.study.study import Study

TOGETHER = answer_groups.AT_ONCE
WARM_UP = 8  # problems


def main() -> None:
    asked = arguments()
    contenders = {"shard by shard": ("fillerscope", 1), "together": ("fillerscope", TOGETHER)}
    if asked.vllm:
        contenders["vLLM"] = ("vllm", TOGETHER)
    for engine, _ in contenders.values():
        timed(study_of(asked, engine, WARM_UP), TOGETHER)  # weights converted, kernels compiled
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    tokens: dict[str, int] = {}
    for _ in range(asked.rounds):
        for name, (engine, at_once) in contenders.items():
            taken, tokens[name] = timed(study_of(asked, engine, asked.limit), at_once)
            seconds[name].append(taken)
            say(f"{name}: {taken:.1f} s, {tokens[name]} tokens")
    result = {
        name: {"seconds": each, "median": statistics.median(each), "tokens": tokens[name]}
        for name, each in seconds.items()
    }
    if asked.out:
        settings = {key: str(value) for key, value in vars(asked).items() if key not in ("out", "source")}
        write(asked.out, torch.device("cuda"), [settings, result])
    print(result)


def timed(study: Study, at_once: int) -> tuple[float, int]:
    """Seconds of a run, and the tokens of its answers."""
    answer_groups.AT_ONCE = at_once
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        store = run_study(study, Path(folder) / "run")
        seconds = time.perf_counter() - start
        columns = open_run(store.path).model_runs[0].answer_columns()
        return seconds, sum(columns["tokens"])


def study_of(asked: argparse.Namespace, engine: str, limit: int) -> Study:
    settings: dict[str, Any] = {
        "name": "cost", "models": [asked.model], "device": "cuda", "conditions": ["none", "mless"],
        "problems": {"source": asked.source, "limit": limit}, "probes": {"attention": False},
        "generation": {"engine": engine, "max_tokens": asked.tokens, "noise": asked.noise},
    }  # fmt: skip
    return Study.model_validate(settings)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="a file of problems")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--limit", type=int, default=500)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--noise", action="store_true", help="answer the baseline twice")
    parser.add_argument("--vllm", action="store_true", help="also by vLLM, which must be installed")
    parser.add_argument("--out", type=Path, help="a JSON file for every timing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
