"""The answers of one model, shard by shard; and those to prompts without filler once more, for the noise floor.

Knows what answers are asked for and which engine writes them. What a shard gives is in answer_shard.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Unpack

from fillerscope.answers.grading.grade import Grader
from fillerscope.answers.local.engine import LocalGenerator
from fillerscope.answers.request import Generator, Reply, Request
from fillerscope.errors import GenerationError
from fillerscope.files import Json
from fillerscope.measure.answer_shard import Ask, answer_shard, asks_of
from fillerscope.measure.prepare import Shard, ShardPrompts
from fillerscope.models.loading import LoadedModel, choose_device, choose_dtype
from fillerscope.models.resolve import ModelFolder
from fillerscope.progress import Progress
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import ModelFacts
from fillerscope.study.generation import GenerationSpec, NoiseSpec
from fillerscope.study.study import ModelSpec, Study, digest_of

FURTHER = 4  # times what first tokens may differ: two answers, and more tokens before them
Missing = list[tuple[Shard, str]]


class Work(Protocol):
    """A model at work on a study."""

    study: Study
    spec: ModelSpec
    folder: ModelFolder
    store: RunStore
    progress: Progress

    @property
    def loaded(self) -> LoadedModel: ...
    @property
    def prompts(self) -> ShardPrompts: ...
    def loaded_in(self, dtype: str) -> LoadedModel: ...
    def facts(self) -> ModelFacts: ...
    def note(self, **facts: Unpack[ModelFacts]) -> None: ...
    def ticker(self, text: str, missing: Missing, total: int, each: int) -> Callable[[float], None]: ...


@dataclass
class Answering:
    """`answer` writes the answers of a model, `answer_again` those of its noise floor."""

    work: Work

    @property
    def spec(self) -> GenerationSpec:
        assert self.work.study.generation is not None
        return self.work.study.generation

    @property
    def noise(self) -> NoiseSpec:
        assert self.spec.noise is not None
        return self.spec.noise

    def answer(self, missing: Missing, total: int) -> None:
        if not missing:
            return
        work = self.work
        generator = self._generator(missing[0][0])
        each = len(work.study.conditions) * self._draws()
        tick = work.ticker(f"answering with {work.folder.label}", missing, total, each)
        with Grader() as grader:
            for shard, name in missing:
                table, greedy = answer_shard(work.study, work.prompts.of(shard), generator, grader, tick)
                self._recheck(greedy)
                work.store.put_table(name, table)

    def answer_again(self, missing: Missing, total: int) -> None:
        """The baseline alone, computed otherwise: with other neighbours, in another dtype, or by asking again."""
        if not missing:
            return
        work = self.work
        make = self._other_generator(missing[0][0])
        tick = work.ticker(f"answering again with {work.folder.label}", missing, total, self._draws())
        with Grader() as grader:
            for shard, name in missing:
                table, _ = answer_shard(work.study, work.prompts.of(shard), make(shard), grader, tick, again=True)
                work.store.put_table(name, table)

    def _draws(self) -> int:
        return sum(self.spec.drawn(temperature) for temperature in self.spec.temperature)

    def _generator(self, first: Shard) -> Generator:
        """The engine whose first tokens are those of plain forward passes, found once a run."""
        if self.work.spec.endpoint is not None:
            return self._server()
        self._refuse_same_dtype()
        name = self._engine(first)
        return self._local(name, self.work.loaded)

    def _server(self) -> Generator:
        from fillerscope.answers.endpoint.generator import EndpointGenerator

        assert self.work.spec.endpoint is not None
        return EndpointGenerator(self.work.spec.endpoint, self.work.spec.name, self.work.prompts.maker.tokenizer)

    def _local(
        self, name: str, loaded: LoadedModel, rows: int | None = None, order: int | None = None
    ) -> LocalGenerator:
        from fillerscope.answers.local.answer_check import ENGINES

        return ENGINES[name](loaded, rows or self.spec.rows, self.spec.exact, order)

    def _engine(self, first: Shard) -> str:
        """Its name."""
        known = self.work.facts().get("answercheck")
        if known is None:
            known = self._check(self._requests(first))
            if known["engine"] != "rows":
                self.work.progress.say(f"{self.work.folder.label}: answers are written one at a time, which is slower")
            self.work.note(answercheck=known)
        self._refuse_no_neighbours(str(known["engine"]))
        return str(known["engine"])

    def _check(self, requests: list[Request]) -> Json:
        from fillerscope.answers.local.answer_check import answercheck, exactcheck

        check = answercheck(self.work.loaded, requests, self.spec.rows, self.spec.exact)
        if self.spec.exact and check.engine == "rows":
            exactcheck(self._local(check.engine, self.work.loaded), requests)
        return check.record()

    def _requests(self, shard: Shard) -> list[Request]:
        asks = asks_of(self.work.study, self.work.prompts.of(shard))
        return [ask.request for ask in asks if ask.request is not None]

    def _other_generator(self, first: Shard) -> Callable[[Shard], Generator]:
        """What writes the answers of a shard the second time."""
        if self.work.spec.endpoint is not None:
            server = self._server()
            return lambda _: server
        self._refuse_same_dtype()
        name = self._engine(first)
        if self.noise.dtype is not None:
            other = self._local(name, self.work.loaded_in(self.noise.dtype))
            return lambda _: other
        seed = int(digest_of([self.work.study.seed, "answered again"])[:15], 16)
        return lambda shard: self._local(name, self.work.loaded, self._other_rows(name, shard), seed)

    def _other_rows(self, name: str, shard: Shard) -> int:
        """Half as many as were computed together the first time; with `exact` that number is fixed."""
        usual = self._local(name, self.work.loaded).rows
        if self.spec.exact:
            return usual
        together = sum(request.change is None for request in self._requests(shard)) // self._draws()
        return max(1, min(usual, together) // 2) if min(usual, together) > 1 else 2

    def _refuse_same_dtype(self) -> None:
        noise, own = self.spec.noise, choose_dtype(self.work.spec.dtype, choose_device(self.work.study.device))
        if noise is not None and noise.dtype == own:
            raise GenerationError(
                f"{self.work.folder.label} answers in {own} already: as a noise floor, name another dtype in "
                "generation.noise, or set it to `on`"
            )

    def _refuse_no_neighbours(self, engine: str) -> None:
        noise = self.spec.noise
        if engine == "alone" and noise is not None and noise.dtype is None and not self.spec.exact:
            raise GenerationError(
                f"{self.work.folder.label} writes answers one at a time, so neighbours cannot change them: as a noise "
                "floor, name another dtype, such as generation.noise: {dtype: float32}, or leave noise out"
            )

    def _recheck(self, greedy: list[tuple[Ask, Reply]]) -> None:
        """Once a model: some of the first shard's greedy answers, evenly spread over it, written alone."""
        work = self.work
        wanted = min(self.spec.recheck, len(greedy))
        if not wanted or work.spec.endpoint is not None or "recheck" in work.facts():
            return
        from fillerscope.answers.local.answer_check import tolerance_of
        from fillerscope.answers.local.recheck import recheck

        work.progress.stage(f"writing {wanted} answers of {work.folder.label} again, one at a time", 0, None)
        chosen = [greedy[i * len(greedy) // wanted] for i in range(wanted)]
        requests = [ask.request for ask, _ in chosen if ask.request is not None]
        rows = self.spec.rows if self.spec.exact else 1  # so many rows are computed, one of them filled
        alone = self._local(work.facts()["answercheck"]["engine"], work.loaded, rows)
        allowed = FURTHER * tolerance_of(work.loaded.model)
        found = recheck(alone, requests, [reply for _, reply in chosen], self.spec.decoding(0.0), allowed)
        if self.spec.exact and found["same"] < found["checked"]:
            raise GenerationError(
                f"generation.exact was not kept: {found['checked'] - found['same']} of {found['checked']} answers are "
                "others when written alone; set generation.rows to 1, or leave exact out, and please report this"
            )
        work.note(recheck=found)
