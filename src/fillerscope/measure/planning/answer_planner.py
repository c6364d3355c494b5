"""Plans the answers of a model, group by group as a run writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fillerscope.answers.request import Request
from fillerscope.measure.answer_groups import shards_together
from fillerscope.measure.answer_shard import AnswerTask
from fillerscope.measure.planning.decoding import BatchWork, Generation
from fillerscope.measure.planning.model_plan import ModelPlan, Setup
from fillerscope.measure.prepare import Shard
from fillerscope.store.contents import ANSWERING_AGAIN
from fillerscope.study.conditions import BASELINE
from fillerscope.study.study import Study

PlannedAnswer = tuple[AnswerTask, int]  # with its length in tokens


class AnswerPlanner:
    """The answers of one job: the first ones, or those for the noise floor."""

    def __init__(self, study: Study, setup: Setup, form: Generation, plan: ModelPlan, stage: str, served: bool) -> None:
        """`stage` is that of the first answers, or of those for the noise floor; what they take is added to `plan`."""
        self.setup, self.form, self.plan, self.served = setup, form, plan, served
        self.stage, self.repeat = plan.stage(stage), stage == ANSWERING_AGAIN
        self.most = 1 if served else shards_together(study, setup.device, self.repeat)
        self.group: list[tuple[Shard, Sequence[PlannedAnswer]]] = []
        self.grading = setup.rates.grader  # seconds of grading that are still to come
        self.last = 0  # the shard that was planned last

    def add(self, shard: Shard, answers: Sequence[PlannedAnswer]) -> None:
        """Plan the answers of a shard, once its group is complete."""
        self.group.append((shard, [one for one in answers if one[0].condition == BASELINE or not self.repeat]))
        if len(self.group) >= self.most:
            self._plan_group()

    def finish(self) -> None:
        """Plan what is left, and the grading that nothing is written beside."""
        if self.group:
            self._plan_group()
        self.stage.seconds[self.last] += self.grading

    def _plan_group(self) -> None:
        work = self._work([one for _, answers in self.group for one in answers])
        seconds = self._seconds(work) / len(self.group)
        for shard, answers in self.group:
            self.stage.bytes += self.setup.rates.answer_bytes.of(len(answers), sum(length for _, length in answers))
            self.stage.seconds[shard.index] = seconds
        self.last, self.group = self.group[-1][0].index, []
        plan = self.plan
        plan.answers, plan.answer_tokens = plan.answers + work.answers, plan.answer_tokens + work.tokens
        if self.served:
            plan.served += work.answers
            return
        self.stage.passes += work.passes + sum(one.count for one in work.steps)
        self.stage.computed += work.prefill.tokens + work.tokens
        plan.prefill, plan.cells = max(plan.prefill, work.largest), max(plan.cells, work.cells)

    def _work(self, answers: Sequence[PlannedAnswer]) -> BatchWork:
        """The work of answers, temperature by temperature."""
        whole, form = BatchWork(), self.form
        if self.repeat:
            form = replace(form, rows=max(1, min(form.rows, len(answers)) // 2))
        for temperature in dict.fromkeys(task.temperature for task, _ in answers):
            chosen = [(task.request, length) for task, length in answers if task.temperature == temperature]
            requests: list[Request] = [request for request, _ in chosen if request is not None]
            whole.add(form.work(requests, [length for _, length in chosen]))
        return whole

    def _seconds(self, work: BatchWork) -> float:
        """Those of a group. A GPU writes answers while those before are graded; elsewhere both take the same cores."""
        rates, size = self.setup.rates, self.setup.size
        before, self.grading = self.grading, rates.grade * work.answers
        writing = sum(one.count * rates.step(one.rows, one.width) for one in work.steps)
        writing += size.operations(work.prefill) * rates.prefill
        if self.served:
            return before
        return max(writing, before) if self.setup.device == "cuda" else writing + before
