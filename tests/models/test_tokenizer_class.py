"""Tokenizers that are written in Python are refused before they run: they open what files and settings name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

from fillerscope.errors import ModelError
from fillerscope.models import description
from fillerscope.models.description import load_tokenizer
from fillerscope.models.resolve import ModelFolder, resolve

PYTHON = [
    "BertJapaneseTokenizer", "ByT5Tokenizer", "EsmTokenizer", "EsmTokenizerFast", "M2M100Tokenizer", "MyT5Tokenizer",
    "RagTokenizer", "Speech2TextTokenizer",
]  # fmt: skip
NO_TOKENIZERS = ["AutoTokenizer", "AutoModel", "pipeline", "logging"]  # other things that transformers has


def put(path: Path, **settings: object) -> None:
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | settings))


def refusal(folder: Path) -> str:
    with pytest.raises(ModelError, match="which is not built on the library `tokenizers`") as refused:
        load_tokenizer(resolve(str(folder)))
    message = str(refused.value)
    assert message.startswith(f"{folder}: ")
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", [*PYTHON, *NO_TOKENIZERS])
def test_a_class_that_is_written_in_python_is_refused_before_it_runs(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda *_, **__: pytest.fail("it was run"))
    put(folder / "tokenizer_config.json", tokenizer_class=name)
    assert f"is of the class {name}" in refusal(folder)


def test_a_class_that_the_config_of_the_model_declares_counts(folder: Path) -> None:
    settings = folder / "tokenizer_config.json"
    kept = {key: value for key, value in json.loads(settings.read_text()).items() if key != "tokenizer_class"}
    settings.write_text(json.dumps(kept))
    put(folder / "config.json", tokenizer_class="EsmTokenizer")
    assert "is of the class EsmTokenizer" in refusal(folder)
    put(settings, tokenizer_class="PreTrainedTokenizerFast")
    assert load_tokenizer(resolve(str(folder))).encode("a")


@pytest.mark.parametrize("is_declared", [True, False])
def test_the_usual_class_of_a_family_counts(folder: Path, is_declared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where none is declared, or where the name of a model says that another one is wrong."""
    monkeypatch.setitem(TOKENIZER_MAPPING_NAMES, "llama", "EsmTokenizer")
    assert load_tokenizer(resolve(str(folder))).encode("a")
    if is_declared:
        put(folder / "config.json", model_name="qwen2")
    else:
        (folder / "tokenizer_config.json").write_text("{}")
    assert "is of the class EsmTokenizer" in refusal(folder)


@pytest.mark.parametrize("settings", [{}, {"tokenizer_class": "PreTrainedTokenizerFast"}])
def test_a_package_for_some_families_changes_nothing(
    folder: Path, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where mistral-common is installed, transformers would take its class for a folder with a tekken.json."""
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    expected = load_tokenizer(resolve(str(folder))).encode("What is 2 + 5?")
    monkeypatch.setitem(TOKENIZER_MAPPING_NAMES, "llama", "MistralCommonBackend")
    asked = "transformers.models.auto.tokenization_auto._use_mistral_format"
    monkeypatch.setattr(asked, lambda *_, mistral_format=None, **__: mistral_format is not False)
    assert load_tokenizer(resolve(str(folder))).encode("What is 2 + 5?") == expected


def test_a_class_that_was_chosen_otherwise_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(description, "refuse_python_tokenizer", lambda *_: None)
    (folder / "vocab.txt").write_text("<unk>\n<pad>\n<cls>\n<eos>\n<mask>\na\n")
    put(folder / "tokenizer_config.json", tokenizer_class="EsmTokenizer")
    assert "is of the class EsmTokenizer" in refusal(folder)


@pytest.mark.parametrize(
    "name", ["PreTrainedTokenizerFast", "PreTrainedTokenizer", "TokenizersBackend", "NobodyKnowsThisTokenizer"]
)
def test_classes_of_the_library_are_taken(folder: Path, name: str) -> None:
    put(folder / "tokenizer_config.json", tokenizer_class=name)
    assert load_tokenizer(resolve(str(folder))).encode("a")


@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("name", ["GPT2Tokenizer", "LlamaTokenizer", "Qwen2Tokenizer", "WhisperTokenizer"])
def test_no_file_that_a_setting_names_is_opened(folder: Path, tmp_path: Path, file: str, name: str) -> None:
    """To open one would be an error: those that settings name are not there."""
    put(folder / "tokenizer_config.json", tokenizer_class=name)
    found = ModelFolder(folder, "m", "m", "")
    expected = load_tokenizer(found).encode("What is 2 + 5?")
    other = tmp_path / "elsewhere.json"
    keys = ("vocab_file", "merges_file", "tokenizer_file", "normalizer_file", "vocab", "merges")
    for value in (str(other), {"content": str(other)}, {"__type": "AddedToken", "content": str(other)}, 1 << 20):
        put(folder / file, **dict.fromkeys(keys, value))
        assert load_tokenizer(found).encode("What is 2 + 5?") == expected
