"""One process, one model at a time: shards in order, each kept as soon as it is measured or answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fillerscope.answering import Ask, answer_shard
from fillerscope.capture.attention import capturing
from fillerscope.capture.selfcheck import selfcheck
from fillerscope.errors import ProblemError
from fillerscope.generation.reply import Generator, Reply
from fillerscope.grading.grader import Grader
from fillerscope.models.loading import LoadedModel, load_folder, load_tokenizer, stated_context
from fillerscope.models.resolve import ModelFolder
from fillerscope.prompts import PromptMaker
from fillerscope.reducers import Moments
from fillerscope.runner import Shard, run_shard
from fillerscope.store import Part, RunStore, answers_name, merged_name, shard_name
from fillerscope.study import ModelSpec, Study


def measure_model(
    study: Study,
    spec: ModelSpec,
    folder: ModelFolder,
    shards: Sequence[Shard],
    store: RunStore,
    progress: Any,
) -> None:
    """All shards of one model that are not there yet, then their merger."""
    work = _Work(study, spec, folder, store, progress)
    if study.probes.attention is not None:
        names = [shard_name(spec.name, shard.index) for shard in shards]
        work.measure(_missing(store, shards, names), len(shards))
        store.put(merged_name(spec.name), merge(store.get(name) for name in names))
    if study.generation is not None:
        names = [answers_name(spec.name, shard.index) for shard in shards]
        work.answer(_missing(store, shards, names), len(shards))


def _missing(store: RunStore, shards: Sequence[Shard], names: list[str]) -> list[tuple[Shard, str]]:
    return [(shard, name) for shard, name in zip(shards, names, strict=True) if not store.is_sound(name)]


@dataclass
class _Work:
    """One model at work on a study. It is loaded when something first needs it."""

    study: Study
    spec: ModelSpec
    folder: ModelFolder
    store: RunStore
    progress: Any

    @cached_property
    def loaded(self) -> LoadedModel:
        self.progress.stage(f"loading {self.folder.label}", 0, None)
        return load_folder(self.folder, self.spec.dtype, self.study.device)

    @cached_property
    def maker(self) -> PromptMaker:
        """An endpoint's answers need the tokenizer, not the weights."""
        tokenizer = load_tokenizer(self.folder) if self.spec.endpoint else self.loaded.tokenizer
        maker = PromptMaker.of(tokenizer, self.study.prompt, self.study.template_of(self.spec), self.study.seed)
        self._note(label=self.folder.label, template=maker.template)
        return maker

    def measure(self, missing: list[tuple[Shard, str]], total: int) -> None:
        if not missing:
            return
        check = selfcheck(self.loaded)
        maker = self.maker
        self._note(selfcheck=check.record())
        tick = self._ticker(f"measuring {self.folder.label}", missing, total, len(self.study.conditions))
        with capturing(self.loaded.model):
            for shard, name in missing:
                self.store.put(name, run_shard(self.study, shard, self.loaded, maker, tick))

    def answer(self, missing: list[tuple[Shard, str]], total: int) -> None:
        if not missing:
            return
        assert self.study.generation is not None
        draws = sum(self.study.generation.drawn(temperature) for temperature in self.study.generation.temperature)
        maker, generator = self.maker, self._generator()
        tick = self._ticker(f"answering with {self.folder.label}", missing, total, len(self.study.conditions) * draws)
        context = stated_context(self.folder)
        with Grader() as grader:
            for shard, name in missing:
                table, greedy = answer_shard(self.study, shard, maker, context, generator, grader, tick)
                self._recheck(greedy)
                self.store.put_table(name, table)

    def _generator(self) -> Generator:
        if self.spec.endpoint is not None:
            from fillerscope.generation.endpoint import EndpointGenerator

            return EndpointGenerator(self.spec.endpoint, self.spec.name, self.maker.tokenizer)
        from fillerscope.generation.local import LocalGenerator

        assert self.study.generation is not None
        return LocalGenerator(self.loaded, self.study.generation.rows)

    def _recheck(self, greedy: list[tuple[Ask, Reply]]) -> None:
        """Once a model: some of the first shard's greedy answers, evenly spread over it, written alone."""
        assert self.study.generation is not None
        wanted = min(self.study.generation.recheck, len(greedy))
        if not wanted or self.spec.endpoint is not None or "recheck" in self._facts():
            return
        from fillerscope.generation.local import LocalGenerator
        from fillerscope.generation.recheck import recheck

        self.progress.stage(f"writing {wanted} answers of {self.folder.label} again, one at a time", 0, None)
        chosen = [greedy[i * len(greedy) // wanted] for i in range(wanted)]
        requests = [ask.request for ask, _ in chosen if ask.request is not None]
        alone, decoding = LocalGenerator(self.loaded, rows=1), self.study.generation.decoding(0.0)
        self._note(recheck=recheck(alone, requests, [reply for _, reply in chosen], decoding))

    def _ticker(self, text: str, missing: list[tuple[Shard, str]], total: int, each: int) -> Callable[[float], None]:
        if len(missing) < total:
            there = f"{total - len(missing)} of {total} shards"
            self.progress.say(f"{text}: {there} are there, going on from them")
        whole, done = sum(len(shard.problems) for shard, _ in missing) * each, 0.0

        def tick(count: float) -> None:
            nonlocal done
            done += count
            self.progress.stage(text, round(done, 3), whole)  # parts of answers are counted as well

        tick(0)
        return tick

    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = self.store.manifest.get("models", {}).get(self.spec.name, {})
        return facts

    def _note(self, **facts: Any) -> None:
        models = self.store.manifest.get("models", {})
        self.store.note("models", models | {self.spec.name: self._facts() | facts})


def merge(parts: Iterable[Part]) -> Part:
    """Shards put together in order: moments merged, problems one after the other. One is held at a time."""
    records: list[dict[str, Any]] = []
    moments: dict[str, Moments] = {}
    rows: dict[str, list[NDArray[Any]]] = {}
    for part in parts:
        records += part.records
        views = {key.removesuffix("/m2") for key in part.arrays if key.endswith("/m2")}
        for view in sorted(views):
            piece = Moments(*(part.arrays[f"{view}/{key}"] for key in ("count", "mean", "m2")))
            moments[view] = moments[view].merge(piece) if view in moments else piece
        for key in sorted(part.arrays):
            if key.rpartition("/")[0] not in views:
                rows.setdefault(key, []).append(part.arrays[key])
        del part  # before the next one is read
    if not moments:
        first = next(record["error"] for record in records if record["status"] == "failed")
        raise ProblemError(f"none of the {len(records)} problems could be measured; the first says: {first}")
    arrays = {f"{view}/{key}": array for view, one in moments.items() for key, array in one.state().items()}
    return Part(arrays | {key: np.concatenate(pieces) for key, pieces in rows.items()}, records)
