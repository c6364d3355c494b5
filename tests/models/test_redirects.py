"""A model is made of the files that its digest counts: keys that send transformers elsewhere are refused."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fillerscope.errors import ModelError
from fillerscope.models import checks, config_checks
from fillerscope.models.digests import folder_digest
from fillerscope.models.loading import load_folder
from fillerscope.models.redirects import LARGEST_CONFIG, without_file_names
from fillerscope.models.resolve import ModelFolder, resolve


def put(path: Path, **settings: object) -> None:
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | settings))


def refusal(folder: Path) -> str:
    with pytest.raises(ModelError) as refused:
        resolve(str(folder))
    message = str(refused.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("transformers_weights", "sub/model.safetensors"),
        ("transformers_weights", "other.safetensors.index.json"),
        ("configuration_files", ["config.4.0.0.json"]),
    ],
)
@pytest.mark.parametrize("is_inner", [False, True])
def test_a_config_that_names_other_files_is_refused(folder: Path, key: str, value: object, is_inner: bool) -> None:
    """An inner config is that of the language model where a family has other parts."""
    put(folder / "config.json", **({"text_config": {key: value}} if is_inner else {key: value}))
    assert f"config.json: {key} names" in refusal(folder)


def test_every_index_of_weights_is_checked(folder: Path, tmp_path: Path) -> None:
    elsewhere = {"weight_map": {"model.norm.weight": str(tmp_path / "other.safetensors")}}
    (folder / "x.safetensors.index.json").write_text(json.dumps(elsewhere))
    assert "x.safetensors.index.json names weights that are not in its folder" in refusal(folder)


@pytest.mark.parametrize("name", [5, None, True, ["a"], "model.safetensors/"])
def test_an_index_with_other_things_than_names_is_refused(folder: Path, name: object) -> None:
    (folder / "x.safetensors.index.json").write_text(json.dumps({"weight_map": {"model.norm.weight": name}}))
    assert "x.safetensors.index.json " in refusal(folder)


@pytest.mark.parametrize("key", ["fast_tokenizer_files", "gguf_file", "subfolder", "init_inputs"])
@pytest.mark.parametrize("value", [["tokenizer.4.0.0.json"], {"tokenizer.4.0.0.json": 0}])
def test_a_tokenizer_that_names_another_file_is_refused(folder: Path, key: str, value: object) -> None:
    put(folder / "tokenizer_config.json", **{key: value})
    assert f"tokenizer_config.json: {key} names" in refusal(folder)


@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("key", ["tokenizer_file", "vocab_file", "merges_file", "vocab", "merges", "source_spm"])
def test_a_tokenizer_that_names_a_file_elsewhere_is_refused(
    folder: Path, tmp_path: Path, file: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(folder / "tokenizer.json", tmp_path / "other.json")
    monkeypatch.chdir(tmp_path)
    for name in (str(tmp_path / "other.json"), "../other.json", "other.json"):
        put(folder / file, **{key: name})
        assert f"{file}: {key} names" in refusal(folder)


def test_a_name_of_which_nothing_can_be_told_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen from the folder it is too long for a path, and seen from here it is that of a file."""
    shutil.copy(folder / "tokenizer.json", tmp_path / "o.json")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").mkdir()
    put(folder / "tokenizer_config.json", vocab=f"{'x/../' * 816}o.json")
    assert "tokenizer_config.json: vocab names" in refusal(folder)


