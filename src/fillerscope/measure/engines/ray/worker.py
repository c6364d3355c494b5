"""What a Ray actor does: it holds one loaded model and computes shards with the stages of the local engine.

Writes nothing: the files that it makes go back to the driver as bytes. Knows no other worker.
"""

from __future__ import annotations

import gc
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fillerscope.display import first_line
from fillerscope.errors import FillerscopeError, ModelError
from fillerscope.measure.engines.local import Stage, stage_of
from fillerscope.measure.engines.model_work import ModelWork
from fillerscope.measure.identity import code_version, libraries
from fillerscope.measure.prepare import Shard
from fillerscope.models.resolve import ModelFolder, resolve
from fillerscope.store.memory_store import MemoryStore
from fillerscope.store.schema import ModelFacts
from fillerscope.study.study import ModelSpec, Study


@dataclass(frozen=True)
class ModelTask:
    """A model, or an untrained twin of one, and what of the study is asked of it."""

    study: Study
    spec: ModelSpec
    folder: ModelFolder
    found_as: str  # the name by which another machine finds the weights; a twin has those of its model


@dataclass(frozen=True)
class Job:
    """What all workers of a run are told once."""

    models: Sequence[ModelTask]
    shards: Sequence[Shard]  # all of the study
    versions: Mapping[str, str]  # of the code and the libraries that measure
    threads: int  # of torch: sums are rounded otherwise with another number
    accept_licence: bool


@dataclass(frozen=True)
class Call:
    """One piece of work: to prepare a stage of a model, or to compute one of its shards."""

    model: int
    stage: str
    facts: Mapping[str, ModelFacts]  # of all models, as noted so far
    shard: int | None = None
    file: str = ""  # the name of the shard's file
    needs: Mapping[str, bytes] = field(default_factory=dict)  # files that it reads


@dataclass(frozen=True)
class Outcome:
    """What came of a call: files and facts, or an error that ends the run, or a failure of this worker alone."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    facts: ModelFacts = field(default_factory=lambda: ModelFacts())
    said: Sequence[str] = ()
    error: FillerscopeError | None = None
    failure: str = ""


def versions(study: Study) -> dict[str, str]:
    """The code and the libraries that measure, which must be the same on every machine."""
    return {"fillerscope": code_version()} | libraries(study)


class Lines:
    """A progress that remembers what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def stage(self, text: str, done: float, total: int | None) -> None:
        """The driver reports how far the run is."""


class Worker:
    """An actor. A call of another model or stage drops what was prepared for the one before."""

    def __init__(self, job: Job) -> None:
        self.job, self.store, self.lines = job, MemoryStore(), Lines()
        self.at: tuple[int, str] | None = None
        self.work: ModelWork | None = None
        self.stage: Stage | None = None

    def start(self) -> Outcome:
        """Be there, with the driver's code and its number of threads."""
        import torch

        torch.set_num_threads(self.job.threads)
        here = versions(self.job.models[0].study)
        differing = [f"{name} {here[name]}, not {one}" for name, one in self.job.versions.items() if here[name] != one]
        if differing:
            told = f"{platform.node()} has {'; '.join(differing)}: install there what the driver has"
            return Outcome(error=ModelError(told))
        return Outcome()

    def call(self, call: Call) -> Outcome:
        self.lines.said = []
        try:
            self.store.begin(call.facts, call.needs)
            stage = self._stage_of(call)
            if call.shard is None:
                stage.prepare()
            else:
                shard = self.job.shards[call.shard]
                stage.run([(shard, call.file)], 1, lambda *_: None)
        except FillerscopeError as error:
            return Outcome(error=error, said=self.lines.said)
        except Exception as error:
            return Outcome(failure=f"{type(error).__name__}: {first_line(error)}")
        assert self.work is not None
        files = {name: data for name, data in self.store.contents.items() if name not in call.needs}
        return Outcome(files, self.work.facts(), self.lines.said)

    def _stage_of(self, call: Call) -> Stage:
        if self.at is None or self.at[0] != call.model:
            self._drop()
            task = self.job.models[call.model]
            folder = _found_here(task, self.job.accept_licence)
            self.work = ModelWork(task.study, task.spec, folder, self.store, self.lines)
        if self.at != (call.model, call.stage) or self.stage is None:
            assert self.work is not None
            self.stage = None  # what it holds goes before the next one takes its place
            self.stage = stage_of(call.stage, self.work, self.job.shards)
            self.at = (call.model, call.stage)
        return self.stage

    def _drop(self) -> None:
        """Free the memory of the model before another one is loaded."""
        import torch

        self.at = self.work = self.stage = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _found_here(task: ModelTask, accept_licence: bool) -> ModelFolder:
    """The folder of a model on this machine, which may have to fetch it; its digest is checked when it is loaded."""
    if task.folder.path.is_dir():
        return task.folder
    found = resolve(task.found_as, accept_licence=accept_licence)
    if found.digest != task.folder.digest.partition(" ")[0]:
        raise ModelError(f"{found.path} holds other weights than {task.folder.path} on the machine of the driver")
    return replace(task.folder, path=found.path)
