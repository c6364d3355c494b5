"""Texts together against each alone: what a row does beyond attention is seen at load, in whatever model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fillerscope.capture import precision
from fillerscope.capture.attention import capturing
from fillerscope.capture.layer_inputs import depth_of_kinds
from fillerscope.capture.masks import MaskRule
from fillerscope.capture.packing import Text
from fillerscope.capture.passes import PassRunner
from fillerscope.capture.row_check import _windows, check_rows
from fillerscope.capture.self_check import check_capture
from fillerscope.errors import CaptureError
from fillerscope.models.loading import LoadedModel, wrap
from fillerscope.models.positions import length_limit
from fillerscope.models.structure import decoder_of, layers_of
from support.families import small_model
from support.tiny import redraw, tiny_model, tiny_tokenizer

LONGROPE = {
    "original_max_position_embeddings": 64,
    "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 10_000.0, "original_max_position_embeddings": 64,
        "short_factor": [1.0] * 8, "long_factor": [4.0] * 8,
    },
}  # fmt: skip


def loaded(family: str, **overrides: Any) -> LoadedModel:
    return wrap(small_model(family, **overrides), tiny_tokenizer(), family)


def texts(*lengths: int) -> list[Text]:
    random = np.random.default_rng(1)
    return [Text(tuple(random.integers(5, 500, n).tolist()), np.ones(n, np.bool_)) for n in lengths]


@torch.inference_mode()
def received_alone(model: Any, ids: tuple[int, ...]) -> dict[int, np.ndarray]:
    """By layer with attention [head, position], from the stock model's own weights."""
    model.set_attn_implementation("eager")
    given = decoder_of(model)(input_ids=torch.tensor([ids]), output_attentions=True, use_cache=False).attentions
    voters = np.arange(len(ids) - 1, 0, -1)
    there = [weights for weights in given if weights is not None]
    return {n: np.tril(one[0].double().numpy(), -1).sum(1)[:, :-1] / voters for n, one in enumerate(there)}


def assert_exact(model: LoadedModel, layout: Any, some: list[Text]) -> None:
    with capturing(model.model):
        measured = PassRunner(model.model, 10_000, layout=layout).measure(some)
    for number, text in enumerate(some):
        mine = measured.text(number).mean_received()[0]
        mine = mine[[layer for layer in range(len(mine)) if layer not in measured.without]]
        for layer, expected in received_alone(model.model, text.ids).items():
            np.testing.assert_allclose(mine[layer][:, :-1], expected, atol=1e-5)


# Families that need more than packing


@pytest.mark.parametrize(
    ("family", "layout"), [("falcon_h1", "apart"), ("qwen3_next", "apart"), ("granitemoehybrid", "apart"),
                           ("diffllama", "packed"), ("llama", "shared"), ("gpt_oss", "shared")],
)  # fmt: skip
def test_a_family_gets_the_layout_in_which_it_is_exact(family: str, layout: str) -> None:
    model = loaded(family)
    check_capture(model)
    assert check_rows(model).layout == layout
    assert_exact(model, layout, texts(12, 70, 5, 33))


def test_what_the_self_check_is_blind_to() -> None:
    """The reason for the row check: a state that leaks from text to text passes the other one."""
    model = loaded("falcon_h1")
    assert check_capture(model).difference < 1e-5
    with pytest.raises(AssertionError):
        assert_exact(model, "packed", texts(12, 70, 5, 33))


def test_rope_by_the_longest_text_of_the_row() -> None:
    model = loaded("phi3", **LONGROPE)
    assert length_limit(model.model) == 64
    check = check_rows(model, longest=90)
    assert (check.layout, check.tokens) == ("shared", 90)
    assert_exact(model, check.layout, texts(20, 63, 64, 65, 90, 30))


def test_dynamic_rope_forgets_the_texts_before() -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 64}
    model = loaded("llama", max_position_embeddings=64, rope_parameters=rope)
    some = texts(120, 90, 20)
    with capturing(model.model):
        runner = PassRunner(model.model, 10_000)
        together = runner.measure(some)
        for number, text in enumerate(some):
            alone = runner.measure([text]).text(0).mean_received()
            np.testing.assert_allclose(together.text(number).mean_received(), alone, atol=1e-6)
    assert_exact(model, "shared", some[2:])


