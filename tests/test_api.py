"""Attention received on any texts: the same numbers as whole matrices, and one line for what cannot be measured."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import fillerscope
from fillerscope.analysis.profile import Profile
from fillerscope.api import attention_profile, top_tokens
from fillerscope.capture import blocks
from fillerscope.capture.blocks import Attended, attend_texts
from fillerscope.capture.passes import PassRunner
from fillerscope.errors import CaptureError, FigureError, PromptError
from fillerscope.models.structure import decoder_of
from support.tiny import tiny_model, tiny_tokenizer

TEXTS = (
    "Anna has 3 apples and buys 4 more. How many apples does she have now?",
    "What is 12 + 30?",
    "The quick brown fox jumps over the lazy dog, and the dog does not care.",
)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tiny_tokenizer()


@pytest.fixture(scope="module")
def llama() -> Any:
    return tiny_model("llama")


def eager(model: Any, ids: list[int], queries: str, diagonal: bool) -> np.ndarray:
    """[layer, head, position] by the definition, from whole matrices."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        out = decoder_of(model)(input_ids=torch.tensor([ids]), output_attentions=True, use_cache=False)
    model.set_attn_implementation(before)
    matrix = torch.stack([layer[0] for layer in out.attentions]).double().numpy()
    n = len(ids)
    result = np.full((*matrix.shape[:2], n), np.nan)
    for j in range(n):
        rows = [i for i in ([n - 1] if queries == "last" else range(n)) if i > j or (diagonal and i == j)]
        if rows:
            result[..., j] = matrix[:, :, rows, j].mean(axis=-1)
    return result


@pytest.mark.parametrize(("queries", "diagonal"), [("all", False), ("all", True), ("last", False), ("original", False)])
@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt2"])
def test_one_text_is_what_eager_attention_gives(family: str, queries: str, diagonal: bool, tokenizer: Any) -> None:
    model = tiny_model(family)
    profile = attention_profile(model, tokenizer, [TEXTS[0]], queries, diagonal)
    ids = tokenizer.encode(TEXTS[0])
    np.testing.assert_allclose(profile.mean, eager(model, ids, queries, diagonal), atol=1e-6)
    assert "".join(profile.tokens) == TEXTS[0]
    assert len(profile.tokens) == len(ids) == profile.positions
    assert profile.problems == 1
    assert np.isnan(profile.sd).all()  # one text has no spread


@pytest.mark.parametrize("batch_tokens", [1, 100, 4096])
def test_several_texts_are_averaged_where_they_reach(batch_tokens: int, llama: Any, tokenizer: Any) -> None:
    profile = attention_profile(llama, tokenizer, TEXTS, batch_tokens=batch_tokens)
    each = [eager(llama, tokenizer.encode(text), "all", False) for text in TEXTS]
    lengths = [array.shape[-1] for array in each]
    assert len(set(lengths)) == 3
    stacked = np.full((3, *each[0].shape[:2], max(lengths)), np.nan)
    for row, array in zip(stacked, each, strict=True):
        row[..., : array.shape[-1]] = array
    count = np.isfinite(stacked).sum(axis=0)
    np.testing.assert_array_equal(profile.count, count)
    assert sorted(set(count.ravel().tolist())) == [0, 1, 2, 3]
    kept = count > 0
    np.testing.assert_allclose(profile.mean[kept], np.nanmean(stacked[:, kept], axis=0), atol=1e-6)
    assert np.isnan(profile.mean[~kept]).all()
    spread = count > 1
    np.testing.assert_allclose(profile.sd[spread], np.nanstd(stacked[:, spread], axis=0, ddof=1), atol=1e-6)
    assert profile.problems == 3
    assert profile.tokens == ()  # no token stands for all of them


