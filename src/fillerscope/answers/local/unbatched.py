"""Generation of one answer at a time with the model's own cache: slower, and right for models that carry a state.

For hybrid models, whose layers hold more than keys and values, and for any other cache that slots cannot hold. Knows
nothing of texts or grades.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from fillerscope.answers.local.engine import LocalGenerator
from fillerscope.answers.local.rows import Row
from fillerscope.answers.local.sampling import choose
from fillerscope.answers.local.slots import Pass, running, slot_attention
from fillerscope.answers.request import Reply, Request
from fillerscope.arm.hooks import TokenRange, redistributing
from fillerscope.models.attention import using_attention
from fillerscope.models.positions import reset_positions
from fillerscope.study.generation import Decoding
from fillerscope.study.interventions import Knockout, Redistribution

NAME = "fillerscope-alone"


class AloneGenerator(LocalGenerator):
    """Gives the replies of `LocalGenerator`, up to rounding, without batching."""

    def _answered(
        self, requests: Sequence[Request], decoding: Decoding, tick: Callable[[float], None]
    ) -> Iterator[tuple[int, Reply]]:
        _register()
        with torch.inference_mode(), using_attention(self.model, NAME):
            for number, request in enumerate(requests):
                row = Row.of(number, request, self.max_new_tokens(request, decoding))
                self._generate(request, row, decoding, tick)
                yield number, self._reply(row, request, decoding)
                tick(1 - row.fraction)

    def _generate(self, request: Request, row: Row, decoding: Decoding, tick: Callable[[float], None]) -> None:
        stretches: list[TokenRange] = []
        changing = isinstance(request.change, Redistribution)
        changed = redistributing(self.model, request.change, lambda: stretches) if changing else nullcontext()  # type: ignore[arg-type]
        reset_positions(self.model)
        tokens, start, cache = list(request.ids), 0, None
        with changed:
            for draw in row.draws():
                stretches[:] = [TokenRange(0, 0, len(tokens), request.key, start)]
                logits, cache = self._forward(request, tokens, start, cache)
                self._report_logits([row.index], logits)
                token = int(choose(logits, decoding, torch.tensor([draw], dtype=torch.float64, device=self.device)))
                row.take(token, self.stops)
                if not row.broken:
                    tick(1 / row.limit)
                if row.ended:
                    return
                start, tokens = start + len(tokens), [token]

    def _forward(self, request: Request, tokens: list[int], start: int, cache: Any) -> tuple[Tensor, Any]:
        positions = torch.arange(start, start + len(tokens), device=self.device)[None]
        at, by = request.gap
        now = Pass(0, positions, start + len(tokens), _hidden(request, positions))
        with running(now):
            result = self.model(
                input_ids=torch.tensor([tokens], device=self.device), position_ids=positions + by * (positions >= at),
                past_key_values=cache, use_cache=True, logits_to_keep=1,
            )  # fmt: skip
        return result.logits[:, -1], result.past_key_values


def _hidden(request: Request, positions: Tensor) -> tuple[Knockout, Tensor] | None:
    """A knockout and its mask [1, 1, query, key]: queries after the filler do not attend to it."""
    if not isinstance(request.change, Knockout):
        return None
    start, stop = request.filler
    keys = torch.arange(int(positions[0, -1]) + 1, device=positions.device)
    return request.change, ((positions[0][:, None] >= stop) & (keys >= start) & (keys < stop))[None, None]


def _mask(**given: Any) -> Any:
    """The whole mask, even where a kernel could do without one."""
    from transformers.masking_utils import sdpa_mask

    return sdpa_mask(**(given | {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}))


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, slot_attention)
    AttentionMaskInterface.register(NAME, _mask)
