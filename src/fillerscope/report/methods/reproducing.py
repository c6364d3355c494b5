"""How a run was checked, what it was made with, what is missing from it, and how to make it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from fillerscope import __version__
from fillerscope.analysis.findings.all import available_answers, available_records, missing_parts
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.run import ANSWER, Run
from fillerscope.report.sections import Facts, Section, counted, grouped
from fillerscope.study.data_sets import is_file

LAYOUTS = {
    "shared": "texts share a row and prefixes", "packed": "texts share a row, without shared prefixes",
    "apart": "each text has a row of its own",
}  # fmt: skip
ENGINES = {"rows": "many answers at once", "alone": "answers written one at a time", "vllm": "vLLM"}
WORDS = {
    "python": "Python", "machine": "Architecture", "system": "System", "processor": "Processor",
    "cores": "Logical cores", "memory_gib": "Memory, GiB", "device": "Device",
}  # fmt: skip


def checks(run: Run) -> Section:
    files = len(run.store.manifest["files"])
    paragraphs = [
        f"The manifest keeps size and SHA-256 of {counted(files, 'file')}; a file is compared with both before "
        "anything in it is read, and `fillerscope verify` compares them all."
    ]
    facts = _of_each(run, "Against eager attention", _self)
    if facts:
        paragraphs.append(
            "Before anything was measured, attention received was compared with the model's own eager attention in "
            "every layer, on the same queries, keys and values; a difference above the tolerance stops a run."
        )
    rows = _of_each(run, "Texts together against each alone", _rows)
    if rows:
        paragraphs.append(
            "Texts of very unequal length were measured together, as in the run, and each alone in the stock model: "
            "hidden states and attention inputs of every layer, and attention received, must agree up to rounding."
        )
    first = _of_each(run, "First tokens of answers", _first_tokens)
    if first:
        paragraphs.append("Logits that first tokens of answers were chosen from were compared with plain passes.")
    alone = _of_each(run, "Answers written again", _alone)
    if alone:
        paragraphs.append("Some greedy answers were written again one at a time: rounding depends on the batch.")
    return Section("Checks", paragraphs, facts + rows + first + alone)


def _of_each(run: Run, name: str, tell: Callable[[ModelRun], str]) -> Facts:
    """What there is to tell of each model."""
    return [(f"{name}, {one.label}", told) for one in run.model_runs if (told := tell(one))]


def _self(run: ModelRun) -> str:
    found = run.facts.get("selfcheck") or {}
    if "difference" not in found:
        return ""
    where = f" in layer {found['layer']} head {found['head']}" if {"layer", "head"} <= found.keys() else ""
    length = f", on up to {counted(found['tokens'], 'token')}" if "tokens" in found else ""
    allowed = f" ({found['tolerance']:.1g} is allowed)" if "tolerance" in found else ""
    return f"largest difference {found['difference']:.1e}{where}{allowed}{length}"


def _rows(run: ModelRun) -> str:
    found = run.facts.get("rowcheck") or {}
    if "layout" not in found:
        return ""
    layout = LAYOUTS.get(found["layout"], found["layout"])
    return (
        f"{layout}; largest difference {found['difference']:.1e} of the size of what is compared "
        f"({found['tolerance']:.1g} is allowed), on up to {counted(found['tokens'], 'token')}"
    )


def _first_tokens(run: ModelRun) -> str:
    found = run.facts.get("answercheck") or {}
    if not found.get("prompts"):
        return ""
    engine = ENGINES.get(found["engine"], found["engine"])
    return (
        f"{engine}; largest difference {found['difference']:.1e} of the spread of the logits ({found['tolerance']:.1g} "
        f"is allowed), {counted(found['prompts'], 'prompt')}"
    )


def _alone(run: ModelRun) -> str:
    found = run.facts.get("recheck") or {}
    if not {"checked", "same"} <= found.keys():
        return ""
    margins = found.get("margins")
    near = f"; the others part where two logits are within {max(margins):.2g} of each other" if margins else ""
    return f"{found['same']} of {found['checked']} are the same{near}"


def environment(run: Run) -> Section:
    identity, found = run.store.manifest["identity"], run.store.manifest.get("environment") or {}
    text = "Versions and hardware as they were noted when the run was last written; they do not name the run."
    facts: Facts = [("fillerscope, measuring code", str(identity["code"]))] if "code" in identity else []
    facts += [("Kind of device", str(identity["device"]))] if "device" in identity else []
    facts += [(WORDS.get(key, key), str(value)) for key, value in _ordered(found)]
    facts.append(("fillerscope, this text", __version__))
    return Section("Environment", [text] if found else [], facts)


def _ordered(found: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The machine first, then libraries by name: a manifest is written with its keys sorted."""
    rank = {key: place for place, key in enumerate(WORDS)}
    return sorted(found.items(), key=lambda item: (rank.get(item[0], len(rank)), item[0]))


