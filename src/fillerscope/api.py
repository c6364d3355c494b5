"""The functions of the library: run a study, open a run, try a question, or profile a model in memory.

Importing this module loads no torch; calling its functions does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np
from pydantic import ValidationError

from fillerscope.analysis import notebook_run
from fillerscope.analysis.profile import Profile
from fillerscope.analysis.rows import Figures
from fillerscope.analysis.trial import Trial, View
from fillerscope.errors import FigureError, PromptError, StudyError
from fillerscope.progress import SILENT, Progress
from fillerscope.prompts.prompt import token_texts
from fillerscope.prompts.tokenizer import Tokenizer
from fillerscope.store.find_run import find_run
from fillerscope.store.join import join
from fillerscope.store.live import LiveStore
from fillerscope.store.moments import Moments
from fillerscope.store.run_folder import RunStore
from fillerscope.study.arguments import check_arguments, refuse_unknown
from fillerscope.study.conditions import BASELINE, Condition
from fillerscope.study.filler_text import filler_condition
from fillerscope.study.settings import first_fault
from fillerscope.study.study import QUERIES, ModelSpec, Study, study_from

if TYPE_CHECKING:
    from torch import nn

    from fillerscope.capture.head_matrix import HeadMatrix
    from fillerscope.capture.passes import Measured
    from fillerscope.measure.engines.ray.cluster import RayChoices
    from fillerscope.models.in_memory import ModelInMemory
    from fillerscope.models.loading import LoadedModel


class FigureOptions(TypedDict, total=False):
    """What a figure shows where that is not its usual choice; layers and heads count from 1."""

    models: tuple[str, ...]
    conditions: tuple[str, ...]
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    queries: str
    band: str  # "interval" or "sd"


class Run(notebook_run.Run):
    """A finished run, opened for reading. `open_run` and `run` give one."""

    # Figures and reports are made of runs and stand above them, so the class with these two methods stands here.
    def figures(
        self, *names: str, out: str | Path | None = None, force: bool = False, **options: Unpack[FigureOptions]
    ) -> Figures:
        """Draw figures and write their files. Without names those of the study, or all that the run has numbers for.

        Options: `models`, `conditions`, `layers` and `heads` are tuples of what to show, the last two counted from 1;
        `queries` are the query rows; `band` is "interval" or "sd". `force` replaces files in `out` that were not
        written by fillerscope."""
        refuse_unknown("figures", options, FigureOptions.__annotations__)
        check_arguments({"out": out, "force": force, **options}, optional=("out", *options))
        from fillerscope.figures.registry import asked, draw_and_save, names_for
        from fillerscope.figures.saved import refuse_others

        folder, drawn = Path(out) if out else None, Figures()
        for name in names:
            check_arguments({"name": name})
        if folder and not force:
            refuse_others(folder, names or names_for(self))
        for name in names or names_for(self):
            try:
                drawn[name] = draw_and_save(self, name, asked(self, name).but(strict=True, **options), folder, True)
            except FigureError:
                if names:
                    raise
        return drawn

    def report(self, out: str | Path | None = None) -> Path:
        """Write the report, one HTML file; `report.html` in the run's folder by default."""
        check_arguments({"out": out}, optional=("out",))
        from fillerscope.report.html import write_report

        return write_report(self, Path(out) if out else self.path / "report.html")


def open_run(path: str | Path) -> Run:
    """Open a run: a folder, the beginning of the name of one in `runs`, or `latest`."""
    check_arguments({"path": path})
    return Run(RunStore.open(find_run(path)))


class RunOptions(TypedDict, total=False):
    """What `run` takes beside a study and a model."""

    progress: Progress  # what it reports to; nobody by default
    accept_licence: bool  # of models that ask for it; False
    on_measured: Callable[[Run], None]  # called with the run as far as it is, when the attention of a model is measured
    retry_failed: bool  # measure and answer shards again in which something failed; False
    ray: RayChoices | None  # workers of a cluster, such as {"workers": 4, "cpus": 2, "gpus": 1, "address": "auto"}


