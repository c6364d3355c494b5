"""Accuracies that were published about this effect, to be shown beside ours. None of them is a result of ours.

From the tables of the paper alone. Bars that could only be read off a picture, those of meaningful tokens
among them, are left out.
"""

from __future__ import annotations

import re

from fillerscope.study.conditions import Condition
from fillerscope.study.published_names import plain, published_name

SOURCE = "'Meaningless Tokens, Meaningful Gains', arXiv 2510.01032"
TERMS = "all problems of the benchmark, mean of five runs"

# Per cent: without filler, and with 55 slashes between system prompt and question.
ACCURACY = {
    "MATH-500": {
        "Qwen2.5-Math-1.5B": (63.9, 65.9),
        "Qwen2.5-Math-7B": (72.3, 74.6),
        "DeepSeek-R1-Distill-Qwen-7B": (52.7, 53.1),
        "DeepSeek-Math-7B-Instruct": (39.5, 42.1),
        "Llama-3.1-8B-Instruct": (41.8, 42.1),
        "Qwen2.5-32B-Instruct": (81.3, 81.7),
    },
    "AIME 2024": {
        "Qwen2.5-Math-1.5B": (14.4, 17.5),
        "Qwen2.5-Math-7B": (23.1, 23.3),
        "DeepSeek-R1-Distill-Qwen-7B": (3.2, 4.4),
        "DeepSeek-Math-7B-Instruct": (7.8, 12.3),
        "Llama-3.1-8B-Instruct": (7.9, 9.9),
        "Qwen2.5-32B-Instruct": (17.6, 22.8),
    },
}

# The same slashes in other places; another table, whose baseline is not quite that of the first.
POSITION = {
    "MATH-500": {
        "Qwen2.5-Math-7B": {"none": 72.4, "start": 69.6, "before_question": 75.0, "end": 0.0, "random": 51.2},
    },
}


def benchmark(source: str) -> str | None:
    """The benchmark of a source of problems, by the name of the data set, file or folder; None where unknown."""
    for part in reversed(re.split(r"[/\\]", source.removeprefix("hub:"))[-2:]):
        name = plain(part)
        if "math500" in name:
            return "MATH-500"
        if re.search("aime(20)?24", name):
            return "AIME 2024"
    return None


def accuracy(model: str, source: str, condition: Condition) -> float | None:
    """The published share of right answers, or None where this was not published."""
    table = ACCURACY.get(benchmark(source) or "", {})
    name = published_name(model, table)
    if name is None or not (condition.is_baseline or _is_slashes(condition, "before_question")):
        return None
    return table[name][not condition.is_baseline] / 100


def accuracy_at(model: str, source: str, condition: Condition) -> float | None:
    """The published share of right answers from the table of filler positions, or None."""
    table = POSITION.get(benchmark(source) or "", {})
    name = published_name(model, table)
    if name is None or not (condition.is_baseline or _is_slashes(condition, condition.position)):
        return None
    return table[name]["none" if condition.is_baseline else condition.position] / 100


def _is_slashes(condition: Condition, position: str) -> bool:
    if condition.intervention is not None:
        return False
    filler = (condition.kind, condition.text.strip(), condition.count, condition.position)
    return filler == ("repeat", "/", 55, position)
