"""Plans a model of a study, shard by shard: its work, and what that takes in time, memory and bytes."""

from __future__ import annotations

from collections.abc import Sequence

from fillerscope.answers.local.engine import ONE_BY_ONE, prefill_size
from fillerscope.files import digest_of
from fillerscope.measure.answer_attention import Answers
from fillerscope.measure.answer_shard import answer_tasks, is_measured
from fillerscope.measure.planning.answer_planner import AnswerPlanner
from fillerscope.measure.planning.counting import CountingRunner, count_shard, file_bytes
from fillerscope.measure.planning.decoding import Generation
from fillerscope.measure.planning.model_plan import ModelPlan, Setup
from fillerscope.measure.prepare import Prepared, Shard, ShardPrompts
from fillerscope.store.array_file import Part
from fillerscope.store.contents import ANSWERING, ANSWERING_AGAIN, MEASURING, MEASURING_ANSWERS, stage_files
from fillerscope.store.merge import Merger
from fillerscope.study.study import Probes, Study

LOADING, CHECKING, RECHECKING = "loading", "checks", "rechecking"


class Planner:
    """Plans the stages of one model, shard by shard."""

    def __init__(self, study: Study, prompts: ShardPrompts, setup: Setup, plan: ModelPlan) -> None:
        self.study, self.prompts, self.setup, self.plan = study, prompts, setup, plan
        rates, generation = setup.rates, study.generation
        self.counters = {  # nothing but attention is measured of answers
            name: CountingRunner(setup.model, setup.pass_tokens, probes, setup.size, setup.layout)
            for name, probes in ((MEASURING, study.probes), (MEASURING_ANSWERS, Probes()))
        }
        limit = generation.max_tokens if generation else 1
        prefill = prefill_size(setup.model, setup.device)
        whole = prefill if setup.device == "cuda" else ONE_BY_ONE
        self.form = Generation(setup.rows, prefill, whole, limit, prompts.context, setup.cells)
        plan.fixed = {LOADING: rates.load}

    def run(self, shards: Sequence[Shard], served: bool, jobs: int = 1) -> ModelPlan:
        """Plan all shards, dealt to so many jobs. A server's answers are counted, and their time is not known."""
        plan, study = self.plan, self.study
        plan.shards = len(shards)
        mergers = {MEASURING: Merger([], _none), MEASURING_ANSWERS: Merger([], _none)}
        for name in stage_files(study):
            if not (served and name == MEASURING_ANSWERS):
                plan.stage(name)
        writing = [self._answering(served) for _ in range(min(jobs, len(shards)))]
        for shard in shards:
            items = self.prompts.of(shard)
            plan.problems += len(items)
            plan.failed += sum(bool(item.error) for item in items)
            plan.prompts += sum(len(item.prompts) for item in items)
            plan.prompt_tokens += sum(len(prompt) for item in items for prompt in item.prompts.values())
            if study.probes.attention is not None:
                self._measure(MEASURING, shard, items, mergers[MEASURING], None)
            if study.generation is not None:
                self._answer(shard, items, mergers[MEASURING_ANSWERS], served, writing[shard.index % len(writing)])
        for planner in (one for job in writing for one in job):
            planner.finish()
        for name, merger in mergers.items():
            if name in plan.stages and plan.failed < plan.problems:
                stage = plan.stages[name]
                stage.merged = file_bytes(merger.merged(), self.setup.size)
                stage.seconds[-1] += stage.merged * self.setup.rates.write
        self._fixed(served)
        return plan

    def _answering(self, served: bool) -> list[AnswerPlanner]:
        """What plans the answers of one job: the first ones, and those for the noise floor."""
        stages = [stage for stage in (ANSWERING, ANSWERING_AGAIN) if stage in stage_files(self.study)]
        return [AnswerPlanner(self.study, self.setup, self.form, self.plan, stage, served) for stage in stages]

    def _measure(self, name: str, shard: Shard, items: list[Prepared], merger: Merger, answers: Answers | None) -> None:
        stage, plan, rates, size = self.plan.stage(name), self.plan, self.setup.rates, self.setup.size
        work, part = count_shard(self.study, items, self.counters[name], answers)
        merger.append(f"{shard.index}", part)
        seconds = size.operations(work.work) * rates.operation
        seconds += work.positions * size.layers * size.heads * rates.reduce
        writing = work.bytes * rates.write
        # A GPU measures the next shard while one is written; elsewhere both take the same cores.
        stage.seconds[shard.index] = max(seconds, writing) if self.setup.device == "cuda" else seconds + writing
        stage.bytes, stage.passes = stage.bytes + work.bytes, stage.passes + work.passes
        stage.computed += work.work.tokens
        plan.largest = max(plan.largest, self.counters[name].largest.tokens)
        plan.positions, plan.file = max(plan.positions, work.positions), max(plan.file, work.bytes)

    def _answer(
        self, shard: Shard, items: list[Prepared], merger: Merger, served: bool, writing: Sequence[AnswerPlanner]
    ) -> None:
        tasks = [task for task in answer_tasks(self.study, items) if task.request is not None]
        lengths = self.setup.rates.lengths.draw(len(tasks), _seed(self.study, shard)).tolist()
        for planner in writing:
            planner.add(shard, list(zip(tasks, lengths, strict=True)))
        if self.study.probes.answering and not served:
            answers = {
                (task.item.number, task.condition): [0] * max(1, length - 1)
                for task, length in zip(tasks, lengths, strict=True)
                if is_measured(self.study, task)
            }
            self._measure(MEASURING_ANSWERS, shard, items, merger, answers)

    def _fixed(self, served: bool) -> None:
        """Seconds that do not depend on how many problems there are."""
        plan, rates, generation = self.plan, self.setup.rates, self.study.generation
        checks = rates.measure_checks if self.study.probes.attention is not None else 0.0
        if generation is not None and not served:
            checks += rates.answer_checks
            if 0.0 in generation.temperature and generation.recheck and plan.answers:
                mean = plan.answer_tokens / plan.answers
                width = plan.prompt_tokens / max(1, plan.prompts) + mean / 2
                count = min(generation.recheck, plan.answers)
                plan.fixed[RECHECKING] = count * mean * rates.step(1, width)
        if served and self.study.probes.attention is None:
            plan.fixed[LOADING] = 0.0  # the tokenizer alone is loaded
        plan.fixed[CHECKING] = checks


def _none(name: str, _keys: list[str] | None) -> Part:
    raise AssertionError(f"{name} was never written")


def _seed(study: Study, shard: Shard) -> int:
    return int(digest_of([study.seed, "plan", shard.index])[:15], 16)
