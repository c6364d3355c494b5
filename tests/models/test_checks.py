"""A folder of weights whose files do not fit each other: refused before anything is built."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fillerscope.errors import ModelError
from fillerscope.models.checks import check_folder
from fillerscope.models.description import load_tokenizer
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
    with pytest.raises(ModelError, match=rf"config\.json of m says {key}: {value}, and its weights are \d+ tensors"):
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
    with pytest.raises(ModelError, match="the tokenizer in") as caught:
        load_tokenizer(ModelFolder(folder, "m", "m", ""))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("header", [b"[" * 100_000, b'{"a":' * 30_000, b'{"a": {"shape": 3, "data_offsets": [0, 0]}}'])
def test_a_header_of_weights_that_is_none_is_one_line(folder: Path, header: bytes) -> None:
    next(folder.glob("*.safetensors")).write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ModelError, match="is damaged"):
        check_folder(folder, "m")
