"""What a model of a study takes: its stages, and what of it is in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn

from fillerscope.capture.passes import Layout
from fillerscope.files import Json
from fillerscope.measure.planning.model_size import ModelSize
from fillerscope.measure.planning.rates import Rates

WAITING = 3  # shards that are being written, at most
HELD = 3  # shards whose sums are in memory: the one before, and the passes and the whole of the current one


@dataclass(frozen=True)
class Setup:
    """What work is done with: a model, which may be on no device, and how it is run."""

    model: nn.Module
    size: ModelSize
    rates: Rates
    pass_tokens: int
    rows: int  # answers at once
    device: str  # kind of device
    layout: Layout = "shared"
    cells: int | None = None  # tokens of answers that memory holds; None: as many as are asked for


@dataclass
class StagePlan:
    """One stage of a model."""

    seconds: list[float]  # of each shard
    bytes: int = 0
    passes: int = 0
    computed: int = 0  # tokens that the model computes
    merged: int = 0  # bytes of the merged file


@dataclass
class ModelPlan:
    """What a model takes, or an untrained twin of one."""

    name: str
    label: str
    size: ModelSize
    pass_tokens: int
    problems: int = 0
    failed: int = 0
    prompts: int = 0
    prompt_tokens: int = 0
    answers: int = 0
    answer_tokens: int = 0
    served: int = 0  # answers that a server writes
    stages: dict[str, StagePlan] = field(default_factory=dict)
    fixed: dict[str, float] = field(default_factory=dict)  # seconds that every job takes, by what for
    # The largest of what is in memory
    largest: int = 0  # tokens of a pass that measures
    positions: int = 0  # of a shard
    file: int = 0
    prefill: int = 0
    cells: int = 0
    shards: int = 0

    def stage(self, name: str) -> StagePlan:
        return self.stages.setdefault(name, StagePlan([0.0] * self.shards))

    @property
    def seconds(self) -> float:
        return sum(self.fixed.values()) + sum(sum(stage.seconds) for stage in self.stages.values())

    def longest(self, jobs: int) -> float:
        """Seconds of the longest of so many jobs, to which shards are dealt in turn."""
        parts = [sum(sum(stage.seconds[n::jobs]) for stage in self.stages.values()) for n in range(jobs)]
        return sum(self.fixed.values()) + max(parts, default=0.0)

    @property
    def bytes(self) -> int:
        return sum(stage.bytes + stage.merged for stage in self.stages.values())

    @property
    def memory(self) -> dict[str, int]:
        """Bytes by what they are for."""
        size = self.size
        return {
            "weights": size.weights,
            "passes": size.pass_token * self.largest,
            "sums": min(HELD, self.shards + 1) * size.measured(self.positions),
            "files": self.file * (min(WAITING, self.shards) + 1),  # on the host: reduced, written and merged
            "prefill": size.pass_token * self.prefill,
            "slots": size.kv_token * self.cells,
        }

    def record(self) -> Json:
        """The same for programs."""
        return {
            "name": self.name, "label": self.label, "problems": self.problems, "failed": self.failed,
            "prompts": self.prompts, "prompt_tokens": self.prompt_tokens, "pass_tokens": self.pass_tokens,
            "answers": self.answers, "answer_tokens": self.answer_tokens, "answers_of_servers": self.served,
            "seconds": self.seconds, "fixed_seconds": self.fixed, "bytes": self.bytes,
            "stages": {
                name: {
                    "seconds": sum(one.seconds), "passes": one.passes, "computed_tokens": one.computed,
                    "bytes": one.bytes, "merged_bytes": one.merged,
                }
                for name, one in self.stages.items()
            },
        }  # fmt: skip
