"""Tokens a second of many answers at once on a GPU, with captured decode steps and without, and whether they agree.

    python benchmarks/decoding.py [--shape 7b] [--rows 512] [--prompts 512] [--tokens 256] [--out FILE.json]
    python benchmarks/decoding.py --shape 8b --rows 0 --samples 16 --tokens 1024 --contenders sampled --rounds 1
    python benchmarks/decoding.py --profile FILE.txt
    python benchmarks/decoding.py --device cpu --tiny --dtype float32 --prompts 8     # every line once, anywhere

A model of the shape of Qwen2.5-1.5B or 7B, or of Llama-3.1-8B, with random weights answers prompts of 120 to 200 tokens
that begin with 80 tokens in common; no answer ends before its last token. All contenders take turns in one process.
`before` launches every kernel of every step from the host; `unshared` computes every prompt whole, as ARM must.
`benchmarks/vllm_decoding.py` gives the same prompts to vLLM. Needs torch, transformers, and this project's src on
PYTHONPATH.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from timing import GIB, race, say, write
from torch.profiler import ProfilerActivity, profile

from fillerscope.answers.local.engine import ONE_BY_ONE, PREFILL, LocalGenerator
from fillerscope.answers.request import Reply, Request, common_start
from fillerscope.study.generation import Decoding
from fillerscope.study.interventions import Knockout, Redistribution

SHAPES: dict[str, dict[str, Any]] = {
    "1.5b": {
        "model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 1536, "intermediate_size": 8960,
        "num_attention_heads": 12, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True,
        "max_position_embeddings": 32768,
    },
    "7b": {
        "model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 3584, "intermediate_size": 18944,
        "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False,
        "max_position_embeddings": 32768,
    },
    "8b": {
        "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False,
        "max_position_embeddings": 32768,
    },
}  # fmt: skip
TINY = {"num_hidden_layers": 2, "hidden_size": 48, "intermediate_size": 96, "vocab_size": 512}
COMMON, SHORTEST, LONGEST = 80, 120, 200  # tokens of prompts
FILLER = (20, 75)
SPREAD = 0.04  # of the weights: answers go on without repeating one token for ever
BEFORE, PLAIN, UNSHARED = "before", "plain", "unshared"
CHANGES: dict[str, Any] = {
    BEFORE: None, PLAIN: None, UNSHARED: None, "sampled": None, "knockout": Knockout(kind="knockout"),
    "arm": Redistribution(kind="arm"), "scatter": Redistribution(kind="scatter"),
    "gaussian": Redistribution(kind="gaussian"),
}  # fmt: skip
PARTED = 24  # answers whose parting is looked into
Work = tuple[LocalGenerator, list[Request], Decoding]
SILENT = SimpleNamespace(eos_token_id=None, chat_template=None, decode=lambda *_, **__: "", all_special_ids=[])


def random_model(asked: argparse.Namespace) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(**(SHAPES[asked.shape] | (TINY if asked.tiny else {})), initializer_range=SPREAD)
    with torch.device(asked.device):
        return AutoModelForCausalLM.from_config(config, dtype=getattr(torch, asked.dtype)).eval().requires_grad_(False)


def requests_of(count: int, vocabulary: int, change: Any, samples: int = 1) -> list[Request]:
    random = np.random.default_rng(0)
    common = tuple(random.integers(3, vocabulary, COMMON).tolist())
    lengths = random.integers(SHORTEST, LONGEST + 1, count // samples)
    texts = [(*common, *random.integers(3, vocabulary, length - COMMON).tolist()) for length in lengths]
    repeated = [ids for ids in texts for _ in range(samples)]
    shared = [COMMON if samples == 1 else len(ids) for ids in repeated]
    return [Request(ids, n, shared[n], change, key=n, filler=FILLER) for n, ids in enumerate(repeated)]


def engine_of(name: str, model: Any, rows: int) -> LocalGenerator:
    engine = LocalGenerator(SimpleNamespace(model=model, tokenizer=SILENT), rows or None)  # type: ignore[arg-type]
    engine.stops, engine.say = frozenset(), say
    if name == BEFORE:
        engine.graphs, engine.prefill, engine.whole = None, PREFILL["cpu"], ONE_BY_ONE
    return engine


def answered(engine: LocalGenerator, requests: Sequence[Request], decoding: Decoding) -> list[Reply]:
    replies = engine.answer(requests, decoding, lambda _: None)
    assert sum(reply.tokens for reply in replies) == len(requests) * decoding.max_tokens
    return replies


def timed(engine: LocalGenerator, requests: Sequence[Request], decoding: Decoding) -> float:
    start = time.perf_counter()
    answered(engine, requests, decoding)
    return time.perf_counter() - start


def parting(model: Any, request: Request, ours: Reply, theirs: Reply) -> dict[str, float]:
    """Where two answers part, and how far apart the stock model's logits of the two tokens are, in their spread."""
    place = common_start([ours.ids, theirs.ids])
    ids = torch.tensor([[*request.ids, *ours.ids[:place]]], device=model.device)
    with torch.inference_mode():
        logits = model(input_ids=ids, use_cache=False, logits_to_keep=1).logits[0, -1].float()
    return {"token": place, "margin": float((logits[ours.ids[place]] - logits[theirs.ids[place]]).abs() / logits.std())}


