"""Answers written by vLLM, in this process, from the very files that a model's digest was taken of.

It gets the ids of prompts, the model's own stop tokens and a seed for every answer, keeps what prompts have in common,
and tells nobody that it is used.
"""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch

from fillerscope.answers.next_question import without_next
from fillerscope.answers.request import NO_ROOM, Reply, Request
from fillerscope.display import first_line
from fillerscope.errors import GenerationError, StudyError
from fillerscope.models.hashed_view import hashed_view
from fillerscope.models.resolve import ModelFolder
from fillerscope.prompts.tokenizer import Tokenizer, decode
from fillerscope.study.generation import Decoding

if TYPE_CHECKING:
    from vllm import LLMEngine, SamplingParams
    from vllm.outputs import CompletionOutput

ROWS = 512  # answers in progress at once, where memory holds as many
SHARE = 0.9  # of the free memory of the GPU
# In a process of its own vLLM could not read files that are open here, and would leave when it likes.
SETTINGS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


def require_vllm(device: str) -> None:
    """Raise where vLLM cannot answer: it is missing, or the device is not the one that it takes."""
    if find_spec("vllm") is None:
        raise StudyError("generation.engine is vllm, and vLLM is missing: pip install 'fillerscope[vllm]'")
    if device not in ("cuda", "cuda:0"):
        raise StudyError(
            f"vLLM takes the first GPU that it sees, and the device is {device}: set device to cuda, and choose a GPU "
            "with CUDA_VISIBLE_DEVICES"
        )


class VllmGenerator:
    """A `Generator`. It holds most of the GPU's memory until it is closed.

    `order` is a seed: requests are started in an order drawn from it."""

    def __init__(
        self, folder: ModelFolder, dtype: str, tokenizer: Tokenizer, stops: frozenset[int], rows: int | None = None,
        order: int | None = None,
    ) -> None:  # fmt: skip
        self.tokenizer, self.stops, self.order = tokenizer, stops, order
        self.engine = _started(folder, dtype, rows or ROWS)
        self.context = int(self.engine.model_config.max_model_len)

    def answer(self, requests: Sequence[Request], decoding: Decoding, tick: Callable[[float], None]) -> list[Reply]:
        replies: dict[int, Reply] = {}
        for number, output in self._outputs(requests, decoding, tick):
            reply = self._reply(output.token_ids, str(output.finish_reason))
            replies[number] = without_next(reply, requests[number].heading, self.tokenizer)
        return [replies.get(number) or Reply("", 0, "failed", NO_ROOM) for number in range(len(requests))]

    def first_tokens(self, requests: Sequence[Request], count: int) -> list[list[tuple[int, float]]]:
        """The likeliest tokens, one after the other, and the logarithm of the probability of each."""
        steps_of: dict[int, list[tuple[int, float]]] = {}
        for number, output in self._outputs(requests, Decoding(max_tokens=count), lambda _: None, logprobs=0):
            steps = zip(output.token_ids, output.logprobs, strict=True)
            steps_of[number] = [(token, step[token].logprob) for token, step in steps]
        return [steps_of.get(number, []) for number in range(len(requests))]

    def close(self) -> None:
        """Give the memory of the GPU back."""
        from vllm.distributed import cleanup_dist_env_and_memory

        self.engine.engine_core.shutdown()
        del self.engine
        cleanup_dist_env_and_memory()
        gc.collect()
        torch.cuda.empty_cache()

    def _outputs(
        self, requests: Sequence[Request], decoding: Decoding, tick: Callable[[float], None],
        logprobs: int | None = None,
    ) -> list[tuple[int, CompletionOutput]]:  # fmt: skip
        """What vLLM writes for each request, by number; nothing for those that leave no room for an answer."""
        engine, done = self.engine, []
        try:
            for number in self._ordered(len(requests)):
                if self._most_tokens(requests[number], decoding) > 0:
                    params = self._params(requests[number], decoding, logprobs)
                    engine.add_request(str(number), {"prompt_token_ids": list(requests[number].ids)}, params)
                else:
                    tick(1)
            while engine.has_unfinished_requests():
                for one in engine.step():
                    if one.finished:
                        done.append((int(one.request_id), one.outputs[0]))
                        tick(1)
        except BaseException as error:  # also Ctrl-C: what is under way would go on with the next call
            with suppress(Exception):
                engine.abort_request([str(number) for number in range(len(requests))])
            if isinstance(error, Exception) and type(error).__module__.startswith(("vllm", "builtins", "torch")):
                raise GenerationError(f"vLLM failed: {first_line(error)}") from error
            raise
        return done

    def _most_tokens(self, request: Request, decoding: Decoding) -> int:
        return min(request.most_tokens(decoding), self.context - len(request.ids))

    def _ordered(self, count: int) -> list[int]:
        numbers = list(range(count))
        if self.order is not None:
            random.Random(self.order).shuffle(numbers)
        return numbers

    def _params(self, request: Request, decoding: Decoding, logprobs: int | None) -> SamplingParams:
        from vllm import SamplingParams

        return SamplingParams(
            temperature=decoding.temperature, top_p=decoding.top_p, seed=request.seed, logprobs=logprobs,
            max_tokens=self._most_tokens(request, decoding),
            ignore_eos=True, stop_token_ids=sorted(self.stops), detokenize=False,
        )  # fmt: skip

    def _reply(self, generated: Sequence[int], reason: str) -> Reply:
        if reason not in ("stop", "length"):
            return Reply("", 0, "failed", f"vLLM ended the answer with {reason!r}, not with stop or length")
        stopped = bool(generated) and generated[-1] in self.stops
        ids = list(generated[:-1] if stopped else generated)
        text = decode(self.tokenizer, ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return Reply(text, len(ids), "stop" if stopped else "length", ids=tuple(generated))


def _started(folder: ModelFolder, dtype: str, rows: int) -> LLMEngine:
    os.environ.update(SETTINGS)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from vllm import EngineArgs, LLMEngine

    free, total = torch.cuda.mem_get_info()
    with hashed_view(folder) as view:
        args = EngineArgs(
            model=str(view.path), load_format="safetensors", trust_remote_code=False, skip_tokenizer_init=True,
            generation_config="vllm", dtype=dtype, max_model_len=-1, max_num_seqs=rows, seed=0,
            enable_prefix_caching=True, gpu_memory_utilization=SHARE * free / total, disable_log_stats=True,
        )  # fmt: skip
        try:
            return LLMEngine.from_engine_args(args)
        except Exception as error:
            said = view.explain(first_line(error))
            raise GenerationError(
                f"vLLM cannot answer with {folder.label}: {said}; leave generation.engine out"
            ) from error
