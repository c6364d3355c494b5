"""The commands about a study of one's own: init, fields, check, plan, study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from fillerscope.cli.options import Json, Limit, MaxTokens, Models, Problems, Settings, StudyConditions

study_app = typer.Typer()

Fields = Annotated[
    list[str] | None,
    typer.Option("--field", help="A column by its role, such as question=text, answer=gold or id=key; repeat."),
]
Data = Annotated[
    str, typer.Option("--data", help="A file, gsm8k, math500, aime24, aime25, hub:owner/name, or builtin.")
]


class KeysInHelp(TyperCommand):
    """A command whose help ends with the keys of a study file."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        from fillerscope.cli.study_commands import show_keys

        show_keys("", json=False)


@study_app.command(rich_help_panel="Studies")
def init(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="The study file to write.")] = Path("study.yaml"),
    model: Annotated[str, typer.Option("--model", "-m", help="Catalogue name, hub id, folder or .gguf file.")] = (
        "smollm2-135m"
    ),
    data: Data = "builtin",
    answers: Annotated[
        bool | None,
        typer.Option("--answers/--no-answers", help="Ask for answers; by default where the data has references."),
    ] = None,
    limit: Limit = None, field: Fields = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that exists.")] = False,
) -> None:  # fmt: skip
    """Write a study to start from, with comments, for a model and a data set.

    Example: `fillerscope init my-study.yaml --data problems.csv --model smollm2-135m`
    """
    from fillerscope.cli.study_commands import fields_of, new_study
    from fillerscope.report.preview.new_study import NewStudy

    new_study(NewStudy(file, model, data, fields_of(field), limit, answers), force)


@study_app.command(rich_help_panel="Studies")
def fields(
    source: Annotated[
        str, typer.Argument(metavar="FILE", help="A data file, gsm8k, math500, aime24, aime25 or hub:owner/name.")
    ],
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Whose tokenizer shows the prompt; smollm2-135m where cached.")
    ] = None,
    field: Fields = None, limit: Limit = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Skip and count rows that are no problems: `problems.on_error: skip`.")
    ] = False,
    json: Json = False,
) -> None:  # fmt: skip
    """Show what is recognised in a data file: columns, problems as they are asked, references as they are graded.

    Example: `fillerscope fields problems.csv --field answer=gold`
    """
    from fillerscope.cli.study_commands import fields_of, show_fields
    from fillerscope.study.study import ProblemsSpec

    on_error = "skip" if skip_bad else "stop"
    show_fields(ProblemsSpec(source=source, limit=limit, fields=fields_of(field), on_error=on_error), model, json)


@study_app.command(rich_help_panel="Studies")
def check(
    study: Annotated[Path, typer.Argument(help="A study file in YAML.")],
    json: Json = False,
) -> None:
    """Show what a study asks for without running it: models, problems, prompts, work, reachable verdicts.

    Example: `fillerscope check my-study.yaml`
    """
    from fillerscope.cli.study_commands import show_check

    if not show_check(study, json):
        raise typer.Exit(1)


@study_app.command(rich_help_panel="Studies")
def plan(
    study: Annotated[Path, typer.Argument(help="A study file in YAML.")],
    model: Models = None, limit: Limit = None, problems: Problems = None, max_tokens: MaxTokens = None,
    condition: StudyConditions = None, set_: Settings = None,
    device: Annotated[
        str | None,
        typer.Option("--device", help="cpu, cuda or mps of this machine; or a100, h100, h200, l4, ... by peak rates."),
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate/--no-calibrate", help="Time the model here; else by peak rates, without weights."),
    ] = True,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Tell how long the longest of so many jobs takes.")] = 1,
    json: Json = False,
) -> None:  # fmt: skip
    """Tell what a study will take before it runs: prompts, tokens, passes, memory, bytes and hours.

    A minute of calibration: the model is loaded, and some passes, decode steps and answers are timed.

    For a machine that is not here: `fillerscope plan my-study.yaml --device h100 --jobs 16`

    Without weights, for a folder with config.json and a tokenizer: `fillerscope plan my-study.yaml -m ./my-model
    --device h100`

    Example: `fillerscope plan my-study.yaml`
    """
    from fillerscope.cli.plan_commands import show_plan
    from fillerscope.study.overrides import Changes, data_path
    from fillerscope.study.study import Study

    changes = Changes(
        tuple(model or ()), limit, data_path(problems), max_tokens=max_tokens, conditions=tuple(condition or ()),
        settings=tuple(set_ or ()),
    )  # fmt: skip
    show_plan(study, changes.apply(Study.load(study)), device, calibrate, jobs, json)


@study_app.command(cls=KeysInHelp, rich_help_panel="Studies")
def study(
    key: Annotated[str, typer.Argument(help="A key or a section, such as problems or generation.max_tokens.")] = "",
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of study files.")] = False,
    json: Json = False,
) -> None:
    """Explain the keys of a study file: type, default, meaning and an example of each.

    Example: `fillerscope study problems.fields`
    """
    from fillerscope.cli.study_commands import print_schema, show_keys

    if schema:
        print_schema()
    else:
        show_keys(key, json)
