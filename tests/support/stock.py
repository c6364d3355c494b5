"""What a stock model gives for one prompt alone, stored whole, and the definitions of all probes.

Eager attention, no packing, nothing shared; everything that is worked out of it is float64 numpy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fillerscope.capture.activations import Scale
from fillerscope.capture.attention import capturing
from fillerscope.capture.passes import PassRunner
from fillerscope.capture.probes import Probing
from fillerscope.measure.engines.local import calibration
from fillerscope.measure.prepare import Shard, ShardPrompts
from fillerscope.models.loading import LoadedModel, wrap
from fillerscope.models.structure import attention_modules, context_length, decoder_of, layers_of
from fillerscope.problems.sources import load_problems
from fillerscope.prompts.prompt import Prompt, PromptMaker, token_texts
from fillerscope.store.array_file import Part
from fillerscope.study.conditions import Condition
from fillerscope.study.study import Study
from support.shards import run_shard
from support.studies import CONDITIONS, study_of
from support.tiny import tiny_model, tiny_tokenizer

FAMILIES = ("llama", "qwen2", "gemma3_text", "mistral", "phi3", "gpt2")
ALL_PROBES: dict[str, Any] = {"attention": {"positions": 200}, "affine": True, "activations": {}}
QUESTION, TAIL = 2, 3


def loaded(family: str = "llama", double: bool = False, **overrides: Any) -> LoadedModel:
    model = tiny_model(family, **overrides)
    return wrap(model.double() if double else model, tiny_tokenizer(), "tiny")


def probed(**changes: Any) -> Study:
    """Four problems of unequal length under every kind of place for the filler, with all probes of prompts."""
    usual = {"problems": {"limit": 4, "seed": 1}, "conditions": CONDITIONS, "probes": ALL_PROBES, "seed": 5}
    return study_of("tiny", **(usual | changes))


def maker_for(study: Study, model: LoadedModel) -> PromptMaker:
    return PromptMaker.of(model.tokenizer, study.prompt, study.prompt.template, study.seed)


def shard_of(study: Study) -> Shard:
    return Shard(0, 0, tuple(load_problems(study.problems)))


def scale_for(study: Study, model: LoadedModel) -> Scale:
    return Scale.read(
        calibration(
            ShardPrompts(study, maker_for(study, model), context_length(model.model)), model.model, [shard_of(study)]
        )
    )


def probing_for(study: Study, model: LoadedModel, scale: Scale | None = None) -> Probing:
    if study.probes.activations is None:
        return Probing(study.probes.affine)
    classes = len(study.probes.activations.classes) + 1
    return Probing(study.probes.affine, scale or scale_for(study, model), classes)


def measure(study: Study, model: LoadedModel, shard: Shard | None = None, scale: Scale | None = None) -> Part:
    """All problems of the study as one shard, unless one is given."""
    gauge = PassRunner(model.model, study.batch.tokens or 4096, probing=probing_for(study, model, scale))
    with capturing(model.model):
        maker, context = maker_for(study, model), context_length(model.model)
        return run_shard(study, shard or shard_of(study), gauge, maker, context, lambda _: None)


# What a stock model gives


@dataclass(frozen=True)
class Stored:
    weights: np.ndarray  # [layer, head, row, key]
    outputs: np.ndarray  # [layer, token, head, dim]: of every head, before the output projection
    activations: np.ndarray  # [layer, token, width]: of the MLP's nonlinearity


def stored(
    model: Any, ids: Sequence[int], positions: Sequence[int] | None = None, hidden: Callable[[int], Any] | None = None
) -> Stored:
    """`hidden` gives for a layer, counted from 0, what rows must not look at [row, key], or None."""
    outputs: list[Any] = []
    activations: list[Any] = []
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    given: dict[str, Any] = {}
    if positions is not None:  # without a mask a jump in positions would be taken for the start of another text
        given = {"position_ids": torch.tensor([list(positions)]), "attention_mask": torch.ones(1, len(ids)).long()}
    with torch.inference_mode(), _listening(model, outputs, activations), _hiding(model, hidden):
        found = decoder_of(model)(input_ids=torch.tensor([ids]), output_attentions=True, use_cache=False, **given)
    model.set_attn_implementation(before)
    heads = found.attentions[0].shape[1]
    arrays = (
        torch.stack([layer[0] for layer in found.attentions]),
        torch.stack([one[0].unflatten(-1, (heads, -1)) for one in outputs]),
        torch.stack([one[0] for one in activations]),
    )
    return Stored(*(array.double().numpy() for array in arrays))


@contextmanager
def _listening(model: Any, outputs: list[Any], activations: list[Any]) -> Iterator[None]:
    decoder = decoder_of(model)
    with ExitStack() as stack:
        for attention in attention_modules(decoder).values():
            projection = _first(attention, "o_proj", "c_proj", "dense")
            handle = projection.register_forward_pre_hook(lambda _, inputs: outputs.append(inputs[0].clone()))
            stack.callback(handle.remove)
        for layer in layers_of(decoder):
            nonlinearity = _first(layer.mlp, "act_fn", "activation_fn", "act")
            handle = nonlinearity.register_forward_hook(lambda _, __, output: activations.append(output.clone()))
            stack.callback(handle.remove)
        yield


def _first(module: Any, *names: str) -> Any:
    return next(getattr(module, name) for name in names if hasattr(module, name))


@contextmanager
def _hiding(model: Any, hidden: Callable[[int], Any] | None) -> Iterator[None]:
    """The mask that the model itself made, with more hidden in some layers."""

    def hook(layer: int) -> Callable[..., Any]:
        def changed(_module: Any, args: Any, kwargs: dict[str, Any]) -> Any:
            more = None if hidden is None else hidden(layer)
            if more is None:
                return args, kwargs
            mask = kwargs["attention_mask"]
            lowest = torch.finfo(mask.dtype).min
            return args, kwargs | {"attention_mask": mask.masked_fill(torch.as_tensor(more), lowest)}

        return changed

    with ExitStack() as stack:
        for layer, module in attention_modules(decoder_of(model)).items() if hidden else ():
            stack.callback(module.register_forward_pre_hook(hook(layer), with_kwargs=True).remove)
        yield


# The definitions


def kept_tokens(prompt: Prompt) -> list[int]:
    """Tokens of the question and of what follows it."""
    return [place for place, span in enumerate(prompt.spans) if span in (QUESTION, TAIL)]


def behind_filler(prompt: Prompt, plain: Prompt) -> tuple[list[int], list[int]]:
    """Places of the same tokens with filler and without: question and tail, behind the last token of filler."""
    pairs = list(zip(kept_tokens(prompt), kept_tokens(plain), strict=True))
    last = max((place for place, span in enumerate(prompt.spans) if span == 1), default=-1)
    return [a for a, _ in pairs if a > last], [b for a, b in pairs if a > last]


def affine_of(after: np.ndarray, before: np.ndarray) -> tuple[dict[str, float], np.ndarray]:
    """Of one head's outputs [token, dim] with filler and without: the numbers, and the bias."""
    slope = float((after * before).sum() / (before**2).sum())
    moved = after - slope * before
    bias, centre, origin = (some.mean(axis=0) for some in (moved, after, before))
    rest, variation = float(((moved - bias) ** 2).sum()), float(((after - centre) ** 2).sum())
    together, alone = float(((after - centre) * (before - origin)).sum()), float(((before - origin) ** 2).sum())
    length, reach = float(np.linalg.norm(bias)), float(np.linalg.norm(moved, axis=1).mean())
    return {
        "lambda_fit": slope,
        "explained": 1 - rest / variation,
        "direction": length / reach if reach else math.nan,
        "bias": length,
        "output": float(np.linalg.norm(before, axis=1).mean()),
        "lambda_centred": together / alone if alone else math.nan,
    }, bias