def run(
    study: Study | Mapping[str, Any] | str | Path,
    out: str | Path | None = None,
    *,
    model: nn.Module | None = None,
    tokenizer: Tokenizer | None = None,
    name: str | None = None,
    **options: Unpack[RunOptions],
) -> Run:
    """Run a study, or resume one that was interrupted, and open the result.

    A study is a file, a mapping with the same keys, or a `Study`; `out` is the folder of the run, else one in `runs`.
    With `model` and `tokenizer` a model in memory is measured as it is, on its device and in its dtype; the study then
    leaves `models` out. A digest of its weights names the run: the same model resumes it, a changed one starts another.
    `name` is what the run calls the model, else the name that it was loaded by. Options: `progress` is what it reports
    to, nobody by default; `accept_licence=True` accepts that of models which ask for it; `on_measured` is called with
    the run so far, when the attention of a model is measured; `retry_failed=True` measures shards with failures again;
    `ray={"workers": 4}` measures with Ray's workers, each with its `cpus` and `gpus`, at an `address` or here.
    """
    refuse_unknown("run", options, RunOptions.__annotations__)
    check_arguments({"out": out, "name": name, **options}, optional=("out", "name", "on_measured"))
    if model is None and (tokenizer is not None or name is not None):
        raise StudyError("tokenizer and name belong to a model in memory: give model= as well, or leave them out")
    checked = study_from(study, needs_models=model is None)
    folder = Path(out) if out else None
    if model is None:
        return Run(_run_study(checked, folder, None, options))
    from fillerscope.models.borrowing import borrowed
    from fillerscope.models.in_memory import ModelInMemory

    source = ModelInMemory.of(model, tokenizer, name)
    with borrowed(model):
        return Run(_run_study(_study_of(checked, source), folder, source, options))


def merge(out: str | Path, *parts: str | Path, mixed: bool = False) -> Run:
    """Make the run `out` of parts that several jobs measured, and open it; those in `out/parts` where none are given.

    Its files are those of a run of one process, byte for byte. What does not belong together is refused. `mixed=True`
    accepts parts whose machines found different pass sizes or thresholds, whose numbers agree to rounding only.
    """
    check_arguments({"out": out, "mixed": mixed})
    for part in parts:
        check_arguments({"path": part})
    return Run(join(Path(out), [Path(part) for part in parts], mixed))


def _study_of(study: Study, source: ModelInMemory) -> Study:
    """The study with a model in memory as its one model, on the device where that is."""
    from fillerscope.models.in_memory import refuse_without_logits

    if study.models:
        named = ", ".join(spec.name for spec in study.models)
        raise StudyError(
            f"study {study.name!r} names {named}, and a model in memory was given: leave `models` out of the study, or "
            "model= out of the call"
        )
    if study.device not in ("auto", source.device, source.device.partition(":")[0]):
        raise StudyError(f"study {study.name!r} asks for device {study.device}, and the model is on {source.device}")
    if study.generation is not None:
        refuse_without_logits(source.model, f"study {study.name!r}", "leave `generation` out")
    spec = ModelSpec.model_validate({"name": source.name, "dtype": source.dtype})
    return study.model_copy(update={"models": (spec,), "device": source.device})


def _run_study(study: Study, out: Path | None, source: ModelInMemory | None, options: RunOptions) -> RunStore:
    from fillerscope.measure.engines.ray.cluster import RayOptions
    from fillerscope.measure.run_study import RunChoices, run_study

    def measured(store: RunStore) -> None:
        if (on_measured := options.get("on_measured")) is not None:
            on_measured(Run(LiveStore.open(store.path).snapshot(), partial=True))

    ray = RayOptions.of(options.get("ray"))
    retry = options.get("retry_failed", False)
    choices = RunChoices(options.get("accept_licence", False), measured, source, retry_failed=retry, ray=ray)
    return run_study(study, out, options.get("progress", SILENT), choices)


