"""A check of the first tokens of a few answers against plain forward passes of the stock model.

A cache that mixes rows, or a layer that slots cannot hold, would change answers silently. The logits of the engine are
compared with those of the stock model for the same tokens, alone and without a cache. What rounding does to logits is
measured on the model itself; where half precision is too coarse for the comparison, it is made in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from fillerscope.answers.local.engine import LocalGenerator
from fillerscope.answers.local.unbatched import AloneGenerator
from fillerscope.answers.request import Reply, Request
from fillerscope.capture.precision import in_float32
from fillerscope.display import first_line
from fillerscope.errors import FillerscopeError, GenerationError
from fillerscope.files import Json
from fillerscope.models.loading import LoadedModel
from fillerscope.models.positions import length_limit, reset_positions
from fillerscope.study.generation import Decoding

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TOKENS = 3  # of every answer
PREFIX = 8  # the longest prefix that all prompts share
LENGTHS = (2, 9, 23)  # tokens of the prompts after it
MORE = 9  # tokens after a text, which must not change its logits
# Tolerances relative to the spread of the logits, to which eight times the measured rounding is added.
LEAST = {torch.float32: 1e-3, torch.float64: 1e-3, torch.float16: 2e-2, torch.bfloat16: 5e-2}
MOST = {torch.float32: 1e-2, torch.float64: 1e-2, torch.float16: 2e-1, torch.bfloat16: 4e-1}
OFTEN = 8.0
COMPARED = 256  # tokens of an answer: the logits of more would fill memory
ENGINES = {"rows": LocalGenerator, "alone": AloneGenerator}


@dataclass(frozen=True)
class AnswerCheck:
    engine: str
    difference: float  # the largest, relative to the spread of the logits
    tolerance: float
    prompts: int
    dtype: str  # that the comparison was made in
    tried: tuple[str, ...] = ()

    def record(self) -> Json:
        return asdict(self)


def answercheck(loaded: LoadedModel, requests: Sequence[Request], rows: int | None, exact: bool = False) -> AnswerCheck:
    """The first engine whose logits are those of plain forward passes; an error where there is none."""
    chosen = short_prompts(loaded.model, requests)
    tried: list[str] = []
    for name, engine in ENGINES.items():
        for precision in (_as_it_is, in_float32):
            try:
                with precision(loaded.model) as possible:
                    if not possible:
                        continue
                    gap, allowed = _compared(engine(loaded, rows, exact), chosen)
                    dtype = str(loaded.model.dtype).removeprefix("torch.")
            except (FillerscopeError, torch.OutOfMemoryError):
                raise
            except Exception as error:  # a model whose layers do not take these caches
                tried.append(f"{name}: does not run ({first_line(error)})")
                break
            if gap <= allowed:
                return AnswerCheck(name, gap, allowed, len(chosen), dtype, tuple(tried))
            tried.append(f"{name}: logits differ by {gap:.1e} of their spread in {dtype}, {allowed:.0e} is allowed")
    raise GenerationError(
        f"{loaded.label} cannot answer here: what it writes is not what the stock model writes ({'; '.join(tried)}); "
        "leave `generation` out of the study, or let a server answer with `endpoint`"
    )


def exactcheck(engine: LocalGenerator, requests: Sequence[Request]) -> None:
    """Raise where the first logits of a prompt depend on its row or on the other rows of the batch.

    A device may compute the rows of one matrix product in several ways."""
    chosen = short_prompts(engine.model, requests)
    alone = [with_logits(engine, [request])[1][0] for request in chosen]
    _, together = with_logits(engine, chosen * -(-engine.rows // len(chosen)))
    if not all(torch.equal(one, alone[number % len(chosen)]) for number, one in together.items()):
        raise GenerationError(
            "generation.exact cannot be kept on this device: the logits of a prompt depend on what is answered beside "
            "it; set generation.rows to 1, or leave exact out"
        )


def checked_answers(
    loaded: LoadedModel, requests: Sequence[Request], decoding: Decoding, tick: Callable[[float], None]
) -> list[Reply]:
    """Greedy answers that were compared with the stock model afterwards: each token (of a long answer the first ones)
    is what a plain forward pass over prompt and answer chooses, up to rounding. Engines are tried in turn.

    On a CPU few answers come soonest one by one: products with a single row are the fastest there."""
    rows = 1 if loaded.model.device.type == "cpu" else None
    tried: list[str] = []
    for name, engine in ENGINES.items():
        generator = engine(loaded, rows)
        try:
            replies = generator.answer(requests, decoding, tick)
            pairs = [(request, reply.ids[:COMPARED]) for request, reply in zip(requests, replies, strict=True)]
            gap = max((_shortfall(generator, *pair) for pair in pairs if pair[1]), default=0.0)
        except (FillerscopeError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # a model whose layers do not take these caches
            tried.append(f"{name}: does not run ({first_line(error)})")
            continue
        if gap <= tolerance_of(loaded.model):
            return replies
        tried.append(f"{name}: a token is {gap:.1e} of the logits' spread below the stock model's choice")
    raise GenerationError(f"{loaded.label} cannot generate answers as the stock model does ({'; '.join(tried)})")


def _shortfall(engine: LocalGenerator, request: Request, generated: tuple[int, ...]) -> float:
    """How far the logits of generated tokens are below the largest in a plain pass, relative to their spread."""
    logits = _plain(engine, request, generated)
    chosen = logits.gather(-1, torch.tensor(generated, device=logits.device)[:, None])[:, 0]
    worst = float(((logits.amax(-1) - chosen) / logits.std(-1).clamp(min=1e-30)).max())
    return worst if worst == worst else float("inf")


def tolerance_of(model: PreTrainedModel) -> float:
    """The largest difference from plain passes that rounding can explain, relative to the spread of the logits."""
    return MOST.get(model.dtype, MOST[torch.float32])


def tolerance_within(model: PreTrainedModel, check: AnswerCheck) -> float:
    """What another engine may differ by, whose kernels round as much as the one that was checked."""
    most = tolerance_of(model)
    if check.dtype != str(model.dtype).removeprefix("torch."):  # too coarse to tell rounding from anything else
        return most
    return min(most, LEAST.get(model.dtype, LEAST[torch.float32]) + OFTEN * check.difference)


def short_prompts(model: nn.Module, requests: Sequence[Request]) -> list[Request]:
    """Prompts of very different length made of the study's tokens, without interventions; of any tokens where there
    are no requests."""
    limit = length_limit(model)
    texts = sorted({one.ids: one.shared for one in requests}.items(), key=lambda one: len(one[0]), reverse=True)
    size = sum(LENGTHS) + PREFIX
    texts = texts[: len(LENGTHS)] or [(tuple(range(n, n + size)), PREFIX) for n in range(len(LENGTHS))]
    prefix = min(PREFIX, *(shared for _, shared in texts))
    chosen = []
    for number, count in enumerate(LENGTHS):
        ids, shared = texts[number % len(texts)]
        own = ids[shared:] if len(ids) - shared >= count else ids[prefix + number :]
        whole = (*ids[:prefix], *own[:count])
        chosen.append(Request(whole[: None if limit is None else max(2, limit - TOKENS)], number, prefix))
    return [one for one in chosen if len(one.ids) > prefix]


def _compared(engine: LocalGenerator, requests: Sequence[Request]) -> tuple[float, float]:
    """The largest difference of logits, and what is allowed."""
    replies, logits = with_logits(engine, requests)
    pairs = [(request, reply.ids) for request, reply in zip(requests, replies, strict=True)]
    expected = [_plain(engine, *pair) for pair in pairs]
    gap = max(_difference(one, logits[number]) for number, one in enumerate(expected))
    least, most = (limits.get(cast(torch.dtype, engine.model.dtype), limits[torch.float32]) for limits in (LEAST, MOST))
    if gap <= least:
        return gap, least
    request, generated = pairs[-1]
    rounding = _difference(expected[-1], _plain(engine, request, generated, more=request.ids[:MORE]))
    return gap, min(most, least + OFTEN * rounding)


def with_logits(
    engine: LocalGenerator, requests: Sequence[Request], tokens: int = TOKENS
) -> tuple[list[Reply], dict[int, Tensor]]:
    """The first tokens of answers, and by the number of the request the logits [token, vocabulary] before each."""
    logits: dict[int, list[Tensor]] = {}
    engine.on_logits = lambda index, one: logits.setdefault(index, []).append(one.float().clone())
    try:
        replies = engine.answer(requests, Decoding(max_tokens=tokens), lambda _: None)
    finally:
        engine.on_logits = None
    return replies, {number: torch.stack(steps) for number, steps in logits.items()}


@torch.inference_mode()
def _plain(engine: LocalGenerator, request: Request, generated: tuple[int, ...], more: tuple[int, ...] = ()) -> Tensor:
    """The stock model's logits [token, vocabulary] before each generated token. `more` tokens come after them, where a
    causal model does not see them."""
    reset_positions(engine.model)
    before = [*request.ids, *generated[:-1]]
    ids = torch.tensor([[*before, *more]], device=engine.device)
    logits: Tensor = engine.model(input_ids=ids, use_cache=False, logits_to_keep=len(generated) + len(more)).logits
    return logits[0, -len(generated) - len(more) :][: len(generated)].float()


def _difference(expected: Tensor, given: Tensor) -> float:
    gap = (expected - given).abs().amax(-1) / expected.std(-1).clamp(min=1e-30)
    worst = float(gap.max())
    return worst if worst == worst else float("inf")


@contextmanager
def _as_it_is(_model: nn.Module) -> Iterator[bool]:
    yield True
