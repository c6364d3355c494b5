"""A short calibration: a model is loaded and checked as in a run, and some passes, decode steps and answers are timed.

Everything is done by the code of a run, on prompts of the study, in a run folder that is thrown away.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import psutil
import torch

from fillerscope.answers.grading.grade import Finish, Grade
from fillerscope.answers.grading.pool import GraderPool
from fillerscope.answers.local.engine import LocalGenerator
from fillerscope.answers.request import Request
from fillerscope.capture.attention import capturing
from fillerscope.capture.memory import pass_tokens
from fillerscope.capture.passes import Layout
from fillerscope.capture.self_check import check_capture
from fillerscope.measure.answer_groups import shards_together
from fillerscope.measure.answer_shard import Answered, answer_table, answer_tasks, write_answers
from fillerscope.measure.engines.answers import AnswerStage
from fillerscope.measure.engines.local import probing_of, study_runner
from fillerscope.measure.engines.model_work import ModelWork
from fillerscope.measure.planning.counting import CountingRunner, count_shard
from fillerscope.measure.planning.decoding import Generation, Lengths
from fillerscope.measure.planning.model_size import ModelSize
from fillerscope.measure.planning.rates import AnswerBytes, Rates
from fillerscope.measure.planning.step_timer import StepTimer, quiet, timed
from fillerscope.measure.prepare import Prepared, StudyShards
from fillerscope.measure.shard import start_shard
from fillerscope.models.structure import context_length, device_of
from fillerscope.store.schema import Columns, answers_name, shard_name
from fillerscope.study.study import Study

PROBLEMS = 8  # of the sample that is measured, at least; on a GPU those that fill a pass
ANSWERS = {"cpu": 16, "mps": 16, "cuda": 128}  # that are sampled, about
SECONDS = 10.0  # for the passes of the sample
ANSWER_SECONDS = 30.0  # for its answers
LOOKED_AT = 4  # shards among whose problems the sample is chosen


@dataclass(frozen=True)
class Peak:
    """Memory at its peak, in bytes: of the process, and on a GPU."""

    process: int
    device: int

    @classmethod
    def now(cls) -> Peak:
        device = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
        return cls(_peak_resident(), device)


@dataclass(frozen=True)
class Calibrated:
    """What was measured: rates, and memory with what was in it."""

    rates: Rates
    size: ModelSize
    layout: Layout
    rows: int  # answers at once
    pass_tokens: int
    base: int  # bytes of the process before the model was loaded
    peak: Peak
    positions: int = 0  # of the shard that was measured
    bytes: int = 0  # of its file
    prefill: int = 0  # tokens of the largest prefill pass
    cells: int = 0  # of the slots
    most_cells: int | None = None  # that memory holds; None: as many as are asked for


class Calibration:
    """Times a model on a study. `work` has a store that is thrown away."""

    def __init__(self, work: ModelWork, shards: StudyShards) -> None:
        self.work, self.shards, self.study = work, shards, work.study

    def run(self) -> Calibrated:
        base = psutil.Process().memory_info().rss
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        began = time.monotonic()
        model = self.work.loaded.model
        load = time.monotonic() - began
        size = ModelSize.of(model)
        items = self._sample()
        nothing = Rates(0.0, 0.0, lambda *_: 0.0, 0.0, 0.0, load)
        done = Calibrated(nothing, size, "shared", 1, 256, base, Peak.now())
        if self.study.probes.attention is not None:
            done = self._measured(done, items)
        if self.study.generation is not None and not self.study.is_served(self.work.spec):
            done = self._answered(done, items)
        return replace(done, peak=Peak.now())

    def _sample(self) -> list[Prepared]:
        """Problems of which some are short and some are long. On a GPU as many as fill a pass: of a smaller one most of
        the time is that of launching it."""
        prompts, model = self.work.prompts, self.work.loaded.model
        items = [item for shard in self.shards.all[:LOOKED_AT] for item in prompts.of(shard) if not item.error]
        items.sort(key=_tokens)
        filling = 0
        if items and device_of(model).type == "cuda":
            filling = int(pass_tokens(model) // np.mean([_tokens(item) for item in items]))
        return _spread(items, max(PROBLEMS, filling))

    def _measured(self, done: Calibrated, items: list[Prepared]) -> Calibrated:
        work, study, model = self.work, self.study, self.work.loaded.model
        if device_of(model).type == "cuda":
            check_capture(work.loaded)  # compiles kernels, which the run will find compiled
        began = time.monotonic()
        check_capture(work.loaded)
        layout = work.layout(self.shards.all)
        tokens = work.pass_tokens()
        runner = study_runner(work, layout, probing_of(work, self.shards.all, layout))
        checks = time.monotonic() - began
        work.progress.stage(f"timing passes of {work.folder.label}", 0, None)
        if not items:
            return replace(done, layout=layout, pass_tokens=tokens)
        with capturing(model):
            middle = items[len(items) // 2]
            start_shard(study, [middle], runner, quiet).reduced(study).part()  # warms up
            once = timed(lambda: start_shard(study, [middle], runner, quiet).finite())
            items = _spread(items, max(2, int(SECONDS / max(once, 1e-3))))
            runner._prefixes.clear()
            began = time.monotonic()
            pending = start_shard(study, items, runner, quiet)
            pending.finite()
            passed = time.monotonic()
            part = pending.reduced(study).part()
            reduced = time.monotonic()
        work.store.put(shard_name(work.spec.name, 0), part)
        written = time.monotonic()
        counter = CountingRunner(model, tokens, study.probes, done.size, layout)
        counted, _ = count_shard(study, items, counter)
        rates = replace(
            done.rates,
            operation=(passed - began) / done.size.operations(counted.work),
            reduce=(reduced - passed) / (counted.positions * done.size.layers * done.size.heads),
            write=(written - reduced) / counted.bytes,
            measure_checks=checks,
        )
        return replace(
            done, rates=rates, layout=layout, pass_tokens=tokens, positions=counted.positions, bytes=counted.bytes
        )

    def _answered(self, done: Calibrated, items: list[Prepared]) -> Calibrated:
        work = self.work
        assert self.study.generation is not None
        began = time.monotonic()
        generator = AnswerStage(work, self.shards.all).generator
        checks = time.monotonic() - began
        rows = generator.rows if isinstance(generator, LocalGenerator) else 1
        done = replace(done, rows=rows, rates=replace(done.rates, answer_checks=checks))
        if not items or not isinstance(generator, LocalGenerator):
            return done
        done = replace(done, most_cells=generator.most_cells())
        work.progress.stage(f"timing answers of {work.folder.label}", 0, None)
        spec = self.study.generation
        each = len(self.study.conditions) * sum(spec.drawn(one) for one in spec.temperature)
        items = _spread(items, max(1, ANSWERS[device_of(generator.model).type] // each))
        requests = _requests(self.study, items)
        middle = sorted(requests, key=lambda request: len(request.ids))[len(requests) // 2]
        timer = StepTimer(generator, middle, spec, min(rows, self._most_at_once()))
        step = timer.step
        affordable = int(ANSWER_SECONDS / max(step(min(rows, len(requests)), len(middle.ids)), 1e-6))
        limit = max(1, min(spec.max_tokens, affordable))
        rates = replace(done.rates, step=step, prefill=timer.prefill(requests, done.size))
        return self._sampled(replace(done, rates=rates), items, requests, generator, limit)

    def _sampled(
        self, done: Calibrated, items: list[Prepared], requests: list[Request], generator: LocalGenerator, limit: int
    ) -> Calibrated:
        """Answer a sample, of at most `limit` tokens each: how long answers are, and what they take besides steps."""
        assert self.study.generation is not None
        most = self.study.generation.max_tokens
        brief = self.study.generation.model_copy(update={"max_tokens": limit})
        study = self.study.model_copy(update={"generation": brief})
        answered = write_answers(study, items, generator, quiet)
        table, grade, grader = _graded(study, answered)
        form = Generation(done.rows, generator.prefill, generator.whole, limit, context_length(generator.model))
        work = form.work(requests, [limit] * len(requests))
        rates = replace(
            done.rates,
            grade=grade,
            grader=grader,
            lengths=_lengths(table, limit, most),
            answer_bytes=self._bytes(table),
        )
        return replace(done, rates=rates, prefill=work.largest, cells=work.cells)

    def _bytes(self, table: Columns) -> AnswerBytes:
        """Bytes of answers, from the sample and from half of it."""
        sizes = []
        half = {name: column[::2] for name, column in table.items()}
        for number, columns in enumerate((table, half)):
            name = answers_name(self.work.spec.name, number)
            self.work.store.put_table(name, columns)
            sizes.append(self.work.store.manifest["files"][name]["bytes"])
        rows, tokens = len(table["text"]) - len(half["text"]), sum(table["tokens"]) - sum(half["tokens"])
        row, token = AnswerBytes().row, (sizes[0] - sizes[1] - AnswerBytes().row * rows) / max(1, tokens)
        fixed = sizes[0] - row * len(table["text"]) - token * sum(table["tokens"])
        return AnswerBytes(max(0.0, fixed), row, max(0.1, token))

    def _most_at_once(self) -> int:
        """The most requests that are answered together."""
        device = device_of(self.work.loaded.model).type
        group = self.shards.all[: shards_together(self.study, device)]
        first = _requests(self.study, [item for shard in group for item in self.work.prompts.of(shard)])
        by_kind: dict[object, int] = {}
        for request in first:
            by_kind[request.change] = by_kind.get(request.change, 0) + 1
        return max(by_kind.values(), default=1)


class _TimedPool(GraderPool):
    """Notes the seconds of each answer. One may take as long as a hundred others: it occupies one grader alone."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def _grade(self, answer: tuple[str, str, Finish]) -> Grade:
        began = time.monotonic()
        grade = super()._grade(answer)
        self.seconds.append(time.monotonic() - began)
        return grade