ANSWER_TOKENS = 48  # of an answer to a question that is tried: a small model writes them in a few seconds


class CaptureOptions(TypedDict, total=False):
    """How `attention_profile` measures."""

    batch_tokens: int  # of one forward pass; 4096
    check: bool  # whether to compare the capture with the model's eager attention first; True


def attention_profile(
    model: nn.Module,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    queries: str = "all",
    diagonal: bool = False,
    **options: Unpack[CaptureOptions],
) -> Profile:
    """The attention that every position receives, for every layer and head, with moments over the texts.

    Texts are encoded as the tokenizer does by default and aligned at their start. `queries` are the query rows that
    count: all, original or last; `diagonal` counts what a row gives to itself. Options: `batch_tokens=4096` are the
    tokens of one forward pass; `check=True` first compares the capture with the model's eager attention, and texts in a
    batch with each alone, which costs some short passes. The model keeps its mode, training or eval.
    """
    from fillerscope.models.borrowing import borrowed
    from fillerscope.models.in_memory import encoded
    from fillerscope.models.loading import wrap

    refuse_unknown("attention_profile", options, CaptureOptions.__annotations__)
    check_arguments({"queries": queries, "diagonal": diagonal, **options})
    if queries not in QUERIES:
        raise PromptError(f"queries are {', '.join(QUERIES)}, not {queries!r}")
    ids = encoded(texts, tokenizer, model)
    with borrowed(model):
        loaded = wrap(model, tokenizer)
        measured = _measured(loaded, ids, **options).whole()
    received = [measured.text(i).mean_received(diagonal)[QUERIES.index(queries)] for i in range(len(ids))]
    values = np.full((len(ids), *received[0].shape[:2], max(map(len, ids))), np.nan)
    for row, one in zip(values, received, strict=True):
        row[..., : one.shape[-1]] = one
    moments = Moments.of(values, np.asarray(np.isfinite(values).any(axis=(1, 2), keepdims=True)))
    tokens = tuple(token_texts(tokenizer, tuple(ids[0]))) if len(ids) == 1 else ()
    return Profile(f"{loaded.label} {queries}", moments, len(ids), tokens)


def _measured(loaded: LoadedModel, ids: Sequence[list[int]], batch_tokens: int = 4096, check: bool = True) -> Measured:
    from fillerscope.capture.attention import capturing
    from fillerscope.capture.packing import Text
    from fillerscope.capture.passes import PassRunner
    from fillerscope.capture.row_check import check_rows
    from fillerscope.capture.self_check import check_capture

    if check:
        check_capture(loaded)
    layout = check_rows(loaded, max(map(len, ids)), batch_tokens).layout if check else "apart"
    with capturing(loaded.model):
        gauge = PassRunner(loaded.model, batch_tokens, layout=layout)
        return gauge.measure([Text(tuple(one), np.ones(len(one), np.bool_)) for one in ids])


class TrialOptions(TypedDict, total=False):
    """How `try_question` asks."""

    layer: int  # from 1; 1
    head: int | None  # from 1; None: the mean of all
    queries: str  # query rows: original, all or last; original
    system: str  # the text before the question; that of studies
    raw: bool  # the text alone, without system text, template and answers; False
    max_tokens: int  # of an answer; ANSWER_TOKENS
    device: str  # auto
    accept_licence: bool  # False
    progress: Progress


