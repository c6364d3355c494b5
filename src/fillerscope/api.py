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
from fillerscope.analysis.trial import Trial, View
from fillerscope.errors import FigureError, PromptError, StudyError
from fillerscope.files import Json
from fillerscope.progress import SILENT, Progress
from fillerscope.prompts.prompt import token_texts
from fillerscope.prompts.tokenizer import Tokenizer
from fillerscope.store.find_run import find_run
from fillerscope.store.live import LiveStore
from fillerscope.store.moments import Moments
from fillerscope.store.run_folder import RunStore
from fillerscope.study.conditions import BASELINE, Condition
from fillerscope.study.filler_text import filler_condition
from fillerscope.study.study import QUERIES, ModelSpec, Study

if TYPE_CHECKING:
    from torch import nn

    from fillerscope.capture.head_matrix import HeadMatrix
    from fillerscope.capture.passes import Measured
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


class Figures(dict[str, list[Path]]):
    """The files of each figure that was drawn, by its name; a notebook shows the pictures."""

    def __repr__(self) -> str:
        return f"<Figures {', '.join(self) or 'none'}>"

    def _repr_html_(self) -> str:
        from fillerscope.analysis.notebook_html import picture

        return "".join(picture(name, file) for name, files in self.items() for file in files if file.suffix == ".png")


class Run(notebook_run.Run):
    """A finished run, opened for reading. `open_run` and `run` give one."""

    # Figures and reports are made of runs and stand above them, so the class with these two methods stands here.
    def figures(self, *names: str, out: str | Path | None = None, **options: Unpack[FigureOptions]) -> Figures:
        """Draw figures and write their files. Without names those of the study, or all that the run has numbers for."""
        from fillerscope.figures.registry import asked, draw_and_save, names_for

        folder, drawn = Path(out) if out else None, Figures()
        for name in names or names_for(self):
            try:
                drawn[name] = draw_and_save(self, name, asked(self, name).but(strict=True, **options), folder)
            except FigureError:
                if names:
                    raise
        return drawn

    def report(self, out: str | Path | None = None) -> Path:
        """Write the report, one HTML file; `report.html` in the run's folder by default."""
        from fillerscope.report.html import write_report

        return write_report(self, Path(out) if out else self.path / "report.html")


def open_run(path: str | Path) -> Run:
    """Open a run: a folder, the beginning of the name of one in `runs`, or `latest`."""
    return Run(RunStore.open(find_run(path)))