def skipped(run: Run, missed: Mapping[str, str]) -> Section:
    """Whatever should be there and is not."""
    facts: Facts = []
    for one in run.model_runs:
        reasons = missing_parts(one)
        facts += [(f"Not there, {one.label}", "; ".join(reasons))] if reasons else []
        facts += _failed(one)
    facts += [(f"Figure {name}", reason) for name, reason in missed.items()]
    return Section("Skipped", ["What was asked for and is not there:" if facts else "Nothing was left out."], facts)


def _failed(run: ModelRun) -> Facts:
    label = run.label
    facts: Facts = []
    if problems := failed_problems(run):
        facts.append((f"Problems not measured, {label}", f"{len(problems)}: {grouped(problems)}"))
    if run.study.probes.answering:
        unseen = failed_problems(run, ANSWER)
        facts += [(f"Answers not looked at, {label}", f"{len(unseen)}: {grouped(unseen)}")] if unseen else []
    if failed := failed_answers(run):
        facts.append((f"Answers that failed, {label}", f"{len(failed)}: {grouped(failed)}"))
    return facts


def failed_problems(run: ModelRun, queries: str = "original") -> list[str]:
    """The reason of each problem whose attention was not measured."""
    records = available_records(run, queries)
    return [str(record.get("error", "")) for record in records if record["status"] == "failed"]


def failed_answers(run: ModelRun) -> list[str]:
    columns = available_answers(run)
    pairs = zip(columns.get("verdict", []), columns.get("note", []), strict=False)
    return [str(note) for verdict, note in pairs if verdict == "failed"]


def again(run: Run) -> Section:
    code = run.store.manifest["identity"].get("code")
    version = f" with fillerscope {str(code).partition('+')[0]}" if code else ""
    python = "fillerscope.run('study.yaml', model=model, tokenizer=tokenizer)"
    command = (
        f"{python}` in Python, with the model of that digest," if _in_memory(run) else "fillerscope run study.yaml`"
    )
    text = (
        f"Save what follows as study.yaml and run `{command}{version}. A run is named by everything "
        "that can change a number, so the same study, weights, data, code and kind of device give the same folder name."
    )
    source = run.study.problems.source
    relative = is_file(source) and not Path(source).is_absolute()
    note = [f"The path {source} is taken as relative to study.yaml."] if relative else []
    return Section("How to make it again", [text, *note], code=study_yaml(run))


def _in_memory(run: Run) -> bool:
    """Whether the run's model was in memory, so that no name leads to it."""
    return any(entry.get("in_memory") for entry in run.store.manifest["identity"].get("models", []))


class _Dumper(yaml.SafeDumper):
    """Texts with line breaks on one line, as they are written in code."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style='"' if "\n" in value else None)


_Dumper.add_representer(str, _text)


def study_yaml(run: Run) -> str:
    """The stored study as a file that `Study.load` takes, every setting written out.

    In ASCII, because YAML would take some of Unicode's line ends for others when it is read again."""
    data = run.study.model_dump(mode="json", exclude={"models", "device"} if _in_memory(run) else None)
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=False, width=100_000)