def test_texts_beyond_the_limit_have_a_pass_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    model, passes = loaded("phi3", **LONGROPE), []
    one_pass = PassRunner.one_pass

    def noting(runner: PassRunner, some: Any) -> Any:
        passes.append([len(text) for text in some])
        return one_pass(runner, some)

    monkeypatch.setattr(PassRunner, "one_pass", noting)
    with capturing(model.model):
        PassRunner(model.model, 10_000).measure(texts(20, 65, 30, 64, 80))
    assert sorted(map(sorted, passes)) == [[20, 30, 64], [65], [80]]


def test_llama4_temperature_beyond_its_floor() -> None:
    model = loaded("llama4_text", floor_scale=48, attn_temperature_tuning=True, layer_types=["full_attention"] * 4,
                   no_rope_layers=[0, 1, 0, 1])  # fmt: skip
    assert length_limit(model.model) == 47
    check = check_rows(model, longest=80)
    assert_exact(model, check.layout, texts(20, 70, 47, 49))


# Planted defects


@contextmanager
def hooked(model: LoadedModel, hook: Callable[[Any, Any, Any], Any]) -> Iterator[None]:
    """The first layer's output goes through `hook`."""
    handle = layers_of(decoder_of(model.model))[0].register_forward_hook(
        lambda module, given, output: hook(module, given, output)
    )
    try:
        yield
    finally:
        handle.remove()


def leaking(_module: Any, _given: Any, output: Tensor) -> Tensor:
    """Each token carries a little of all before it in its row."""
    count = torch.arange(1, output.shape[1] + 1)[:, None]
    return output + 0.01 * output.cumsum(1) / count


def by_row_position(_module: Any, _given: Any, output: Tensor) -> Tensor:
    place = torch.arange(output.shape[1])[:, None]
    return output * (1 + 0.01 * torch.log1p(torch.floor(place / 16)))


def attending_over_the_row(_module: Any, _given: Any, output: Tensor) -> Tensor:
    later = torch.ones(output.shape[1], output.shape[1]).triu(1) > 0
    scores = (output @ output.transpose(1, 2)).masked_fill(later, -1e9)
    return output + 0.01 * scores.softmax(-1) @ output


def by_longest_row(_module: Any, _given: Any, output: Tensor) -> Tensor:
    return output * (1 + 0.001 * output.shape[1])


@pytest.mark.parametrize("defect", [leaking, by_row_position, attending_over_the_row])
def test_what_a_row_does_is_seen_and_each_text_gets_its_own(defect: Any) -> None:
    model = wrap(tiny_model("llama"), tiny_tokenizer(), "planted")
    with hooked(model, defect):
        assert check_capture(model).difference < 1e-5
        check = check_rows(model)
        assert check.layout == "apart"
        assert len(check.tried) == 2
        assert_exact(model, "apart", texts(12, 70, 5, 33))


def test_what_no_layout_mends_is_refused() -> None:
    model = wrap(tiny_model("llama"), tiny_tokenizer(), "planted")
    with hooked(model, by_longest_row), pytest.raises(CaptureError, match=r"planted cannot be measured exactly.*apart"):
        check_rows(model)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_half_precision_is_let_through_and_a_leak_is_not(dtype: torch.dtype) -> None:
    model = wrap(tiny_model("llama").to(dtype), tiny_tokenizer(), "half")
    assert check_rows(model).layout == "shared"

    def strongly(module: Any, given: Any, output: Tensor) -> Tensor:
        return output + 30 * (leaking(module, given, output) - output)

    with hooked(model, strongly):
        assert check_rows(model).layout == "apart"


# Sinks


