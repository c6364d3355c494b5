"""How a run was made, section by section, in prose for a paper's appendix: from the run itself, nothing by heart.

What an old run did not note is left out. The text is about this run; docs/method.md is about all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fillerscope.analysis.accuracy import Accuracy
from fillerscope.analysis.findings.all import available, available_answers, available_comparison, available_records
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.run import Run
from fillerscope.figures.condition_text import recipe
from fillerscope.files import Json
from fillerscope.report.methods.measures import activations, affine, answering, answers, attention
from fillerscope.report.methods.reproducing import (
    again,
    checks,
    environment,
    failed_answers,
    failed_problems,
    skipped,
    study_yaml,
)
from fillerscope.report.methods.statistics import seeds, statistics
from fillerscope.report.sections import Facts, Section, as_text, counted, grouped, listed
from fillerscope.study.conditions import Condition
from fillerscope.study.data_sets import data_set
from fillerscope.study.generation import VLLM
from fillerscope.study.published import benchmark
from fillerscope.study.study import ModelSpec

__all__ = ["Section", "as_text", "methods", "study_yaml"]


def methods(
    run: Run, missed: Mapping[str, str] | None = None, compared: Sequence[Accuracy] | None = None
) -> list[Section]:
    """`missed`: figures that were not drawn, by name, and why. `compared`: the table of accuracies, where at hand."""
    table = available_comparison(run) if compared is None else compared
    found = [
        _models(run), _data(run), _conditions(run), attention(run), affine(run), activations(run), answering(run),
        answers(run), statistics(run, table), seeds(run), checks(run), environment(run), skipped(run, missed or {}),
        again(run),
    ]  # fmt: skip
    return [section for section in found if section is not None]


def _models(run: Run) -> Section:
    specs = run.study.models
    text = (
        f"{counted(len(specs), 'decoder language model')}, with {'its' if len(specs) == 1 else 'their'} own tokenizer"
        f"{'' if len(specs) == 1 else 's'} and unchanged weights. The digest says which weights exactly."
    )
    return Section("Models", [text], [(run.label(spec.name), _model(run[spec.name], spec)) for spec in specs])


def _model(run: ModelRun, spec: ModelSpec) -> str:
    noted = _identity(run)
    shape = _shape(run)
    template = run.facts.get("template") or noted.get("template") or run.study.template_of(spec)
    parts = [
        spec.name, f"{shape[0]} layers of {shape[1]} heads{_hybrid(run, shape[0])}" if shape else "",
        f"dtype {noted.get('dtype') or spec.dtype}",
        f"template {template}", run.facts.get("tokenizer", ""),
        f"digest {noted['digest']}" if noted.get("digest") else "",
    ]  # fmt: skip
    if spec.endpoint:
        called = spec.endpoint.model or spec.name
        servers = " and ".join(spec.endpoint.urls)
        parts.append(f"answers from {servers} (model {called}, prompts as {spec.endpoint.prompt})")
    elif run.study.is_served(spec):
        version = run.store.manifest["identity"].get("libraries", {}).get(VLLM, "")
        parts.append(f"answers by vLLM {version}".rstrip())
    return "; ".join(filter(None, parts))


def _identity(run: ModelRun) -> Json:
    """What names the run says of a model; nothing where an old run has no such entry."""
    entries = run.store.manifest["identity"].get("models", [])
    return next((entry for entry in entries if isinstance(entry, dict) and entry.get("name") == run.name), {})


def _shape(run: ModelRun) -> tuple[int, int] | None:
    if not run.has_attention:
        return None
    found = available(lambda: run.summary("entropy", "none").shape)
    return None if found is None else (found[1], found[2])


def _hybrid(run: ModelRun, layers: int) -> str:
    attending = run.attention_layers()
    return f" ({len(attending)} of the layers have attention)" if len(attending) < layers else ""


SHOWN = 10  # skipped rows, with their reasons
BUILTIN = {"words": "word problems", "sums": "sums"}


def _data(run: Run) -> Section:
    spec = run.study.problems
    source = f"the built-in {BUILTIN[spec.kind]}" if spec.source == "builtin" else spec.source
    name = benchmark(spec.source)
    text = f"Problems come from {source}{f' ({name})' if name else ''}, in the order of their source."
    facts: Facts = [("Source", spec.source)]
    if spec.source == "builtin":
        facts.append(("Difficulty", listed([str(level) for level in spec.difficulty])))
    if known := data_set(spec.source):
        facts.append(("Data set on the hub", known.repo))
    if spec.source.startswith("hub:") or known:
        facts.append(("Split", spec.split))
    facts += [(f"Column of the {role}", column) for role, column in spec.fields.items()]
    recognised = run.store.manifest.get("data") or {}
    facts += [("Reference answers", str(form))] if (form := recognised.get("answers")) else []
    facts += [("Limit", f"{spec.limit:,}")] if spec.limit else []
    if isinstance(digest := run.store.manifest["identity"].get("problems"), str):
        facts.append(("Digest of ids, questions and answers", digest))
    if isinstance(planned := run.store.manifest.get("problems"), int):
        facts.append(("Problems", f"{planned:,}"))
    facts += _skipped(recognised)
    told = [(one.label, counts) for one in run.model_runs if (counts := _counts(one))]
    return Section("Data", [text, PAIRED], facts + told)


def _skipped(data: Json) -> Facts:
    """Rows that were skipped, with the reasons of the first of them."""
    if not data.get("skipped"):
        return []
    first = [f"{row['place']}: {row['reason']}" for row in data["skipped_rows"][:SHOWN]]
    more = data["skipped"] - len(first)
    return [
        ("Rows read", f"{data['rows']:,}"),
        ("Rows skipped", f"{data['skipped']:,}: {' | '.join(first)}{f' | and {more:,} more' if more else ''}"),
    ]


PAIRED = (
    "A problem that cannot be measured under one condition is taken out under all, so that pairs stay complete; it is "
    "counted as failed, with its reason."
)


def _counts(run: ModelRun) -> str:
    """How many problems there are, and what became of them."""
    records, columns = available_records(run), available_answers(run)
    told = []
    if records:
        failed = failed_problems(run)
        measured = f"{len(records) - len(failed):,} of {len(records):,} problems measured"
        told.append(f"{measured}, {_failed(failed)}")
    if columns:
        broken = failed_answers(run)
        asked = f"{len(columns['verdict']):,} answers to {len(run.problems()):,} problems"
        told.append(f"{asked}, {_failed(broken)}")
    return "; ".join(told)


def _failed(reasons: list[str]) -> str:
    return f"{len(reasons):,} failed ({grouped(reasons)})" if reasons else "none failed"


def _conditions(run: Run) -> Section:
    study = run.study
    groups: dict[str, list[Condition]] = {}
    for condition in study.conditions[1:]:
        groups.setdefault(condition.sweep or condition.name, []).append(condition)
    told = ["none is the prompt as it is, and the baseline of every comparison."]
    told += [recipe(name, cells) for name, cells in groups.items()]
    facts = [(condition.name, _settings(condition)) for condition in study.conditions[1:]]
    facts.append(("System prompt", study.prompt.system))
    facts += [("Worked example before the question", f"{one.question} {one.answer}") for one in study.prompt.examples]
    templates = {run[spec.name].facts.get("template") or study.template_of(spec) for spec in study.models}
    facts += [("Raw format", repr(study.prompt.raw))] if templates & {"raw", "auto"} else []
    fillers = [condition for condition in study.conditions if condition.has_filler]
    about = [FILLER + (LATE if any(one.position == "end" for one in fillers) else "")] if fillers else []
    return Section("Conditions", [" ".join(told), *about], facts)


FILLER = "Filler is one unbroken block of an exact number of tokens, inserted as token ids between two original tokens."
LATE = (
    " Attention is causal: filler at the end is seen by the template's tail and the answer alone, and cannot change "
    "what the tokens before it compute."
)


def _settings(condition: Condition) -> str:
    """All of them, whatever a caption leaves out."""
    parts = [condition.label] if condition.label else []
    if condition.has_filler:
        parts.append(f"kind {condition.kind}")
        parts += [f"text {condition.text!r}"] if condition.text else []
        parts += [f"{condition.count} tokens"] if condition.count else []
        parts.append(f"position {condition.position}")
        if condition.kind in ("sentence", "characters"):
            parts.append("one draw for all problems" if condition.draw == "once" else "a draw for each problem")
    if condition.intervention is not None:
        given = condition.intervention.model_dump(exclude={"kind"})
        if not given.get("preset"):
            given.pop("follows", None)  # which only presets do
        parts.append(f"intervention {condition.intervention.kind}")
        parts += [f"{key} {_value(value)}" for key, value in given.items() if value not in (None, "")]
    return "; ".join(parts)


def _value(value: Any) -> str:
    return (listed([str(item) for item in value]) or "all") if isinstance(value, tuple | list) else str(value)
