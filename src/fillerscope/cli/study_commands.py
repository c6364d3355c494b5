"""Commands about a study of one's own: write one, look at its data, check it, explain its keys."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from fillerscope.analysis.findings.wording import plural
from fillerscope.cli import tables
from fillerscope.display import command, printable, readable
from fillerscope.errors import ProblemError
from fillerscope.problems.problem import repeated_problems
from fillerscope.problems.sources import skipped_rows
from fillerscope.report.preview.check import ModelCheck, StudyCheck, check_study
from fillerscope.report.preview.data import DataPreview, ProblemPreview, preview_data
from fillerscope.report.preview.new_study import NewStudy, write_study
from fillerscope.report.preview.prompts import PromptPreview
from fillerscope.study.data_sets import Role
from fillerscope.study.study import ProblemsSpec, Study

if TYPE_CHECKING:
    from rich.text import Text

ROLES: tuple[Role, ...] = ("question", "answer", "id")
LONG_TEXT, LONG_FILLER = 600, 48  # characters that are shown
MOST_PROMPTS, AROUND = 6, 60
OPEN, CLOSE = "\u27e6", "\u27e7"  # around filler, for those who see no colours
PLACED = {"here": "here", "catalogue": "to be fetched", "file": "to be converted", "hub": "to be fetched from the hub"}


def fields_of(given: Sequence[str] | None) -> dict[Role, str]:
    """Columns by role, from texts such as question=text."""
    fields: dict[Role, str] = {}
    for text in given or ():
        name, equals, column = text.partition("=")
        role = next((one for one in ROLES if one == name.strip()), None)
        if role is None or not equals or not column:
            raise ProblemError(f"--field takes question=COLUMN, answer=COLUMN or id=COLUMN, not {text!r}")
        fields[role] = column
    return fields


def new_study(new: NewStudy, force: bool) -> None:
    """Write a study, and say what to do with it."""
    starter = write_study(new, force)
    told = [f"Wrote {new.path}: {starter.model} on {starter.source}, {plural(starter.limit or 0, 'problem')}."]
    if starter.answers is None:
        told.append("It asks for no answers: not every problem has a reference answer to grade by.")
    tables.lines([*told, "", f"Next: {command('check', new.path)}", f"      {command('run', new.path)}"])


def show_fields(spec: ProblemsSpec, model: str | None, json: bool) -> None:
    """Show what was recognised in a data set."""
    preview = preview_data(spec, model)
    if json:
        tables.print_json(preview.record())
        return
    _show_data(preview.data)
    for number, problem in enumerate(preview.data.first, start=1):
        _show_problem(number, problem)
    if preview.prompt is None:
        tables.lines(["", f"The prompt is not shown: {preview.note}"])
    else:
        _show_prompt(preview.prompt, f"The first prompt as {preview.model} gets it under mless")
    tables.lines(["", f"Next: fillerscope init --data {shlex.quote(spec.source)}"])


def show_check(path: Path, json: bool) -> bool:
    """Show what a study asks for. Returns whether it can run."""
    check = check_study(Study.load(path))
    if json:
        tables.print_json(check.record())
        return not check.obstacles
    tables.lines([f"{path} is a valid study: {check.study.name}"], style="bold")
    tables.table("", ("model", "where", "size", "longest prompt"), [_model_row(one, check) for one in check.models])
    _show_data(check.data)
    for number, problem in enumerate(check.data.first[:1], start=1):
        _show_problem(number, problem)
    _show_conditions(check)
    _show_work(check)
    tables.lines(["", "What it can tell:"], style="bold")
    for outlook in check.outlooks:
        _indented(f"{'yes' if outlook.reachable else 'no':<3} {outlook.question}")
        _indented(outlook.text, 6)
    for obstacle in check.obstacles:
        tables.lines(["", f"It cannot run as it is. {obstacle}"])
    if not check.obstacles:
        tables.lines(["", f"Next: {command('run', path)}"])
    return not check.obstacles


def show_keys(wanted: str, json: bool) -> None:
    """Show the keys of a study file: all in short, or some in full."""
    from fillerscope.study.reference import find, sections

    if json:
        keys = find(wanted) if wanted else [key for section in sections() for key in section.keys]
        tables.print_json([asdict(key) for key in keys])
        return
    if wanted:
        for key in find(wanted):
            default = "required" if key.default == "required" else f"default {key.default or 'as its keys say'}"
            tables.lines([key.path], style="bold")
            tables.lines(
                [f"  {key.text}", f"  {key.type}; {default}", *([f"  {key.example}"] if key.example else []), ""]
            )
        return
    for section in sections():
        rows = [[key.path.rpartition(".")[2], key.default, key.text] for key in section.keys]
        tables.table(section.title, ("key", "default", "meaning"), rows)
    tables.lines(["`fillerscope study KEY` shows one with its type and an example."])


def print_schema() -> None:
    """Print the JSON Schema of study files, as it is shipped."""
    from fillerscope.study.json_schema import schema_file

    print(schema_file().read_text(encoding="utf-8"), end="")


def _show_data(data: DataPreview) -> None:
    tables.lines([f"{data.source}: {data.format}, {plural(data.count, 'problem')}"], style="bold")
    if data.recognised is None:
        return
    recognised = data.recognised
    for role in ROLES:
        columns = ", ".join(recognised.columns[role]) or ("numbered by row" if role == "id" else "none")
        named = " (named by you)" if role in recognised.named else ""
        how = f": {recognised.answers}" if role == "answer" and recognised.answers else ""
        aside = f" (left aside: {', '.join(names)})" if (names := recognised.aside(role)) else ""
        tables.lines([f"  {role:<9} {columns}{named}{how}{aside}"])
    tables.lines([f"  {'others':<9} {', '.join(recognised.others) or 'none'}"])
    if recognised.not_asked:
        tables.lines([f"  {recognised.not_asked}"])
    if data.skipped:
        tables.lines([f"  {skipped_rows(data.rows, len(data.skipped), str(data.skipped[0]))}"])
    if data.repeated:
        tables.lines([f"  {repeated_problems(data.repeated, data.count)}"])
    if data.unanswered:
        tables.lines([f"  {data.unanswered:,} of {data.count:,} problems have no answer to grade by"])
    tables.lines(["Other columns: `problems: {fields: {question: COLUMN, answer: COLUMN}}` in the study."])


def _show_problem(number: int, problem: ProblemPreview) -> None:
    tables.lines(["", f"Problem {number}, {problem.id}"], style="bold")
    _indented(_clipped(problem.question))
    graded = "" if problem.graded == problem.answer else f", compared as {problem.graded}"
    _indented(f"reference: {_clipped(problem.answer)}{graded}" if problem.answer else "no reference")


def _show_conditions(check: StudyCheck) -> None:
    """A line for each condition, and its prompt where a tokenizer is here."""
    shown = {one.condition: one for one in check.prompts}
    rows = [
        [name, text, str(shown[name].filler_tokens) if name in shown else "", str(shown[name].tokens) if shown else ""]
        for name, text in check.conditions.items()
    ]
    tables.table("Conditions", ("condition", "made of", "filler tokens", "prompt tokens"), rows)
    if not shown:
        tables.lines(["Prompts are shown once a model is on this machine."])
    _show_prompts(check.prompts)


def _show_prompts(prompts: Sequence[PromptPreview]) -> None:
    """The baseline's prompt as a whole; of those with filler, what stands around it."""
    for prompt in prompts[:1]:
        _show_prompt(prompt, f"First prompt under {prompt.condition}")
    filled = [prompt for prompt in prompts[1:] if prompt.filler]
    for prompt in filled[:MOST_PROMPTS]:
        _show_prompt(prompt.around(AROUND), f"Around the filler under {prompt.condition}")
    if len(filled) > MOST_PROMPTS:
        tables.lines(["", f"{len(filled) - MOST_PROMPTS} more conditions with filler; --json shows all prompts."])


