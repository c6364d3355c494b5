"""Answers of one model, shard by shard, and repeated answers to prompts without filler, for the noise floor.

Chooses the generator that writes them. `answer_shard` computes the answers of one shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

from fillerscope.answers.endpoint.generator import EndpointGenerator
from fillerscope.answers.grading.pool import GraderPool
from fillerscope.answers.local.answer_check import ENGINES, answercheck, exactcheck, tolerance_of
from fillerscope.answers.local.engine import LocalGenerator
from fillerscope.answers.local.recheck import recheck
from fillerscope.answers.local.stops import stop_ids
from fillerscope.answers.request import Generator, Request
from fillerscope.answers.vllm.check import Expected
from fillerscope.answers.vllm.generator import ROWS, VllmGenerator
from fillerscope.errors import GenerationError
from fillerscope.files import Json, digest_of
from fillerscope.measure.answer_groups import shards_together
from fillerscope.measure.answer_shard import Answered, answer_table, answer_tasks, greedy_of, write_answers
from fillerscope.measure.engines.model_work import MissingShards, ModelWork, OnReduced
from fillerscope.measure.plan import answering, answering_again, samples
from fillerscope.measure.prepare import Prepared, Shard
from fillerscope.models.loading import LoadedModel, choose_device, choose_dtype
from fillerscope.models.resolve import ModelFolder
from fillerscope.store.failures import best_table
from fillerscope.study.generation import VLLM, GenerationSpec, NoiseSpec

RECHECK_FACTOR = 4  # times the tolerance of first tokens: two answers are compared, and later tokens


@dataclass
class AnswerStage:
    """Writes the answers of a model.

    Checks look at the first shard of the study, so that every job comes to the same result; see `_recheck`. A GPU is
    only full with the answers of several shards, so there this job's `own` are answered some at a time."""

    repeat: ClassVar = False

    work: ModelWork
    shards: Sequence[Shard]  # all of the study
    own: Sequence[Shard] = ()  # of this job; none where somebody else deals them out one by one

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
        """The server, vLLM, or the local generator that passed the check of answers."""
        if self.work.spec.endpoint is not None:
            return self._server()
        if self.spec.engine == VLLM:
            return self._vllm()
        self._refuse_same_dtype()
        return self._local(self._engine(), self.work.loaded)

    def prepare(self) -> None:
        _ = self.work.prompts  # notes label and template
        _ = self.generator

    def run(self, missing: MissingShards, count: int, on_reduced: OnReduced) -> None:  # noqa: ARG002
        """Answer shards; tables are not merged. Answers are graded and written while the next ones are generated."""
        tick = self._counter(missing, count)
        with GraderPool() as graders, ThreadPoolExecutor(1) as thread:
            if self._at_once() > 1:  # else few answers are graded at once, perhaps none
                graders.start()
            graded: Future[None] | None = None
            for group, wanted in self._groups(missing):
                answered = self._written(group, share_of(tick, group, wanted))
                self._recheck(greedy_of(answered))
                if graded is not None:
                    graded.result()
                graded = thread.submit(self._grade, wanted, answered, graders)
            if graded is not None:
                graded.result()
        self._close()

    def _counter(self, missing: MissingShards, count: int) -> Callable[[float], None]:
        each = len(self.work.study.conditions) * samples(self.spec)
        return self.work.counter(answering(self.work.folder.label), missing, count, each)

    def _written(self, group: Sequence[Shard], tick: Callable[[float], None]) -> list[Answered]:
        return write_answers(self.work.study, self._items(group), self.generator, tick)

    def _items(self, group: Sequence[Shard]) -> list[Prepared]:
        return [item for shard in group for item in self.work.prompts.of(shard)]

    def _grade(self, wanted: MissingShards, answered: Sequence[Answered], graders: GraderPool) -> None:
        """Grade the answers to the problems of each shard, and write them."""
        work = self.work
        for shard, name in wanted:
            numbers = range(shard.start, shard.start + len(shard.problems))
            own = [pair for pair in answered if pair[0].item.number in numbers]
            table = answer_table(work.study, own, graders, self.repeat)
            work.refuse_changed()
            work.store.put_table(name, best_table(work.store, name, table))

    def _groups(self, missing: MissingShards) -> Iterator[tuple[Sequence[Shard], MissingShards]]:
        """Shards that are answered together, and those of them that are missing.

        A group depends on the job's shards, not on which of them are missing: a resumed run has the same batches."""
        own, size = self.own or [shard for shard, _ in missing], self._at_once()
        for start in range(0, len(own), size):
            group = own[start : start + size]
            wanted = [pair for pair in missing if pair[0] in group]
            if wanted:
                yield group, wanted

    def _at_once(self) -> int:
        """How many shards are answered together."""
        if self.work.spec.endpoint is not None or not self.own:
            return 1
        return shards_together(self.work.study, choose_device(self.work.study.device), self.repeat)

    def _server(self) -> Generator:
        assert self.work.spec.endpoint is not None
        tokenizer = self.work.prompts.maker.tokenizer
        return EndpointGenerator(self.work.spec.endpoint, self.work.spec.name, tokenizer, self.work.progress.say)

    def _vllm(self, rows: int | None = None, order: int | None = None) -> VllmGenerator:
        """vLLM, checked against the model here, which leaves the GPU's memory to it."""
        work, tokenizer = self.work, self.work.prompts.maker.tokenizer
        expected = Expected.of(work.loaded, self._requests(self.shards[:1]))
        stops, dtype = stop_ids(work.loaded.model, tokenizer), work.loaded.dtype
        work.unload()
        work.progress.stage(f"starting vLLM with {work.folder.label}", 0, None)
        assert isinstance(work.folder, ModelFolder)
        generator = VllmGenerator(work.folder, dtype, tokenizer, stops, rows or self.spec.rows, order)
        work.note(answercheck=expected.check(generator, work.folder.label).record())
        return generator

    def _close(self) -> None:
        """Give back what an engine holds beside the model."""
        if isinstance(generator := self.__dict__.pop("generator", None), VllmGenerator):
            generator.close()

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
            record = self._check(self._requests(self.shards[:1]))
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

    def _requests(self, group: Sequence[Shard]) -> list[Request]:
        tasks = answer_tasks(self.work.study, self._items(group))
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

    def _recheck(self, greedy: Sequence[Answered]) -> None:
        """Generate some greedy answers of the first shard again, one at a time, and note how many are the same.

        Each job does so with the first shard that it answers: its own machine may be the one that is at fault."""
        work = self.work
        wanted = min(self.spec.recheck, len(greedy))
        if not wanted or work.study.is_served(work.spec) or "recheck" in work.facts():
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

    repeat = True

    def prepare(self) -> None:
        _ = self.generator_for

    def _counter(self, missing: MissingShards, count: int) -> Callable[[float], None]:
        return self.work.counter(answering_again(self.work.folder.label), missing, count, samples(self.spec))

    def _written(self, group: Sequence[Shard], tick: Callable[[float], None]) -> list[Answered]:
        return write_answers(self.work.study, self._items(group), self.generator_for(group), tick, repeat=True)

    def _recheck(self, greedy: Sequence[Answered]) -> None:
        """The first answers have been rechecked."""

    @cached_property
    def generator_for(self) -> Callable[[Sequence[Shard]], Generator]:
        """The generator of repeated answers, for each group of shards."""
        if self.work.spec.endpoint is not None:
            server = self._server()
            return lambda _: server
        if self.spec.engine == VLLM:
            return lambda _: self.generator
        self._refuse_same_dtype()
        name = self._engine()
        if self.noise.dtype is not None:
            other = self._local(name, self.work.reload(self.noise.dtype))
            return lambda _: other
        seed = self._order()

        @lru_cache(maxsize=1)  # what was captured for one shard serves the next
        def generator(rows: int) -> LocalGenerator:
            return self._local(name, self.work.loaded, rows, seed)

        return lambda group: generator(self._repeat_rows(name, group))

    @cached_property
    def generator(self) -> Generator:
        """vLLM with half as many rows, started in another order."""
        return self._vllm(max(1, (self.spec.rows or ROWS) // 2), self._order())

    def _order(self) -> int:
        """The seed of the order in which answers are started again."""
        return int(digest_of([self.work.study.seed, "answered again"])[:15], 16)

    def _repeat_rows(self, name: str, group: Sequence[Shard]) -> int:
        """Half as many rows as in the batches of the first answers; with `exact` the number is fixed."""
        rows = self._local(name, self.work.loaded).rows
        if self.spec.exact:
            return rows
        batch = min(rows, sum(request.change is None for request in self._requests(group)) // samples(self.spec))
        return max(1, batch // 2) if batch > 1 else 2


def share_of(tick: Callable[[float], None], group: Sequence[Shard], wanted: MissingShards) -> Callable[[float], None]:
    """Reports of what is done for a group only the share of the wanted shards: the others were done before."""
    share = sum(len(shard.problems) for shard, _ in wanted) / sum(len(shard.problems) for shard in group)
    return lambda count: tick(count * share)
