"""The self-check itself: it passes what is right, and finds each way in which a capture can be wrong."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fillerscope.capture import blocks, passes, self_check
from fillerscope.capture.attention_inputs import AttentionInputs
from fillerscope.capture.blocks import Attended, attend_texts
from fillerscope.capture.masks import PLAIN_CAUSAL
from fillerscope.errors import CaptureError
from fillerscope.models.loading import LoadedModel, wrap
from fillerscope.models.structure import attention_modules
from support.families import small_model
from support.grid import grid
from support.tiny import tiny_model, tiny_tokenizer

FAMILIES = ("llama", "qwen2", "qwen3", "gemma2", "gemma3_text", "gemma3", "mistral", "phi3", "gpt2", "gpt_neox")


def loaded(family: str, **overrides: Any) -> LoadedModel:
    return wrap(tiny_model(family, **overrides), tiny_tokenizer(), f"tiny/{family}")


@pytest.mark.parametrize(("family", "dtype"), grid(FAMILIES, ["float32", "bfloat16", "float16", "float64"]))
def test_what_is_right_passes(family: str, dtype: str) -> None:
    model = wrap(tiny_model(family).to(getattr(torch, dtype)), tiny_tokenizer(), family)
    result = self_check.check_capture(model)
    assert 0 <= result.difference <= result.tolerance == 1e-5
    assert result.tokens == 48  # past the window of 8
    assert 1 <= result.layer <= model.layers
    assert 1 <= result.head <= model.heads
    assert result.record()["difference"] == result.difference


def test_it_is_the_same_every_time() -> None:
    model = loaded("gemma2")
    assert self_check.check_capture(model) == self_check.check_capture(model)


@pytest.mark.parametrize(("window", "tokens"), [(8, 48), (100, 116), (1084, 1100), (1085, 48), (4096, 48)])
def test_a_window_is_reached_past_where_matrices_are_small_enough(window: int, tokens: int) -> None:
    model = loaded("gemma2", sliding_window=window, max_position_embeddings=2048)
    assert self_check._length(model) == tokens


def test_a_window_of_a_hundred_is_checked() -> None:
    assert self_check.check_capture(loaded("mistral", sliding_window=100)).tokens == 116


# Captures that are wrong


def with_rule(inputs: AttentionInputs, **changes: Any) -> AttentionInputs:
    return replace(inputs, rule=replace(inputs.rule, **changes))


def another_scale(inputs: AttentionInputs, *rest: Any) -> Attended:
    return attend_texts(with_rule(inputs, scaling=inputs.rule.scaling * 1.02), *rest)


def no_softcap(inputs: AttentionInputs, *rest: Any) -> Attended:
    return attend_texts(with_rule(inputs, softcap=None), *rest)


def no_window(inputs: AttentionInputs, *rest: Any) -> Attended:
    return attend_texts(with_rule(inputs, mask=PLAIN_CAUSAL), *rest)


def short_window(inputs: AttentionInputs, *rest: Any) -> Attended:
    """Too few keys are looked at for each block of rows: its first row misses one."""
    mask = inputs.rule.mask
    shorter = mask if mask.reach is None else replace(mask, reach=mask.reach - 1)
    return attend_texts(with_rule(inputs, mask=shorter), *rest)


def own_votes(*given: Any) -> Attended:
    found = attend_texts(*given)
    found.received[..., -found.diagonal.shape[-1] :] += found.diagonal[:, :, None]
    return found


def heads_in_another_order(*given: Any) -> Attended:
    found = attend_texts(*given)
    return replace(found, received=found.received.flip(1))


def keys_of_another_head(inputs: AttentionInputs, *rest: Any) -> Attended:
    return attend_texts(replace(inputs, key=inputs.key.flip(1)), *rest)


def shifted(*given: Any) -> Attended:
    found = attend_texts(*given)
    return replace(found, received=found.received.roll(1, dims=-1))


def not_numbers(*given: Any) -> Attended:
    found = attend_texts(*given)
    return replace(found, received=found.received * torch.nan)


def one_not_a_number(*given: Any) -> Attended:
    found = attend_texts(*given)
    if found.received.shape[-1] < 48:  # the shorter of the two texts, and what both begin with
        found.received[0, 2, 0, 3] = torch.nan
    return found


def groups_in_another_order(*given: Any) -> Attended:
    found = attend_texts(*given)
    return replace(found, received=found.received[:, :, [0, 2, 1]])


WRONG = [
    ("llama", another_scale),
    ("llama", own_votes),
    ("llama", heads_in_another_order),
    ("llama", keys_of_another_head),
    ("gpt2", shifted),
    ("gpt2", not_numbers),
    ("gpt2", one_not_a_number),
    ("llama", groups_in_another_order),
    ("gemma2", no_softcap),
    ("gemma2", no_window),
    ("gemma3", no_window),
    ("mistral", short_window),
]


@pytest.mark.parametrize(("family", "wrong"), WRONG)
def test_what_is_wrong_is_found_with_its_figure(family: str, wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "attend_texts", wrong)
    assert_found(family)
    monkeypatch.undo()
    self_check.check_capture(loaded(family))


def assert_found(family: str) -> None:
    model = loaded(family)
    before = model.model.config._attn_implementation
    with pytest.raises(CaptureError) as caught:
        self_check.check_capture(model)
    said = re.fullmatch(
        rf"self-check failed on {family}: attention received differs from the model's eager attention by (\S+) "
        r"in layer (\d+) head (\d+) \(1e-05 is allowed\); this model cannot be measured exactly",
        str(caught.value),
    )
    assert said, caught.value
    assert not float(said[1]) <= 1e-5
    assert model.model.config._attn_implementation == before


# Texts put together wrongly


def prefix_shifted(band: Any, inputs: AttentionInputs) -> Any:
    shifted = inputs.prefixes and tuple(tensor.roll(1, dims=1) for tensor in inputs.prefixes)
    return with_prefix(band, replace(inputs, prefixes=shifted))


def beginning_left_out(packing: Any) -> Any:
    before, texts, positions = prefix_places(packing)
    return np.full_like(before, before.max()), texts, positions


def beginning_misplaced(packing: Any) -> Any:
    before, texts, positions = prefix_places(packing)
    return np.roll(before, 1), texts, positions


def neighbours_exchanged(packing: Any) -> Any:
    places = kept_keys(packing)
    return places.copy() if len(packing.texts) == 1 else np.roll(places, len(packing.texts[0]))


with_prefix = blocks._with_prefix
kept_keys, prefix_places = passes.Packing.kept_keys, passes.Packing.prefix_places
WRONGLY_PUT = [
    (blocks, "_with_prefix", prefix_shifted),
    (passes.Packing, "prefix_places", beginning_left_out),
    (passes.Packing, "prefix_places", beginning_misplaced),
    (passes.Packing, "kept_keys", neighbours_exchanged),
]


@pytest.mark.parametrize(("where", "name", "wrong"), WRONGLY_PUT)
@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_texts_put_together_wrongly_are_found(
    family: str, where: Any, name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, wrong)
    assert_found(family)


def test_the_worst_layer_and_head_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def third_layer_second_head(*given: Any) -> Attended:
        """Three layers of what both texts begin with; then, layer by layer, the shorter text and the longer."""
        nonlocal calls
        calls += 1
        found = attend_texts(*given)
        if calls == 5:
            found.received[:, 0, 0, 5] += 0.1  # a smaller mistake elsewhere
        if calls == 8:
            found.received[0, 1, 0, 7] += 1.6  # in the shorter of the two texts
        return found

    monkeypatch.setattr(blocks, "attend_texts", third_layer_second_head)
    with pytest.raises(CaptureError, match=r"by 1\.0e-01 in layer 3 head 2 "):  # 1.6 over the 16 rows below
        self_check.check_capture(loaded("llama"))


# The model afterwards


def implementations(model: Any) -> list[str]:
    """Of the model's config and of every config inside it."""
    parts = [model.config, *(getattr(model.config, name) for name in model.config.sub_configs)]
    return [part._attn_implementation for part in parts]


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_the_model_has_its_own_attention_again(family: str, implementation: str) -> None:
    model = loaded(family)
    model.model.set_attn_implementation(implementation)
    inputs = {"input_ids": torch.arange(3, 40)[None]}
    before = model.model(**inputs).logits
    self_check.check_capture(model)
    assert set(implementations(model.model)) == {implementation}
    assert torch.equal(model.model(**inputs).logits, before)