def try_question(
    question: str,
    model: str | nn.Module | LoadedModel = "smollm2-135m",
    filler: str = "mless",
    tokenizer: Tokenizer | None = None,
    **options: Unpack[TrialOptions],
) -> Trial:
    """Ask one question without and with filler: attention received by every token, both answers, and what changed.

    `model` is a name, what `load_model` returns, or a transformers model in memory with its `tokenizer`. `filler` is a
    ready-made one (mless, mful, random) or a text, with or without a number of tokens, such as '" ..." x 55'.
    Prompts, numbers and greedy answers are those of a study with this problem alone. They are compared with the model's
    own eager attention and with plain forward passes before they are returned.

    Options: `layer=1` and `head=None` (the mean of all) count from 1; `queries="original"` are the query rows:
    original, all or last; `system` is the text before the question, else that of studies; `raw=True` takes the text
    alone, without system text, template and answers; `max_tokens=48` is the most an answer may have; `device="auto"`
    and `accept_licence=False` are for models by name; `progress` is what it reports to."""
    refuse_unknown("try_question", options, TrialOptions.__annotations__)
    if not isinstance(question, str):
        raise PromptError(f"the question is a text and comes first, then the model; found {type(question).__name__}")
    if not question.strip():
        raise PromptError("the question is empty; write one, in quotes")
    check_arguments({"question": question, "filler": filler, **options}, optional=("head",))
    condition = filler_condition(filler)
    view = View(options.get("layer", 1), options.get("head"), options.get("queries", "original"))
    progress = options.get("progress", SILENT)
    study = _trial_study(model if isinstance(model, str) else "model", condition, options)
    from fillerscope.measure.one_question import measure_question
    from fillerscope.models.in_memory import ready

    if isinstance(model, str):
        progress.stage(f"loading {model}", 0, None)
        model = _by_name(model, tokenizer, study.device, options)
    with ready(model, tokenizer, needs_logits=study.generation is not None) as loaded:
        view.refuse_missing(loaded.layers, loaded.heads, loaded.label)
        result = measure_question(study, loaded, question, progress)
    return Trial.of(result, condition, view, (loaded.name, loaded.label))


def _by_name(name: str, tokenizer: Tokenizer | None, device: str, options: TrialOptions) -> LoadedModel:
    from fillerscope.models.loading import load_model

    if tokenizer is not None:
        raise StudyError(f"model {name!r} is given by name and brings its tokenizer: leave tokenizer= out")
    licence = options.get("accept_licence", False)
    return load_model(name, device=device, progress=options.get("progress", SILENT), accept_licence=licence)


def _trial_study(model: str, condition: Condition, options: TrialOptions) -> Study:
    """The study of one question that nobody stores: the baseline and one filler."""
    raw = {"system": "", "template": "raw", "raw": "{question}"}
    system = {"system": options["system"]} if "system" in options else {}
    answered = {"generation": {"max_tokens": options.get("max_tokens", ANSWER_TOKENS)}}
    try:
        return Study.model_validate(
            {"name": "try", "models": [model], "conditions": [BASELINE, condition], "prompt": raw}
            | ({} if options.get("raw") else {"prompt": system} | answered)
            | {"device": options.get("device", "auto")}
        )
    except ValidationError as error:
        raise StudyError(first_fault(error)) from None


def attention_matrix(
    model: nn.Module, tokenizer: Tokenizer, text: str, layer: int, head: int, check: bool = True
) -> HeadMatrix:
    """The attention weights [query, key] of one head on one text of at most 512 tokens, exactly.

    Layer and head count from 1. A row sums to 1, or to 1 less what a learned sink takes of it (`sinks`). `check=True`
    first compares the capture with the model's eager attention. The model keeps its mode, training or eval.
    """
    check_arguments({"layer": layer, "head": head, "check": check})
    from fillerscope.capture.head_matrix import head_matrix
    from fillerscope.capture.packing import Text
    from fillerscope.capture.self_check import check_capture
    from fillerscope.models.borrowing import borrowed
    from fillerscope.models.in_memory import encoded
    from fillerscope.models.loading import wrap

    (ids,) = encoded([text], tokenizer, model)
    with borrowed(model):
        loaded = wrap(model, tokenizer)
        if check:
            check_capture(loaded)
        matrix = head_matrix(model, Text(tuple(ids), np.ones(len(ids), np.bool_)), layer, head)
    return replace(matrix, tokens=tuple(token_texts(tokenizer, tuple(ids))))
