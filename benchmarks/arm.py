"""What ARM costs beside the plain forward pass: prompts and steps with a cache, with and without it.

    python benchmarks/arm.py [--rounds 20] [--out FILE.json]               # on a GPU: the shape of Qwen2.5-7B
    python benchmarks/arm.py --device cpu                                  # on a CPU: smollm2-135m
    python benchmarks/arm.py --device cpu --tiny                           # every line once, anywhere

All contenders take turns in one process, each a multiple of the plain pass of the same round. ARM is applied in the
first layer with its default settings. `named` is what a study does: it knows its sequences, where `arm` has to look
at the ids, for which it waits. A step reads one token a row behind a cache of 1,024 tokens.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gpu import random_model
from timing import PLAIN, Ratio, Result, race, say, table, write

from fillerscope.arm.hooks import TokenRange, arm, redistributing
from fillerscope.study.interventions import Redistribution

Shape = tuple[int, int]  # texts, and tokens of each

NAME = "Qwen2.5-7B"
SMALL = "smollm2-135m"
KINDS = ("arm", "scatter", "gaussian")
PROMPTS: dict[str, tuple[Shape, ...]] = {"cuda": ((1, 1024), (8, 1024), (1, 4096)), "cpu": ((1, 128), (1, 512))}
STEPS: dict[str, tuple[Shape, ...]] = {"cuda": ((1, 1024), (64, 1024)), "cpu": ((1, 128),)}
SHRINK = 16  # how much shorter texts are for a tiny model
SHORTEST = 0.25  # seconds of one timing
WARM_UPS = 2


def main() -> None:
    asked = arguments()
    model, name = model_of(asked)
    results: list[Result] = []
    with torch.inference_mode():
        for shape in sizes(PROMPTS, asked):
            results += measured(f"{name} prompt", prompt(model, shape), model, shape, shape[1], asked)
        for shape in sizes(STEPS, asked):
            results += measured(f"{name} step", step(model, shape), model, shape, 1, asked)
    print(table(results))
    if asked.out:
        write(asked.out, torch.device(asked.device), results)


def model_of(asked: argparse.Namespace) -> tuple[Any, str]:
    if asked.device == "cuda" or asked.tiny:
        return random_model(NAME, asked), f"{NAME} shape"
    from fillerscope.models.loading import load_model

    return load_model(SMALL, dtype="float32", device="cpu").model, SMALL


def sizes(plan: dict[str, tuple[Shape, ...]], asked: argparse.Namespace) -> list[Shape]:
    return [(texts, length // (SHRINK if asked.tiny else 1)) for texts, length in plan[asked.device]]


def ids_of(model: Any, shape: Shape) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randint(3, model.config.vocab_size, shape, device=model.device)


def prompt(model: Any, shape: Shape) -> Callable[[], Callable[[], object]]:
    ids = ids_of(model, shape)
    return lambda: lambda: model(ids, use_cache=False, logits_to_keep=1)


def step(model: Any, shape: Shape) -> Callable[[], Callable[[], object]]:
    """A cache that is filled inside the block at hand, and cut back after every step."""
    ids = ids_of(model, shape)

    def made() -> Callable[[], object]:
        cache = model(ids, use_cache=True, logits_to_keep=1).past_key_values

        def one() -> None:
            model(ids[:, -1:], past_key_values=cache, use_cache=True)
            cache.crop(-1)

        return one

    return made


def measured(
    label: str,
    work: Callable[[], Callable[[], object]],
    model: Any,
    shape: Shape,
    changed: int,  # tokens of a row
    asked: argparse.Namespace,
) -> Iterator[Result]:
    say(f"{label}, {shape[0]} x {shape[1]}")
    stretches = [TokenRange(row, 0, changed, key=row, step=0) for row in range(shape[0])]
    named = partial(redistributing, model, Redistribution(kind="arm"), lambda: stretches)
    blocks = {PLAIN: nullcontext, "named": named} | {kind: partial(arm, model, kind=kind) for kind in asked.kinds}
    passes = max(1, int(SHORTEST / seconds(nullcontext, work, asked.device, 3)))
    timers = {kind: partial(seconds, block, work, asked.device, passes) for kind, block in blocks.items()}
    spent = race(timers, asked.rounds, asked.seconds, WARM_UPS)
    for kind, times in spent.items():
        yield Result(label, asked.dtype, *shape, kind, times, Ratio.of(times, spent[PLAIN]))


def seconds(
    block: Callable[[], AbstractContextManager[None]],
    work: Callable[[], Callable[[], object]],
    device: str,
    passes: int,
) -> float:
    """Of one pass, the mean of several right after each other; the first is not counted."""
    with block():
        one = work()
        one()
        wait(device)
        start = time.perf_counter()
        for _ in range(passes):
            one()
        wait(device)
    return (time.perf_counter() - start) / passes


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=list(PROMPTS))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["arm"])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=40, help="after which a shape has no further round")
    parser.add_argument("--out", type=Path, help="a JSON file for every timing")
    parser.add_argument("--tiny", action="store_true", help="a small model and short texts, to try this out")
    asked = parser.parse_args()
    asked.dtype = "bfloat16" if asked.device == "cuda" else "float32"
    return asked


if __name__ == "__main__":
    main()
