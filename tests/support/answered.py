"""A finished run of any answers: verdicts are given, and nothing about them is smooth or convenient."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fillerscope.analysis.run import Run, open_run
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import PROBLEMS, answers_name, repeated_answers_name
from fillerscope.study.study import Study

CONDITIONS = ("none", "mless", "mful")
AGAIN = "again"  # what the second answers without filler are drawn as
VERDICTS = ("right", "wrong", "no answer", "cut off", "failed")
Row = dict[str, Any]
Key = tuple[str, int, float, str, int]  # model, problem, temperature, condition, sample


def drawn_at_random(seed: int, chances: Sequence[float] = (0.4, 0.3, 0.1, 0.1, 0.1)) -> Callable[[Key], Row]:
    """What an answer is, drawn from its key alone."""

    def draw(key: Key) -> Row:
        random = np.random.default_rng([seed, *(ord(letter) for letter in repr(key))])
        return answer(str(random.choice(VERDICTS, p=chances)), random)

    return draw


def answer(verdict: str, random: np.random.Generator, truncated: bool | None = None) -> Row:
    """A row that such a verdict may have. Right and wrong ones may have been ended by the token limit, too: some are,
    unless it is said."""
    if verdict == "failed":
        return {"finish": "failed", "verdict": "failed", "extracted": "", "tokens": 0, "note": "broken", "text": ""}
    ended = {"cut off": "length", "no answer": "stop"}.get(verdict, "length" if _limited(random, truncated) else "stop")
    words = random.choice(["a", "b", "c"], size=random.integers(1, 9))
    return {
        "finish": ended, "verdict": verdict, "extracted": "" if verdict in ("cut off", "no answer") else "7",
        "tokens": int(random.integers(1, 500)), "note": "", "text": " ".join(words),
    }  # fmt: skip


def _limited(random: np.random.Generator, truncated: bool | None) -> bool:
    one_in_three = bool(random.choice([False, False, True]))
    return one_in_three if truncated is None else truncated


def build(
    folder: Path, draw: Callable[[Key], Row], problems: int = 11, models: Sequence[str] = ("a",),
    metas: Sequence[dict[str, Any]] | None = None, conditions: Sequence[str] = CONDITIONS, shard: int = 4,
    questions: Sequence[str] | None = None, **generation: Any,
) -> Run:  # fmt: skip
    """Written as a run is: shards of answers, and the problems beside them."""
    study = Study.model_validate({
        "name": "answered", "models": list(models), "problems": {"limit": problems}, "conditions": list(conditions),
        "probes": {"attention": False}, "generation": generation, "batch": {"shard": shard},
    })  # fmt: skip
    spec = study.generation
    assert spec is not None
    store = RunStore.create(folder, {"answered": True}, study.model_dump(mode="json"))
    numbers = range(problems)
    store.put_table(PROBLEMS, {
        "id": [f"p{n}" for n in numbers], "question": list(questions or (f"What is {n}?" for n in numbers)),
        "answer": [str(n) for n in numbers], "meta": [json.dumps(metas[n] if metas else {}) for n in numbers],
    })  # fmt: skip

    def table(model: str, start: int, names: dict[str, str]) -> dict[str, list[Any]]:
        """`names`: conditions, and what each is drawn as."""
        rows = [
            {"number": n, "id": f"p{n}", "condition": name, "temperature": temperature, "sample": sample,
             "prompt_tokens": 50, **draw((model, n, temperature, drawn_as, sample))}
            for n in numbers[start : start + shard]
            for temperature in spec.temperature
            for name, drawn_as in names.items()
            for sample in range(spec.drawn(temperature))
        ]  # fmt: skip
        return {key: [row[key] for row in rows] for key in rows[0]}

    for model in models:
        for index, start in enumerate(range(0, problems, shard)):
            store.put_table(answers_name(model, index), table(model, start, {name: name for name in conditions}))
            if spec.noise:
                store.put_table(
                    repeated_answers_name(model, index, spec.noise.dtype), table(model, start, {"none": AGAIN})
                )
        facts = {model: {"label": model.upper()}}
        store.note("models", store.manifest.get("models", {}) | facts)
    return open_run(folder)
