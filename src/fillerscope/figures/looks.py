"""How a condition looks: one colour, dash, marker and hatch in every figure, and one number by which the page knows it.

Colours are apart for readers who do not see all of them, and the usual conditions also by lightness, for grey print;
dashes, markers and hatches tell all of them apart once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, count

from fillerscope.analysis.stored_run import StoredRun
from fillerscope.figures.condition_text import name_of
from fillerscope.figures.request import Request
from fillerscope.figures.style import DASHES, Look
from fillerscope.study.conditions import BASELINE
from fillerscope.study.study import Study

# By number, on the page too: the baseline, three usual conditions, two more, untrained twins, one more.
COLOURS = ("#262626", "#D9570A", "#155FAE", "#40BDA0", "#7A1FD0", "#DF9E00", "#7A7A7A", "#823217")
TWIN_NUMBER = 6
USUAL = {BASELINE: 0, "mless": 1, "mful": 2, "random": 3}
OTHERS = (4, 5, 7)
CONDITIONS = (*range(1, 4), *OTHERS)
MARKERS = ("o", "s", "^", "v", "P", "X")
HATCHES = ("", "/////", "\\\\\\\\\\", "....", "xxxx", "-----")


def look_numbers(study: Study) -> dict[str, int]:
    """The number of the look of every condition. Usual conditions have the same in every study; others follow in
    their order, first with colours of their own, then with those of usual conditions that the study does not have."""
    names = [condition.name for condition in study.conditions]
    numbers = {name: USUAL[name] for name in names if name in USUAL}
    free = _free(set(numbers.values()))
    return numbers | {name: next(free) for name in names if name not in numbers}


def _free(taken: set[int]) -> Iterator[int]:
    again = (len(COLOURS) * turn + number for turn in count(1) for number in CONDITIONS)  # other dashes, same colours
    return chain((number for number in (*OTHERS, *CONDITIONS[:3]) if number not in taken), again)


def condition_look(run: StoredRun, condition: str) -> Look:
    """The look of a condition, with the name that it has everywhere."""
    number = look_numbers(run.study)[condition]
    return look_of(number, name_of(run, condition)) if number else baseline_look(name_of(run, condition))


def baseline_look(label: str) -> Look:
    return Look(label, COLOURS[0], DASHES[0], "D")


def look_of(number: int, label: str = "") -> Look:
    """The look with a number from 1 on."""
    turn, own = divmod(number, len(COLOURS))
    place = (CONDITIONS.index(own) + turn) % len(CONDITIONS)
    return Look(label, COLOURS[own], DASHES[1:][place], MARKERS[place], HATCHES[place])


def line_look(index: int, label: str = "") -> Look:
    """The look of a line that stands for several conditions, by its place among such lines."""
    turn, place = divmod(index, len(CONDITIONS))
    return look_of(len(COLOURS) * turn + CONDITIONS[place], label)


def looks_in(run: StoredRun, request: Request, conditions: Sequence[str], published: Sequence[str]) -> dict[str, Look]:
    """The looks of a figure's conditions; in the published colours, by their order, where these are asked for."""
    looks = {name: condition_look(run, name) for name in conditions}
    if not request.published:
        return looks
    return {
        name: replace(look, colour=published[place % len(published)], dash=DASHES[place % len(DASHES)])
        for place, (name, look) in enumerate(looks.items())
    }
