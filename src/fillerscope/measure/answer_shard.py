"""The answers of one shard: problems under all conditions, from prompts to graded answers.

Touches no disk and knows no engine. The result depends on the study alone. A failed answer is stored as failed, with
its error, and is never counted as wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from fillerscope.answers.grading.grade import Grade
from fillerscope.answers.grading.pool import GraderPool
from fillerscope.answers.request import Generator, Reply, Request, common_start
from fillerscope.files import digest_of
from fillerscope.measure.prepare import Prepared
from fillerscope.measure.shard import changed
from fillerscope.store.schema import ANSWER_COLUMNS, Columns
from fillerscope.study.conditions import BASELINE, Condition
from fillerscope.study.study import Study


@dataclass(frozen=True)
class AnswerTask:
    """One answer to generate: to a problem, under a condition, at a temperature, with the number of its sample."""

    item: Prepared
    condition: str
    temperature: float
    sample: int
    request: Request | None  # None where the problem has no prompt


Answered = tuple[AnswerTask, Reply]


def answer_shard(
    study: Study, items: Sequence[Prepared], generator: Generator, graders: GraderPool, tick: Callable[[float], None],
    repeat: bool = False,
) -> tuple[Columns, list[Answered]]:  # fmt: skip
    """Generate and grade the answers. Returns their table, in the order of problems, and the greedy replies.

    `repeat` answers the baseline alone, with the same random numbers."""
    answered = write_answers(study, items, generator, tick, repeat)
    return answer_table(study, answered, graders, repeat), greedy_of(answered)


def write_answers(
    study: Study, items: Sequence[Prepared], generator: Generator, tick: Callable[[float], None], repeat: bool = False
) -> list[Answered]:
    """Generate the answers to problems, which may be those of several shards."""
    tasks = _tasks(study, items, repeat)
    tick(sum(task.request is None for task in tasks))
    replies = _failed(tasks)
    for temperature, group in groupby(_with_prompt(tasks), key=lambda pair: pair[1].temperature):
        places, wanted = zip(*group, strict=True)
        assert study.generation is not None
        requests = [task.request for task in wanted if task.request is not None]
        for place, reply in zip(
            places, generator.answer(requests, study.generation.decoding(temperature), tick), strict=True
        ):
            replies[place] = reply
    return list(zip(tasks, replies, strict=True))


def greedy_of(answered: Sequence[Answered]) -> list[Answered]:
    """The greedy answers to problems that have a prompt."""
    return [(task, reply) for task, reply in answered if task.request and not task.temperature]


def failed_answers(study: Study, items: Sequence[Prepared], repeat: bool = False) -> Columns:
    """The table of a shard none of whose problems has a prompt; each answer has failed for its problem's reason."""
    tasks = _tasks(study, items, repeat)
    with GraderPool(1) as graders:
        return answer_table(study, list(zip(tasks, _failed(tasks), strict=True)), graders, repeat)


def _tasks(study: Study, items: Sequence[Prepared], repeat: bool) -> list[AnswerTask]:
    return [task for task in answer_tasks(study, items) if task.condition == BASELINE or not repeat]


def _failed(tasks: Sequence[AnswerTask]) -> list[Reply]:
    return [Reply("", 0, "failed", task.item.error) for task in tasks]


def answer_table(study: Study, answered: Sequence[Answered], graders: GraderPool, repeat: bool = False) -> Columns:
    """The graded answers in the order of problems."""
    ordered = sorted(answered, key=lambda pair: pair[0].item.number)  # a stable sort
    texts = [_valid_unicode(reply.text) for _, reply in ordered]
    grades = graders.grade_all(
        [(text, task.item.problem.answer, reply.finish) for text, (task, reply) in zip(texts, ordered, strict=True)]
    )
    rows = [
        _row(task, reply, text, grade, not repeat and is_measured(study, task))
        for (task, reply), text, grade in zip(ordered, texts, grades, strict=True)
    ]
    return {name: [row[i] for row in rows] for i, name in enumerate(ANSWER_COLUMNS)}


def is_measured(study: Study, task: AnswerTask) -> bool:
    """Whether the attention of this answer will be measured: the first answer to each prompt, where the study asks."""
    assert study.generation is not None
    first = study.generation.temperature[0]
    return study.probes.answering and (task.temperature, task.sample) == (first, 0)


def answer_tasks(study: Study, items: Sequence[Prepared]) -> list[AnswerTask]:
    """All answers to generate, in the order in which they are generated."""
    assert study.generation is not None
    shared = {c.name: _prefix_length(items, c.name) for c in study.conditions}
    return [
        AnswerTask(item, c.name, temperature, sample, _request(study, item, c, temperature, sample, shared[c.name]))
        for temperature in study.generation.temperature
        for item in items
        for c in study.conditions
        for sample in range(study.generation.drawn(temperature))
    ]


def _with_prompt(tasks: Sequence[AnswerTask]) -> Iterator[tuple[int, AnswerTask]]:
    """The tasks that have a prompt, with their places."""
    return ((place, task) for place, task in enumerate(tasks) if task.request is not None)


def _prefix_length(items: Sequence[Prepared], condition: str) -> int:
    """How many tokens the common prefix of all prompts of a condition has."""
    return common_start([item.prompts[condition].ids for item in items if not item.error])


def _request(
    study: Study, item: Prepared, condition: Condition, temperature: float, sample: int, shared: int
) -> Request | None:
    """The request for one answer, None where the problem has no prompt.

    Sampling has the same random numbers under every condition, so that equal prompts give equal answers. Those of an
    intervention differ from sample to sample, so that samples of one prompt are independent."""
    if item.error:
        return None
    prompt = item.prompts[condition.name]
    assert study.generation is not None
    prefix = len(prompt) if study.generation.drawn(temperature) > 1 else shared
    seed = int(digest_of([study.seed, item.problem.id, temperature, sample])[:15], 16)
    change, key = changed(study, condition, prompt, sample)
    gap = (prompt.question_start, prompt.gap)
    return Request(prompt.ids, seed, prefix, change, key, prompt.filler, gap, item.room, item.heading)


def _row(task: AnswerTask, reply: Reply, text: str, grade: Grade, keep_ids: bool) -> tuple[object, ...]:
    """A row of the answer table. Token ids are stored where the attention of the answer will be measured."""
    ids = list(reply.ids) if keep_ids else []
    return (
        task.item.number, task.item.problem.id, task.condition, task.temperature, task.sample,
        len(task.request.ids) if task.request else 0, reply.tokens, reply.finish, grade.verdict,
        grade.extracted or "", _valid_unicode(reply.error) or grade.note, text, ids,
    )  # fmt: skip


def _valid_unicode(text: str) -> str:
    """The text without lone surrogates, which a server can send and no file can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")
