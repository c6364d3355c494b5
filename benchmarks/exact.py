"""What `exact: on` costs, and what it is for: how many answers change with their neighbours, with it and without.

    python benchmarks/exact.py [--model smollm2-135m] [--problems 64] [--tokens 128] [--rounds 3]

Both ways take turns in one process, so that a busy machine slows both: each answers all prompts in their usual order,
and in the first round once more in another order.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time

import torch
import transformers

from fillerscope.answers.local.engine import LocalGenerator
from fillerscope.answers.request import Reply, Request, common_start
from fillerscope.models.loading import LoadedModel, load_model
from fillerscope.problems.sources import load_problems
from fillerscope.prompts.prompt import PromptMaker
from fillerscope.study.conditions import PRESETS
from fillerscope.study.generation import Decoding
from fillerscope.study.study import ProblemsSpec, PromptSpec


def requests_of(loaded: LoadedModel, source: str, count: int) -> list[Request]:
    maker = PromptMaker.of(loaded.tokenizer, PromptSpec(), "auto", seed=0)
    problems = load_problems(ProblemsSpec(source=source, limit=count))
    texts = [maker.make(problem, PRESETS["none"]).ids for problem in problems]
    return [Request(ids, shared=common_start(texts)) for ids in texts]


def answered(engine: LocalGenerator, requests: list[Request], tokens: int) -> tuple[float, list[Reply]]:
    start = time.perf_counter()
    replies = engine.answer(requests, Decoding(max_tokens=tokens), lambda _: None)
    if engine.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start, replies


def main() -> None:
    asked = arguments()
    loaded = load_model(asked.model, dtype=asked.dtype)
    requests = requests_of(loaded, asked.source, asked.problems)
    rows = asked.rows or LocalGenerator(loaded).rows
    changed: dict[str, int] = {}
    seconds: dict[str, list[float]] = {"usual": [], "exact": []}
    for number in range(asked.rounds):
        for name, times in seconds.items():
            took, replies = answered(LocalGenerator(loaded, rows, name == "exact"), requests, asked.tokens)
            times.append(took)
            if not number:
                other = LocalGenerator(loaded, rows if name == "exact" else max(1, rows // 2), name == "exact", order=1)
                again = answered(other, requests, asked.tokens)[1]
                changed[name] = sum(a.ids != b.ids for a, b in zip(replies, again, strict=True))
    ratios = [exact / usual for usual, exact in zip(seconds["usual"], seconds["exact"], strict=True)]
    print(json.dumps({
        "model": loaded.label, "dtype": str(loaded.model.dtype), "device": str(loaded.model.device),
        "problems": len(requests), "tokens": asked.tokens, "rows": rows, "seconds": seconds,
        "exact_to_usual": {"median": statistics.median(ratios), "each": ratios}, "changed_by_neighbours": changed,
        "machine": platform.processor() or platform.machine(), "threads": torch.get_num_threads(),
        "torch": torch.__version__, "transformers": transformers.__version__,
    }, indent=2))  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16", "float16"])
    parser.add_argument("--source", default="builtin")
    parser.add_argument("--problems", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rows", type=int, help="answers in progress at once")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
