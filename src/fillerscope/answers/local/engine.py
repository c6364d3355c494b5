"""Generation with a local model: continuous batching, with a slot of the KV cache for each answer in progress.

The prefill of a prefix that prompts share is computed once. Greedy answers are those of transformers' own `generate`
up to rounding, which depends on the batch. `exact` removes that dependence: every prompt has a prefill of its own,
every decode step has the same number of rows, and attention is computed row by row.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from fillerscope.answers.local.batch import Batch, Setting
from fillerscope.answers.local.graphs import Graphs, slower_because
from fillerscope.answers.local.rows import PassSize, Row, start_order
from fillerscope.answers.local.slots import NAME, packing_last_tokens, register
from fillerscope.answers.local.stops import stop_ids
from fillerscope.answers.local.workspace import Workspace
from fillerscope.answers.next_question import without_next
from fillerscope.answers.request import NO_ROOM, Reply, Request
from fillerscope.capture.memory import kv_bytes_a_token, memory_beside_weights, pass_tokens
from fillerscope.models.attention import using_attention
from fillerscope.models.loading import LoadedModel
from fillerscope.models.positions import length_limit, reset_positions
from fillerscope.models.spread import is_spread
from fillerscope.models.structure import context_length, device_of, has_experts, is_changed_by_code
from fillerscope.prompts.tokenizer import decode
from fillerscope.study.generation import Decoding

# One prefill pass, also where prompts are computed whole. A GPU is fast where much is computed at once; the pairs are
# those of a mask that takes some hundred megabytes.
PREFILL = {"cpu": PassSize(4096, 1 << 62), "mps": PassSize(4096, 1 << 62), "cuda": PassSize(32768, 1 << 24)}
FEWEST_TOKENS = 4096  # of a pass on a GPU
BUSY = 3e13  # floating-point operations that take a GPU longer than the host takes to start the kernels of a pass
ONE_BY_ONE = PassSize(0, 0)
# Not cuDNN's, which makes a new plan for every number of keys, and so at every decode step.
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
_one_at_a_time = threading.RLock()  # torch has one choice of kernels for all threads
ROWS = {"cpu": 64, "mps": 64, "cuda": 512}  # answers in progress at once, where memory holds as many
EXACT_ROWS = 64  # where every step computes all rows, filled or not, and attends row by row
# Of the memory that weights leave, for keys and values; the rest is for passes and captured steps. More where somebody
# chose how many answers are in progress.
SLOTS_SHARE, CHOSEN_SHARE = 0.5, 0.9


def prefill_size(model: nn.Module, device: str) -> PassSize:
    """The size of a prefill pass on a kind of device. On a GPU the passes of a large model are smaller, as the prompts
    of a smaller pass have lengths that differ less, so that less of it is padding."""
    size = PREFILL[device]
    if device != "cuda":
        return size
    enough = BUSY / (2 * sum(parameter.numel() for parameter in model.parameters()))
    return replace(size, tokens=int(min(size.tokens, max(FEWEST_TOKENS, enough))))


class LocalGenerator:
    """Generates answers with a loaded model.

    `exact` makes an answer the same to the bit whatever else is in the batch. `order` is a seed: requests are started
    in an order drawn from it, not in that of their prefixes and lengths."""

    def __init__(
        self, loaded: LoadedModel, rows: int | None = None, exact: bool = False, order: int | None = None
    ) -> None:
        self.model, self.tokenizer = loaded.model, loaded.tokenizer
        self.device = device_of(self.model)
        # An expert computes all tokens that are routed to it together, whichever row they are from.
        usual = EXACT_ROWS if exact else ROWS[self.device.type]
        self.rows = 1 if exact and has_experts(self.model) else rows or usual
        self.share = SLOTS_SHARE if rows is None else CHOSEN_SHARE
        self.exact, self.order = exact, order
        self.stops = stop_ids(self.model, self.tokenizer)
        self.limit = length_limit(self.model)
        captured = self.device.type == "cuda" and not exact and not is_spread(self.model)
        self.graphs = Graphs(self.device) if captured else None
        self.prefill = prefill_size(self.model, self.device.type)
        self.whole = self.prefill if self.graphs else ONE_BY_ONE  # for prompts that are computed whole
        self.workspace: Workspace | None = None  # the last one, where captured steps refer to it
        self.on_logits: Callable[[int, Tensor], None] | None = None  # with the number of a request and its logits
        self.say: Callable[[str], None] = lambda _: None  # called where steps cannot be captured

    def answer(self, requests: Sequence[Request], decoding: Decoding, tick: Callable[[float], None]) -> list[Reply]:
        if self.exact:  # only equal prompts share a prefix
            requests = [replace(request, shared=len(request.ids)) for request in requests]
        with _one_at_a_time:
            replies = dict(self._answered(requests, decoding, tick))
        return [replies[index] for index in range(len(requests))]

    def _answered(
        self, requests: Sequence[Request], decoding: Decoding, tick: Callable[[float], None]
    ) -> Iterator[tuple[int, Reply]]:
        """Replies by number. An intervention acts on all rows of a pass, so requests are batched by intervention."""
        register()
        graphs = self._usable_graphs()
        packing = nullcontext() if self.device.type == "cpu" or self.exact else packing_last_tokens(self.model)
        with torch.inference_mode(), using_attention(self.model, NAME), sdpa_kernel(KERNELS), packing:
            for change in dict.fromkeys(request.change for request in requests):
                numbers = [number for number, request in enumerate(requests) if request.change == change]
                reset_positions(self.model)
                setting = self._setting(decoding, numbers, graphs, tick)
                for row in self._batch(setting, [requests[number] for number in numbers]).finished():
                    number = numbers[row.index]
                    yield number, self._reply(row, requests[number], decoding)
                    tick(1 - row.fraction)

    def _usable_graphs(self) -> Graphs | None:
        """Where steps are captured. A captured step leaves out what Python code does, such as that of hooks."""
        if self.graphs is None or not self.graphs.usable:
            return None
        if is_changed_by_code(self.model):
            self.say(slower_because("the model has hooks, or a forward of its own, which are called at every step"))
            return None
        return self.graphs

    def _setting(
        self, decoding: Decoding, numbers: Sequence[int], graphs: Graphs | None, tick: Callable[[float], None]
    ) -> Setting:
        """How requests are answered; `numbers` are theirs in the whole call."""

        def report(places: Sequence[int], logits: Tensor) -> None:
            self._report_logits([numbers[place] for place in places], logits)

        return Setting(
            self.model, decoding, self.stops, self.exact, self._fitting(self.prefill), self._fitting(self.whole),
            graphs, self.say, tick, None if self.on_logits is None else report,
        )  # fmt: skip

    def _fitting(self, size: PassSize) -> PassSize:
        """The size of a pass, or as much of it as the memory of a GPU holds."""
        if self.device.type != "cuda":
            return size
        return replace(size, tokens=min(size.tokens, max(FEWEST_TOKENS, pass_tokens(self.model, size.tokens))))

    def _batch(self, setting: Setting, requests: Sequence[Request]) -> Batch:
        """A batch of requests with the same intervention."""
        decoding = setting.decoding
        rows = [
            Row.of(index, request, self.max_new_tokens(request, decoding)) for index, request in enumerate(requests)
        ]
        capacity = max((len(requests[row.index].ids) + row.limit for row in rows), default=0)
        count = self.rows if self.exact else min(self.rows, len(requests))
        workspace = self._workspace(setting.graphs, count, capacity, decoding.temperature > 0)
        return Batch(setting, workspace, requests, rows, start_order(requests, self.order))

    def _workspace(self, graphs: Graphs | None, count: int, capacity: int, drawn: bool) -> Workspace:
        """A new one, or the last one where captured steps refer to it and it is large enough."""
        if graphs is None:
            self.workspace = None
            return Workspace.of(self.model, self._held(count, capacity), capacity, drawn)
        if self.workspace is None or not self.workspace.serves(self.model, count, capacity, drawn):
            graphs.clear()
            self.workspace = None  # its memory is free before more is asked for
            self.workspace = Workspace.rounded(self.model, self._held(count, capacity), capacity, drawn, count)
        return self.workspace

    def _held(self, count: int, capacity: int) -> int:
        """So many slots, or as many as memory holds."""
        cells = self.most_cells()
        return count if cells is None else max(1, min(count, cells // max(1, capacity)))

    def most_cells(self) -> int | None:
        """For how many tokens of answers, of all rows, memory has room; None where the number of rows is fixed."""
        if self.exact:
            return None
        return int(self.share * memory_beside_weights(self.model) / kv_bytes_a_token(self.model))

    def max_new_tokens(self, request: Request, decoding: Decoding) -> int:
        """How many tokens may be generated: up to the model's context, and to the length at which it would change the
        positions of cached tokens."""
        limits = [limit for limit in (context_length(self.model), self.limit) if limit is not None]
        taken = len(request.ids) + request.gap[1]
        return min([request.most_tokens(decoding), *(limit - taken for limit in limits)])

    def _report_logits(self, numbers: Sequence[int], logits: Tensor) -> None:
        if self.on_logits is not None:
            for number, one in zip(numbers, logits, strict=True):
                self.on_logits(number, one)

    def _reply(self, row: Row, request: Request, decoding: Decoding) -> Reply:
        if row.broken:
            return Reply("", 0, "failed", f"the logits of token {len(row.generated) + 1} are not finite")
        stopped = bool(row.generated) and row.generated[-1] in self.stops
        if self.limit is not None and not stopped and row.limit < decoding.max_tokens:
            taken = len(request.ids) + request.gap[1] + row.limit
            if taken >= self.limit or not row.generated:
                reason = f"prompt and answer go beyond {self.limit} tokens, where this model changes all its positions"
                return Reply("", 0, "failed", reason)
        if not row.generated:
            return Reply("", 0, "failed", NO_ROOM)
        ids = row.generated[:-1] if stopped else row.generated
        text = decode(self.tokenizer, ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        reply = Reply(text, len(ids), "stop" if stopped else "length", ids=tuple(row.generated))
        return without_next(reply, request.heading, self.tokenizer)
