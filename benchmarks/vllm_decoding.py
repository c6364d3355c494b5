"""Tokens a second that vLLM writes for the prompts of `benchmarks/decoding.py`, with a model of the same shape.

    python benchmarks/vllm_decoding.py [--shape 7b] [--rows 512] [--prompts 512] [--tokens 256] [--out FILE.json]

Weights are made up by vLLM (`load_format="dummy"`), prompts go in as ids, prefix caching is on, nothing ends early.
Start-up, with everything compiled and captured, is timed apart. Needs vllm and a CUDA device.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch
from decoding import SHAPES, requests_of
from timing import write
from vllm import LLM, SamplingParams, TokensPrompt, __version__


def started(shape: str, rows: int) -> LLM:
    with tempfile.TemporaryDirectory() as folder:
        settings = SHAPES[shape] | {"architectures": ["Qwen2ForCausalLM"], "torch_dtype": "bfloat16"}
        Path(folder, "config.json").write_text(json.dumps(settings), encoding="utf-8")
        return LLM(
            model=folder, load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16", max_num_seqs=rows,
            max_model_len=2048, enable_prefix_caching=True, gpu_memory_utilization=0.6, seed=0,
        )  # fmt: skip


def timed(engine: LLM, prompts: list[TokensPrompt], tokens: int) -> float:
    asked = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
    engine.reset_prefix_cache()  # else every prompt of the last round is known as a whole
    start = time.perf_counter()
    replies = engine.generate(prompts, asked, use_tqdm=False)
    seconds = time.perf_counter() - start
    assert sum(len(reply.outputs[0].token_ids) for reply in replies) == len(prompts) * tokens
    return seconds


def main() -> None:
    asked = arguments()
    start = time.perf_counter()
    engine = started(asked.shape, asked.rows)
    ready = time.perf_counter() - start
    requests = requests_of(asked.prompts, SHAPES[asked.shape]["vocab_size"], None)
    prompts = [TokensPrompt(prompt_token_ids=list(request.ids)) for request in requests]
    first = timed(engine, prompts, asked.tokens)
    seconds = [timed(engine, prompts, asked.tokens) for _ in range(asked.rounds)]
    rate = asked.prompts * asked.tokens / statistics.median(seconds)
    result = {
        "contender": f"vllm {__version__}", "start-up": ready, "first": first, "seconds": seconds,
        "tokens a second": rate,
    }  # fmt: skip
    if asked.out:
        settings = {key: str(value) for key, value in vars(asked).items() if key != "out"}
        write(asked.out, torch.device("cuda"), [settings, result])
    print(result)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=list(SHAPES), default="1.5b", help="of Qwen2.5")
    parser.add_argument("--rows", type=int, default=512, help="answers in progress at once")
    parser.add_argument("--prompts", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="a JSON file for every timing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
