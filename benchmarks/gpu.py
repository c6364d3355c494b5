"""What measuring attention costs on a GPU, on models of the shapes of well-known ones with random weights.

    python benchmarks/gpu.py [--models Qwen2.5-7B] [--shapes 8x1024 2x4096] [--rounds 30] [--out FILE.json]
    python benchmarks/gpu.py --profile FILE.txt --models Qwen2.5-7B --shapes 8x1024
    python benchmarks/gpu.py --device cpu --tiny --dtype float32     # every line once, anywhere

Times as in capture.py. Memory is what torch allocated at most during a pass. Eager attention, which holds all
weights of all layers, runs up to 4,096 tokens. In bfloat16 the numbers of the first layer are compared, which all
contenders reach with the same input; later ones differ by the rounding of the layers before them. Needs torch,
transformers from 5.17, numpy, and this project's src on PYTHONPATH with pydantic.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from contenders import OURS, WITHOUT_PEERS, Batch, Contender, compared, contender
from timing import PLAIN, Peak, Ratio, Result, race, say, table, write
from torch.profiler import ProfilerActivity, profile

Shape = tuple[int, int]  # texts, and tokens of each

CONTEXT = 131072
CONFIGS: dict[str, dict[str, Any]] = {
    "Qwen2.5-7B": {
        "model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 3584, "intermediate_size": 18944,
        "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
    },
    "Llama-3.1-8B": {
        "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    },
    "Gemma-3-4B": {  # five layers in six look back 1,024 tokens only
        "model_type": "gemma3_text", "num_hidden_layers": 34, "hidden_size": 2560, "intermediate_size": 10240,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208,
        "sliding_window": 1024,
    },
}  # fmt: skip
PLAN: dict[str, tuple[Shape, ...]] = {
    "Qwen2.5-7B": ((16, 128), (16, 256), (8, 1024), (2, 4096), (1, 16384), (1, 65536)),
    "Llama-3.1-8B": ((8, 1024),),
    "Gemma-3-4B": ((8, 1024),),
}
LONGEST_EAGER = 4096
TINY = {
    "num_hidden_layers": 6, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 32,
}  # fmt: skip
SHRINK = 16  # how much shorter texts are for a tiny model
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
TOLERANCE = {"bfloat16": 1e-2, "float32": 1e-4}
WARM_UPS = 2
SHORTEST = 0.25  # seconds of one timing: as many passes as take that long, one right after the other, as in a study
KERNELS = 30  # lines of a profile


def main() -> None:
    asked = arguments()
    if asked.profile:
        asked.profile.write_text(profiles(asked), encoding="utf-8")
        return
    results: list[Result] = []
    for name in asked.models:
        for found in by_shape(name, asked):
            results += found
            if asked.out:
                write(asked.out, torch.device(asked.device), results)
        gc.collect()  # the model, before the next one is made
    print(table(results))


def by_shape(name: str, asked: argparse.Namespace) -> Iterator[list[Result]]:
    model = random_model(name, asked)
    contenders = [contender(one, model) for one in asked.contenders]
    for shape in shapes_of(name, asked):
        batch = Batch.random(model, *shape)
        say(f"{name}, {batch}")
        yield list(measured(name, contenders, batch, asked))


def random_model(name: str, asked: argparse.Namespace) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    settings = CONFIGS[name] | (TINY if asked.tiny else {})
    config = AutoConfig.for_model(**settings, max_position_embeddings=CONTEXT)
    with torch.device(asked.device):
        return AutoModelForCausalLM.from_config(config, dtype=DTYPES[asked.dtype]).eval().requires_grad_(False)


def shapes_of(name: str, asked: argparse.Namespace) -> Sequence[Shape]:
    return asked.shapes or [(texts, length // (SHRINK if asked.tiny else 1)) for texts, length in PLAN[name]]


def measured(name: str, all_of_them: Sequence[Contender], batch: Batch, asked: argparse.Namespace) -> Iterator[Result]:
    longest = LONGEST_EAGER // (SHRINK if asked.tiny else 1)
    entered = [one for one in all_of_them if one.name != "eager" or batch.shape[1] <= longest]
    able = [one for one in entered if fits(one, batch)]
    differences = compared(able, batch, TOLERANCE[asked.dtype], None if asked.dtype == "float32" else 1)
    peaks = {one.name: peak(one, batch) for one in able}
    passes = max(1, int(SHORTEST / min(one.seconds(batch) for one in able)))
    timers = {one.name: partial(one.seconds, batch, passes) for one in able}
    seconds = race(timers, asked.rounds, asked.seconds, WARM_UPS)
    where = (f"{name} shape", asked.dtype, *batch.shape)
    for one in entered:
        if one in able:
            ratio = Ratio.of(seconds[one.name], seconds[PLAIN])
            yield Result(*where, one.name, seconds[one.name], ratio, differences.get(one.name), peaks[one.name])
        else:
            yield Result(*where, one.name, note="out of memory")


def fits(one: Contender, batch: Batch) -> bool:
    try:
        one.seconds(batch)
    except torch.OutOfMemoryError:
        return False
    return True


def peak(one: Contender, batch: Batch) -> Peak | None:
    """Of a pass that is not the first, after which libraries keep some memory for themselves."""
    device = batch.tokens.device
    if device.type != "cuda":
        return None
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    one.seconds(batch)
    whole = torch.cuda.max_memory_allocated(device)
    return Peak(whole, whole - before)


def profiles(asked: argparse.Namespace) -> str:
    """Where one pass of the plain forward and one of ours spend their time."""
    name = asked.models[0]
    model = random_model(name, asked)
    batch = Batch.random(model, *shapes_of(name, asked)[0])
    chosen = [contender(one, model) for one in (PLAIN, OURS)]
    return "\n".join(f"{one.name}: {name}, {batch}\n{kernels(one, batch)}" for one in chosen)


def kernels(one: Contender, batch: Batch) -> str:
    on_gpu = batch.tokens.device.type == "cuda"
    for _ in range(WARM_UPS):
        one.seconds(batch)
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]) as found:
        one.seconds(batch)
    order = "self_cuda_time_total" if on_gpu else "self_cpu_time_total"
    return str(found.key_averages().table(sort_by=order, row_limit=KERNELS, max_name_column_width=90))


def shape_of(text: str) -> Shape:
    texts, _, length = text.partition("x")
    return int(texts), int(length)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(CONFIGS), default=list(CONFIGS))
    parser.add_argument("--shapes", type=shape_of, nargs="+", help="as in 8x1024: texts, and tokens of each")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=40, help="after which a shape has no further round")
    parser.add_argument("--contenders", nargs="+", choices=list(WITHOUT_PEERS), default=list(WITHOUT_PEERS))
    parser.add_argument("--out", type=Path, help="a JSON file for every timing, written after every shape")
    parser.add_argument("--profile", type=Path, help="only profile the first shape of the first model, into this file")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", choices=list(DTYPES), default="bfloat16")
    parser.add_argument("--tiny", action="store_true", help="a small model and short texts, to try this out")
    asked = parser.parse_args()
    asked.contenders = [name for name in WITHOUT_PEERS if name in {PLAIN, *asked.contenders}]
    return asked


if __name__ == "__main__":
    main()
