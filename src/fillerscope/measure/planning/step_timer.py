"""Times decode steps and prefill passes of a generator, for the plan of its answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fillerscope.answers.local.engine import LocalGenerator
from fillerscope.answers.request import Request
from fillerscope.measure.planning.decoding import Generation
from fillerscope.measure.planning.model_size import ModelSize
from fillerscope.models.structure import context_length
from fillerscope.study.generation import GenerationSpec

STEPS, FEW, MANY = 4, 2, 32  # that are timed at a number of rows; where one takes longer than SLOW; and on a GPU
SLOW = 0.25  # seconds


class StepTimer:
    """Times decode steps of one prompt in several rows, whose prefill is computed once."""

    def __init__(self, generator: LocalGenerator, request: Request, spec: GenerationSpec, most: int) -> None:
        """Up to `most` rows are timed."""
        self.generator, self.request, self.spec = generator, request, spec
        self.steps = FEW
        slow = self._seconds(1, len(request.ids)) > SLOW  # warms up as well
        self.steps = MANY if generator.device.type == "cuda" else FEW if slow else STEPS
        self.step = self._step_times(most)

    def _step_times(self, most: int) -> Callable[[int, float], float]:
        """Seconds of a step as a function of its rows and keys: interpolated between numbers of rows at the keys of the
        prompt, and growing with the keys as it does in all rows at once."""
        rows = sorted({1, max(1, most // 4), most})
        context = context_length(self.generator.model) or 1 << 20
        short = len(self.request.ids)
        long = max(short, min(short + self.spec.max_tokens, context - self.steps - 2))
        seconds = [self._seconds(count, short) for count in rows]
        longer = self._seconds(most, long) - seconds[-1] if long > short else 0.0
        key = max(0.0, longer) / (most * max(1, long - short))  # of one row

        def step(count: int, width: float) -> float:
            return float(np.interp(count, rows, seconds)) + count * key * max(0.0, width - short)

        return step

    def prefill(self, requests: Sequence[Request], size: ModelSize) -> float:
        """Seconds of an operation of prefill passes, from requests without interventions."""
        plain = [replace(request, change=None) for request in requests]
        model = self.generator.model
        form = Generation(self.generator.rows, self.generator.prefill, self.generator.whole, 1, context_length(model))
        work = form.work(plain, [1] * len(plain))
        decoding = self.spec.decoding(self.spec.temperature[0]).model_copy(update={"max_tokens": 1})
        seconds = timed(lambda: self.generator.answer(plain, decoding, quiet))
        stepping = sum(self.step(one.rows, one.width) for one in work.steps)
        return max(seconds - stepping, 0.1 * seconds) / size.operations(work.prefill)

    def _seconds(self, rows: int, width: int) -> float:
        ids = np.resize(np.array(self.request.ids), width).tolist()
        request = replace(self.request, ids=tuple(ids), shared=width, change=None, filler=(0, 0), gap=(0, 0))
        stops, ticks = self.generator.stops, [time.monotonic()]
        decoding = self.spec.decoding(self.spec.temperature[0]).model_copy(update={"max_tokens": self.steps + 2})
        self.generator.stops = frozenset()
        try:
            before, self.generator.rows = self.generator.rows, max(rows, self.generator.rows)
            self.generator.answer([request] * rows, decoding, lambda _: ticks.append(time.monotonic()))
        finally:
            self.generator.stops, self.generator.rows = stops, before
        gaps = np.diff(ticks[: self.steps + 3])[1:]  # without the prefill
        return float(np.median(gaps[gaps > 1e-6])) if (gaps > 1e-6).any() else 1e-6


def timed(do: Callable[[], object]) -> float:
    """The seconds that it takes."""
    began = time.monotonic()
    do()
    return time.monotonic() - began


def quiet(_: float) -> None:
    """Takes progress and tells nobody."""
