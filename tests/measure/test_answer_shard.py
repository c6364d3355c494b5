"""Shards that are answered: who is asked what, with which random numbers, and what is written down of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest

from fillerscope.answers.grading.pool import GraderPool
from fillerscope.answers.local.engine import LocalGenerator
from fillerscope.answers.request import Reply, Request
from fillerscope.measure.answer_shard import answer_shard, answer_tasks
from fillerscope.measure.prepare import Shard
from fillerscope.models.loading import LoadedModel, wrap
from fillerscope.problems.sources import load_problems
from fillerscope.prompts.prompt import PromptMaker
from fillerscope.store.schema import ANSWER_COLUMNS
from fillerscope.study.generation import Decoding
from fillerscope.study.study import Study
from support.shards import prepare_shard
from support.studies import study_of
from support.tiny import tiny_model, tiny_tokenizer

GENERATION = {"max_tokens": 5, "temperature": [0.8, 0, 1.5], "samples": 3}
FIRST = 7  # the number of the shard's first problem in the study


def answered_study(**changes: Any) -> Study:
    return study_of("tiny", **({"problems": {"limit": 4}, "generation": GENERATION} | changes))


def maker_of(study: Study) -> PromptMaker:
    return PromptMaker.of(tiny_tokenizer(), study.prompt, study.prompt.template, study.seed)


def shard_of(study: Study) -> Shard:
    return Shard(2, FIRST, tuple(load_problems(study.problems)))


class Recorder:
    """Answers whatever `reply` says, and remembers what it was asked."""

    def __init__(self, reply: Callable[[Request], Reply] = lambda _: Reply("", 0, "stop")) -> None:
        self.calls: list[tuple[list[Request], Decoding]] = []
        self.reply = reply

    def answer(self, requests: Sequence[Request], decoding: Decoding, tick: Callable[[int], None]) -> list[Reply]:
        self.calls.append((list(requests), decoding))
        tick(len(requests))
        return [self.reply(request) for request in requests]


def ask(study: Study, generator: Any, context: int | None = 1024, ticks: list[int] | None = None) -> dict[str, list]:
    with GraderPool(2) as grader:
        tick = (ticks if ticks is not None else []).append
        items = prepare_shard(study, shard_of(study), maker_of(study), context)
        table, _ = answer_shard(study, items, generator, grader, tick)
    assert tuple(table) == tuple(ANSWER_COLUMNS)
    return table


def test_every_answer_is_asked_for_once_and_stored_in_order() -> None:
    study, recorder, ticks = answered_study(), Recorder(), []
    table = ask(study, recorder, ticks=ticks)
    assert [decoding for _, decoding in recorder.calls] == [
        Decoding(max_tokens=5, temperature=temperature) for temperature in (0.8, 0, 1.5)
    ]
    assert [len(requests) for requests, _ in recorder.calls] == [4 * 5 * 3, 4 * 5, 4 * 5 * 3]
    wanted = [
        (FIRST + place, problem.id, condition.name, temperature, sample)
        for (place, problem), temperature, condition in product(
            enumerate(load_problems(study.problems)), (0.8, 0, 1.5), study.conditions
        )
        for sample in range(3 if temperature else 1)
    ]
    found = zip(*(table[key] for key in ("number", "id", "condition", "temperature", "sample")), strict=True)
    assert list(found) == wanted
    assert sum(ticks) == len(wanted)


def test_the_prompts_are_those_that_attention_is_measured_on() -> None:
    study = answered_study()
    items = prepare_shard(study, shard_of(study), maker_of(study), 1024)
    recorder = Recorder()
    table = ask(study, recorder)
    for (requests, _), samples in zip(recorder.calls, (3, 1, 3), strict=True):
        assert [request.ids for request in requests] == [
            item.prompts[c.name].ids for item in items for c in study.conditions for _ in range(samples)
        ]
    lengths = {(item.number, name): len(prompt) for item in items for name, prompt in item.prompts.items()}
    keys = zip(table["number"], table["condition"], strict=True)
    assert table["prompt_tokens"] == [lengths[key] for key in keys]
    assert len({*lengths.values()}) > 5  # there is something to mix up


def test_a_small_context_leaves_as_much_room_under_every_condition() -> None:
    """Else filler would shorten answers, and an effect of the context would be taken for one of the filler."""
    study = answered_study(generation={"max_tokens": 60})
    items = prepare_shard(study, shard_of(study), maker_of(study), 1024)
    longest = [max(len(prompt) for prompt in item.prompts.values()) for item in items]
    context = max(longest) + 20
    table = ask(study, LocalGenerator(loaded(max_position_embeddings=context)), context)
    for item, length in zip(items, longest, strict=True):
        own = [place for place, number in enumerate(table["number"]) if number == item.number]
        room = min(60, context - length)
        assert {table["tokens"][place] for place in own if table["finish"][place] == "length"} == {room}
        assert {table["finish"][place] for place in own} <= {"length", "stop"}
    assert "length" in table["finish"]
    assert context - min(longest) > 20, "some have more room than others"


def test_what_is_said_to_be_shared_is() -> None:
    """Of one sample, what all prompts of a condition begin with, and no less; of several, the whole prompt."""
    study, recorder = answered_study(), Recorder()
    ask(study, recorder)
    sampled, greedy, _ = (requests for requests, _ in recorder.calls)
    assert all(request.shared == len(request.ids) for request in sampled)
    for place, condition in enumerate(study.conditions):
        own = greedy[place :: len(study.conditions)]
        (shared,) = {request.shared for request in own}
        assert len({request.ids[:shared] for request in own}) == 1
        assert len({request.ids[: shared + 1] for request in own}) > 1
        assert shared > 0, condition


def test_random_numbers_are_the_same_under_all_conditions_and_differ_otherwise() -> None:
    def seeds(study: Study) -> dict[tuple[str, float, int], set[int]]:
        found: dict[tuple[str, float, int], set[int]] = {}
        for each in answer_tasks(study, prepare_shard(study, shard_of(study), maker_of(study), 1024)):
            assert each.request is not None
            found.setdefault((each.item.problem.id, each.temperature, each.sample), set()).add(each.request.seed)
        return found

    found = seeds(answered_study())
    assert all(len(one) == 1 for one in found.values())
    assert len(set.union(*found.values())) == len(found) == 4 * (3 + 1 + 3)
    assert not set.union(*found.values()) & set.union(*seeds(answered_study(seed=1)).values())
    # Neither the number of a problem nor its neighbours, nor how many samples there are, change its numbers.
    fewer = seeds(answered_study(problems={"limit": 2}, generation=GENERATION | {"samples": 2}))
    assert fewer == {key: found[key] for key in fewer}


def test_conditions_that_do_not_differ_give_the_same_answers() -> None:
    twins = ["none", *({"name": name, "kind": "repeat", "text": " /", "count": 6} for name in ("one", "two"))]
    study = answered_study(conditions=twins, generation=GENERATION | {"temperature": [0, 1.5]})
    table = ask(study, LocalGenerator(loaded()))
    texts = {
        name: [text for text, c in zip(table["text"], table["condition"], strict=True) if c == name]
        for name in ("none", "one", "two")
    }
    assert texts["one"] == texts["two"] != texts["none"]


def loaded(**overrides: Any) -> LoadedModel:
    return wrap(tiny_model("llama", **overrides), tiny_tokenizer(), "tiny")


def test_answers_are_written_to_their_own_prompts() -> None:
    """Each stored text is what the model writes to that prompt alone."""
    study, model = answered_study(problems={"limit": 3}), loaded()
    items = prepare_shard(study, shard_of(study), maker_of(study), 1024)
    with GraderPool(2) as grader:
        table, greedy = answer_shard(study, items, LocalGenerator(model, rows=7), grader, lambda _: None)
    asks = answer_tasks(study, items)
    stored = dict(
        zip(zip(*(table[k] for k in ("id", "condition", "temperature", "sample")), strict=True), table["text"],
            strict=True)
    )  # fmt: skip
    alone = LocalGenerator(model, rows=1)
    for each in asks[:: len(asks) // 11]:
        assert each.request is not None
        assert study.generation is not None
        (reply,) = alone.answer([each.request], study.generation.decoding(each.temperature), lambda _: None)
        assert stored[each.item.problem.id, each.condition, each.temperature, each.sample] == reply.text
    assert {each.temperature for each, _ in greedy} == {0}
    assert [(each.item.problem.id, each.condition) for each, _ in greedy] == [
        (problem.id, c.name) for problem in shard_of(study).problems for c in study.conditions
    ]
    assert all(stored[each.item.problem.id, each.condition, 0, 0] == reply.text for each, reply in greedy)


def test_a_problem_without_prompts_has_failed_under_every_condition_and_nobody_is_asked() -> None:
    study, ticks = answered_study(), []
    items = prepare_shard(study, shard_of(study), maker_of(study), None)
    longest = [max(len(prompt) for prompt in item.prompts.values()) for item in items]
    context = max(longest) - 1
    recorder = Recorder(lambda _: Reply("The answer is \\boxed{1}.", 3, "stop"))
    table = ask(study, recorder, context, ticks)
    failed = [item.number for item, length in zip(items, longest, strict=True) if length > context]
    assert 1 <= len(failed) <= 2
    left = 4 - len(failed)
    assert [len(requests) for requests, _ in recorder.calls] == [left * 5 * 3, left * 5, left * 5 * 3]
    rows = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    assert [row["number"] for row in rows] == [number for number in range(FIRST, FIRST + 4) for _ in range(35)]
    assert sum(ticks) == len(rows)
    for row in rows:
        if row["number"] in failed:
            nothing = (row["finish"], row["verdict"], row["extracted"], row["text"], row["tokens"])
            assert nothing == ("failed", "failed", "", "", 0)
            assert row["note"].startswith(f"{longest[row['number'] - FIRST]} tokens, and the model takes {context};")
            assert row["prompt_tokens"] == 0
        else:
            assert (row["finish"], row["extracted"], row["tokens"]) == ("stop", "1", 3)
            assert row["verdict"] in ("right", "wrong")
    # Nor do failed ones count for what the others have in common.
    alone = Recorder()
    kept = Shard(0, 0, tuple(item.problem for item in items if item.number not in failed))
    with GraderPool(2) as grader:
        answer_shard(study, prepare_shard(study, kept, maker_of(study), context), alone, grader, lambda _: None)
    assert alone.calls == recorder.calls


def test_where_no_problem_has_a_prompt_all_have_failed() -> None:
    table = ask(answered_study(), Recorder(lambda _: pytest.fail("somebody was asked")), context=10)
    assert set(table["verdict"]) == {"failed"}
    assert len(table["verdict"]) == 4 * 35


def test_replies_become_verdicts() -> None:
    """All of them, each with its reason; a failed answer is never a wrong one."""
    study = answered_study(generation={"max_tokens": 9}, conditions=["none"], problems={"limit": 6})
    answers = [problem.answer for problem in load_problems(study.problems)]
    assert all(answer.lstrip("-").isdigit() for answer in answers)
    replies = iter([
        Reply(f"So it is \\boxed{{{answers[0]}}}.", 7, "stop"),
        Reply("\\boxed{-987654321}", 7, "length"),
        Reply("I do not know.", 4, "stop"),
        Reply(f"Let us see: {answers[3]} is", 9, "length"),
        Reply(f"\\boxed{{{answers[4]}}}", 3, "failed", "the server says 500"),
        Reply(f"half a character, \ud83d, and \\boxed{{{answers[5]}}}", 9, "stop"),
    ])  # fmt: skip
    table = ask(study, Recorder(lambda _: next(replies)))
    assert table["verdict"] == ["right", "wrong", "no answer", "cut off", "failed", "right"]
    assert table["extracted"] == [answers[0], "-987654321", "", "", "", answers[5]]
    assert table["finish"] == ["stop", "length", "stop", "length", "failed", "stop"]
    assert table["tokens"] == [7, 7, 4, 9, 3, 9]
    assert table["note"] == ["", "", "", "", "the server says 500", ""]
    assert table["text"][5].startswith("half a character, ?, and")


def test_answers_to_raw_prompts_end_at_the_next_question_under_every_condition() -> None:
    raw = {"template": "raw", "raw": "{system}\nQuestion: {question}\nAnswer:"}
    study = answered_study(prompt=raw, generation={"max_tokens": 5})
    recorder = Recorder()
    ask(study, recorder)
    assert {request.heading for requests, _ in recorder.calls for request in requests} == {"Question:"}
    ask(answered_study(generation={"max_tokens": 5}), recorder)
    assert not any(request.heading for request in recorder.calls[-1][0])
