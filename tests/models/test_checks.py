"""A folder of weights whose files do not fit each other: refused before anything is built."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fillerscope.errors import ModelError
from fillerscope.models.checks import LONGEST_HEADER, check_folder, check_gguf
from fillerscope.models.config_checks import refuse_other_counts
from fillerscope.models.description import load_tokenizer
from fillerscope.models.digests import cached_sha256
from fillerscope.models.gguf_header import check_header
from fillerscope.models.resolve import ModelFolder, resolve


def change(folder: Path, **values: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("key", "value"),
    [("num_hidden_layers", 10_000_000), ("hidden_size", 1 << 40), ("vocab_size", 10**12), ("intermediate_size", 10**9),
     ("num_local_experts", 10_000_000), ("n_layer", 10_000_000)],
)  # fmt: skip
@pytest.mark.parametrize("nested", [False, True])
def test_a_config_of_more_than_the_weights_hold_is_refused(folder: Path, key: str, value: int, nested: bool) -> None:
    change(folder, **({"text_config": {key: value}} if nested else {key: value}))
    with pytest.raises(ModelError, match=rf"the config of m says {key}: {value}, and its weights are \d+ tensors"):
        check_folder(folder, "m")


@pytest.mark.parametrize(
    ("key", "value"),
    [("num_labels", 300_000_000), ("num_things", 1 << 23), ("n_things", 1 << 23), ("max_window_layers", 1 << 23)],
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_number_that_would_become_a_long_list_is_refused(folder: Path, key: str, value: int, nested: bool) -> None:
    change(folder, **({"text_config": {key: value}} if nested else {key: value}))
    with pytest.raises(ModelError, match=rf"the config of m says {key}: {value}, and \d+ is the most"):
        check_folder(folder, "m")


@pytest.mark.parametrize(
    "key", ["max_position_embeddings", "n_positions", "n_ctx", "seq_length", "max_sequence_length", "max_seq_len"]
)
def test_a_context_that_no_model_has_is_refused(folder: Path, key: str) -> None:
    change(folder, **{key: 10**9})
    with pytest.raises(ModelError, match=rf"the config of m says {key}: 1000000000, and \d+ is the most"):
        check_folder(folder, "m")


@pytest.mark.parametrize("kinds", [[[["global"], 10**9]], [[["global"] * 90, 90]], [[["local"], 1]] * 900])
def test_kinds_of_layers_that_become_a_long_list_are_refused(folder: Path, kinds: object) -> None:
    change(folder, attention_types=kinds)
    with pytest.raises(ModelError, match=r"the config of m says attention_types: .* more layers than its weights"):
        check_folder(folder, "m")


@pytest.mark.parametrize("kinds", [None, 3, [3, None, [], [1, 2], [["global"], "x"]], [[["global", "local"], 2]]])
def test_other_kinds_of_layers_are_left_to_transformers(folder: Path, kinds: object) -> None:
    change(folder, attention_types=kinds)
    check_folder(folder, "m")


def test_usual_numbers_are_taken(folder: Path) -> None:
    change(folder, num_labels=3, rope_theta=10**9, max_position_embeddings=10_485_760)
    check_folder(folder, "m")


@pytest.mark.parametrize("depth", [70, 900])
def test_a_config_nested_almost_too_deeply_to_be_read_is_one_line(folder: Path, depth: int) -> None:
    config = json.loads((folder / "config.json").read_text())
    text = '{"a":' * depth + "1" + "}" * depth
    (folder / "config.json").write_text(json.dumps(config)[:-1] + f', "deep": {text}}}')
    with pytest.raises(ModelError, match=r"config\.json .*nested too deeply"):
        check_folder(folder, "m")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize(
    "name",
    ["config.json", "model.safetensors", "model.safetensors.index.json", "generation_config.json", "tokenizer.json",
     "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "additional_chat_templates/a.jinja"],
)  # fmt: skip
def test_a_pipe_or_a_device_in_place_of_a_file_is_one_line(folder: Path, name: str, kind: str) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    with pytest.raises(ModelError, match=f"{name} is a pipe or a device"):
        resolve(str(folder))


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "chat_template.jinja", "additional_chat_templates/a.jinja"]
)
@pytest.mark.parametrize("target", ["/proc/self/environ", "other"])
def test_a_link_out_of_the_folder_is_refused(folder: Path, tmp_path: Path, name: str, target: str) -> None:
    """Its text would be a prompt, and be sent to a server."""
    path, elsewhere = folder / name, tmp_path / target
    path.parent.mkdir(exist_ok=True)
    if target == "other":
        elsewhere.write_bytes(path.read_bytes() if path.exists() else b"{{ messages }}")
    path.unlink(missing_ok=True)
    path.symlink_to(elsewhere)
    with pytest.raises(ModelError, match=f"{name} is a link that leads out of the model's folder"):
        resolve(str(folder))


def test_links_inside_the_folder_to_weights_and_in_the_cache_of_the_hub_are_taken(folder: Path, tmp_path: Path) -> None:
    before = resolve(str(folder)).digest
    (folder / "model.safetensors").rename(tmp_path / "weights")
    (folder / "model.safetensors").symlink_to(tmp_path / "weights")
    (folder / "real").mkdir()
    (folder / "config.json").rename(folder / "real/config.json")
    (folder / "config.json").symlink_to("real/config.json")
    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "1", tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for file in [file for file in folder.iterdir() if file.is_file()]:
        (blobs / cached_sha256(file)).write_bytes(file.read_bytes())
        (snapshot / file.name).symlink_to(f"../../blobs/{cached_sha256(file)}")
    assert resolve(str(folder)).digest == resolve(str(snapshot)).digest == before
    blobs.rename(tmp_path / "elsewhere")
    blobs.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match="is a link that leads out of the model's folder"):
        resolve(str(snapshot))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
@pytest.mark.parametrize("read", [check_gguf, check_header, cached_sha256])
def test_no_reader_waits_for_a_pipe(tmp_path: Path, read: Callable[[Path], object]) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises((ModelError, OSError), match="it is a pipe or a device"):
        read(tmp_path / "pipe")


def test_a_header_as_long_as_a_large_file_is_not_read(folder: Path) -> None:
    path, size = folder / "model.safetensors", 1 << 32
    path.write_bytes((size - 8).to_bytes(8, "little"))
    os.truncate(path, size)  # takes no space on the disk
    with pytest.raises(ModelError, match=rf"its header is said to have {size - 8} bytes, and {LONGEST_HEADER} is"):
        check_folder(folder, "m")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "\xff", "[1]", '{"weight_map": 3}'])
def test_json_that_is_no_config_is_one_line(folder: Path, name: str, text: str) -> None:
    (folder / name).write_bytes(text.encode("latin-1"))
    if name == "config.json" and text.startswith('{"w'):
        return  # a config without anything is refused when it is read
    with pytest.raises(ModelError) as caught:
        resolve(str(folder))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "\xff", ""])
def test_a_tokenizer_that_is_no_json_is_one_line(folder: Path, name: str, text: str) -> None:
    (folder / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(ModelError, match=r"the tokenizer in|tokenizer_config\.json cannot be read") as caught:
        load_tokenizer(ModelFolder(folder, "m", "m", ""))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("header", [b"[" * 100_000, b'{"a":' * 30_000, b'{"a": {"shape": 3, "data_offsets": [0, 0]}}'])
def test_a_header_of_weights_that_is_none_is_one_line(folder: Path, header: bytes) -> None:
    next(folder.glob("*.safetensors")).write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ModelError, match="is damaged"):
        check_folder(folder, "m")


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [("num_hidden_layers", 0, "a whole number, 1 or more, not 0"),
     ("vocab_size", -1, "a whole number, 1 or more, not -1"),
     ("hidden_size", "x", "a whole number, 1 or more, not 'x'"),
     ("num_attention_heads", True, "a whole number, 1 or more, not True"),
     ("num_key_value_heads", 2.5, r"a whole number, 1 or more, not 2\.5"),
     ("architectures", 3, "a list of names, not 3"),
     ("architectures", [3], r"a list of names, not \[3\]"),
     ("model_type", 3, "a name, not 3"),
     ("auto_map", 3, "a mapping, not 3"),
     ("quantization_config", "gptq", "a mapping, not 'gptq'"),
     ("quantization_config", [1], r"a mapping, not \[1\]")],
)  # fmt: skip
def test_a_config_is_blamed_with_its_file_and_key(folder: Path, key: str, value: object, expected: str) -> None:
    change(folder, **{key: value})
    with pytest.raises(ModelError, match=rf"tiny-llama/config\.json: {key} is {expected}; correct it"):
        check_folder(folder, "m")


def test_a_size_in_a_part_of_a_config_is_named_by_its_place(folder: Path) -> None:
    change(folder, text_config={"deeper": {"n_layer": 0}})
    with pytest.raises(ModelError, match=r"config\.json: text_config\.deeper\.n_layer is a whole number"):
        check_folder(folder, "m")


@pytest.mark.parametrize("method", ["zzz", None, 3])
@pytest.mark.parametrize("nested", [False, True])
def test_a_quantisation_that_would_be_left_out_is_refused(folder: Path, method: object, nested: bool) -> None:
    given = {"quantization_config": {"quant_method": method, "bits": 4}}
    change(folder, **({"text_config": given} if nested else given))
    with pytest.raises(ModelError, match=rf"quantization_config\.quant_method is {method!r}, which this version of"):
        check_folder(folder, "m")


def test_a_compression_that_would_be_left_out_is_refused(folder: Path) -> None:
    change(folder, compression_config={"quant_method": "compressed-tensors"})
    with pytest.raises(ModelError, match=r"compression_config is not read by transformers; .*save it without"):
        check_folder(folder, "m")


@pytest.mark.parametrize("given", [{"quant_method": "fp8"}, {"quant_method": "bitsandbytes"}, {"load_in_4bit": True}])
def test_a_quantisation_that_transformers_knows_is_left_to_it(folder: Path, given: dict[str, object]) -> None:
    change(folder, quantization_config=given)
    check_folder(folder, "m")


def test_tensors_of_no_size_are_no_layers() -> None:
    """They cost a few bytes of a header, and transformers would build a layer for each."""
    refuse_other_counts({"num_hidden_layers": 8}, [[4, 4]] * 10, "m")
    with pytest.raises(ModelError, match="num_hidden_layers: 50, and its weights are 10 tensors"):
        refuse_other_counts({"num_hidden_layers": 50}, [[4, 4]] * 10 + [[0]] * 100, "m")


@pytest.mark.parametrize("length", ["1e999", "NaN", "-1", "2.5", '"2"', "true"])
def test_a_length_of_a_tensor_that_is_none_is_one_line(folder: Path, length: str) -> None:
    header = f'{{"a": {{"shape": [{length}], "dtype": "F32", "data_offsets": [0, 0]}}}}'.encode()
    next(folder.glob("*.safetensors")).write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ModelError, match="is no length of a tensor"):
        check_folder(folder, "m")


@pytest.mark.parametrize(
    "value", ['"x"', "Infinity", "NaN", "256.9", "true", '{"a": 1}', "[1, 2.0]", "[null]", '["1"]']
)
@pytest.mark.parametrize("name", ["generation_config.json", "config.json"])
def test_stop_tokens_that_are_no_numbers_of_tokens_are_refused(folder: Path, name: str, value: str) -> None:
    """Before anything is measured: answers come after it."""
    for sound in (None, 2, [2, 3], -1):
        put_stop_tokens(folder / name, json.dumps(sound))
        check_folder(folder, "m")
    put_stop_tokens(folder / name, value)
    with pytest.raises(ModelError, match=rf"{re.escape(name)}: eos_token_id is the number of a token, or a list of"):
        check_folder(folder, "m")


def put_stop_tokens(path: Path, value: str) -> None:
    settings = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(settings | {"eos_token_id": "VALUE"}).replace('"VALUE"', value))
