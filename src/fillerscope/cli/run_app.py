"""The commands that measure: demo, try, run, reproduce, profile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fillerscope.cli.options import (
    Address,
    AllowHosts,
    AllowKeys,
    Device,
    Engine,
    Findings,
    Heads,
    JobOptions,
    Jobs,
    Json,
    Layers,
    Licence,
    Limit,
    MaxTokens,
    Models,
    NumCpus,
    NumGpus,
    Out,
    Problems,
    Published,
    Queries,
    RetryFailed,
    RunOut,
    Seed,
    Settings,
    Shard,
    StudyConditions,
    Submit,
    Verbose,
    Workers,
)

run_app = typer.Typer()
OneModel = Annotated[str, typer.Option("--model", "-m", help="Catalogue name, hub id, folder or .gguf file.")]
OneLayer = Annotated[int, typer.Option("--layer", "-l", min=1, help="The layer, from 1.")]
OneHead = Annotated[int | None, typer.Option("--head", min=1, help="The head, from 1; by default the mean of all.")]
FILLER = "mless (slashes), mful (words), random (a sentence), or any text; '\" ...\" x 55' repeats one to 55 tokens."


@run_app.command(rich_help_panel="Start here")
def demo(
    out: RunOut = None, limit: Limit = None, max_tokens: MaxTokens = None, condition: StudyConditions = None,
    seed: Seed = None, set_: Settings = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer problems and conditions: about a minute.")] = False,
    findings: Findings = False, verbose: Verbose = False, json: Json = False,
) -> None:  # fmt: skip
    """Measure SmolLM2-135M on built-in problems, grade its answers, draw all figures and write the report.

    Smaller: `fillerscope demo --limit 8 --max-tokens 32 --set references.twin=0`

    Example: `fillerscope demo`
    Example: `fillerscope demo --quick`
    """
    from fillerscope.cli.run_commands import ShowOptions, measure_and_show
    from fillerscope.study.overrides import Changes, ready_study

    changes = Changes(
        limit=limit, max_tokens=max_tokens, conditions=tuple(condition or ()), seed=seed, settings=tuple(set_ or ())
    )
    study = changes.apply(ready_study("demo-quick" if quick else "demo"))
    measure_and_show(study, out, ShowOptions(json, True, findings, verbose))


@run_app.command("try", rich_help_panel="Start here")
def try_question(
    question: Annotated[str, typer.Argument(help="A question, in quotes.")],
    model: OneModel = "smollm2-135m", layer: OneLayer = 1, head: OneHead = None,
    filler: Annotated[str, typer.Option("--filler", help=FILLER)] = "mless",
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="The most tokens of an answer.")] = 48,
    system: Annotated[str | None, typer.Option("--system", help="The text before the question.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page as well, to this file.")] = None,
    device: Device = None, accept_licence: Licence = False, json: Json = False,
) -> None:  # fmt: skip
    """Ask one question without and with filler: colour its tokens by attention, compare the two answers.

    Example: `fillerscope try "What is 17 + 25?" --filler '" ..." x 40' --layer 3 --html try.html`
    """
    from fillerscope.api import TrialOptions
    from fillerscope.cli.try_commands import try_and_show

    options = TrialOptions(
        layer=layer, head=head, max_tokens=max_tokens, device=device or "auto", accept_licence=accept_licence
    )
    try_and_show(question, model, filler, options if system is None else options | {"system": system}, html, json)


@run_app.command(rich_help_panel="Studies")
def run(
    study: Annotated[Path, typer.Argument(help="A study file in YAML; studies/ has examples.")],
    out: RunOut = None, model: Models = None, limit: Limit = None, problems: Problems = None,
    max_tokens: MaxTokens = None, condition: StudyConditions = None, seed: Seed = None, set_: Settings = None,
    device: Device = None, accept_licence: Licence = False, allow_key: AllowKeys = None, allow_host: AllowHosts = None,
    shard: Shard = None, submit: Submit = None, jobs: Jobs = 16, job: JobOptions = None,
    engine: Engine = "local", workers: Workers = None, num_cpus: NumCpus = None, num_gpus: NumGpus = None,
    address: Address = None, retry_failed: RetryFailed = False,
    report: Annotated[bool, typer.Option("--report", help="Write the report as well.")] = False,
    findings: Findings = False, verbose: Verbose = False, json: Json = False,
) -> None:  # fmt: skip
    """Run a study, or resume one that was interrupted. Ends with the verdict; --findings lists everything.

    With changes: `fillerscope run my-study.yaml -c mless --max-tokens 256 --set generation.temperature=0.8`

    With a server that needs a key: `fillerscope run my-study.yaml --allow-key OPENAI_API_KEY=api.openai.com`

    As the third of sixteen jobs: `fillerscope run my-study.yaml --shard 3/16`

    All sixteen of them: `fillerscope run my-study.yaml --submit slurm --jobs 16 --job partition=gpu`

    With Ray, on this machine or a cluster: `fillerscope run my-study.yaml --engine ray --workers 4 --num-gpus 1`

    What failed once more, as after a server was away: `fillerscope run my-study.yaml --retry-failed`

    In an object store: `fillerscope run my-study.yaml --out s3://bucket/my-study`

    As a job of a Ray cluster: `ray job submit -- fillerscope run my-study.yaml --engine ray`

    Example: `fillerscope run my-study.yaml --limit 20`
    """
    from fillerscope.cli.part_commands import measure_part, part_of
    from fillerscope.cli.ray_options import ray_choices
    from fillerscope.cli.run_commands import ShowOptions, allow_servers_of, measure_and_show
    from fillerscope.errors import StudyError
    from fillerscope.study.overrides import Changes, data_path
    from fillerscope.study.study import Study

    changes = Changes(
        tuple(model or ()), limit, data_path(problems), device=device, max_tokens=max_tokens,
        conditions=tuple(condition or ()), seed=seed, settings=tuple(set_ or ()),
    )  # fmt: skip
    options = ShowOptions(json, report, findings, verbose)
    changed = changes.apply(Study.load(study))
    allow_servers_of(changed, allow_key, allow_host)
    ray = ray_choices(engine, {"workers": workers, "cpus": num_cpus, "gpus": num_gpus, "address": address})
    if ray is not None and (submit or shard not in (None, "all")):
        raise StudyError("--engine ray measures everything; leave --shard and --submit out")
    if submit is not None and retry_failed:
        raise StudyError("--retry-failed is for runs and parts, not for --submit: give it with --shard")
    if ray is not None:
        measure_and_show(changed, out, options, accept_licence, ray, retry_failed)
    elif submit is not None:
        from fillerscope.cli.submit import Submission
        from fillerscope.cli.submit import submit as submit_jobs

        submit_jobs(changed, out, Submission(submit, jobs, tuple(job or ())), accept_licence, json)
    elif part := part_of(shard, json):
        measure_part(changed, out, part, json, accept_licence, retry_failed)
    else:
        measure_and_show(changed, out, options, accept_licence, retry_failed=retry_failed)


@run_app.command(rich_help_panel="Studies")
def reproduce(
    name: Annotated[
        str, typer.Argument(help="composite, depth, fillers, headmap, heads, heads-llama, layers, length, ...")
    ],
    model: Models = None, layer: Layers = None, head: Heads = None, limit: Limit = None, problems: Problems = None,
    max_tokens: MaxTokens = None, condition: StudyConditions = None, seed: Seed = None, set_: Settings = None,
    queries: Queries = None, published: Published = False, out: RunOut = None, device: Device = None,
    accept_licence: Licence = False, allow_key: AllowKeys = None, allow_host: AllowHosts = None, json: Json = False,
) -> None:  # fmt: skip
    """Draw a published figure, with the published models and heads or with yours.

    A finished run in `runs` that holds its numbers, up to rounding, is used as it is.

    Example: `fillerscope reproduce heads --model smollm2-135m --problems builtin --limit 16`
    """
    from fillerscope.cli.run_commands import Drawing, allow_servers_of, measure_and_draw
    from fillerscope.study.overrides import Changes, data_path, ready_study

    layers, heads = tuple(layer or ()), tuple(head or ())
    changes = Changes(
        tuple(model or ()), limit, data_path(problems), layers, heads, device, tuple(condition or ()), seed,
        max_tokens, tuple(set_ or ()),
    )  # fmt: skip
    ready, drawing = ready_study(name), Drawing(queries or "", bool(layers), bool(heads), published)
    changed = changes.apply(ready)
    allow_servers_of(changed, allow_key, allow_host)
    measure_and_draw(changed, ready, drawing, out, json, accept_licence)


@run_app.command(rich_help_panel="Start here")
def profile(
    text: Annotated[str, typer.Argument(help="A text, or the path of a text file.")],
    model: OneModel = "smollm2-135m", layer: OneLayer = 1, head: OneHead = None,
    filler: Annotated[str | None, typer.Option("--filler", help=f"Filler to put before the text: {FILLER}")] = None,
    queries: Annotated[
        str | None, typer.Option("--queries", "-q", help="Query rows: all, original (no filler) or last.")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many tokens to list.")] = 15,
    out: Out = None, device: Device = None, accept_licence: Licence = False, json: Json = False,
) -> None:  # fmt: skip
    """Show which tokens of a text receive attention, and what filler before it changes. Needs no study.

    Example: `fillerscope profile "The quick brown fox" --layer 1 --head 3 --filler mless`
    """
    from fillerscope.cli.model_commands import ProfileOptions, profile_text

    queries = queries or ("all" if filler is None else "original")  # without filler these are the same rows
    options = ProfileOptions(model, layer, head, queries, top, out, device or "auto", accept_licence, filler)
    profile_text(text, options, json)
