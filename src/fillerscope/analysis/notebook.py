"""What a notebook shows of a run: what was asked, how far it got, accuracy, the head map, and where to look further.

Never raises and never waits long: a section that cannot be made says why, and what is large is left to commands.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from markupsafe import Markup

from fillerscope.analysis.accuracy import Accuracy, Difference, compare
from fillerscope.analysis.heads import MAP_NOTE, head_map, head_table
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.notebook_html import block, command, facts, note, table
from fillerscope.analysis.run import Run
from fillerscope.display import bounded, number
from fillerscope.errors import FillerscopeError
from fillerscope.store.schema import answer_attention_name, answers_name, merged_name

MOST_NAMES = 12  # of models or conditions in one line
MOST_COMPARED = 24  # rows of a small table: longer ones take their time, too


def page(run: Run) -> str:
    """HTML without a script, a style sheet or anything to fetch."""
    title = _or_error(lambda run: f"Run {run.study.name}", run)
    sections = (_facts, _accuracies, _heads)
    further = command("Look further:", f"fillerscope view {_path(run)}")
    return block(title, *(_tried(section, run) for section in sections), further)


def summary(run: Run) -> str:
    """A run in one line: its folder, models, conditions, data and state."""
    state = _state(run).partition(" (")[0]
    return f"{run.path.resolve().name}: {_models(run)}; {_few(run.conditions)}; {_data(run)}; {state}"


def _tried(section: Callable[[Run], Markup], run: Run) -> Markup:
    """A notebook shows a run of any state, so that whoever looks at it learns what is wrong."""
    try:
        return section(run)
    except Exception as error:
        return note(_told(error))


def _or_error(made: Callable[[Run], str], run: Run) -> str:
    try:
        return made(run)
    except Exception as error:
        return _told(error)


def _told(error: Exception) -> str:
    """Our own errors say what to do; others at least what they are."""
    return str(error) if isinstance(error, FillerscopeError) else f"{type(error).__name__}: {error}"


def _facts(run: Run) -> Markup:
    makers: dict[str, Callable[[Run], str]] = {
        "state": _state, "models": _models, "data": _data, "conditions": _conditions, "measured": _measured,
    }  # fmt: skip
    _ = run.study  # without one, there is one error to show and not five
    return facts({name: _or_error(made, run) for name, made in makers.items()})


def _state(run: Run) -> str:
    missing = [f"{one.label}: {part}" for one in run.model_runs for part in _missing(one)]
    if not missing:
        return "finished"
    return f"not finished ({_few(missing, '; ')}); run the study again, it goes on from there"


def _missing(run: ModelRun) -> list[str]:
    """Which parts are not all there. Looks at names and sizes of files, not into them."""
    wanted = {"attention": [merged_name(run.name)] if run.has_attention else []}
    wanted["the answers' attention"] = [answer_attention_name(run.name)] if run.study.probes.answering else []
    wanted["answers"] = []
    if run.has_answers:
        groups = range(-(-len(run.problems()) // run.study.batch.shard))
        wanted["answers"] = [answers_name(run.name, index) for index in groups]
    return [part for part, names in wanted.items() if not all(run.store.has(name) for name in names)]


def _models(run: Run) -> str:
    labels = [(one.name, one.label) for one in run.model_runs]
    return _few([name if label == name else f"{label} ({name})" for name, label in labels])


def _data(run: Run) -> str:
    """How many problems, as far as that can be known: a study need not say so."""
    first = run[run.models[0]]
    if first.has_measured():
        measured, all_of_them = len(first.measured()), len(first.records())
        failed = f", {all_of_them - measured} failed" * (measured < all_of_them)
        count = f"n = {measured}{failed}"
    elif run.has_answers:
        count = f"n = {len(run.problems())}"
    else:
        limit = run.study.problems.limit
        count = f"at most {limit} problems" if limit else "all of its problems"
    return f"{run.study.problems.source}, {count}"


def _conditions(run: Run) -> str:
    found = [(run.condition(name).label, name) for name in run.conditions[: MOST_NAMES + 1]]
    names = [f"{name} ({label})" if label and label.lower() != name else name for label, name in found]
    return _few([*names, *run.conditions[MOST_NAMES + 1 :]])


def _measured(run: Run) -> str:
    probes, spec = run.study.probes, run.study.generation
    parts = {
        "attention": probes.attention, "affine picture": probes.affine, "activations": probes.activations,
        "the answers' attention": probes.answering,
        f"answers of at most {spec.max_tokens} tokens" if spec else "": spec,
    }  # fmt: skip
    return ", ".join(name for name, wanted in parts.items() if wanted not in (None, False))


def _accuracies(run: Run) -> Markup:
    spec = run.study.generation
    if spec is None:
        return Markup()
    count = len(run.models) * len(spec.cells()) * len(run.conditions)
    if count > MOST_COMPARED:
        return note(f"Accuracy: {count} rows; fillerscope compare {_path(run)} shows them.")
    rows = compare(run)
    columns = ("condition", "n", "accuracy %", "difference, points", "p Holm")
    several = len(run.models) * len(spec.cells()) > 1
    texts = [[_name(row, several), *_numbers(row)] for row in rows]
    words = "Accuracy; brackets: 95% interval; p adjusted over the comparisons shown."
    return table(columns, texts) + note(words)


def _name(row: Accuracy, several: bool) -> str:
    drawn = "greedy" if row.temperature == 0 else f"temperature {row.temperature:g} x {row.samples}"
    return f"{row.label}, {drawn}: {row.condition}" if several else row.condition


def _numbers(row: Accuracy) -> list[str]:
    change = row.against or Difference()
    difference = _percent(change.difference, change.difference_low, change.difference_high, "+z.1f")
    told = [difference, number(change.adjusted, ".3g")] if row.against else ["", ""]
    return [str(row.n), _percent(row.accuracy, row.low, row.high, "z.1f"), *told]


def _percent(value: float, low: float, high: float, form: str) -> str:
    return bounded(100 * value, 100 * low, 100 * high, form)


def _heads(run: Run) -> Markup:
    if not (run.has_attention and run.fillers):
        return Markup()
    found = head_table(run[run.models[0]], run.main)
    title = f"{found.label}: {found.condition} against none, queries {found.queries}, n = {found.problems}"
    return block(title, head_map(found), note(MAP_NOTE))


def _path(run: Run) -> str:
    return shlex.quote(str(run.path))


def _few(names: Sequence[str], mark: str = ", ") -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return mark.join(names[:MOST_NAMES]) + more
