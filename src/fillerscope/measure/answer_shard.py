"""One shard answered: problems under all conditions, from prompts to graded answers.

Touches no disk and knows no engine, and what a shard gives depends on the study alone. A failed answer is
stored as failed, with its error; it is never counted as wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from fillerscope.answers.grading.grade import Grader
from fillerscope.answers.request import Generator, Reply, Request, common_start
from fillerscope.measure.prepare import Prepared
from fillerscope.measure.shard import changed
from fillerscope.store.schema import ANSWER_COLUMNS, Columns
from fillerscope.study.conditions import BASELINE, Condition
from fillerscope.study.study import Study, digest_of


@dataclass(frozen=True)
class Ask:
    """One answer that is wanted: to a problem, under a condition, the how-manieth sample."""

    item: Prepared
    condition: str
    temperature: float
    sample: int
    request: Request | None  # None where the problem has no prompt


def answer_shard(
    study: Study, items: Sequence[Prepared], generator: Generator, grader: Grader, tick: Callable[[float], None],
    again: bool = False,
) -> tuple[Columns, list[tuple[Ask, Reply]]]:  # fmt: skip
    """The graded answers as a table, in the order of problems; and the greedy ones as they came. `again`: of the
    baseline alone, with the same random numbers."""
    asks = [ask for ask in asks_of(study, items) if ask.condition == BASELINE or not again]
    tick(sum(ask.request is None for ask in asks))
    replies = [Reply("", 0, "failed", ask.item.error) for ask in asks]
    for temperature, group in groupby(_wanted(asks), key=lambda pair: pair[1].temperature):
        places, wanted = zip(*group, strict=True)
        assert study.generation is not None
        requests = [ask.request for ask in wanted if ask.request is not None]
        for place, reply in zip(
            places, generator.answer(requests, study.generation.decoding(temperature), tick), strict=True
        ):
            replies[place] = reply
    order = sorted(range(len(asks)), key=lambda place: asks[place].item.number)  # all else stays in its order
    rows = [
        _row(asks[place], replies[place], grader, not again and is_looked_at(study, asks[place])) for place in order
    ]
    greedy = [(a, r) for a, r in zip(asks, replies, strict=True) if a.request and not a.temperature]
    return {name: [row[i] for row in rows] for i, name in enumerate(ANSWER_COLUMNS)}, greedy


def is_looked_at(study: Study, ask: Ask) -> bool:
    """The first answer to each prompt, where it is asked what answers attend to."""
    assert study.generation is not None
    first = study.generation.temperature[0]
    return study.probes.answering and (ask.temperature, ask.sample) == (first, 0)


def asks_of(study: Study, items: Sequence[Prepared]) -> list[Ask]:
    """Every answer that is wanted, in the order in which answers are written."""
    assert study.generation is not None
    shared = {c.name: _shared(items, c.name) for c in study.conditions}
    return [
        Ask(item, c.name, temperature, sample, _request(study, item, c, temperature, sample, shared[c.name]))
        for temperature in study.generation.temperature
        for item in items
        for c in study.conditions
        for sample in range(study.generation.drawn(temperature))
    ]


def _wanted(asks: Sequence[Ask]) -> Iterator[tuple[int, Ask]]:
    return ((place, ask) for place, ask in enumerate(asks) if ask.request is not None)


def _shared(items: Sequence[Prepared], condition: str) -> int:
    """How many tokens all prompts of a condition begin with."""
    return common_start([item.prompts[condition].ids for item in items if not item.error])


def _request(
    study: Study, item: Prepared, condition: Condition, temperature: float, sample: int, shared: int
) -> Request | None:
    """The same random numbers of drawing under every condition: two that do not differ give the same answers. Those of
    an intervention differ from sample to sample, as samples of one prompt must not depend on each other."""
    if item.error:
        return None
    prompt = item.prompts[condition.name]
    assert study.generation is not None
    alike = len(prompt) if study.generation.drawn(temperature) > 1 else shared
    seed = int(digest_of([study.seed, item.problem.id, temperature, sample])[:15], 16)
    change, key = changed(study, condition, prompt, sample)
    return Request(prompt.ids, seed, alike, change, key, prompt.filler, (prompt.question_start, prompt.gap))


def _row(ask: Ask, reply: Reply, grader: Grader, keep: bool) -> tuple[object, ...]:
    """`keep`: the ids of an answer that is looked at again."""
    text, ids = _whole(reply.text), list(reply.ids) if keep else []
    grade = grader.grade(text, ask.item.problem.answer, reply.finish)
    return (
        ask.item.number, ask.item.problem.id, ask.condition, ask.temperature, ask.sample,
        len(ask.request.ids) if ask.request else 0, reply.tokens, reply.finish, grade.verdict,
        grade.extracted or "", _whole(reply.error) or grade.note, text, ids,
    )  # fmt: skip


def _whole(text: str) -> str:
    """A server can send half a character (a lone surrogate), which no file takes."""
    return text.encode("utf-8", "replace").decode("utf-8")
