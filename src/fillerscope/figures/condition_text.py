"""A condition in words: what it is called, and what it is made of (filler, place, what is done inside the model)."""

from __future__ import annotations

from collections.abc import Sequence

from fillerscope.analysis.stored_run import StoredRun
from fillerscope.study.conditions import PRESETS, Condition
from fillerscope.study.interventions import Knockout, Redistribution, Shift

PLACES = {
    "start": "at the start",
    "before_question": "before the question",
    "end": "at the end",
    "random": "at random places",
}
RULES = {
    "arm": "ARM",
    "scatter": "as many random elements as ARM moves, as far,",
    "gaussian": "noise as large as what ARM adds",
}

LONGEST_TEXT = 16  # characters of a filler's text in its name


def recipe(name: str, cells: Sequence[Condition]) -> str:
    """A sentence on one condition, or on the cells of a sweep, that begins with its name."""
    return f"{name}: {described(cells)}."


def described(cells: Sequence[Condition]) -> str:
    """What one condition, or the cells of a sweep, are made of."""
    return ", ".join(filter(None, [_filler(cells) if cells[0].has_filler else "", _inside(cells)]))


def name_of(run: StoredRun, condition: str) -> str:
    """What a condition is called wherever it is shown: a few words and its key, as `55 \u00d7 " /" (mless)`.

    The words are the study's own label where it gives one; the key alone where they would say the same."""
    words = _label(run.condition(condition))
    return condition if words.casefold() in ("", condition.casefold()) else f"{words} ({condition})"


def _label(condition: Condition) -> str:
    """A label of the study's own, else the recipe of the filler; a ready-made label says less than that."""
    ready = PRESETS.get(condition.name)
    own = condition.label if ready is None or condition.label != ready.label else ""
    if own or condition.intervention is not None or not condition.has_filler:
        return own or condition.label
    text = shorten(condition.text, LONGEST_TEXT)
    fillers = {
        "repeat": f'{condition.count} \u00d7 "{text}"',
        "sentence": f"{condition.count}-token sentence",
        "characters": f"{condition.count} tokens of random characters",
    }
    return fillers.get(condition.kind, f'"{text}"')


def shorten(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}\u2026"


def quotient(conditions: Sequence[Condition]) -> str:
    """The name of a ratio to the baseline: not every condition has filler."""
    return "with / without filler" if all(one.has_filler for one in conditions) else "condition / none"


def _filler(cells: Sequence[Condition]) -> str:
    """What a filler is made of, how long it is and where it goes."""
    text = cells[0].text if len(cells[0].text) <= 40 else cells[0].text[:37] + "..."
    what = {"repeat": f"{text!r} repeated", "sentence": "random sentences", "characters": "random characters"}
    counts = _either([str(cell.count) for cell in cells if cell.count])
    places = _either([PLACES[cell.position] for cell in cells])
    return f"{what.get(cells[0].kind, repr(text))}, {f'{counts} tokens' if counts else 'as it stands'}, {places}"


def _inside(cells: Sequence[Condition]) -> str:
    """What is done inside the model."""
    changes = [cell.intervention for cell in cells]
    moved = [item for item in changes if isinstance(item, Redistribution)]
    hidden = [item for item in changes if isinstance(item, Knockout)]
    shifts = [item for item in changes if isinstance(item, Shift)]
    if moved:
        return _redistribution(moved)
    if hidden:
        where = _either([_layers(item.layers) if item.layers else "" for item in hidden])
        return "hidden from all later tokens" + (f" in {where}" if where else "")
    if shifts:
        return f"no filler, positions of the question moved by {_either([str(item.by) for item in shifts])}"
    return ""


def _redistribution(moved: Sequence[Redistribution]) -> str:
    fixed = [f"{item.fraction:g}" for item in moved if item.fraction is not None]
    amount = f"fraction {_either(fixed)}" if fixed else f"c {_either([f'{item.c:g}' for item in moved])}"
    limits = _either([f"{item.p_min:g} to {item.p_max:g}" for item in moved])
    usual = {(item.p_min, item.p_max) for item in moved} == {USUAL_LIMITS} or fixed
    parts = [
        f"{RULES[moved[0].kind]} in {_either([_layers(item.layers) for item in moved])}", amount,
        "" if usual else f"at least and at most {limits} of the elements",
        _either(["at least one element" if item.at_least_one else "" for item in moved]),
        f"p1 {_either([_percentile(item) for item in moved])}", _either([item.mode for item in moved]),
    ]  # fmt: skip
    return ", ".join(filter(None, parts))


def _percentile(item: Redistribution) -> str:
    return f"{item.p1:g}{' of |a|' if item.quantile_of == 'sizes' else ''}"


USUAL_LIMITS = tuple(Redistribution.model_fields[key].default for key in ("p_min", "p_max"))


def _layers(layers: Sequence[int]) -> str:
    return f"{'layer' if len(layers) == 1 else 'layers'} {', '.join(map(str, layers))}"


def _either(texts: Sequence[str]) -> str:
    *most, last = dict.fromkeys(texts) or [""]
    return f"{', '.join(most)} or {last}" if most else last
