"""Where a run bends that has many workers and many shards: the real driver and run folder, and workers that sleep.

    python benchmarks/scale.py [--workers 10 100 1000] [--problems 100000] [--seconds 20] [--out FILE.json]

A worker answers after about `seconds` with the files of a shard that a small model was really measured for, or dies.
The clock is simulated: waiting takes no time, what the driver computes and writes takes the time that it takes here.
`lost` is how much longer the run is than its work shared out evenly. Nothing of Ray runs.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import resource
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from timing import write
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

from fillerscope.analysis.run import Run
from fillerscope.measure.engines.model_work import ModelWork
from fillerscope.measure.engines.ray.cluster import WorkerNeeds
from fillerscope.measure.engines.ray.driver import Doing, Driver
from fillerscope.measure.engines.ray.pool import Pool
from fillerscope.measure.engines.ray.worker import Call, Job, Outcome
from fillerscope.measure.prepare import shards_of
from fillerscope.measure.run_study import run_study
from fillerscope.models.resolve import resolve
from fillerscope.problems.problem import Problem
from fillerscope.progress import SILENT
from fillerscope.store.contents import MEASURING
from fillerscope.store.run_folder import RunStore
from fillerscope.study.study import Study

START = 60.0  # seconds until a worker has loaded a model
GIB = 2**30


class SleepingSlot:
    """A worker that sleeps."""

    def __init__(self, pool: SleepingPool) -> None:
        self.pool = pool
        self.doing: Doing | None = None
        self.loaded: int | None = None
        self.is_idle = False

    def ask(self, call: Call, doing: Doing) -> None:
        self.doing, self.loaded, self.is_idle = doing, call.model, False
        self.pool.wake(self, self.pool.rng.uniform(0.5, 1.5) * self.pool.seconds)


class SleepingPool(Pool[Doing]):
    """Workers that sleep on a simulated clock, which also goes on while the driver works."""

    def __init__(self, count: int, files: Mapping[str, bytes], seconds: float, deaths: float) -> None:
        self.needs, self.files, self.seconds, self.deaths = WorkerNeeds(count, 1, 0), files, seconds, deaths
        self.rng, self.clock, self.driver = random.Random(5), 0.0, 0.0
        self.events: list[tuple[float, int, SleepingSlot]] = []
        self.asked = self.died = 0
        self.worked = 0.0  # seconds of workers, those that died left out
        self.slots: Any = [SleepingSlot(self) for _ in range(count)]
        for slot in self.slots:
            self.wake(slot, START)
        self.left = time.perf_counter()

    finds_no_room = False

    def wake(self, slot: SleepingSlot, after: float) -> None:
        self.asked += 1
        heapq.heappush(self.events, (self._now() + after, self.asked, slot))

    def _now(self) -> float:
        return self.clock + time.perf_counter() - getattr(self, "left", time.perf_counter())

    def answers(self) -> Iterator[tuple[Doing, Outcome]]:
        spent = time.perf_counter() - self.left
        self.driver, self.clock = self.driver + spent, self.clock + spent
        self.left = time.perf_counter()
        if not self.events:
            return
        woken, _, slot = heapq.heappop(self.events)
        self.clock = max(self.clock, woken)
        doing, slot.doing, slot.is_idle = slot.doing, None, True
        if doing is None:
            return
        if self.rng.random() < self.deaths:
            self.died, slot.is_idle = self.died + 1, False
            self.wake(slot, START)
            yield doing, Outcome(failure="a worker died")
            return
        group, unit = doing
        self.worked += self.seconds
        yield doing, Outcome({} if unit.shard is None else {group.file(unit.shard): self.files[MEASURING]})


def small_model(folder: Path) -> Path:
    """A model of two layers with a real tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(resolve("smollm2-135m").path)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def measured_shard(folder: Path, shard: int) -> tuple[Study, Mapping[str, bytes], RunStore]:
    """A study, and what one shard of it weighs when it is really measured."""
    study = Study.model_validate({
        "name": "scale", "models": [str(small_model(folder / "small"))], "problems": {"limit": shard}, "device": "cpu",
        "conditions": ["none", "mless"], "batch": {"shard": shard},
    })  # fmt: skip
    store = run_study(study, folder / "one")
    name = next(name for name in store.manifest["files"] if "00000" in name)
    return study, {MEASURING: (store.path / name).read_bytes()}, store


def simulated(asked: argparse.Namespace, workers: int, folder: Path) -> dict[str, Any]:
    study, files, one = measured_shard(folder, asked.shard)
    problems = [Problem(str(number), f"What is {number} + 1?", "") for number in range(asked.problems)]
    shards = shards_of(problems, asked.shard)
    began = time.perf_counter()
    store = RunStore.create(folder / "run", one.manifest["identity"], one.study)
    with store.writing():
        for key in ("environment", "models"):
            store.note(key, one.manifest[key])
        store.note("problems", len(problems))
        work = ModelWork(study, study.models[0], resolve(study.models[0].name), store, SILENT)
        driver = Driver([work], Job([], shards, {}, 1, False), lambda: None)
        pool = SleepingPool(workers, files, asked.seconds, asked.deaths)
        driver.run(pool)
        pool.driver += time.perf_counter() - pool.left
        pool.clock += time.perf_counter() - pool.left
    real = time.perf_counter() - began
    opened = time.perf_counter()
    run = Run(RunStore.open(store.path))
    count = len(run[None].records())
    opened = time.perf_counter() - opened
    assert count == len(shards) * asked.shard
    even = START + len(shards) * asked.seconds / workers
    return {
        "workers": workers, "shards": len(shards), "shard_bytes": len(files[MEASURING]), "deaths": pool.died,
        "hours": round(pool.clock / 3600, 3), "lost": round(pool.clock / even - 1, 3),
        "driver_ms_a_shard": round(1000 * pool.driver / len(shards), 2),
        "driver_busy": round(pool.driver / pool.clock, 3),
        "real_seconds": round(real, 1), "seconds_to_open": round(opened, 2),
        "manifest_bytes": (store.path / "manifest.json").stat().st_size,
        "memory_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB, 2),
    }  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--problems", type=int, default=100_000)
    parser.add_argument("--shard", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=20.0, help="that a worker takes for a shard")
    parser.add_argument("--deaths", type=float, default=0.01, help="of workers, for each shard")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    results = []
    for workers in asked.workers:
        with tempfile.TemporaryDirectory() as folder:
            results.append(simulated(asked, workers, Path(folder)))
        print(json.dumps(results[-1]), flush=True)
    if asked.out:
        write(asked.out, torch.device("cpu"), results)


if __name__ == "__main__":
    main()
