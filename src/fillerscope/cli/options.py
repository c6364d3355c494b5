"""The options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of tables.")]


def _found(given: Path | list[Path]) -> Path | list[Path]:
    """The run folders that were meant: names may be shortened."""
    from fillerscope.store.find_run import find_run  # when a run is asked for: help stays quick

    return [find_run(path) for path in given] if isinstance(given, list) else find_run(given)


def _on_disk(given: Path | None) -> Path | None:
    """A folder or file of this machine: only runs go to object stores."""
    if given is not None:
        from fillerscope.errors import StoreError
        from fillerscope.store.addresses import is_address

        if is_address(given):
            raise StoreError(f"{given} is not on this machine: give a path with --out")
    return given


_RUN = "A run folder or its address, the beginning of the name of one in runs/, or latest"
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help=f"{_RUN}.", callback=_found)]
RunPaths = Annotated[
    list[Path], typer.Argument(metavar="RUN...", help=f"{_RUN}; finished or in progress.", callback=_found)
]
RunOut = Annotated[
    Path | None, typer.Option("--out", "-o", help="The folder of the run, or its address, such as s3://bucket/run.")
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="The folder to write to.", callback=_on_disk)]
Force = Annotated[bool, typer.Option("--force", help="Replace files in --out that were not written by fillerscope.")]
File = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="The file to write; report.html in the run by default.", callback=_on_disk),
]
Models = Annotated[
    list[str] | None,
    typer.Option("--model", "-m", help="Catalogue name, hub id, folder or .gguf file; repeat for several."),
]
Model = Annotated[str | None, typer.Option("--model", "-m", help="One of the run's models; the first by default.")]
RunModels = Annotated[
    list[str] | None, typer.Option("--model", "-m", help="One of the run's models; repeat for several.")
]
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Take only the first N problems.")]
Problems = Annotated[
    str | None,
    typer.Option("--problems", help="A .jsonl, .json, .parquet, .csv or .tsv file, gsm8k, hub:owner/name, or builtin."),
]
Layers = Annotated[list[int] | None, typer.Option("--layer", "-l", min=1, help="A layer, from 1; repeat for several.")]
Heads = Annotated[list[int] | None, typer.Option("--head", min=1, help="A head, from 1; repeat for several.")]
Queries = Annotated[
    str | None, typer.Option("--queries", "-q", help="Query rows: all, original (no filler), last or answer.")
]
Conditions = Annotated[list[str] | None, typer.Option("--condition", "-c", help="A condition; repeat for several.")]
StudyConditions = Annotated[
    list[str] | None,
    typer.Option("--condition", "-c", help="Run this condition, of the study or ready-made; repeat for several."),
]
MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", min=1, help="The longest answer, in tokens; turns answers on.")
]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Seed of fillers, interventions and samples.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE",
        help="Change any setting of the study, such as generation.max_tokens=256; the value is YAML. Repeat for "
        "several: the last one for a key wins, also over options.",
    ),
]  # fmt: skip
Published = Annotated[bool, typer.Option("--published", help="Use the colours of the published figures.")]
Device = Annotated[str | None, typer.Option("--device", help="cpu, cuda, cuda:1, cuda:all, mps or auto.")]
Licence = Annotated[bool, typer.Option("--accept-licence", help="Accept the licence of models that ask for it.")]
AllowKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-key", metavar="VARIABLE=HOST",
        help="Let the study send this environment variable to its server on this host, now and later. The host may be "
        "left out where the study has one.",
    ),
]  # fmt: skip
AllowHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host", metavar="HOST",
        help="Let the study send its questions to a server on this host, now and later. Not needed for this machine.",
    ),
]  # fmt: skip
Shard = Annotated[
    str | None,
    typer.Option(
        "--shard", metavar="N/COUNT",
        help="Measure one part of several, such as 3/16, in a folder of its own; `merge` makes the run of them. By "
        "default as a job array says (Slurm, Grid Engine, AWS, Google), else everything; `all`: everything.",
    ),
]  # fmt: skip
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Measure and answer shards again in which something failed.")
]
Submit = Annotated[
    str | None,
    typer.Option("--submit", metavar="slurm|local", help="Submit a job for each part, and one that merges them."),
]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="How many jobs to submit.")]
JobOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--job", metavar="KEY=VALUE",
        help="An option of submitted jobs, such as partition=gpu, gpus_per_node=1, timeout_min=600; repeat.",
    ),
]  # fmt: skip
Engine = Annotated[
    str, typer.Option("--engine", metavar="local|ray", help="Measure in this process, or with the workers of Ray.")
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", min=1, help="With Ray: how many workers, each with a model loaded; by default what fits."
    ),
]
NumCpus = Annotated[
    float | None,
    typer.Option("--num-cpus", min=0, help="With Ray: CPUs of each worker; one for each of its threads, 1 with GPUs."),
]
NumGpus = Annotated[
    float | None, typer.Option("--num-gpus", min=0, help="With Ray: GPUs of each worker; 1 where there are any.")
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address", metavar="HOST:PORT",
        help="With Ray: the cluster, or auto for that of this machine. By default RAY_ADDRESS, else one is started "
        "that only this run can reach.",
    ),
]  # fmt: skip
Findings = Annotated[bool, typer.Option("--findings", help="List all findings after the verdict.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show findings in full, with all their numbers.")]
