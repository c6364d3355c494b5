"""Answers of one model, shard by shard, and repeated answers to prompts without filler, for the noise floor.

Chooses the generator that writes them. `answer_shard` computes the answers of one shard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from fillerscope.answers.endpoint.generator import EndpointGenerator
from fillerscope.answers.grading.grade import Grader
from fillerscope.answers.local.answer_check import ENGINES, answercheck, exactcheck, tolerance_of
from fillerscope.answers.local.engine import LocalGenerator
from fillerscope.answers.local.recheck import recheck
from fillerscope.answers.request import Generator, Reply, Request
from fillerscope.errors import GenerationError
from fillerscope.files import Json, digest_of
from fillerscope.measure.answer_shard import AnswerTask, answer_shard, answer_tasks
from fillerscope.measure.engines.model_work import MissingShards, ModelWork, OnWritten
from fillerscope.measure.plan import answering, answering_again, samples
from fillerscope.measure.prepare import Shard
from fillerscope.models.loading import LoadedModel, choose_device, choose_dtype
from fillerscope.study.generation import GenerationSpec, NoiseSpec

RECHECK_FACTOR = 4  # times the tolerance of first tokens: two answers are compared, and later tokens


@dataclass
class AnswerStage:
    """Writes the answers of a model.

    Checks look at the first shard of the study, so that every job comes to the same result; see `_recheck`."""

    work: ModelWork
    shards: Sequence[Shard]  # all of the study

    @property
    def spec(self) -> GenerationSpec:
        assert self.work.study.generation is not None
        return self.work.study.generation

    @property
    def noise(self) -> NoiseSpec:
        assert self.spec.noise is not None
        return self.spec.noise

    @cached_property
    def generator(self) -> Generator:
        """The server, or the local generator that passed the check of answers."""
        if self.work.spec.endpoint is not None:
            return self._server()
        self._refuse_same_dtype()
        return self._local(self._engine(), self.work.loaded)

    def prepare(self) -> None:
        _ = self.work.prompts  # notes label and template
        _ = self.generator

    def run(self, missing: MissingShards, count: int, on_written: OnWritten) -> None:  # noqa: ARG002
        """Answer shards; tables are not merged."""
        work, generator = self.work, self.generator
        each = len(work.study.conditions) * samples(self.spec)
        tick = work.counter(answering(work.folder.label), missing, count, each)
        with Grader() as grader:
            for shard, name in missing:
                table, greedy = answer_shard(work.study, work.prompts.of(shard), generator, grader, tick)
                self._recheck(greedy)
                work.refuse_changed()
                work.store.put_table(name, table)

    def _server(self) -> Generator:
        assert self.work.spec.endpoint is not None
        tokenizer = self.work.prompts.maker.tokenizer
        return EndpointGenerator(self.work.spec.endpoint, self.work.spec.name, tokenizer, self.work.progress.say)

    def _local(
        self, name: str, loaded: LoadedModel, rows: int | None = None, order: int | None = None
    ) -> LocalGenerator:
        generator = ENGINES[name](loaded, rows or self.spec.rows, self.spec.exact, order)
        generator.say = self.work.say_once
        return generator

    def _engine(self) -> str:
        """The name of the local generator whose first tokens are those of plain forward passes; checked once a run."""
        record = self.work.facts().get("answercheck")
        if record is None:
            record = self._check(self._requests(self.shards[0]))
            if record["engine"] != "rows":
                self.work.progress.say(
                    f"{self.work.folder.label}: answers are generated one at a time, which is slower"
                )
            self.work.note(answercheck=record)
        self._refuse_single_rows(str(record["engine"]))
        return str(record["engine"])

    def _check(self, requests: list[Request]) -> Json:
        check = answercheck(self.work.loaded, requests, self.spec.rows, self.spec.exact)
        if self.spec.exact and check.engine == "rows":
            exactcheck(self._local(check.engine, self.work.loaded), requests)
        return check.record()

    def _requests(self, shard: Shard) -> list[Request]:
        tasks = answer_tasks(self.work.study, self.work.prompts.of(shard))
        return [task.request for task in tasks if task.request is not None]

    def _refuse_same_dtype(self) -> None:
        noise, dtype = self.spec.noise, choose_dtype(self.work.spec.dtype, choose_device(self.work.study.device))
        if noise is not None and noise.dtype == dtype:
            raise GenerationError(
                f"{self.work.folder.label} answers in {dtype} already: as a noise floor, name another dtype in "
                "generation.noise, or set it to `on`"
            )

    def _refuse_single_rows(self, engine: str) -> None:
        noise = self.spec.noise
        if engine == "alone" and noise is not None and noise.dtype is None and not self.spec.exact:
            raise GenerationError(
                f"{self.work.folder.label} generates answers one at a time, so other batches cannot change them: as a "
                "noise floor, name another dtype, such as generation.noise: {dtype: float32}, or leave noise out"
            )

    def _recheck(self, greedy: list[tuple[AnswerTask, Reply]]) -> None:
        """Generate some greedy answers of the first shard again, one at a time, and note how many are the same.

        Each job does so with the first shard that it answers: its own machine may be the one that is at fault."""
        work = self.work
        wanted = min(self.spec.recheck, len(greedy))
        if not wanted or work.spec.endpoint is not None or "recheck" in work.facts():
            return
        work.progress.stage(f"rechecking {wanted} answers of {work.folder.label}", 0, None)
        chosen = [greedy[i * len(greedy) // wanted] for i in range(wanted)]
        requests = [task.request for task, _ in chosen if task.request is not None]
        rows = self.spec.rows if self.spec.exact else 1  # `exact` computes this many, one of them filled
        alone = self._local(work.facts()["answercheck"]["engine"], work.loaded, rows)
        allowed = RECHECK_FACTOR * tolerance_of(work.loaded.model)
        result = recheck(alone, requests, [reply for _, reply in chosen], self.spec.decoding(0.0), allowed)
        if self.spec.exact and result["same"] < result["checked"]:
            raise GenerationError(
                f"generation.exact does not hold: {result['checked'] - result['same']} of {result['checked']} answers "
                "differ when generated alone; set generation.rows to 1, or leave exact out, and please report this"
            )
        work.note(recheck=result)


class RepeatStage(AnswerStage):
    """Answers the baseline again for the noise floor: in other batches, in another dtype, or by a second request."""

    def prepare(self) -> None:
        _ = self.generator_for

    def run(self, missing: MissingShards, count: int, on_written: OnWritten) -> None:  # noqa: ARG002
        work, generator_for = self.work, self.generator_for
        tick = work.counter(answering_again(work.folder.label), missing, count, samples(self.spec))
        with Grader() as grader:
            for shard, name in missing:
                table, _ = answer_shard(
                    work.study, work.prompts.of(shard), generator_for(shard), grader, tick, repeat=True
                )
                work.refuse_changed()
                work.store.put_table(name, table)

    @cached_property
    def generator_for(self) -> Callable[[Shard], Generator]:
        """The generator of repeated answers, for each shard."""
        if self.work.spec.endpoint is not None:
            server = self._server()
            return lambda _: server
        self._refuse_same_dtype()
        name = self._engine()
        if self.noise.dtype is not None:
            other = self._local(name, self.work.reload(self.noise.dtype))
            return lambda _: other
        seed = int(digest_of([self.work.study.seed, "answered again"])[:15], 16)

        @lru_cache(maxsize=1)  # what was captured for one shard serves the next
        def generator(rows: int) -> LocalGenerator:
            return self._local(name, self.work.loaded, rows, seed)

        return lambda shard: generator(self._repeat_rows(name, shard))

    def _repeat_rows(self, name: str, shard: Shard) -> int:
        """Half as many rows as in the batches of the first answers; with `exact` the number is fixed."""
        rows = self._local(name, self.work.loaded).rows
        if self.spec.exact:
            return rows
        batch = min(rows, sum(request.change is None for request in self._requests(shard)) // samples(self.spec))
        return max(1, batch // 2) if batch > 1 else 2
