"""The passes of a study counted without running a model, and the bytes that its shards will have.

The code of a run prepares prompts, forms passes, reduces and merges; only the model is left out. Arrays stand for those
of two layers with two heads each, and are scaled to the model's own afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from fillerscope.capture.packing import GROUPS, Packing, Text
from fillerscope.capture.passes import Layout, Measured, PassRunner, Prefix
from fillerscope.measure.answer_attention import Answers, measure_answers
from fillerscope.measure.planning.model_size import ModelSize, Work
from fillerscope.measure.prepare import Prepared
from fillerscope.measure.shard import start_shard
from fillerscope.store.array_file import Part, bytes_beside
from fillerscope.store.schema import ACTIVATION_METRICS, AFFINE_METRICS, ArrayName
from fillerscope.study.study import Probes, Study

LAYERS = HEADS = 2  # of the arrays that stand for measured ones
BINS = 2 * 64 + 1  # of histograms, as many as most models have; known when thresholds have been calibrated


@dataclass(frozen=True)
class ShardWork:
    """What measuring a shard takes."""

    prompts: int
    tokens: int  # of the prompts
    failed: int  # problems without prompts
    passes: int
    work: Work
    positions: int  # that are measured
    bytes: int  # of the file


@dataclass
class CountingRunner(PassRunner):
    """Forms the passes of a run and counts them. What it measures is zeros of two layers and two heads."""

    model: nn.Module  # may be on no device
    tokens: int
    probes: Probes  # that look at these passes
    size: ModelSize
    layout: Layout = "shared"
    count: int = 0
    work: Work = field(default_factory=Work)
    largest: Work = field(default_factory=Work)  # the pass with the most tokens

    def __post_init__(self) -> None:
        PassRunner.__init__(self, self.model, self.tokens, layout=self.layout)

    def one_pass(self, texts: Sequence[Text]) -> Measured:
        packing = Packing.apart(texts) if self.layout == "apart" else Packing.of(texts)
        for text in texts:
            if text.shared and self.layout == "shared":
                self._prefix(text)
        pairs = (len(b.texts) * (b.width * b.shared + b.width * (b.width + 1) // 2) for b in packing.bands)
        self._add(Work(packing.tokens, sum(pairs)))
        return _stand_in(self.probes, texts, self.size.head_dim)

    def _run_prefix(self, text: Text) -> Prefix:
        self._add(Work(text.shared, text.shared * (text.shared + 1) // 2))
        nothing = torch.zeros(0)
        return Prefix({}, nothing, nothing, nothing, None)

    def _without_numbers(self, text: Text, reason: str) -> Measured:
        measured = _stand_in(self.probes, [text], self.size.head_dim)
        measured.received.fill_(torch.nan)
        return Measured(measured.received, measured.diagonal, measured.entropy, (text,), {0: reason})

    def _add(self, work: Work) -> None:
        self.count, self.work = self.count + 1, self.work + work
        self.largest = max(self.largest, work, key=lambda one: one.tokens)


def _stand_in(wanted: Probes, texts: Sequence[Text], head_dim: int) -> Measured:
    positions, groups = sum(map(len, texts)), len(GROUPS)
    probes: dict[str, Tensor] = {}
    if wanted.affine:
        probes["affine"] = torch.zeros(LAYERS, len(texts), len(AFFINE_METRICS), HEADS)
        probes["affine_more"] = torch.zeros(LAYERS, len(texts), HEADS, head_dim, dtype=torch.float64)
    if wanted.activations is not None:
        classes = len(wanted.activations.classes) + 1
        probes["activity"] = torch.zeros(LAYERS, len(texts), classes, len(ACTIVATION_METRICS))
        probes["activity_more"] = torch.zeros(LAYERS, len(texts), classes, BINS, dtype=torch.int64)
    return Measured(
        torch.zeros(LAYERS, HEADS, groups, positions), torch.zeros(LAYERS, HEADS, positions),
        torch.zeros(LAYERS, len(texts), HEADS, groups), tuple(texts), probes=probes,
    )  # fmt: skip


def count_shard(
    study: Study, items: list[Prepared], runner: CountingRunner, answers: Answers | None = None
) -> tuple[ShardWork, Part]:
    """The work of a shard, and the file that stands for its own. With `answers`, those of measuring them."""
    count, work, ticks = runner.count, runner.work, 0

    def tick(more: int) -> None:
        nonlocal ticks
        ticks += more

    if answers is None:
        part = start_shard(study, items, runner, tick).reduced(study).part()
    else:
        part = measure_answers(study, items, answers, runner, tick)
    done = Work(runner.work.tokens - work.tokens, runner.work.pairs - work.pairs)
    lengths = [
        len(prompt) + len((answers or {}).get((item.number, name), ()))
        for item in items
        for name, prompt in item.prompts.items()
    ]
    failed = sum(record["status"] == "failed" for record in part.records)
    return ShardWork(
        len(lengths), sum(lengths), failed, runner.count - count, done, sum(lengths), file_bytes(part, runner.size)
    ), part  # fmt: skip


def file_bytes(part: Part, size: ModelSize) -> int:
    """The bytes of the file that a counted one stands for."""
    arrays = (_array_bytes(key, array.shape, array.itemsize, size) for key, array in part.arrays.items())
    return bytes_beside(part) + sum(arrays)


def _array_bytes(key: str, shape: Sequence[int], item: int, size: ModelSize) -> int:
    """An axis of one stays: it is broadcast over layers or heads."""
    own = {"layer": size.layers, "head": size.heads}
    axes = ArrayName.parse(key).quantity.axes
    return item * math.prod(n if n == 1 else own.get(axis, n) for axis, n in zip(axes, shape, strict=True))