def _graded(study: Study, answered: Sequence[Answered]) -> tuple[Columns, float, float]:
    """The table of answers, the seconds to grade one of very many, and those to start the graders."""
    with _TimedPool() as graders:
        started = timed(lambda: [one.result() for one in graders.start()])
        table = answer_table(study, answered, graders)
        return table, sum(graders.seconds) / len(graders.graders) / max(1, len(answered)), started


def _lengths(table: Columns, limit: int, most: int) -> Lengths:
    """Lengths of sampled answers, the stop token included: it takes a step."""
    rows = [row for row in zip(table["tokens"], table["finish"], strict=True) if row[1] != "failed"]
    ended = tuple(tokens + 1 for tokens, finish in rows if finish == "stop")
    return Lengths(ended, tuple(tokens for tokens, finish in rows if finish != "stop" and tokens <= limit), most)


def _requests(study: Study, items: Sequence[Prepared]) -> list[Request]:
    return [task.request for task in answer_tasks(study, items) if task.request is not None]


def _tokens(item: Prepared) -> int:
    return sum(map(len, item.prompts.values()))


def _spread(items: Sequence[Prepared], count: int) -> list[Prepared]:
    """So many of the items, from the first to the last."""
    if count == 1:
        return [items[len(items) // 2]]
    places = np.linspace(0, len(items) - 1, min(count, len(items))).round().astype(int)
    return [items[place] for place in dict.fromkeys(places.tolist())]


def _peak_resident() -> int:
    """The most memory that this process has had; what it has now where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return int(psutil.Process().memory_info().rss)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
