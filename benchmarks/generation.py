"""How much faster many answers at once are than a loop of single `generate` calls, and whether they are the same.

    python benchmarks/generation.py [--model smollm2-135m] [--problems 64] [--tokens 128] [--rounds 4]

All contenders take turns in one process, so that a busy machine slows all of them: in each round the loop answers
its share of the problems one by one, and fillerscope and transformers' own batched `generate` answer all of them.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers

from fillerscope.answers.local.engine import LocalGenerator
from fillerscope.answers.local.recheck import recheck
from fillerscope.answers.request import Reply, Request, common_start
from fillerscope.models.loading import LoadedModel, load_model
from fillerscope.problems.sources import load_problems
from fillerscope.prompts.prompt import PromptMaker
from fillerscope.study.conditions import PRESETS
from fillerscope.study.generation import Decoding
from fillerscope.study.study import ProblemsSpec, PromptSpec

Ids = tuple[int, ...]


def prompts_of(loaded: LoadedModel, source: str, count: int, condition: str) -> list[Ids]:
    maker = PromptMaker.of(loaded.tokenizer, PromptSpec(), "auto", seed=0)
    problems = load_problems(ProblemsSpec(source=source, limit=count))
    return [maker.make(problem, PRESETS[condition]).ids for problem in problems]


def one_by_one(loaded: LoadedModel, prompts: Sequence[Ids], stops: list[int], limit: int) -> list[Ids]:
    return [batched(loaded, [ids], stops, limit)[0] for ids in prompts]


@torch.inference_mode()
def batched(loaded: LoadedModel, prompts: Sequence[Ids], stops: list[int], limit: int) -> list[Ids]:
    """transformers' own: padded on the left, all rows to the end of the longest answer."""
    width = max(map(len, prompts))
    tokens = torch.zeros(len(prompts), width, dtype=torch.long)
    mask = torch.zeros_like(tokens)
    for row, ids in enumerate(prompts):
        tokens[row, width - len(ids) :], mask[row, width - len(ids) :] = torch.tensor(ids), 1
    place = loaded.model.device
    written = loaded.model.generate(
        tokens.to(place), attention_mask=mask.to(place), max_new_tokens=limit, do_sample=False, pad_token_id=0,
        eos_token_id=stops, temperature=None, top_p=None, top_k=None,
    )  # fmt: skip
    return [trimmed(row[width:].tolist(), stops) for row in written]


def trimmed(ids: list[int], stops: list[int]) -> Ids:
    end = next((place for place, token in enumerate(ids) if token in stops), len(ids) - 1)
    return tuple(ids[: end + 1])


def ours(engine: LocalGenerator, prompts: Sequence[Ids], limit: int) -> list[Reply]:
    shared = common_start(prompts)
    requests = [Request(ids, 0, shared) for ids in prompts]
    return engine.answer(requests, Decoding(max_tokens=limit), lambda _: None)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def main() -> None:
    asked = arguments()
    loaded = load_model(asked.model, dtype=asked.dtype)
    prompts = prompts_of(loaded, asked.source, asked.problems, asked.condition)
    engine = LocalGenerator(loaded)
    stops, limit = sorted(engine.stops), asked.tokens
    ours(engine, prompts[:4], 4)
    one_by_one(loaded, prompts[:1], stops, 4)
    seconds: dict[str, list[float]] = {"one by one": [], "transformers, batched": [], "fillerscope": []}
    singles: dict[int, Ids] = {}
    for turn in range(asked.rounds):
        mine = range(turn, len(prompts), asked.rounds)
        spent, answers = timed(lambda: one_by_one(loaded, [prompts[i] for i in mine], stops, limit))  # noqa: B023
        seconds["one by one"].append(spent * len(prompts) / len(mine))
        singles |= dict(zip(mine, answers, strict=True))
        spent, replies = timed(lambda: ours(engine, prompts, limit))
        seconds["fillerscope"].append(spent)
        spent, _ = timed(lambda: batched(loaded, prompts, stops, limit))
        seconds["transformers, batched"].append(spent)
    report(asked, loaded, seconds, replies, [singles[i] for i in range(len(prompts))], engine, prompts)


def report(
    asked: argparse.Namespace, loaded: LoadedModel, seconds: dict[str, list[float]], replies: list[Reply],
    singles: list[Ids], engine: LocalGenerator, prompts: list[Ids],
) -> None:  # fmt: skip
    middle = {name: statistics.median(found) for name, found in seconds.items()}
    differing = [place for place, reply in enumerate(replies) if reply.ids != singles[place]]
    decoding = Decoding(max_tokens=asked.tokens)
    requests, parted = [Request(prompts[i]) for i in differing], [replies[i] for i in differing]
    margins = recheck(LocalGenerator(loaded, rows=1), requests, parted, decoding, allowed=float("inf"))["margins"]
    print(json.dumps({
        "model": loaded.name, "dtype": loaded.dtype, "device": loaded.device, "problems": len(prompts),
        "condition": asked.condition, "max_tokens": asked.tokens, "rows": engine.rows,
        "tokens": sum(reply.tokens for reply in replies),
        "seconds": {name: round(value, 2) for name, value in middle.items()},
        "times as fast as one by one": {n: round(middle["one by one"] / v, 2) for n, v in middle.items()},
        "rounds": {name: [round(value, 2) for value in found] for name, found in seconds.items()},
        "same as one by one": len(replies) - len(differing),
        "margins where they part": margins,
        "python": platform.python_version(), "machine": platform.machine(), "threads": torch.get_num_threads(),
        "torch": torch.__version__, "transformers": transformers.__version__,
    }, indent=2))  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--source", default="builtin", help="builtin, or a file of problems")
    parser.add_argument("--problems", type=int, default=64)
    parser.add_argument("--condition", default="mless", choices=sorted(PRESETS))
    parser.add_argument("--tokens", type=int, default=128, help="the longest answer")
    parser.add_argument("--rounds", type=int, default=4)
    return parser.parse_args()


if __name__ == "__main__":
    main()
