"""What measuring attention costs beside running the model, and what the same costs with other tools. CPU.

    make bench
    python benchmarks/capture.py [--lengths 128 512 2048] [--rounds 9] [--contenders plain fillerscope eager]
        [--out FILE.json]

Times: all contenders take turns in one process, and each is a multiple of the plain forward in the same round: sdpa
attention, hidden states without logits. Before that, all must give the same numbers. Memory: every contender runs
once in a process of its own; told are the largest resident size of that process, and how far this is above the size
it had with the model loaded and warm.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from contenders import NAMES, OURS, PEERS, Batch, Contender, compared, contender, installed
from timing import PLAIN, Peak, Ratio, Result, race, say, table, write

from fillerscope.models.loading import LoadedModel, load_model

TOLERANCE = 1e-4
RESET = Path("/proc/self/clear_refs")


def main() -> None:
    asked = arguments()
    torch.set_num_threads(os.cpu_count() or 1)
    if asked.peak:
        print(json.dumps(asdict(peak_here(asked))))
        return
    names = installed(asked.contenders)
    peaks = {(name, length): peak_of(asked, name, length) for length in asked.lengths for name in names}
    loaded = load_model(asked.model, dtype="float32", device="cpu")
    contenders = [contender(name, model_for(name, loaded), loaded.tokenizer) for name in names]
    results = [
        result
        for length in asked.lengths
        for result in measured(loaded, contenders, length, asked, {name: peaks[name, length] for name in names})
    ]
    print(table(results))
    if asked.out:
        write(asked.out, torch.device("cpu"), results)


def model_for(name: str, loaded: LoadedModel) -> Any:
    return copy.deepcopy(loaded.model) if name in PEERS else loaded.model


def measured(
    loaded: LoadedModel, contenders: Sequence[Contender], length: int, asked: argparse.Namespace, peaks: dict[str, Peak]
) -> Iterator[Result]:
    say(f"times at {length} tokens")
    batch = batch_of(loaded, length, asked.tokens)
    differences = compared(contenders, batch, TOLERANCE)
    passes = {one.name: partial(one.seconds, batch) for one in contenders}
    seconds = race(passes, asked.rounds, asked.seconds, warm_ups=1)
    for name, spent in seconds.items():
        yield Result(
            loaded.label, loaded.dtype, *batch.shape, name, spent, Ratio.of(spent, seconds[PLAIN]),
            differences.get(name), peaks[name],
        )  # fmt: skip


def batch_of(loaded: LoadedModel, length: int, tokens: int) -> Batch:
    return Batch.random(loaded.model, max(1, tokens // length), length)


def peak_of(asked: argparse.Namespace, name: str, length: int) -> Peak:
    """In a process of its own, started by a shell: what the parent of a process held is counted as its own."""
    say(f"memory at {length} tokens: {name}")
    chosen = ["--model", asked.model, "--tokens", str(asked.tokens), "--lengths", str(length), "--peak", name]
    command = [sys.executable, __file__, *chosen]
    done = subprocess.run(["sh", "-c", '"$@"; exit $?', "sh", *command], stdout=subprocess.PIPE, text=True, check=True)
    return Peak(**json.loads(done.stdout.splitlines()[-1]))


def peak_here(asked: argparse.Namespace) -> Peak:
    loaded = load_model(asked.model, dtype="float32", device="cpu")
    for parameter in loaded.model.parameters():
        parameter.sum()  # a file of weights is in memory only as far as it was read
    one = contender(asked.peak, loaded.model, loaded.tokenizer)
    one.seconds(Batch.random(loaded.model, 1, 8))
    batch = batch_of(loaded, asked.lengths[0], asked.tokens)
    if RESET.exists():
        RESET.write_text("5")  # forget the peak of loading, which is above what is kept
    before = resident()
    one.seconds(batch)
    return Peak(resident(), resident() - before)


def resident() -> int:
    """The largest size so far, in bytes: macOS tells bytes, others kilobytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512, 2048], help="tokens of a text")
    parser.add_argument("--tokens", type=int, default=2048, help="of all texts of a batch together")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=300, help="after which a length has no further round")
    parser.add_argument("--contenders", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--out", type=Path, help="a JSON file for every timing")
    parser.add_argument("--peak", choices=NAMES, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    asked.contenders = [name for name in NAMES if name in {PLAIN, OURS, *asked.contenders}]
    return asked


if __name__ == "__main__":
    main()