def test_learned_sinks_take_their_share_of_every_row() -> None:
    model = loaded("gpt_oss")
    some = texts(12, 70, 33)
    with capturing(model.model):
        measured = PassRunner(model.model, 10_000).measure(some)
    assert measured.sink_sums is not None
    model.model.set_attn_implementation("eager")
    for number, text in enumerate(some):
        with torch.inference_mode():
            given = decoder_of(model.model)(
                input_ids=torch.tensor([text.ids]), output_attentions=True, use_cache=False
            ).attentions
        for layer, weights in enumerate(given):
            left = 1 - weights[0].double().sum(-1)  # [head, row]
            np.testing.assert_allclose(measured.sink_sums[layer, number, :, 0], left.sum(-1), rtol=1e-4, atol=1e-5)
            entropy = -torch.xlogy(weights[0].double(), weights[0].double()).sum((-1, -2))
            np.testing.assert_allclose(measured.entropy[layer, number, :, 0], entropy, rtol=1e-4, atol=1e-5)
    assert_exact(model, "shared", some)


def test_a_model_that_counts_places_in_the_row_is_seen_in_rows_as_long_as_those_of_the_study() -> None:
    """Far below the limit in every text, far beyond it in a row of many."""
    model = loaded("llama4_text", floor_scale=400, attn_temperature_tuning=True, layer_types=["full_attention"] * 4,
                   no_rope_layers=[0, 1, 0, 1])  # fmt: skip
    assert check_rows(model, 60, tokens=200).layout == "shared"
    check = check_rows(model, 60, tokens=900)
    assert check.layout == "apart"
    assert_exact(model, "apart", texts(*[60] * 15))


def test_the_depth_that_holds_a_layer_of_each_kind() -> None:
    assert depth_of_kinds(tiny_model("llama")) == 1
    assert depth_of_kinds(small_model("qwen3_next")) == 2  # linear attention, then attention
    gemma = tiny_model("gemma3_text")
    assert depth_of_kinds(gemma) == 1 + gemma.config.layer_types.index("full_attention")


def test_a_fault_of_a_deep_layer_that_shows_in_long_rows_alone() -> None:
    model = wrap(tiny_model("llama"), tiny_tokenizer(), "planted")

    def beyond(_module: Any, _given: Any, output: Tensor) -> Tensor:
        return torch.cat([output[:, :80], output[:, 80:] + 0.5 * output[:, :1]], 1)

    handle = layers_of(decoder_of(model.model))[2].mlp.register_forward_hook(beyond)  # type: ignore[union-attr]
    try:
        assert check_rows(model, 60, tokens=300).layout == "apart"
    finally:
        handle.remove()


@pytest.mark.parametrize("spread", [0.02, 0.04, 0.08])
def test_half_precision_does_not_hide_a_leak_in_its_rounding(spread: float) -> None:
    model = small_model("falcon_h1")
    redraw(model, spread)
    assert check_rows(wrap(model.to(torch.bfloat16), tiny_tokenizer(), "hybrid")).layout == "apart"


def test_where_float32_does_not_fit_a_model_that_carries_a_state_gets_a_row_for_each_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(precision, "free_memory", lambda _: 1000)
    model = small_model("falcon_h1")
    redraw(model, 0.02)
    assert check_rows(wrap(model.to(torch.bfloat16), tiny_tokenizer(), "hybrid")).layout == "apart"
    plain = wrap(small_model("llama").to(torch.bfloat16), tiny_tokenizer(), "llama")
    assert check_rows(plain).layout == "shared"


@pytest.mark.parametrize(("chunk", "context"), [(16, 64), (3000, 8000)])
def test_chunks_are_no_windows_however_long_they_are(chunk: int, context: int) -> None:
    """Within its first chunk, a row sees what it would see through a window."""
    chunked = MaskRule(lambda _, __, row, key: (key <= row) & (key // chunk == row // chunk), causal=True, reach=chunk)
    window = MaskRule(lambda _, __, row, key: (key <= row) & (key > row - chunk), causal=True, reach=chunk)
    model = loaded("llama", max_position_embeddings=context).model
    assert _windows(model, {0: chunked, 1: window})[:2] == (0, chunk)
