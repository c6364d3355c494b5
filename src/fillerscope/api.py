"""What the library offers beside its classes: run a study, or profile the attention of a model in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fillerscope.analysis.opened import Run
from fillerscope.analysis.profile import Profile
from fillerscope.errors import PromptError
from fillerscope.files import Json
from fillerscope.measure.run_study import run_study
from fillerscope.progress import SILENT, Progress
from fillerscope.prompts.prompt import token_texts
from fillerscope.prompts.tokenizer import Tokenizer
from fillerscope.store.moments import Moments
from fillerscope.study.study import Study

if TYPE_CHECKING:
    from torch import nn


def run(
    study: Study | str | Path, out: str | Path | None = None, progress: Progress | None = None,
    accept_licence: bool = False,
) -> Run:  # fmt: skip
    """Measure a study (or the rest of it, if it was begun) and open the result."""
    if not isinstance(study, Study):
        study = Study.load(study)
    return Run(run_study(study, Path(out) if out else None, progress or SILENT, accept_licence))


def attention_profile(
    model: nn.Module,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    queries: str = "all",
    diagonal: bool = False,
    batch_tokens: int = 4096,
    check: bool = True,
) -> Profile:
    """What every position receives, for every layer and head, with moments over the texts.

    Texts are encoded as the tokenizer does by itself and aligned from their start. `check` compares the capture
    with the model's eager attention first, and texts together with each alone, which costs some short passes. The
    model is left in the mode, training or eval, in which it came.
    """
    from fillerscope.capture.attention import capturing
    from fillerscope.capture.packing import GROUPS, Text
    from fillerscope.capture.passes import PassRunner
    from fillerscope.capture.row_check import check_rows
    from fillerscope.capture.self_check import check_capture
    from fillerscope.models.loading import wrap
    from fillerscope.models.structure import head_count, layer_count

    if queries not in GROUPS:
        raise PromptError(f"queries are {', '.join(GROUPS)}, not {queries!r}")
    ids = _encoded(texts, tokenizer, model)
    training = model.training
    loaded = wrap(model, tokenizer)
    try:
        if check:
            check_capture(loaded)
        layout = check_rows(loaded, max(map(len, ids)), batch_tokens).layout if check else "apart"
        with capturing(model):
            gauge = PassRunner(model, batch_tokens, layout=layout)
            measured = gauge.measure([Text(tuple(one), np.ones(len(one), np.bool_)) for one in ids])
    finally:
        model.train(training)
    values = np.full((len(ids), layer_count(model), head_count(model), max(map(len, ids))), np.nan)
    for number, row in enumerate(values):
        received = measured.text(number).mean_received(diagonal)[GROUPS.index(queries)]
        row[..., : received.shape[-1]] = received
    moments = Moments.of(values, np.isfinite(values[:, :1, :1]))
    tokens = tuple(token_texts(tokenizer, tuple(ids[0]))) if len(ids) == 1 else ()
    return Profile(f"{loaded.label} {queries}", moments, len(ids), tokens)


def _encoded(texts: Sequence[str], tokenizer: Tokenizer, model: nn.Module) -> list[list[int]]:
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
    profile.head(layer, head or 1)  # says so if there is none
    mean = profile.mean[layer - 1]
    values = mean.mean(axis=0) if head is None else mean[head - 1]
    order = np.argsort(-np.where(np.isfinite(values), values, -np.inf), kind="stable")
    shown = [int(position) for position in order if np.isfinite(values[position])][:top]
    return [{"position": p, "token": profile.tokens[p], "received": float(values[p])} for p in shown]