def test_a_refused_model_has_its_own_attention_again() -> None:
    model = wrap(small_model("bloom"), tiny_tokenizer(), "bloom")
    before = implementations(model.model)
    with pytest.raises(CaptureError, match=r"do not attend through transformers' attention interface, .*alibi"):
        self_check.check_capture(model)
    assert implementations(model.model) == before


def test_a_model_without_eager_attention_is_refused() -> None:
    model = loaded("llama")
    module = attention_modules(model.decoder)[1]
    module.__class__ = type("Homemade", (type(module),), {})  # a class of this file, which has no such function
    with pytest.raises(CaptureError, match="Homemade has no eager attention to compare with; it cannot be checked"):
        self_check.check_capture(model)
    assert model.model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize(("bias", "passes"), [(0.0, False), (30.0, True)])
def test_scores_of_thousands_are_allowed_their_rounding(
    bias: float, passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the first layer of Qwen2.5: rounded in float32, such scores shift weights by more than 1e-5."""
    model, calls = loaded("qwen2"), 0
    first = model.model.model.layers[0].self_attn
    with torch.no_grad():
        first.q_proj.bias.fill_(bias)
        first.k_proj.bias.fill_(bias)

    def slightly_off(*given: Any) -> Attended:
        nonlocal calls
        calls += 1
        found = attend_texts(*given)
        if calls == 5:  # the first layer of the longer text
            found.received[0, 0, 0, 0] += 47 * 5e-5  # over the 47 rows below
        return found

    monkeypatch.setattr(blocks, "attend_texts", slightly_off)
    if passes:
        result = self_check.check_capture(model)
        assert 1e-5 < result.difference <= result.tolerance
        assert (result.layer, result.head) == (1, 1)
    else:
        with pytest.raises(CaptureError, match=r"by 5\.0e-05 in layer 1 head 1 "):
            self_check.check_capture(model)
