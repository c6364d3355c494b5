"""A study carried out: models found, a run folder named, shards measured and merged.

The orchestra's conductor: it plays no instrument. What measures is in runner, what keeps is in store.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

from fillerscope.errors import ProblemError
from fillerscope.measure.engines.local import measure_model
from fillerscope.measure.shard import shards_of
from fillerscope.models.resolve import ModelFolder, resolve
from fillerscope.problems.sources import Problem, load_problems, problems_digest
from fillerscope.store.run_folder import (
    PROBLEMS,
    Columns,
    RunStore,
    again_name,
    answers_name,
    lookback_name,
    merged_name,
    shard_name,
)
from fillerscope.study.study import ModelSpec, Study, digest_of
from fillerscope.version import __version__

# Whatever can change a number: a stale shard is never taken for a fresh one.
MEASURING = (
    "problems/arithmetic.py",
    "problems/sources.py",
    "prompts/fillers.py",
    "prompts/sentences.txt",
    "prompts/prompt.py",
    "study/token_classes.py",
    "store/moments.py",
    "measure/head_summary.py",
    "measure/reduce.py",
    "measure/tally.py",
    "arm/rng.py",
    "arm/rule.py",
    "arm/kernels.py",
    "arm/hooks.py",
    "capture/masks.py",
    "capture/packing.py",
    "capture/blocks.py",
    "capture/kernels.py",
    "capture/fused.py",
    "capture/attention.py",
    "capture/affine.py",
    "capture/activations.py",
    "capture/activation_kernels.py",
    "capture/probes.py",
    "capture/calibration.py",
    "capture/passes.py",
    "capture/memory.py",
    "models/structure.py",
    "models/untrained.py",
    "measure/shard.py",
    "measure/answer_attention.py",
    "answers/local/slots.py",
    "answers/local/sampling.py",
    "answers/local/stops.py",
    "answers/local/engine.py",
    "answers/endpoint/generator.py",
    "answers/endpoint/client.py",
    "answers/endpoint/text.py",
    "answers/grading/extract.py",
    "answers/grading/normalise.py",
    "answers/grading/sandbox.py",
    "answers/grading/grade.py",
    "measure/answer_shard.py",
    "measure/engines/answers.py",
    "measure/engines/local.py",
    "store/merge.py",
)
GRADING = ("math-verify", "latex2sympy2_extended", "sympy")  # another version may judge otherwise
RECORDED = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy", *GRADING)


class Progress(Protocol):
    """Whoever wants to know how far things are. Every method may be called any number of times."""

    def stage(self, text: str, done: float, total: int | None) -> None: ...
    def say(self, text: str) -> None: ...


class Quiet:
    def stage(self, text: str, done: float, total: int | None) -> None:
        pass

    def say(self, text: str) -> None:
        pass


def carry_out(
    study: Study, out: Path | None = None, progress: Progress | None = None, accept_licence: bool = False
) -> RunStore:
    """Measure what is not measured yet; everything that is there is taken as it is."""
    progress = progress or Quiet()
    problems = load_problems(study.problems)
    if not problems:
        raise ProblemError(f"{study.problems.source} holds no problems")
    if study.generation is not None:
        _refuse_unanswered(problems, study.problems.source)
    folders = {spec.name: resolve(spec.name, progress.stage, accept_licence) for spec in study.models}
    identity = identify(study, problems, folders)
    path = out or Path("runs") / f"{study.name}-{digest_of(identity)[:10]}"
    store = RunStore.create(path, identity, study.model_dump(mode="json"))
    shards = shards_of(problems, study.batch.shard)
    works = [work for spec in study.models for work in _works(study, spec, folders[spec.name])]
    todo = [work for work in works if not is_complete(store, work.study, work.spec, len(shards))]
    outdated = study.generation is not None and not _knows(store, problems)
    if not todo and not outdated:
        progress.say(f"{path} is complete already: nothing to measure")
        return store
    with store.writing():
        store.note("environment", environment(study.device))
        store.note("problems", len(problems))  # how many there will be, for whoever watches
        if outdated:
            store.put_table(PROBLEMS, _problem_table(problems))
        for work in todo:
            measure_model(work.study, work.spec, work.folder, shards, store, progress)
    return store


@dataclass(frozen=True)
class _ModelWork:
    """A model, or an untrained twin of one, and the part of the study that it is for."""

    study: Study
    spec: ModelSpec
    folder: ModelFolder


def _works(study: Study, spec: ModelSpec, folder: ModelFolder) -> list[_ModelWork]:
    """A model first, then its twins."""
    twins = [
        _ModelWork(study.untrained, spec.model_copy(update={"name": name, "endpoint": None}), folder.twin(name, seed))
        for seed, name in enumerate(study.twins(spec.name), 1)
    ]
    return [_ModelWork(study, spec, folder), *twins]


def is_complete(store: RunStore, study: Study, spec: ModelSpec, shards: int) -> bool:
    names: list[str] = []
    if study.probes.attention is not None:
        names += [merged_name(spec.name), *(shard_name(spec.name, index) for index in range(shards))]
    if study.probes.answering:
        names += [lookback_name(spec.name), *(lookback_name(spec.name, index) for index in range(shards))]
    if study.generation is not None:
        names += [answers_name(spec.name, index) for index in range(shards)]
        if (noise := study.generation.noise) is not None:
            names += [again_name(spec.name, index, noise.dtype) for index in range(shards)]
    return all(store.is_sound(name) for name in names)


def _refuse_unanswered(problems: list[Problem], source: str) -> None:
    blank = [problem.id for problem in problems if not problem.answer.strip()]
    if blank:
        raise ProblemError(
            f"{source}: {len(blank)} of {len(problems)} problems have no answer to grade by, first {blank[0]!r}; "
            "name the column in `problems.fields`, or leave `generation` out of the study"
        )


def _knows(store: RunStore, problems: list[Problem]) -> bool:
    """Whether the problems are there with all that is known of them, which may have become more."""
    return store.is_sound(PROBLEMS) and store.get_table(PROBLEMS) == _problem_table(problems)


def _problem_table(problems: list[Problem]) -> Columns:
    return {
        "id": [problem.id for problem in problems],
        "question": [problem.question for problem in problems],
        "answer": [problem.answer for problem in problems],
        "meta": [json.dumps(dict(problem.meta), sort_keys=True) for problem in problems],
    }


def identify(study: Study, problems: list[Problem], folders: dict[str, ModelFolder]) -> dict[str, Any]:
    """Everything that can change a number, and nothing that cannot."""
    from fillerscope.models.loading import choose_device, choose_dtype

    device = choose_device(study.device)
    judges = GRADING if study.generation else ()
    measured = study.measured()
    del measured["problems"], measured["device"], measured["models"]
    return {
        "study": measured,
        "problems": problems_digest(problems),
        "models": [
            {
                "name": spec.name,
                "digest": folders[spec.name].digest,
                "dtype": choose_dtype(spec.dtype, device),
                "template": study.template_of(spec),
                "endpoint": _answered_by(spec),
            }
            for spec in study.models
        ],
        "device": device.split(":")[0],
        "code": code_version(),
        "libraries": {name: version(name) for name in ("torch", "transformers", *judges)},
    }


def _answered_by(spec: ModelSpec) -> dict[str, Any] | None:
    """Where answers come from, without what only says how to ask."""
    return spec.endpoint.model_dump(include={"url", "model", "prompt"}) if spec.endpoint else None


def code_version() -> str:
    digest = hashlib.sha256()
    for name in MEASURING:
        digest.update(files("fillerscope").joinpath(name).read_bytes())
    return f"{__version__}+{digest.hexdigest()[:12]}"


def environment(device: str = "auto") -> dict[str, Any]:
    """What the numbers were made with, for the record; it is not part of the identity."""
    found = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
    found |= hardware(device)
    for name in RECORDED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def hardware(device: str, described: Path = Path("/proc/cpuinfo")) -> dict[str, Any]:
    """The machine as far as it tells; `described` is where Linux describes its processors."""
    from fillerscope.models.loading import choose_device

    found: dict[str, Any] = {"processor": _processor(described), "cores": os.cpu_count()}
    with suppress(AttributeError, ValueError, OSError):  # not every system counts its pages
        found["memory_gib"] = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    if (place := choose_device(device)).startswith("cuda"):
        import torch

        found["device"] = torch.cuda.get_device_name(place)
    return found


def _processor(described: Path) -> str:
    """Not every Linux names its processor: elsewhere than on x86 often the architecture is all there is."""
    try:
        lines = described.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(filter(None, names), platform.machine())