def _show_prompt(prompt: PromptPreview, title: str) -> None:
    """A prompt with its filler marked by brackets and, on a terminal, by colour."""
    from rich.text import Text

    filler = f"; {OPEN} {CLOSE} marks the filler, {prompt.filler_tokens} tokens" if prompt.filler_tokens else ""
    tables.lines(["", f"{title}: {prompt.tokens} tokens{filler}"], style="bold")
    text = Text(printable(_clipped(prompt.before)))
    if prompt.filler:
        text.append(f"{OPEN}{printable(_clipped(prompt.filler, LONG_FILLER))}{CLOSE}", style="black on yellow")
    text.append(printable(_clipped(prompt.after)))
    _print_indented(text)


def _print_indented(text: Text, columns: int = 2) -> None:
    """Print a text some columns in, broken to fit a terminal and left as it is elsewhere."""
    out = tables.console()
    width = max(20, out.width - columns)
    for part in text.wrap(out, width) if out.is_terminal else text.split("\n", allow_blank=True):
        part.rstrip()
        part.pad_left(columns)
        out.print(part, soft_wrap=True, highlight=False)


def _indented(text: str, columns: int = 2) -> None:
    from rich.text import Text

    _print_indented(Text(printable(text)), columns)


def _model_row(model: ModelCheck, check: StudyCheck) -> list[str]:
    size = readable(model.bytes) if model.bytes else ""
    if model.longest is None:
        return [model.name, PLACED[model.place], size, ""]
    answer = check.study.generation.max_tokens if check.study.generation else 0
    more = f" + {answer:,} of an answer" if answer else ""
    limit = f" of {model.context:,} tokens" if model.context else " tokens"
    failed = f"; {model.failed} problems fail: {model.reason}" if model.failed else ""
    short = (
        "; answers may be truncated by it" if (model.context or 0) < model.longest + answer and model.context else ""
    )
    return [model.name, PLACED[model.place], size, f"{model.longest:,}{more}{limit}{short}{failed}"]


def _show_work(check: StudyCheck) -> None:
    tokens, study = check.forward_tokens, check.study
    twins = f" ({study.references.twin} untrained twins of each model included)" if study.references.twin else ""
    told = ["prompts of unknown length"] if tokens is None else []
    if tokens:  # without attention no prompt is measured
        told.append(f"about {tokens:,} tokens of prompts{twins}")
    if study.generation is not None:
        most = check.answers * study.generation.max_tokens
        told.append(f"{check.answers:,} answers of at most {study.generation.max_tokens:,} tokens ({most:,} in all)")
    tables.lines(["", f"Work: {'; '.join(told)}."])


def _clipped(text: str, longest: int = LONG_TEXT) -> str:
    """A text that fits a screen, with its beginning and end."""
    if len(text) <= longest:
        return text
    return f"{text[: longest * 3 // 4]} ... {text[-longest // 4 :]}"
