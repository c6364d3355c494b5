"""The workers of a run on Ray: started, asked, and replaced where one dies. Knows neither shards nor files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from fillerscope.display import first_line
from fillerscope.errors import ModelError
from fillerscope.measure.engines.ray.cluster import WorkerNeeds
from fillerscope.measure.engines.ray.worker import Call, Job, Outcome, Worker

if TYPE_CHECKING:
    from ray import ObjectRef
    from ray.actor import ActorHandle

MOST_STARTS = 3  # of a worker that dies before it has done anything
PATIENCE = 90.0  # seconds, after which no worker seems to find room
PAUSE = 1.0  # seconds between two looks at workers

Doing = TypeVar("Doing")


@dataclass
class Slot(Generic[Doing]):
    """A place for a worker, and what the one in it is at."""

    actor: ActorHandle
    answer: ObjectRef
    starts: int  # of workers here that have done nothing yet
    doing: Doing | None = None
    is_idle: bool = False  # False with nothing to do: it is starting
    loaded: int | None = None  # the model that it holds

    def ask(self, call: Call, doing: Doing) -> None:
        self.doing, self.is_idle, self.loaded = doing, False, call.model
        self.answer = self.actor.call.remote(call)


class Pool(Generic[Doing]):
    """Workers that are told the same job. Use it as a context manager: they end with the block.

    All of them have as many threads as the driver, so that sums are rounded alike: Ray would give each as many as it
    has CPUs."""

    def __init__(self, needs: WorkerNeeds, job: Job, worker: type[Worker] = Worker) -> None:
        import ray

        self.needs = needs
        self._job = ray.put(job)
        self._actor = ray.remote(worker).options(
            num_cpus=needs.cpus, num_gpus=needs.gpus, max_restarts=0,
            runtime_env={"env_vars": {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(job.threads))}},
        )  # fmt: skip
        self._began = time.monotonic()
        self.slots = [self._start(1) for _ in range(needs.count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        import ray

        for slot in self.slots:
            ray.kill(slot.actor)

    def _start(self, starts: int) -> Slot[Doing]:
        actor = self._actor.remote(self._job)
        return Slot(actor, actor.start.remote(), starts)

    @property
    def idle(self) -> list[Slot[Doing]]:
        return [slot for slot in self.slots if slot.is_idle]

    @property
    def finds_no_room(self) -> bool:
        """Whether no worker has started for a long time."""
        is_starting = all(not slot.is_idle and slot.doing is None for slot in self.slots)
        return is_starting and time.monotonic() - self._began > PATIENCE

    def answers(self) -> Iterator[tuple[Doing, Outcome]]:
        """What workers have done since they were last asked; waits a moment for it. One that fails is replaced."""
        import ray

        busy = {slot.answer: slot for slot in self.slots if not slot.is_idle}
        for answer in ray.wait(list(busy), num_returns=1, timeout=PAUSE)[0] if busy else []:
            slot, outcome = busy[answer], _outcome(answer)
            doing, slot.doing, slot.is_idle = slot.doing, None, True
            if outcome.error is not None:
                raise outcome.error
            if outcome.failure:
                self._replace(slot, 1 if doing is not None else slot.starts + 1, outcome.failure)
            if doing is not None:
                yield doing, outcome

    def _replace(self, slot: Slot[Doing], starts: int, failure: str) -> None:
        """Put another worker in the place of one. A place whose workers die as they start is given up."""
        import ray

        ray.kill(slot.actor)
        self.slots.remove(slot)
        if starts <= MOST_STARTS:
            self.slots.append(self._start(starts))
        elif not self.slots:
            raise ModelError(f"no worker could be started on the Ray cluster; the last time because {failure}")


def _outcome(answer: ObjectRef) -> Outcome:
    """What a worker has sent; a failure where it died."""
    import ray
    from ray.exceptions import RayError

    try:
        outcome: Outcome = ray.get(answer)
    except RayError as error:
        return Outcome(failure=f"a worker died ({type(error).__name__}): {first_line(error)}")
    return outcome
