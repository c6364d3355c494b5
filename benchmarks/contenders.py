"""Ways to learn how much attention every position receives: ours, and what people do today.

Each is given the same batch and answers for every layer, head and position. The others only add up the weights
over all queries, while fillerscope also keeps three groups of queries, the diagonal and the entropy; and they are
spared the logits, which the plain forward and fillerscope do not make either.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from timing import PLAIN, say
from torch import Tensor

from fillerscope.capture.attention import capturing
from fillerscope.capture.packing import Text
from fillerscope.capture.passes import Measured, PassRunner
from fillerscope.models.attention import using_attention
from fillerscope.models.structure import decoder_of, text_config

OURS = "fillerscope"
FILLER = 55  # tokens of each text that are not original
Means = NDArray[np.float64]  # [text, layer, head, position]


@dataclass(frozen=True)
class Batch:
    """Texts of one length, of random tokens, with filler in the middle."""

    ids: list[list[int]]
    original: list[NDArray[np.bool_]]
    tokens: Tensor

    @classmethod
    def random(cls, model: Any, texts: int, length: int) -> Batch:
        vocabulary = int(text_config(model).vocab_size)
        ids = np.random.default_rng(0).integers(0, vocabulary, size=(texts, length))
        original = np.ones((texts, length), dtype=np.bool_)
        original[:, length // 4 : length // 4 + min(FILLER, length // 4)] = False
        return cls(ids.tolist(), list(original), torch.from_numpy(ids).to(model.device))

    def __str__(self) -> str:
        return "{} x {}".format(*self.shape)

    @property
    def shape(self) -> tuple[int, int]:
        return self.tokens.shape[0], self.tokens.shape[1]


@dataclass(frozen=True)
class Contender:
    name: str
    run: Callable[[Batch], Any]  # what is timed
    means: Callable[[Any], Means] | None  # of what `run` gave; the plain forward gives none
    prepared: Callable[[], AbstractContextManager[Any]] = nullcontext  # around `run`, not timed

    def seconds(self, batch: Batch, passes: int = 1) -> float:
        """Of one pass, out of several that follow one another without a pause."""
        with self.prepared():
            wait(batch.tokens.device)
            start = time.perf_counter()
            for _ in range(passes):
                self.run(batch)
            wait(batch.tokens.device)
            return (time.perf_counter() - start) / passes

    def answer(self, batch: Batch) -> Means:
        assert self.means is not None, f"{self.name} measures nothing"
        with self.prepared():
            return self.means(self.run(batch))


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def plain(model: Any) -> Contender:
    @torch.inference_mode()
    def run(batch: Batch) -> None:
        decoder_of(model)(input_ids=batch.tokens, use_cache=False)

    return Contender(PLAIN, run, None, partial(using_attention, model, "sdpa"))


def ours(model: Any) -> Contender:
    """What stays on the device is added up there by whoever measures a study; see study.py for all of that."""

    def run(batch: Batch) -> Measured:
        texts = [Text(tuple(ids), mask) for ids, mask in zip(batch.ids, batch.original, strict=True)]
        return PassRunner(model, batch.tokens.numel()).one_pass(texts)

    def means(found: Measured) -> Means:
        return np.stack([found.text(i).mean_received(diagonal=True)[0] for i in range(len(found.texts))])

    return Contender(OURS, run, means, partial(capturing, model))


def eager(model: Any) -> Contender:
    @torch.inference_mode()
    def run(batch: Batch) -> list[Tensor]:
        found = model(input_ids=batch.tokens, output_attentions=True, use_cache=False, logits_to_keep=1)
        return [received(weights) for weights in found.attentions]

    return Contender("eager", run, means_of, partial(using_attention, model, "eager"))


def transformer_lens(model: Any, tokenizer: Any) -> Contender:
    """A hook that keeps the sums, which holds less than `run_with_cache`. The bridge rebuilds the model it is given."""
    from transformer_lens.model_bridge import TransformerBridge

    bridge = TransformerBridge.boot_transformers(
        model.name_or_path, hf_model=model, tokenizer=tokenizer, device="cpu", dtype=model.dtype
    )

    @torch.inference_mode()
    def run(batch: Batch) -> list[Tensor]:
        found: list[Tensor] = []
        hook = (lambda name: name.endswith("hook_pattern"), lambda weights, hook: found.append(received(weights)))  # noqa: ARG005
        bridge.run_with_hooks(batch.tokens, return_type=None, fwd_hooks=[hook], use_cache=False, logits_to_keep=1)
        return found

    return Contender("transformer-lens", run, means_of)


def nnsight(model: Any, tokenizer: Any) -> Contender:
    """Reads what eager attention returns, layer by layer, inside one trace. It instruments the model it is given."""
    import nnsight

    model.set_attn_implementation("eager")
    traced = nnsight.TransformersModel(model, tokenizer=tokenizer)

    @torch.inference_mode()
    def run(batch: Batch) -> list[Tensor]:
        with traced.trace(batch.tokens, use_cache=False, logits_to_keep=1):
            found = nnsight.save([])
            for layer in traced.model.layers:
                found.append(received(layer.self_attn.output[1]))
        return list(found)

    return Contender("nnsight", run, means_of)


PEERS: dict[str, tuple[str, Callable[[Any, Any], Contender]]] = {  # by name: the package, and how it is set up
    "transformer-lens": ("transformer_lens", transformer_lens),
    "nnsight": ("nnsight", nnsight),
}
WITHOUT_PEERS: dict[str, Callable[[Any], Contender]] = {PLAIN: plain, OURS: ours, "eager": eager}
NAMES = (*WITHOUT_PEERS, *PEERS)


def contender(name: str, model: Any, tokenizer: Any = None) -> Contender:
    """A peer changes the model, which nobody else can use then."""
    return WITHOUT_PEERS[name](model) if name in WITHOUT_PEERS else PEERS[name][1](model, tokenizer)


def installed(names: Iterable[str]) -> list[str]:
    """Without the peers that are not there, which are named."""
    missing = [name for name in names if name in PEERS and find_spec(PEERS[name][0]) is None]
    for name in missing:
        say(f"{name} is not installed and is left out: `make bench` installs it")
    return [name for name in names if name not in missing]


def received(weights: Tensor) -> Tensor:
    """[text, head, query, key] summed over queries."""
    return weights.sum(-2, dtype=torch.float32)


def means_of(sums: Sequence[Tensor]) -> Means:
    """Each key's sum by the number of queries that are not before it."""
    found = torch.stack(list(sums), 1).double().cpu().numpy()
    return found / np.arange(found.shape[-1], 0, -1)


def compared(
    contenders: Sequence[Contender], batch: Batch, tolerance: float, layers: int | None = None
) -> dict[str, float]:
    """How far each is from fillerscope at most, in its first layers; who measures something else is not timed."""
    mine = next((one for one in contenders if one.name == OURS), None)
    others = [one for one in contenders if one.means and one is not mine]
    if mine is None or not others:
        return {}
    reference = mine.answer(batch)[:, :layers]
    found = {one.name: float(np.abs(reference - one.answer(batch)[:, :layers]).max()) for one in others}
    for name, far in found.items():
        if not far <= tolerance:
            sys.exit(f"{name} differs from {OURS} by {far:.1e} in a batch of {batch}, more than {tolerance}")
    return found
