"""The first tokens of a few answers under the real engine, compared with plain forward passes of the stock model.

A cache that mixes rows, or a layer that the slots cannot hold, changes answers without a word. Every logit that the
engine chose from is compared with that of the stock model given the same tokens alone and without a cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from fillerscope.asking import Decoding
from fillerscope.errors import FillerscopeError, GenerationError
from fillerscope.generation.alone import AloneGenerator
from fillerscope.generation.local import LocalGenerator
from fillerscope.generation.reply import Request
from fillerscope.models.loading import LoadedModel
from fillerscope.models.positions import length_limit, reset_positions
from fillerscope.models.wording import first_line

PROMPTS, TOKENS = 4, 6
# Of the spread of the logits: what rounding does to them, many times over.
ALLOWED = {"float64": 1e-3, "float32": 1e-3, "float16": 5e-2, "bfloat16": 2e-1}
ENGINES = {"rows": LocalGenerator, "alone": AloneGenerator}


@dataclass(frozen=True)
class AnswerCheck:
    engine: str
    difference: float  # the largest, relative to the spread of the logits
    tolerance: float
    prompts: int
    tried: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        return asdict(self)


def answercheck(loaded: LoadedModel, requests: Sequence[Request], rows: int | None) -> AnswerCheck:
    """The first engine that writes what plain forward passes write; refused where none does."""
    chosen = _chosen(loaded, requests)
    allowed, tried = ALLOWED.get(loaded.dtype, 1e-3), []
    for name, engine in ENGINES.items():
        try:
            gap = _gap(engine(loaded, rows), chosen) if chosen else 0.0
        except (FillerscopeError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # a model whose layers do not take these caches
            tried.append(f"{name}: {first_line(error)}")
            continue
        if gap <= allowed:
            return AnswerCheck(name, gap, allowed, len(chosen), tuple(tried))
        tried.append(f"{name}: logits differ by {gap:.1e} of their spread, {allowed:.0e} is allowed")
    raise GenerationError(
        f"{loaded.label} cannot answer here: what it writes is not what the stock model writes ({'; '.join(tried)}); "
        "leave `generation` out of the study, or let a server answer with `endpoint`"
    )


def _chosen(loaded: LoadedModel, requests: Sequence[Request]) -> list[Request]:
    """Prompts of very unequal length, nothing done inside the model."""
    limit = length_limit(loaded.model)
    plain = [one for one in requests if one.change is None and not one.gap[1]]
    near = [one for one in plain if limit is None or len(one.ids) + TOKENS <= limit]
    ordered = sorted(dict.fromkeys(near), key=lambda one: len(one.ids))
    if len(ordered) <= PROMPTS:
        return ordered
    return [ordered[i * (len(ordered) - 1) // (PROMPTS - 1)] for i in range(PROMPTS)]


def _gap(engine: LocalGenerator, requests: Sequence[Request]) -> float:
    seen: dict[int, list[Tensor]] = {}
    engine.notice = lambda index, logits: seen.setdefault(index, []).append(logits.float().clone())
    try:
        replies = engine.answer(requests, Decoding(max_tokens=TOKENS), lambda _: None)
    finally:
        engine.notice = None
    return max(
        _difference(_plain(engine, request, reply.ids), torch.stack(seen[number]))
        for number, (request, reply) in enumerate(zip(requests, replies, strict=True))
        if reply.ids
    )


@torch.inference_mode()
def _plain(engine: LocalGenerator, request: Request, written: tuple[int, ...]) -> Tensor:
    """[token, vocabulary]: what the stock model says before each written token."""
    reset_positions(engine.model)
    ids = torch.tensor([[*request.ids, *written[:-1]]], device=engine.device)
    logits: Tensor = engine.model(input_ids=ids, use_cache=False).logits
    return logits[0, -len(written) :].float()


def _difference(expected: Tensor, found: Tensor) -> float:
    gap = (expected - found).abs().amax(-1) / expected.std(-1).clamp(min=1e-30)
    worst = float(gap.max())
    return worst if worst == worst else float("inf")