class RunOptions(TypedDict, total=False):
    """What `run` takes beside a study and a model."""

    progress: Progress  # what it reports to; nobody by default
    accept_licence: bool  # of models that ask for it; False
    # Called as soon as the attention of a model is measured, before its answers and its untrained twins, with the run
    # as far as it is: what needs attention alone can be drawn then.
    on_measured: Callable[[Run], None]


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
    `name` is what the run calls the model, else the name that it was loaded by. Options: those of
    `RunOptions`.
    """
    if model is None and (tokenizer is not None or name is not None):
        raise StudyError("tokenizer and name belong to a model in memory: give model= as well, or leave them out")
    checked = _study(study, needs_models=model is None)
    folder = Path(out) if out else None
    if model is None:
        return Run(_run_study(checked, folder, None, **options))
    from fillerscope.models.in_memory import ModelInMemory, evaluating

    source = ModelInMemory.of(model, tokenizer, name)
    with evaluating(model):
        return Run(_run_study(_study_of(checked, source), folder, source, **options))


def _study(study: Study | Mapping[str, Any] | str | Path, needs_models: bool) -> Study:
    if isinstance(study, Study):
        return study
    if isinstance(study, Mapping):
        return Study.parse(study, needs_models)
    if not isinstance(study, str | Path):
        raise StudyError(f"a study is a file, a mapping or a Study, not {type(study).__name__}")
    return Study.load(study, needs_models)


def _study_of(study: Study, source: ModelInMemory) -> Study:
    """The study with a model in memory as its one model, on the device where that is."""
    if study.models:
        named = ", ".join(spec.name for spec in study.models)
        raise StudyError(
            f"study {study.name!r} names {named}, and a model in memory was given: leave `models` out of the study, or "
            "model= out of the call"
        )
    if study.device not in ("auto", source.device, source.device.partition(":")[0]):
        raise StudyError(f"study {study.name!r} asks for device {study.device}, and the model is on {source.device}")
    if study.generation is not None and source.model.get_output_embeddings() is None:
        raise StudyError(
            f"study {study.name!r} asks for answers, and {source.name} has no layer that makes logits: load it with "
            "AutoModelForCausalLM, or leave `generation` out"
        )
    spec = ModelSpec.model_validate({"name": source.name, "dtype": source.dtype})
    return study.model_copy(update={"models": (spec,), "device": source.device})


def _run_study(
    study: Study,
    out: Path | None,
    source: ModelInMemory | None,
    progress: Progress = SILENT,
    accept_licence: bool = False,
    on_measured: Callable[[Run], None] | None = None,
) -> RunStore:
    from fillerscope.measure.run_study import RunChoices, run_study

    def measured(store: RunStore) -> None:
        if on_measured is not None:
            on_measured(Run(LiveStore.open(store.path).snapshot(), partial=True))

    return run_study(study, out, progress, RunChoices(accept_licence, measured, source))


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
    from fillerscope.models.in_memory import evaluating
    from fillerscope.models.loading import wrap

    if queries not in QUERIES:
        raise PromptError(f"queries are {', '.join(QUERIES)}, not {queries!r}")
    ids = _encoded(texts, tokenizer, model)
    with evaluating(model):
        loaded = wrap(model, tokenizer)
        measured = _measured(loaded, ids, **options)
    received = [measured.text(i).mean_received(diagonal)[QUERIES.index(queries)] for i in range(len(ids))]
    values = np.full((len(ids), *received[0].shape[:2], max(map(len, ids))), np.nan)
    for row, one in zip(values, received, strict=True):
        row[..., : one.shape[-1]] = one
    moments = Moments.of(values, np.isfinite(values[:, :1, :1]))
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


def _encoded(texts: Sequence[str], tokenizer: Tokenizer, model: nn.Module) -> list[list[int]]:
    """The token ids of each text; an error where one is too short or too long to be measured."""
    from fillerscope.models.structure import context_length

    texts = [texts] if isinstance(texts, str) else list(texts)
    for text in texts:
        if not isinstance(text, str):
            raise PromptError(f"texts are strings, and one of them is {type(text).__name__}")
    ids = [list(tokenizer.encode(text)) for text in texts]
    if not ids or min(len(tokens) for tokens in ids) < 2:
        raise PromptError("give at least one text, each of two tokens or more: a single token receives nothing")
    longest = max(len(tokens) for tokens in ids)
    context = context_length(model)
    if context is not None and longest > context:
        raise PromptError(f"a text has {longest} tokens, and the model takes {context}; shorten it")
    return ids


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
    question: str, model: str | LoadedModel = "smollm2-135m", filler: str = "mless", **options: Unpack[TrialOptions]
) -> Trial:
    """Ask one question without and with filler: attention received by every token, both answers, and what changed.

    `filler` is a ready-made one (mless, mful, random) or a text with a number of tokens, such as '" ..." x 55'.
    Prompts, numbers and greedy answers are those of a study with this problem alone. They are compared with the model's
    own eager attention and with plain forward passes before they are returned."""
    condition = filler_condition(filler)
    if not question.strip():
        raise PromptError("the question is empty; write one, in quotes")
    study = _trial_study(model if isinstance(model, str) else model.name, condition, options)
    view = View(options.get("layer", 1), options.get("head"), options.get("queries", "original"))
    progress = options.get("progress", SILENT)
    from fillerscope.measure.one_question import measure_question
    from fillerscope.models.loading import load_model

    if isinstance(model, str):
        progress.stage(f"loading {model}", 0, None)
        licence = options.get("accept_licence", False)
        model = load_model(model, device=study.device, progress=progress, accept_licence=licence)
    view.refuse_missing(model.layers, model.heads, model.label)
    result = measure_question(study, model, question, progress)
    return Trial.of(result, condition, view, (model.name, model.label))


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
        first = error.errors()[0]
        raise StudyError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}, not {first['input']!r}") from None


def top_tokens(profile: Profile, layer: int, head: int | None, top: int) -> list[Json]:
    """The tokens that receive most in a head, or on average over the heads of a layer."""
    profile.head(layer, head or 1)  # raises where there is no such head
    mean = profile.mean[layer - 1]
    values = mean.mean(axis=0) if head is None else mean[head - 1]
    order = np.argsort(-np.where(np.isfinite(values), values, -np.inf), kind="stable")
    shown = [int(position) for position in order if np.isfinite(values[position])][:top]
    return [{"position": p, "token": profile.tokens[p], "received": float(values[p])} for p in shown]


def attention_matrix(
    model: nn.Module, tokenizer: Tokenizer, text: str, layer: int, head: int, check: bool = True
) -> HeadMatrix:
    """The attention weights [query, key] of one head on one text of at most 512 tokens, exactly.

    Layer and head count from 1. A row sums to 1, or to 1 less what a learned sink takes of it (`sinks`). `check=True`
    first compares the capture with the model's eager attention. The model keeps its mode, training or eval.
    """
    from fillerscope.capture.head_matrix import head_matrix
    from fillerscope.capture.packing import Text
    from fillerscope.capture.self_check import check_capture
    from fillerscope.models.loading import wrap

    (ids,) = _encoded([text], tokenizer, model)
    training = model.training
    loaded = wrap(model, tokenizer)
    try:
        if check:
            check_capture(loaded)
        matrix = head_matrix(model, Text(tuple(ids), np.ones(len(ids), np.bool_)), layer, head)
    finally:
        model.train(training)
    return replace(matrix, tokens=tuple(token_texts(tokenizer, tuple(ids))))