def activation_of(values: np.ndarray, eps: float, median: float) -> dict[str, float]:
    """Of some tokens' activations [token, width] in one layer."""
    if not len(values):
        return {"tokens": 0.0}  # and nothing else
    sizes = np.abs(values)
    return {
        "tokens": float(len(values)),
        "near_zero": float(np.mean(sizes < eps)),
        "below_median": float(np.mean(sizes < median)),
        "mean": float(values.mean()),
        "variance": float(values.var()),
        "l1": float(sizes.sum(axis=1).mean()),
        "l2": float(np.sqrt((values**2).sum(axis=1)).mean()),
        "gini": gini_of(sizes.ravel()),
    }


def gini_of(sizes: np.ndarray) -> float:
    ordered, count = np.sort(sizes), len(sizes)
    return float(((2 * np.arange(1, count + 1) - count - 1) * ordered).sum() / (count * ordered.sum()))


def classes_of(study: Study, model: LoadedModel, plain: Prompt) -> list[str]:
    """The class of every token of a prompt without filler."""
    assert study.probes.activations is not None
    patterns = study.probes.activations.classes
    texts = [text.strip() for text in token_texts(model.tokenizer, plain.ids)]
    return [next((name for name, p in patterns.items() if re.fullmatch(p, text)), "other") for text in texts]


def prompts_of(study: Study, model: LoadedModel) -> Iterator[tuple[int, Condition, Prompt, Prompt]]:
    """Number of the problem, condition, its prompt, and the prompt without filler."""
    maker = maker_for(study, model)
    for number, problem in enumerate(load_problems(study.problems)):
        plain = maker.plain(problem.question)
        for condition in study.conditions:
            yield number, condition, maker.make(problem, condition), plain