def test_passes_stay_within_the_budget(llama: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[list[int]] = []

    one_pass = PassRunner.one_pass

    def noting(gauge: PassRunner, texts: Any) -> Any:
        passes.append([len(text) for text in texts])
        return one_pass(gauge, texts)

    monkeypatch.setattr(PassRunner, "one_pass", noting)
    attention_profile(llama, tokenizer, TEXTS * 3, batch_tokens=130, check=False)
    assert sorted(n for batch in passes for n in batch) == sorted(len(tokenizer.encode(text)) for text in TEXTS * 3)
    assert 1 < len(passes) < 9
    assert all(sum(batch) <= 130 for batch in passes)


def test_a_text_by_itself_is_one_text(llama: Any, tokenizer: Any) -> None:
    """A string is a sequence of strings, too: with a tokenizer that adds a BOS each letter would pass for a text."""
    alone = attention_profile(llama, tokenizer, TEXTS[1])
    np.testing.assert_array_equal(alone.mean, attention_profile(llama, tokenizer, [TEXTS[1]]).mean)


def test_texts_may_come_from_anywhere(llama: Any, tokenizer: Any) -> None:
    from_list = attention_profile(llama, tokenizer, list(TEXTS), check=False)
    generated = attention_profile(llama, tokenizer, (text for text in TEXTS), check=False)
    np.testing.assert_array_equal(generated.mean, from_list.mean)


def test_it_is_part_of_the_library() -> None:
    assert fillerscope.attention_profile is attention_profile


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(tokenizer: Any, training: bool) -> None:
    model = tiny_model("llama").train(training)
    attention_profile(model, tokenizer, TEXTS)
    assert model.config._attn_implementation == "sdpa"
    assert model.training is training


# What cannot be measured

BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "nothing": ([], {}, "give at least one text, each of two tokens or more"),
    "one token": (["a"], {}, "a single token receives nothing"),
    "an empty text": ([""], {}, "each of two tokens or more"),
    "one token among others": ([*TEXTS, "a"], {}, "each of two tokens or more"),
    "an empty string": ("", {}, "each of two tokens or more"),
    "no text": ([TEXTS[0], None], {}, "texts are strings, and one of them is NoneType"),
    "ids": ([[1, 2, 3]], {}, "texts are strings, and one of them is list"),
    "unknown rows": (TEXTS, {"queries": "first"}, "queries are all, original, last, not 'first'"),
    "too long": (["a b" * 700], {}, r"a text has \d+ tokens, and the model takes 1024; shorten it"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_line(what: str, llama: Any, tokenizer: Any) -> None:
    texts, options, reason = BAD[what]
    with pytest.raises(PromptError, match=reason) as caught:
        attention_profile(llama, tokenizer, texts, **options)
    assert "\n" not in str(caught.value)
    assert llama.config._attn_implementation == "sdpa"


def test_a_capture_that_is_wrong_is_found_unless_nobody_asks(
    llama: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*given: Any) -> Attended:
        found = attend_texts(*given)
        return replace(found, received=found.received * 1.01)

    monkeypatch.setattr(blocks, "attend_texts", wrong)
    with pytest.raises(CaptureError, match=r"self-check failed on LlamaForCausalLM: .* differs .* by \d\.\de-0\d"):
        attention_profile(llama, tokenizer, TEXTS)
    ids = tokenizer.encode(TEXTS[0])
    unchecked = attention_profile(llama, tokenizer, [TEXTS[0]], check=False)
    np.testing.assert_allclose(unchecked.mean, 1.01 * eager(llama, ids, "all", False), atol=1e-6)


# Tables of it


@pytest.fixture(scope="module")
def profile(llama: Any, tokenizer: Any) -> Profile:
    return attention_profile(llama, tokenizer, TEXTS)


def test_pandas_holds_the_same_numbers(profile: Profile) -> None:
    pandas = pytest.importorskip("pandas")
    frame = profile.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    low, high = profile.interval()
    arrays = {"n": profile.count, "mean": profile.mean, "sd": profile.sd, "low": low, "high": high}
    assert list(frame.columns) == ["layer", "head", "position", *arrays]
    assert len(frame) == (profile.count > 0).sum()
    for row in frame.sample(200, random_state=0).itertuples():
        cell = (row.layer - 1, row.head - 1, row.position)
        for name, array in arrays.items():
            np.testing.assert_equal(getattr(row, name), array[cell])
    assert (frame["layer"].min(), frame["layer"].max(), frame["head"].max()) == (1, 3, 4)


def test_xarray_holds_the_same_numbers(profile: Profile) -> None:
    pytest.importorskip("xarray")
    dataset = profile.to_xarray()
    low, high = profile.interval()
    arrays = {"n": profile.count, "mean": profile.mean, "sd": profile.sd, "low": low, "high": high}
    assert dict(dataset.sizes) == {"layer": 3, "head": 4, "position": profile.positions}
    for name, array in arrays.items():
        np.testing.assert_array_equal(dataset[name].values, array)
    cell = dataset["mean"].sel(layer=2, head=3, position=5)
    assert cell.item() == profile.mean[1, 2, 5]


def test_the_tokens_that_receive_most_come_first(llama: Any, tokenizer: Any) -> None:
    profile = attention_profile(llama, tokenizer, [TEXTS[0]])
    for head in (None, 2):
        rows = top_tokens(profile, layer=3, head=head, top=5)
        values = profile.mean[2].mean(axis=0) if head is None else profile.mean[2, 1]
        assert [row["received"] for row in rows] == sorted(values[:-1], reverse=True)[:5]
        assert all(values[row["position"]] == row["received"] for row in rows)
        assert all(profile.tokens[row["position"]] == row["token"] for row in rows)
    everything = top_tokens(profile, layer=1, head=1, top=10_000)
    assert sorted(row["position"] for row in everything) == list(range(profile.positions - 1))  # the last has none


def test_a_head_that_is_not_there_is_named(profile: Profile) -> None:
    message = re.escape("there is no layer 1 head 5: this model has layers 1 to 3 and heads 1 to 4")
    with pytest.raises(FigureError, match=message):
        top_tokens(profile, layer=1, head=5, top=3)