@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
def test_a_named_file_that_comes_later_is_not_read(
    folder: Path, tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later than the last look at the settings."""
    monkeypatch.setattr(checks, "check_tokenizer_config", lambda *_: None)
    other = tmp_path / "other.json"
    put(folder / file, tokenizer_file=str(other))
    found = resolve(str(folder))
    expected = load_folder(found).tokenizer.encode("What is 2 + 5?")
    vocabulary = json.loads((folder / "tokenizer.json").read_text())
    words = vocabulary["model"]["vocab"]
    vocabulary["model"]["vocab"] = dict(zip(words, reversed(words.values()), strict=True))
    other.write_text(json.dumps(vocabulary))
    assert load_folder(found).tokenizer.encode("What is 2 + 5?") == expected


NAMES: list[object] = ["/no/such/file", 0, True, 1.5, ["/no/such/file"], {"content": "/no/such/file"}, {"a": 0}, [], {}]


@pytest.mark.parametrize("key", ["vocab_file", "tokenizer_file", "spm_file", "normalizer_file", "source_spm"])
@pytest.mark.parametrize("value", NAMES)
def test_nothing_that_could_be_opened_is_given_to_transformers(key: str, value: object) -> None:
    """It opens numbers, and makes tokens of mappings, whose texts it opens."""
    assert without_file_names({key: value, "bos_token": "<s>"}) == {"bos_token": "<s>"}


@pytest.mark.parametrize("key", ["vocab", "merges"])
def test_tokens_in_the_settings_are_taken(key: str) -> None:
    for value in (["a", "b"], [["a", "b"]], [], {"a": 0, "vocab_file": 1}):
        assert without_file_names({key: value}) == {key: value}
    for name in ("/no/such/file", 0, {"content": "/no/such/file"}, {"a": {"vocab": "x"}}):
        assert without_file_names({key: name}) == {}


@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("value", ["/no/such/file", 0, ["/no/such/file"], {"content": "/no/such/file"}])
@pytest.mark.parametrize("nest", [lambda one: one, lambda one: [one], lambda one: {"a": [{"b": one}]}])
def test_a_file_that_is_named_inside_of_a_setting_is_refused(
    folder: Path, file: str, value: object, nest: Callable[[object], object]
) -> None:
    put(folder / file, more_kwargs=nest({"vocab_file": value}))
    assert f"{file}: vocab_file in more_kwargs names" in refusal(folder)


def test_words_of_a_vocabulary_are_no_names_of_files(folder: Path) -> None:
    put(folder / "tokenizer_config.json", vocab={"a": 0, "vocab_file": 1}, more_kwargs={"resource_path": None})
    assert load_folder(resolve(str(folder))).tokenizer.encode("a")


def test_names_of_files_that_are_hashed_or_gone_are_taken(folder: Path) -> None:
    put(folder / "tokenizer_config.json", tokenizer_file="tokenizer.json", vocab_file="/no/such/vocab.json")
    put(folder / "tokenizer_config.json", special_tokens_map_file="/no/such/map.json", init_inputs=[], merges_file=None)
    assert load_folder(resolve(str(folder))).tokenizer.encode("a")


@pytest.mark.parametrize(
    "settings",
    [
        {"attn_implementation": "kernels-community/flash-attn"},
        {"_attn_implementation": "someone/kernel@main:forward"},
        {"attn_implementation": {"": "sdpa", "text_config": "someone/kernel"}},
        {"experts_implementation": "someone/kernel"},
        {"experts_implementation": "sonicmoe"},
        {"text_config": {"_experts_implementation": {"": "eager", "text_config": "deepgemm"}}},
        {"text_config": {"_attn_implementation": "someone/kernel"}},
        {"kernel_config": {"kernel_mapping": {"RMSNorm": "someone/kernel:RMSNorm"}}},
    ],
)
def test_kernels_of_the_hub_are_refused(folder: Path, settings: dict[str, object]) -> None:
    put(folder / "config.json", **settings)
    assert "code that comes from the hub" in refusal(folder)


def test_flash_attention_that_would_be_fetched_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder / "config.json", attn_implementation="flash_attention_2")
    monkeypatch.setattr("fillerscope.models.redirects.find_spec", lambda _: None)
    assert "the package flash_attn is not installed" in refusal(folder)
    monkeypatch.setattr("fillerscope.models.redirects.find_spec", lambda name: name)
    resolve(str(folder))


def test_attention_of_torch_is_taken(folder: Path) -> None:
    put(folder / "config.json", attn_implementation="sdpa", conv_kernel=[3, 3], experts_implementation=None)
    resolve(str(folder))


@pytest.mark.parametrize("name", ["eager", "batched_mm", "grouped_mm"])
def test_experts_of_torch_are_taken(name: str, folder: Path) -> None:
    put(folder / "config.json", experts_implementation=name)
    resolve(str(folder))


def test_a_config_of_many_megabytes_is_refused(folder: Path) -> None:
    os.truncate(folder / "config.json", LARGEST_CONFIG + 1)
    assert "config.json cannot be read: " in refusal(folder)


# With the keys allowed, a folder without the files that they name is all that transformers finds.


@pytest.fixture
def unchecked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(config_checks, "refuse_redirects", lambda *_: None)
    monkeypatch.setattr(checks, "check_tokenizer_config", lambda *_: None)
    return folder


def test_weights_that_are_not_hashed_are_not_found(unchecked: Path) -> None:
    (unchecked / "sub").mkdir()
    shutil.copy(unchecked / "model.safetensors", unchecked / "sub")
    put(unchecked / "config.json", transformers_weights="sub/model.safetensors")
    with pytest.raises(ModelError, match=r"the weights of .* cannot be loaded: .*sub/model\.safetensors"):
        load_folder(resolve(str(unchecked)))


def test_a_config_that_is_not_hashed_is_not_found(unchecked: Path) -> None:
    shutil.copy(unchecked / "config.json", unchecked / "config.4.0.0.json")
    put(unchecked / "config.json", configuration_files=["config.4.0.0.json"])
    with pytest.raises(ModelError, match=r"config\.json in .* cannot be read: .*config\.4\.0\.0\.json"):
        load_folder(resolve(str(unchecked)))


def test_a_tokenizer_that_is_not_hashed_is_not_found(unchecked: Path) -> None:
    expected = load_folder(resolve(str(unchecked))).tokenizer.get_vocab()
    other = json.loads((unchecked / "tokenizer.json").read_text())
    words = other["model"]["vocab"]
    other["model"]["vocab"] = dict(zip(words, reversed(words.values()), strict=True))
    (unchecked / "tokenizer.4.0.0.json").write_text(json.dumps(other))
    put(unchecked / "tokenizer_config.json", fast_tokenizer_files=["tokenizer.4.0.0.json"])
    assert load_folder(resolve(str(unchecked))).tokenizer.get_vocab() == expected


def test_what_is_loaded_has_the_path_of_its_folder(folder: Path) -> None:
    loaded = load_folder(resolve(str(folder)))
    for name in (loaded.model.name_or_path, loaded.model.config._name_or_path, loaded.tokenizer.name_or_path):  # type: ignore[attr-defined]
        assert name == str(folder)


def test_errors_name_the_folder(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").unlink(missing_ok=True)
    with pytest.raises(ModelError, match="cannot be loaded") as refused:
        load_folder(ModelFolder(folder, "m", "m", folder_digest(folder)))
    assert str(folder) in str(refused.value)
    assert "fillerscope-" not in str(refused.value)
