"""Answers on CPU cores: fillerscope against llama.cpp, with the same weights in float32 and as they are quantised.

    python benchmarks/llamacpp.py MODEL.gguf [--problems 64] [--tokens 128] [--rounds 2] [--threads 2]

The problems are those of `benchmarks/generation.py`. All take turns in one process; llama.cpp answers them by its own
server (package xllamacpp), with a slot for each, prompts as ids and the prompt cache on, and the GGUF file is also
written with its weights in float32. fillerscope computes with these weights in float32.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from generation import Ids, ours, prompts_of

from fillerscope.answers.local.engine import LocalGenerator
from fillerscope.answers.request import common_start
from fillerscope.models.loading import load_model


def as_float32(source: Path, target: Path) -> None:
    """Write a GGUF file again, with all its weights in float32."""
    from gguf import GGUFReader, GGUFValueType, GGUFWriter, dequantize

    reader = GGUFReader(source)
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.file_type"):
            inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
    writer.add_file_type(0)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, dequantize(tensor.data, tensor.tensor_type).astype("float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def served(path: Path, rows: int, room: int, threads: int) -> Any:
    """A server of llama.cpp with so many slots of so many tokens."""
    import xllamacpp

    asked = xllamacpp.CommonParams()
    asked.model.path = str(path)
    asked.n_parallel, asked.n_ctx, asked.n_batch = rows, rows * room, 2048
    asked.cpuparams.n_threads = asked.cpuparams_batch.n_threads = threads
    asked.warmup, asked.port = True, 0
    return xllamacpp.Server(asked)


def theirs(server: Any, prompts: Sequence[Ids], limit: int) -> list[int]:
    """How many tokens each answer has."""

    def ask(ids: Ids) -> int:
        reply = server.handle_completions(
            {"prompt": list(ids), "n_predict": limit, "max_tokens": limit, "temperature": 0, "cache_prompt": True}
        )
        return int(reply["usage"]["completion_tokens"] if "usage" in reply else reply["tokens_predicted"])

    with ThreadPoolExecutor(len(prompts)) as threads:
        return list(threads.map(ask, prompts))


def main() -> None:
    asked = arguments()
    torch.set_num_threads(asked.threads)
    loaded = load_model(str(asked.model), dtype="float32", device="cpu")
    prompts = prompts_of(loaded, "builtin", asked.problems, "mless")
    engine = LocalGenerator(loaded)
    room = max(map(len, prompts)) + asked.tokens + 8
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder, "float32.gguf")
        as_float32(asked.model, plain)
        servers = {
            "llama.cpp, float32": served(plain, len(prompts), room, asked.threads),
            "llama.cpp, as quantised": served(asked.model, len(prompts), room, asked.threads),
        }
        work: dict[str, Callable[[], list[int]]] = {
            "fillerscope, float32": lambda: [reply.tokens for reply in ours(engine, prompts, asked.tokens)],
            **{name: lambda server=one: theirs(server, prompts, asked.tokens) for name, one in servers.items()},  # type: ignore[misc]
        }
        seconds: dict[str, list[float]] = {name: [] for name in work}
        tokens: dict[str, int] = {}
        for _ in range(asked.rounds):
            for name, answer in work.items():
                start = time.perf_counter()
                tokens[name] = sum(answer())
                seconds[name].append(time.perf_counter() - start)
                print(f"{name}: {seconds[name][-1]:.1f} s, {tokens[name]} tokens", flush=True)
    middle = {name: statistics.median(found) for name, found in seconds.items()}
    print(json.dumps({
        "model": asked.model.name, "problems": len(prompts), "max_tokens": asked.tokens, "threads": asked.threads,
        "shared": common_start(prompts), "seconds": seconds, "tokens": tokens,
        "tokens a second": {name: tokens[name] / middle[name] for name in work},
        "machine": platform.machine(), "torch": torch.__version__, "xllamacpp": version("xllamacpp"),
    }, indent=2))  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("--problems", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=128, help="the longest answer")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
