"""Wall time of MATH-500 with a real model on a GPU under four conditions, and whether captured decode steps change it.

    python benchmarks/math500.py FILE.jsonl [--model qwen2.5-coder-1.5b] [--rows 512] [--tokens 1024] [--out FILE.json]

`before` launches every kernel of every step from the host. Each answers all problems under all conditions once, after
a few short answers that make kernels ready. Of the first problems without filler, the greedy answers of the two are
compared, and where they part, how far apart the stock model's logits of the two tokens are. Needs torch, transformers,
and this project's src on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from decoding import BEFORE, agreement
from timing import say, write

from fillerscope.answers.local.engine import ONE_BY_ONE, PREFILL, LocalGenerator
from fillerscope.answers.request import Reply, Request, common_start
from fillerscope.models.loading import LoadedModel, load_model
from fillerscope.problems.sources import load_problems
from fillerscope.prompts.prompt import PromptMaker
from fillerscope.study.conditions import PRESETS
from fillerscope.study.generation import Decoding
from fillerscope.study.study import ProblemsSpec, PromptSpec

CONDITIONS = ("none", "mless", "mful", "random")
COMPARED = 64  # answers


def requests_of(loaded: LoadedModel, source: str, count: int) -> list[Request]:
    maker = PromptMaker.of(loaded.tokenizer, PromptSpec(), "auto", seed=0)
    problems = load_problems(ProblemsSpec(source=source, limit=count))
    requests = []
    for condition in CONDITIONS:
        prompts = [maker.make(problem, PRESETS[condition]).ids for problem in problems]
        shared = common_start(prompts)
        requests += [Request(ids, 0, shared) for ids in prompts]
    return requests


def engine_of(name: str, loaded: LoadedModel, rows: int) -> LocalGenerator:
    engine = LocalGenerator(loaded, rows)
    engine.say = say
    if name == BEFORE:
        engine.graphs, engine.prefill, engine.whole = None, PREFILL["cpu"], ONE_BY_ONE
    return engine


def answered(engine: LocalGenerator, requests: list[Request], limit: int) -> tuple[float, list[Reply]]:
    start = time.perf_counter()
    replies = engine.answer(requests, Decoding(max_tokens=limit), lambda _: None)
    return time.perf_counter() - start, replies


def main() -> None:
    asked = arguments()
    loaded = load_model(asked.model, dtype=asked.dtype)
    requests = requests_of(loaded, asked.source, asked.problems)
    replies: dict[str, list[Reply]] = {}
    results: list[dict[str, Any]] = []
    for name in ("now", BEFORE):
        engine = engine_of(name, loaded, asked.rows)
        answered(engine, requests[:8], 4)
        seconds, replies[name] = answered(engine, requests, asked.tokens)
        tokens = sum(reply.tokens for reply in replies[name])
        ended = sum(reply.finish == "stop" for reply in replies[name])
        results.append({
            "contender": name, "seconds": seconds, "answers": len(requests), "ended": ended, "tokens": tokens,
            "tokens a second": tokens / seconds,
        })  # fmt: skip
        say(str(results[-1]))
    results.append(agreement(loaded.model, requests[:COMPARED], replies["now"][:COMPARED], replies[BEFORE][:COMPARED]))
    if asked.out:
        settings = {key: str(value) for key, value in vars(asked).items() if key not in ("out", "source")}
        write(asked.out, torch.device("cuda"), [settings, *results])
    print(results[-1])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="the problems of MATH-500, a line each")
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--problems", type=int, default=500)
    parser.add_argument("--rows", type=int, default=512, help="answers in progress at once")
    parser.add_argument("--tokens", type=int, default=1024, help="the longest answer")
    parser.add_argument("--out", type=Path, help="a JSON file for every timing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
