"""What the attention half of a study costs from end to end, against plain forwards over the same prompts.

    python benchmarks/study.py --problems math500.jsonl [--limit 500] [--slices 5] [--out FILE.json]
    python benchmarks/study.py --shape Qwen2.5-7B --tokenizer FOLDER --device cuda --problems math500.jsonl
    python benchmarks/study.py --growth 50 2500      # seconds and memory by the number of problems
    python benchmarks/study.py --stages ...          # where the time of one study goes
    python benchmarks/study.py --probes ...          # attention with all other probes against attention alone

Ours is everything between a loaded model and a finished run folder: prompts made, passes, moments and head
summaries, shards written and merged. The plain forwards get their prompts ready-made, sorted by length over the
whole study and in batches of the size that is fastest here; they keep nothing. Both go slice by slice in turns.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from contenders import wait
from gpu import CONFIGS, random_model
from timing import say, write

from fillerscope.capture.activations import Scale
from fillerscope.capture.memory import pass_tokens
from fillerscope.capture.passes import PassRunner
from fillerscope.capture.probes import Probing
from fillerscope.capture.small_operations import SmallOperations
from fillerscope.measure.engines import local
from fillerscope.measure.engines.local import Writer, calibration, measure_shards
from fillerscope.measure.prepare import Shard, ShardPrompts, shards_of
from fillerscope.measure.shard import PendingShard
from fillerscope.models.attention import using_attention
from fillerscope.models.structure import decoder_of, device_of
from fillerscope.problems.problem import Problem
from fillerscope.problems.sources import load_problems
from fillerscope.progress import SILENT
from fillerscope.prompts.prompt import PromptMaker
from fillerscope.store.merge import Merger
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import merged_name, shard_name
from fillerscope.study.study import Probes, Study

BUDGETS = {"cpu": (1024, 2048, 4096), "cuda": (4096, 8192, 16384, 32768)}  # padded tokens of a plain batch
NAME = "model"
STAGES = (
    (ShardPrompts, "of"), (local, "start_shard"), (PendingShard, "reducing"), (PendingShard, "reduced"),
    (Merger, "add"), (RunStore, "put"),
)  # fmt: skip


def main() -> None:
    asked = arguments()
    study = study_of(asked)
    model, tokenizer = loaded(asked)
    maker = PromptMaker.of(tokenizer, study.prompt, study.prompt.template, study.seed)
    problems = load_problems(study.problems)
    ours(study, model, maker, problems[: 2 * study.batch.shard])  # a warm-up
    measure = growth if asked.growth else stages if asked.stages else probes if asked.probes else race
    found = measure(study, model, maker, problems, asked)
    print(found)
    if asked.out:
        write(asked.out, device_of(model), found)


def race(study: Study, model: Any, maker: PromptMaker, problems: list[Problem], asked: Any) -> list[dict[str, Any]]:
    prompts = prompts_of(study, maker, problems)
    budget = asked.budget or best_budget(model, prompts)
    rounds = []
    for number, some in enumerate(slices(problems, asked.slices) * asked.rounds):
        forwards = batches(prompts_of(study, maker, some), budget)
        if number < asked.slices and device_of(model).type == "cuda":
            plain(model, forwards)  # its kernels make a plan for every new shape, which is not to count
        pair = (lambda f=forwards: plain(model, f)), (lambda s=some: ours(study, model, maker, s))
        seconds = [0.0, 0.0]
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            seconds[which] = pair[which]()
        rounds.append(seconds)
        say(f"slice {number + 1}: plain {seconds[0]:.2f} s, ours {seconds[1]:.2f} s, {seconds[1] / seconds[0]:.3f}")
    totals = np.array(rounds)
    found = {
        "prompts": len(prompts),
        "tokens": sum(map(len, prompts)),
        "budget": budget,
        "seconds": rounds,
        "ratio of sums": float(totals[:, 1].sum() / totals[:, 0].sum()),
        "median ratio": float(np.median(totals[:, 1] / totals[:, 0])),
    }
    return [found]


def probes(study: Study, model: Any, maker: PromptMaker, problems: list[Problem], asked: Any) -> list[dict[str, Any]]:
    """The affine picture and activations beside attention, slice by slice in turns."""
    wanted = Probes.model_validate({"affine": True, "activations": True})
    both = study, study.model_copy(update={"probes": wanted})
    scale = Scale.read(calibration(ShardPrompts(both[1], maker, None), model, shards_of(problems, study.batch.shard)))
    assert wanted.activations is not None
    probing = Probing(), Probing(True, scale, len(wanted.activations.classes) + 1)
    rounds = []
    for number, some in enumerate(slices(problems, asked.slices) * asked.rounds):
        seconds = [0.0, 0.0]
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            seconds[which] = ours(both[which], model, maker, some, probing[which])
        rounds.append(seconds)
        say(f"slice {number + 1}: attention {seconds[0]:.2f} s, all probes {seconds[1]:.2f} s")
    totals = np.array(rounds)
    ratios = totals[:, 1] / totals[:, 0]
    found = {"problems": len(problems), "conditions": len(study.conditions), "seconds": rounds}
    return [
        found | {"ratio of sums": float(totals[:, 1].sum() / totals[:, 0].sum()), "median": float(np.median(ratios))}
    ]


def growth(study: Study, model: Any, maker: PromptMaker, problems: list[Problem], asked: Any) -> list[dict[str, Any]]:
    """The largest number last: what a process has once taken it keeps, so that memory can only be seen to grow."""
    found = []
    for count in sorted(asked.growth):
        seconds = ours(study, model, maker, problems[:count])
        prompts = len(study.conditions) * count
        peak = {"resident GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}
        if torch.cuda.is_available():
            peak["device GiB"] = torch.cuda.max_memory_allocated() / 2**30
        found.append({"prompts": prompts, "seconds": seconds, "milliseconds a prompt": 1e3 * seconds / prompts} | peak)
        say(str(found[-1]))
    return found


def stages(study: Study, model: Any, maker: PromptMaker, problems: list[Problem], asked: Any) -> list[dict[str, Any]]:  # noqa: ARG001
    """Seconds in each stage, which overlap: a device works while the host prepares, and files have their own thread."""
    spent: dict[str, float] = {}
    for owner, name in STAGES:
        setattr(owner, name, _timed(getattr(owner, name), name, spent))
    whole = ours(study, model, maker, problems)
    return [{"whole": whole} | spent]


def _timed(stage: Callable[..., Any], name: str, spent: dict[str, float]) -> Callable[..., Any]:
    def timed(*given: Any, **named: Any) -> Any:
        start = time.perf_counter()
        try:
            return stage(*given, **named)
        finally:
            where = f"{name}, {'main' if threading.current_thread() is threading.main_thread() else 'writing'} thread"
            spent[where] = spent.get(where, 0.0) + time.perf_counter() - start

    return timed


def ours(
    study: Study, model: Any, maker: PromptMaker, problems: Sequence[Problem], probing: Probing | None = None
) -> float:
    shards = shards_of(problems, study.batch.shard)
    with tempfile.TemporaryDirectory() as folder:
        store = RunStore.create(Path(folder) / "run", {"study": study.name}, study.model_dump(mode="json"))
        start = time.perf_counter()
        names = [shard_name(NAME, shard.index) for shard in shards]
        merger = Merger(names, store.get)
        with store.writing():
            writer = Writer(store, merger.add)
            gauge = PassRunner(
                model, study.batch.tokens or pass_tokens(model), probing=probing, small=small_operations(model)
            )
            missing = list(zip(shards, names, strict=True))
            measure_shards(ShardPrompts(study, maker, None), gauge, missing, writer, lambda _: None)
            store.put(merged_name(NAME), merger.merged())
        return time.perf_counter() - start


@cache
def small_operations(model: Any) -> SmallOperations:
    """Found once, as a study does."""
    return SmallOperations.for_passes(model)


def plain(model: Any, forwards: Sequence[np.ndarray]) -> float:
    device = device_of(model)
    with using_attention(model, "sdpa"), torch.inference_mode():
        wait(device)
        start = time.perf_counter()
        for ids in forwards:
            decoder_of(model)(input_ids=torch.from_numpy(ids).to(device), use_cache=False)
        wait(device)
        return time.perf_counter() - start


def batches(prompts: Sequence[tuple[int, ...]], budget: int) -> list[np.ndarray]:
    """Padded on the right, where causality hides it, prompts of similar length together."""
    found: list[list[tuple[int, ...]]] = []
    for ids in sorted(prompts, key=len):
        if not found or (len(found[-1]) + 1) * len(ids) > budget:
            found.append([])
        found[-1].append(ids)
    return [np.array([[*ids, *[0] * (len(some[-1]) - len(ids))] for ids in some]) for some in found]


def best_budget(model: Any, prompts: Sequence[tuple[int, ...]]) -> int:
    """By trying a tenth of the prompts, every length among them."""
    some = sorted(prompts, key=len)[::10]
    seconds = {
        size: min(plain(model, batches(some, size)) for _ in range(3)) for size in BUDGETS[device_of(model).type]
    }
    say(f"plain batches: {seconds}")
    return min(seconds, key=lambda size: seconds[size])


def prompts_of(study: Study, maker: PromptMaker, problems: Sequence[Problem]) -> list[tuple[int, ...]]:
    prepared = ShardPrompts(study, maker, None).of(Shard(0, 0, tuple(problems)))
    return [prompt.ids for item in prepared for prompt in item.prompts.values()]


def slices(problems: list[Problem], count: int) -> list[list[Problem]]:
    size = -(-len(problems) // count)
    return [problems[start : start + size] for start in range(0, len(problems), size)]


def study_of(asked: argparse.Namespace) -> Study:
    source = {"source": asked.problems, "limit": max(asked.growth or [asked.limit])}
    batch = {"shard": asked.shard, "prefix": asked.prefix}
    return Study.model_validate(
        {"name": "cost", "models": [asked.model], "problems": source, "conditions": asked.conditions, "batch": batch}
    )


def loaded(asked: argparse.Namespace) -> tuple[Any, Any]:
    if asked.shape:
        from transformers import AutoTokenizer

        return random_model(asked.shape, asked), AutoTokenizer.from_pretrained(asked.tokenizer)
    from fillerscope.models.loading import load_folder
    from fillerscope.models.resolve import resolve

    found = load_folder(resolve(asked.model, SILENT, False), "auto", asked.device)
    return found.model, found.tokenizer


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", default="builtin", help="a file of problems")
    parser.add_argument("--limit", type=int, default=500)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--shape", choices=list(CONFIGS), help="random weights of this shape instead of a model")
    parser.add_argument("--tokenizer", help="a folder, with --shape")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="bfloat16", help="with --shape")
    parser.add_argument("--tiny", action="store_true", help="with --shape: a small one")
    parser.add_argument("--shard", type=int, default=32)
    parser.add_argument("--prefix", choices=["share", "off"], default="share")
    parser.add_argument("--slices", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--budget", type=int, help="padded tokens of a plain batch; else the fastest of some is taken")
    parser.add_argument("--growth", type=int, nargs="+", help="numbers of problems to compare instead")
    parser.add_argument("--stages", action="store_true", help="where the time of one study goes, instead")
    parser.add_argument("--probes", action="store_true", help="what the other probes add to attention, instead")
    parser.add_argument("--conditions", nargs="+", default=["none", "mless"])
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
