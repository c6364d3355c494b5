"""The functions of the library: run a study, or profile the attention of a model in memory.

Importing this module loads no torch; calling its functions does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import numpy as np

from fillerscope.analysis.notebook_run import Run
from fillerscope.analysis.profile import Profile
from fillerscope.errors import PromptError
from fillerscope.files import Json
from fillerscope.measure.run_study import run_study
from fillerscope.progress import SILENT, Progress
from fillerscope.prompts.prompt import token_texts
from fillerscope.prompts.tokenizer import Tokenizer
from fillerscope.store.live import LiveStore
from fillerscope.store.moments import Moments
from fillerscope.store.run_folder import RunStore
from fillerscope.study.study import QUERIES, Study

if TYPE_CHECKING:
    from torch import nn

    from fillerscope.capture.passes import Measured
    from fillerscope.models.loading import LoadedModel


def run(
    study: Study | str | Path, out: str | Path | None = None, progress: Progress | None = None,
    accept_licence: bool = False, on_measured: Callable[[Run], None] | None = None,
) -> Run:  # fmt: skip
    """Run a study, or resume one that was interrupted, and open the result.

    `on_measured` is called as soon as the attention of a model is measured, before its answers and its untrained
    twins, with the run as far as it is: what needs attention alone can be drawn then."""
    if not isinstance(study, Study):
        study = Study.load(study)

    def measured(store: RunStore) -> None:
        if on_measured is not None:
            on_measured(Run(LiveStore.open(store.path).snapshot(), partial=True))

    return Run(run_study(study, Path(out) if out else None, progress or SILENT, accept_licence, measured))


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
    from fillerscope.models.loading import wrap

    if queries not in QUERIES:
        raise PromptError(f"queries are {', '.join(QUERIES)}, not {queries!r}")
    ids = _encoded(texts, tokenizer, model)
    training = model.training
    loaded = wrap(model, tokenizer)
    try:
        measured = _measured(loaded, ids, **options)
    finally:
        model.train(training)
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


def top_tokens(profile: Profile, layer: int, head: int | None, top: int) -> list[Json]:
    """The tokens that receive most in a head, or on average over the heads of a layer."""
    profile.head(layer, head or 1)  # raises where there is no such head
    mean = profile.mean[layer - 1]
    values = mean.mean(axis=0) if head is None else mean[head - 1]
    order = np.argsort(-np.where(np.isfinite(values), values, -np.inf), kind="stable")
    shown = [int(position) for position in order if np.isfinite(values[position])][:top]
    return [{"position": p, "token": profile.tokens[p], "received": float(values[p])} for p in shown]
