"""One digest for one model: any byte that can change a number changes it, and nothing else does."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
import torch
import transformers

from fillerscope.errors import ModelError
from fillerscope.models import digests
from fillerscope.models.digests import cached_sha256, counted_files, folder_digest
from fillerscope.models.memory_digest import model_digest
from fillerscope.models.resolve import resolve
from support.tiny import tiny_model, tiny_tokenizer

MATTERS = (
    "model.safetensors",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "chat_template.jinja",
)


def flip_last_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", MATTERS)
def test_a_changed_byte_changes_the_digest(folder: Path, name: str) -> None:
    before = folder_digest(folder)
    flip_last_byte(folder / name)
    assert folder_digest(folder) != before


def test_other_files_and_the_place_do_not_matter(folder: Path, tmp_path: Path) -> None:
    before = folder_digest(folder)
    (folder / "README.md").write_text("about")
    (folder / "fillerscope.json").write_text("{}")
    moved = shutil.copytree(folder, tmp_path / "elsewhere")
    assert folder_digest(folder) == folder_digest(moved) == before


def test_an_added_file_matters(folder: Path) -> None:
    before = folder_digest(folder)
    (folder / "added_tokens.json").write_text("{}")
    assert folder_digest(folder) != before


def test_a_name_that_is_not_utf8_is_refused_in_a_line(folder: Path) -> None:
    Path(os.fsdecode(bytes(folder) + b"/\xff.safetensors")).write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(ModelError, match=r"the name of '\\udcff\.safetensors' in .* is not UTF-8; rename or remove"):
        resolve(str(folder))
    with pytest.raises(ModelError, match="is not UTF-8"):
        folder_digest(folder)


def test_the_second_time_reads_no_weights(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = folder_digest(folder)
    monkeypatch.setattr(digests, "_hash_file", lambda *_: pytest.fail("read again"))
    assert folder_digest(folder) == before


def wait_for_the_next_time_stamp(path: Path) -> None:
    """Two changes within a tick of the file system, some milliseconds, have the same time."""
    probe = path.with_name("probe")
    probe.touch()
    while probe.stat().st_ctime_ns == path.stat().st_ctime_ns:
        probe.touch()


def test_a_file_changed_behind_an_old_time_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"one")
    times = path.stat()
    before = cached_sha256(path)
    wait_for_the_next_time_stamp(path)
    path.write_bytes(b"two")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert cached_sha256(path) != before


def test_links_into_a_store_of_blobs_count_as_the_files(folder: Path, tmp_path: Path) -> None:
    linked = tmp_path / "snapshot"
    linked.mkdir()
    for number, path in enumerate(sorted(folder.iterdir())):
        blob = shutil.copyfile(path, tmp_path / f"blob{number}")
        (linked / path.name).symlink_to(blob)
    assert folder_digest(linked) == folder_digest(folder)


def test_a_cache_that_cannot_be_written_to_costs_only_time(folder: Path, cache: Path) -> None:
    before = folder_digest(folder)
    shutil.rmtree(cache)
    cache.write_text("in the way")
    assert folder_digest(folder) == before


def test_models_in_memory_are_told_apart() -> None:
    tokenizer = tiny_tokenizer()
    first = model_digest(tiny_model("llama"), tokenizer)
    assert first == model_digest(tiny_model("llama"), tiny_tokenizer())
    changed = tiny_model("llama")
    changed.model.norm.weight.data[3] += 1e-3
    assert model_digest(changed, tokenizer) != first
    assert model_digest(tiny_model("llama").to(torch.bfloat16), tokenizer) != first
    assert model_digest(tiny_model("llama", rms_norm_eps=1e-3), tokenizer) != first
    tokenizer.chat_template = "another"
    assert model_digest(tiny_model("llama"), tokenizer) != first


def test_every_file_that_a_tokenizer_of_transformers_reads_is_counted(tmp_path: Path) -> None:
    """Others are not there when it is loaded."""
    sources = (path.read_text() for path in Path(transformers.__path__[0]).rglob("tokenization_*.py"))
    declared = [match[1] for text in sources if (match := re.search(r"VOCAB_FILES_NAMES = \{(.*?)\}", text, re.DOTALL))]
    names = {name for text in declared for name in re.findall(r':\s*"([^"]+)"', text)}
    assert len(names) > 10
    for name in names:
        (tmp_path / name).touch()
    assert counted_files(tmp_path).keys() == names
