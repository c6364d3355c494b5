"""Settings of GGUF files that transformers does not read: refused, applied, or said by the model anyway."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import Metaspace
from transformers import (
    AutoConfig,
    BloomConfig,
    FalconConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GptOssConfig,
    NemotronConfig,
    Phi3Config,
    PretrainedConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    StableLmConfig,
    Starcoder2Config,
)

from fillerscope.errors import ModelError
from fillerscope.models import gguf_settings
from fillerscope.models.gguf import RECORD, VERSION
from fillerscope.models.gguf_settings import WholeToken, corrected, keep_whole, read_settings, refuse_unread
from fillerscope.models.loading import load_model
from fillerscope.models.resolve import resolve
from support.tiny import tiny_model

WriteGguf = Callable[..., Path]
pytestmark = pytest.mark.usefixtures("cache")

UNREAD: dict[str, dict[str, Any]] = {
    "linear": {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 8.0},
    "yarn": {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.original_context_length": 64},
    "a factor alone": {"llama.rope.scaling.factor": 8.0},
    "an older name": {"llama.rope.scale_linear": 4.0},
    "window": {"llama.attention.sliding_window": 4},
    "scale": {"llama.attention.scale": 0.5},
    "logits": {"llama.logit_scale": 0.5},
    "residuals": {"llama.residual_scale": 0.5},
    "embeddings": {"llama.embedding_scale": 0.5},
    "slopes": {"llama.attention.max_alibi_bias": 8.0},
    "clamped": {"llama.attention.clamp_kqv": 0.01},
    "capped": {"llama.attn_logit_softcapping": 30.0},
    "both ways": {"llama.attention.causal": False},
    "parallel": {"llama.use_parallel_residual": True},
    "experts": {"llama.expert_count": 8},
    "another base": {"llama.rope.freq_base_swa": 10.0},
    "longer keys": {"llama.attention.key_length": 4},
    "what nobody has yet": {"llama.attention.some_day": 1},
    "a window in words": {"llama.attention.sliding_window": "long"},
    "a list of windows": {"llama.attention.sliding_window": [4, 4]},
    "an end": {"tokenizer.ggml.add_eos_token": True},
    "a space": {"tokenizer.ggml.add_space_prefix": True},
}
SAID_ANYWAY: dict[str, dict[str, Any]] = {
    "no scaling": {"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 1.0},
    "a wide window": {"llama.attention.sliding_window": 1 << 20},
    "neutral": {
        "llama.logit_scale": 1.0, "llama.attention.clamp_kqv": 0.0, "llama.expert_count": 0,
        "llama.expert_used_count": 0, "llama.attention.causal": True,
    },
    "the same": {"llama.attention.key_length": 16, "llama.attention.value_length": 16, "llama.attention.scale": 0.25},
    "about the file": {"llama.tensor_data_layout": "Meta AI original pth", "general.author": "somebody"},
    "of tokens": {"tokenizer.ggml.add_eos_token": False, "tokenizer.ggml.add_space_prefix": False},
}  # fmt: skip


@pytest.mark.parametrize("what", UNREAD)
def test_a_file_with_a_setting_that_is_not_read_is_refused(write_gguf: WriteGguf, what: str) -> None:
    with pytest.raises(ModelError, match="which transformers does not read from GGUF files"):
        resolve(str(write_gguf(settings=UNREAD[what])))


@pytest.mark.parametrize("what", SAID_ANYWAY)
def test_a_file_that_says_what_the_model_is_anyway_is_taken(write_gguf: WriteGguf, what: str) -> None:
    plain = resolve(str(write_gguf()))
    assert resolve(str(write_gguf("more.gguf", settings=SAID_ANYWAY[what]))).digest == plain.digest


# What published files of these families say, with the config that transformers makes of the others of their settings.
PUBLISHED: dict[str, tuple[PretrainedConfig, dict[str, Any]]] = {
    "qwen3": (Qwen3Config(), {"attention.key_length": 128, "attention.value_length": 128}),
    "gemma2": (
        Gemma2Config(),
        {"attention.value_length": 256, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    ),
    "gemma3": (Gemma3TextConfig(), {"attention.value_length": 256, "attention.sliding_window": 512}),
    "stablelm": (StableLmConfig(), {"rope.dimension_count": 20, "rope.freq_base": 10000.0}),
    "nemotron": (NemotronConfig(), {"rope.dimension_count": 64}),
    "falcon": (FalconConfig(), {"attention.layer_norm_epsilon": 1e-5, "tensor_data_layout": "jploski"}),
    "bloom": (BloomConfig(), {"feed_forward_length": 256, "attention.max_alibi_bias": 8.0, "context_length": 64}),
    "gpt-oss": (
        GptOssConfig(),
        {"rope.scaling.type": "yarn", "rope.scaling.factor": 32.0, "attention.sliding_window": 128},
    ),
}
OTHERS: dict[str, tuple[PretrainedConfig, dict[str, Any]]] = {
    "gemma3": (Gemma3TextConfig(), {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}),
    "gemma2 of 27B": (Gemma2Config(num_hidden_layers=46, hidden_size=4608, num_attention_heads=32, head_dim=128), {}),
    "phi3": (Phi3Config(), {"attention.sliding_window": 2047, "context_length": 4096}),
    "starcoder2": (Starcoder2Config(), {"rope.freq_base": 999999.4}),
    "stablelm": (StableLmConfig(), {"rope.dimension_count": 80}),
    "gemma2": (Gemma2Config(), {"final_logit_softcapping": 20.0}),
}


def settings_of(architecture: str, own: dict[str, Any]) -> dict[str, Any]:
    return {"general.architecture": architecture, **{f"{architecture}.{key}": value for key, value in own.items()}}


@pytest.mark.parametrize("architecture", PUBLISHED)
def test_published_files_are_taken(architecture: str) -> None:
    config, own = PUBLISHED[architecture]
    refuse_unread(settings_of(architecture, own), config, "published")


@pytest.mark.parametrize("what", OTHERS)
def test_published_files_of_which_another_model_would_be_made_are_refused(what: str) -> None:
    config, own = OTHERS[what]
    with pytest.raises(ModelError, match=r"says .*which transformers does not read"):
        refuse_unread(settings_of(what.partition(" ")[0], own), config, "published")


def test_architectures_with_a_reader_of_their_own() -> None:
    own = {
        "context_length": 64, "embedding_length": 32, "feed_forward_length": 64, "block_count": 2,
        "attention.head_count": 2, "attention.head_count_kv": [0, 1], "attention.layer_norm_rms_epsilon": 1e-5,
        "shortconv.l_cache": 3, "rope.freq_base": 1e6,
    }  # fmt: skip
    settings = settings_of("lfm2", own) | {"tokenizer.ggml.tokens": 64}
    refuse_unread(settings, AutoConfig.for_model("lfm2"), "published")
    with pytest.raises(ModelError, match=r"says lfm2\.rope\.scaling\.type: 'yarn'"):
        refuse_unread(settings | {"lfm2.rope.scaling.type": "yarn"}, AutoConfig.for_model("lfm2"), "published")


def test_digits_are_split_where_the_file_says_so(write_gguf: WriteGguf) -> None:
    plain, digits = (load_model(str(write_gguf(f"{pre}.gguf", pre=pre))).tokenizer for pre in ("gpt-2", "smollm"))
    pieces = digits.backend_tokenizer.pre_tokenizer.pre_tokenize_str("x 123\u00b2")
    assert [piece for piece, _ in pieces] == ["x", "\u0120", "1", "2", "3", "\u00c2\u00b2"]
    assert len(plain.backend_tokenizer.pre_tokenizer.pre_tokenize_str("x 123\u00b2")) == 2


@pytest.mark.parametrize(("pre", "told"), [("deepseek-llm", "says tokenizer.ggml.pre"), (None, "does not say how")])
def test_texts_are_not_split_in_another_way_than_the_file_says(
    write_gguf: WriteGguf, pre: str | None, told: str
) -> None:
    with pytest.raises(ModelError, match=told):
        resolve(str(write_gguf(pre=pre)))


@pytest.mark.parametrize("numbers", [{}, {"bos": 1}, {"eos": 2}, {"bos": 2, "eos": 1}, {"eos": 0}])
def test_a_text_begins_and_ends_with_what_the_file_says(numbers: dict[str, int]) -> None:
    """Version 5.17 of transformers takes another EOS for SmolLM2 and Qwen."""
    words = ["<other>", "<begin>", "<end>"]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(BPE({"a": 3} | {word: number for number, word in enumerate(words)}, [])),
        eos_token="<other>",
    )
    corrected(tokenizer, {f"tokenizer.ggml.{name}_token_id": number for name, number in numbers.items()}, "tiny")
    assert tokenizer.bos_token == (words[numbers["bos"]] if "bos" in numbers else None)
    assert tokenizer.eos_token == words[numbers.get("eos", 0)]


@pytest.mark.parametrize(("is_control", "said"), [(True, "aa"), (False, "a<b>a")])
def test_tokens_are_kept_whole_that_versions_of_transformers_cut(is_control: bool, said: str) -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(BPE({"a": 0, "b": 1, "<b>": 2}, [])))
    assert tokenizer.encode("a<b>a") == [0, 1, 0]
    keep_whole(tokenizer, [WholeToken(2, "<b>", is_control)], "tiny")
    assert tokenizer.encode("a<b>a") == [0, 2, 0]
    assert tokenizer.decode([0, 2, 0], skip_special_tokens=True).replace(" ", "") == said


def test_tokens_that_are_in_no_vocabulary_are_refused() -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(BPE({"a": 0, "b": 1}, [])))
    with pytest.raises(ModelError, match="says the token '<b>' is one: 5, which transformers does not read"):
        keep_whole(tokenizer, [WholeToken(5, "<b>", True)], "tiny")


@pytest.mark.parametrize("mark", ["    ", "<\uff5cUser\uff5c>"])
@pytest.mark.parametrize("kind", [3, 4])
def test_tokens_that_transformers_spells_otherwise_are_refused(write_gguf: WriteGguf, mark: str, kind: int) -> None:
    with pytest.raises(ModelError, match=f"says the token '{mark}' is one: [0-9]+, which transformers does not read"):
        resolve(str(write_gguf(marks={mark: kind})))


def test_tokens_that_are_found_whole_are_taken(write_gguf: WriteGguf) -> None:
    marks = {"<think>": 4, "<|tool|>": 3, "<|never|>": 5}
    tokenizer = load_model(str(write_gguf(marks=marks))).tokenizer
    thinking, tool = (tokenizer.convert_tokens_to_ids(mark) for mark in list(marks)[:2])
    ids = tokenizer.encode("a<think>b<|tool|>", add_special_tokens=False)
    assert ids == [*tokenizer.encode("a"), thinking, *tokenizer.encode("b"), tool]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("a", ["\u2581a"]),
        (" a", ["\u2581", "\u2581a"]),
        ("ab a", ["\u2581a", "b", "\u2581a"]),
        ("</s>a", ["</s>", "\u2581a"]),
        ("a</s> a", ["\u2581a", "</s>", "\u2581", "\u2581a"]),
    ],
)
@pytest.mark.parametrize("settings", [{}, {"tokenizer.ggml.add_space_prefix": True}])
def test_spaces_stand_before_all_that_is_between_whole_tokens(
    text: str, pieces: list[str], settings: dict[str, Any]
) -> None:
    """As llama.cpp and SentencePiece have it."""
    words = {"</s>": 0, "\u2581": 1, "a": 2, "b": 3, "\u2581a": 4}
    backend = Tokenizer(BPE(words, [("\u2581", "a")]))
    backend.pre_tokenizer = Metaspace(prepend_scheme="first", split=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")
    corrected(tokenizer, {"tokenizer.ggml.model": "llama"} | settings, "tiny.gguf")
    assert tokenizer.tokenize(text) == pieces


def test_older_versions_of_transformers_know_fewer_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_settings, "_part_of_transformers", lambda _: ModuleType("without a table"))
    tokenizer: Any = SimpleNamespace(backend_tokenizer=SimpleNamespace(model=SimpleNamespace()))
    gguf_settings._split(tokenizer, "qwen2", "tiny")
    assert not tokenizer.backend_tokenizer.model.ignore_merges
    with pytest.raises(ModelError, match=r"says tokenizer\.ggml\.pre: 'llama-bpe'"):
        gguf_settings._split(tokenizer, "llama-bpe", "tiny")


def test_a_conversion_of_an_earlier_version_is_made_again(write_gguf: WriteGguf) -> None:
    path = write_gguf()
    folder = resolve(str(path)).path
    record = json.loads((folder / RECORD).read_text())
    assert record.pop("version") == VERSION
    (folder / RECORD).write_text(json.dumps(record))
    resolve(str(path))
    assert json.loads((folder / RECORD).read_text())["version"] == VERSION


def test_what_is_known_does_not_depend_on_what_was_imported() -> None:
    code = "from fillerscope.models.gguf_settings import _split; _split(None, 'deepseek-llm', 'tiny')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "says tokenizer.ggml.pre: 'deepseek-llm'" in done.stderr


@pytest.mark.parametrize(
    "key", ["blk.0.attn_q.bias", "blk.1.attn_q_norm.weight", "token_embd_norm.weight", "blk.1.ffn_gate.scale"]
)
def test_tensors_that_transformers_has_no_place_for_are_refused(write_gguf: WriteGguf, key: str) -> None:
    with pytest.raises(ModelError, match=r"has \d+ numbers in its tensors, and the model that transformers makes"):
        resolve(str(write_gguf(more={key: [0.5] * 64})))


@pytest.mark.parametrize("key", ["qwen2.rope.freq_base", "mistral.attention.layer_norm_rms_epsilon"])
def test_settings_of_another_architecture_are_refused(write_gguf: WriteGguf, key: str) -> None:
    with pytest.raises(ModelError, match=f"is of the architecture 'llama' and says '{key}'"):
        resolve(str(write_gguf(settings={key: 0.5})))


def test_settings_of_nobody_are_left_alone(write_gguf: WriteGguf) -> None:
    settings = {"quantize.imatrix.file": "some.dat", "split.count": 0, "somebody.url": "x"}
    assert resolve(str(write_gguf("more.gguf", settings=settings))).digest == resolve(str(write_gguf())).digest


def test_settings_are_read_as_they_stand_in_a_file(write_gguf: WriteGguf) -> None:
    """Readers of some architectures go through lists of theirs."""
    settings = read_settings(write_gguf(settings={"lfm2.attention.head_count_kv": [0, 1], "lfm2.rope.sections": [3]}))
    assert settings["lfm2.attention.head_count_kv"] == [0, 1]
    assert settings["tokenizer.ggml.tokens"] == tiny_model("llama").config.vocab_size


def test_gemma4_is_refused_in_a_line() -> None:
    """Its config complains of settings that differ by layer."""
    with pytest.raises(ModelError, match=r"says gemma4\.attention\.value_length"):
        refuse_unread(settings_of("gemma4", {"attention.value_length": 3}), AutoConfig.for_model("gemma4_text"), "tiny")


@pytest.mark.parametrize(("pre", "whole"), [("llama-bpe", True), ("tekken", True), ("gpt-2", False), ("qwen2", False)])
def test_words_are_taken_whole_where_the_file_says_so(write_gguf: WriteGguf, pre: str, whole: bool) -> None:
    tokenizer = load_model(str(write_gguf(pre=pre))).tokenizer
    assert tokenizer.backend_tokenizer.model.ignore_merges == whole


@pytest.mark.parametrize(("pre", "added"), [("llama-bpe", True), ("gpt-2", False)])
def test_a_file_that_says_nothing_of_a_bos(write_gguf: WriteGguf, pre: str, added: bool) -> None:
    tokenizer = load_model(str(write_gguf(pre=pre, add_bos=None))).tokenizer
    assert (tokenizer("a")["input_ids"][0] == tokenizer.bos_token_id) == added
