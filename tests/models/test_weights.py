"""The catalogue's real models, in the user's own cache: fetched once, then only loaded."""

from __future__ import annotations

import pytest
import torch

from fillerscope.models.catalogue import CATALOGUE
from fillerscope.models.gguf import converted_folder, read_record
from fillerscope.models.loading import LoadedModel, load_model

pytestmark = pytest.mark.weights

SENTENCE = "The capital of France is Paris. It is the largest city in the country, and lies on the river Seine."


def loss(loaded: LoadedModel, special: bool = True) -> float:
    ids = loaded.tokenizer(SENTENCE, add_special_tokens=special, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        return float(loaded.model(input_ids=ids, labels=ids).loss)


def only_if_there(name: str) -> LoadedModel:
    """A test downloads no GiB unasked."""
    entry = CATALOGUE[name]
    if read_record(converted_folder(name, entry.sha256)) is None:
        pytest.skip(f"{name} is not in the cache; `fillerscope models get {name}` puts it there")
    return load_model(name, device="cpu")


def count(loaded: LoadedModel, text: str) -> int:
    return len(loaded.tokenizer(text, add_special_tokens=False)["input_ids"])


def test_smollm2(smollm2: LoadedModel) -> None:
    loaded = smollm2
    assert (loaded.label, loaded.layers, loaded.heads, loaded.has_chat_template) == (
        "SmolLM2-135M",
        30,
        9,
        True,
    )
    assert (count(loaded, "/" * 55), count(loaded, " /" * 55), count(loaded, "\\" * 55)) == (9, 55, 28)
    turns = [{"role": "user", "content": "hi"}]
    assert "<|im_start|>user\nhi<|im_end|>" in loaded.tokenizer.apply_chat_template(turns, tokenize=False)
    assert loaded.tokenizer.decode(loaded.tokenizer(SENTENCE)["input_ids"]) == SENTENCE
    assert loss(loaded) < 2.5


@pytest.mark.slow
def test_gemma_begins_with_its_bos(gemma3: LoadedModel) -> None:
    loaded = gemma3
    assert (loaded.layers, loaded.heads, loaded.has_chat_template) == (18, 4, False)
    assert loaded.tokenizer("Hello world")["input_ids"] == [2, 9259, 1902]
    assert loss(loaded) < 2.5 < 4.0 < loss(loaded, special=False)


@pytest.mark.slow
def test_qwen() -> None:
    loaded = only_if_there("qwen2.5-coder-1.5b")
    assert (loaded.layers, loaded.heads, loaded.has_chat_template) == (28, 12, True)
    assert (count(loaded, "/" * 55), count(loaded, " /" * 55)) == (2, 55)
    assert loss(loaded) < 2.5