def agreement(
    model: Any, requests: Sequence[Request], ours: Sequence[Reply], theirs: Sequence[Reply]
) -> dict[str, Any]:
    parted = [place for place, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0].ids != pair[1].ids]
    looked = [parting(model, requests[place], ours[place], theirs[place]) for place in parted[:PARTED]]
    return {"answers": len(ours), "same": len(ours) - len(parted), "partings": looked}


def agreements(model: Any, before: Work, plain: Work) -> list[dict[str, Any]]:
    """Of captured steps with those before, and of those before with themselves among other neighbours, which shows what
    rounding alone does."""
    engine, requests, _ = before
    replies = answered(*before)
    engine.order = 1
    others = {PLAIN: answered(*plain), "before, in another order": answered(*before)}
    return [
        {f"agreement of {name} with before": agreement(model, requests, other, replies)}
        for name, other in others.items()
    ]


def raced(work: dict[str, Work], rounds: int, most: float) -> list[dict[str, Any]]:
    """What each contender took: the first time, and in each round."""
    first = {name: timed(*one) for name, one in work.items()}
    seconds = race({name: partial(timed, *one) for name, one in work.items()}, rounds, most, 0)
    tokens = {name: len(requests) * decoding.max_tokens for name, (_, requests, decoding) in work.items()}
    return [
        {
            "contender": name,
            "first": first[name],
            "seconds": taken,
            "tokens a second": tokens[name] / statistics.median(taken),
        }
        for name, taken in seconds.items()
    ]


def work_of(name: str, model: Any, asked: argparse.Namespace) -> Work:
    requests = requests_of(asked.prompts, model.config.vocab_size, CHANGES[name], asked.samples)
    if name == UNSHARED:
        requests = [replace(request, shared=0) for request in requests]
    decoding = Decoding(max_tokens=asked.tokens, temperature=float(name == "sampled"))
    return engine_of(name, model, asked.rows), requests, decoding


def main() -> None:
    asked = arguments()
    model = random_model(asked)
    work = {name: work_of(name, model, asked) for name in asked.contenders}
    if asked.profile:
        asked.profile.write_text(profiled(*work[PLAIN]), encoding="utf-8")
        return
    results = raced(work, asked.rounds, asked.seconds)
    if BEFORE in work and PLAIN in work:
        results += agreements(model, work[BEFORE], work[PLAIN])
    if asked.device == "cuda":
        results.append({"most memory, GiB": torch.cuda.max_memory_allocated() / GIB})
    settings = {key: str(value) for key, value in vars(asked).items() if key not in ("out", "profile")}
    if asked.out:
        write(asked.out, torch.device(asked.device), [settings, *results])
    for one in results:
        print(one)


def profiled(engine: LocalGenerator, requests: Sequence[Request], decoding: Decoding) -> str:
    """Where the time of the last decode steps goes, by kernel."""
    answered(engine, requests, decoding)
    on_gpu = engine.device.type == "cuda"
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]) as recorded:
        answered(engine, requests, Decoding(max_tokens=min(16, decoding.max_tokens)))
    order = "self_cuda_time_total" if on_gpu else "self_cpu_time_total"
    return str(recorded.key_averages().table(sort_by=order, row_limit=40, max_name_column_width=100))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contenders", nargs="+", choices=list(CHANGES), default=[BEFORE, PLAIN, "knockout", "arm"])
    parser.add_argument("--shape", choices=list(SHAPES), default="1.5b", help="of Qwen2.5, or Llama-3.1-8B")
    parser.add_argument("--rows", type=int, default=512, help="answers in progress at once; 0: as memory allows")
    parser.add_argument("--prompts", type=int, default=512)
    parser.add_argument("--samples", type=int, default=1, help="answers to each prompt, which are among `--prompts`")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=120, help="after which there is no further round")
    parser.add_argument("--out", type=Path, help="a JSON file for every timing")
    parser.add_argument("--profile", type=Path, help="only profile some steps, into this file")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--tiny", action="store_true", help="a small model, to try this out")
    return parser.parse_args()


if __name__ == "__main__":
    main()
