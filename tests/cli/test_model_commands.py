"""`models get` repairs what `models verify` finds, and doctor says who can write to the cache."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pytest

from fillerscope.cli import doctor
from fillerscope.cli.model_commands import verify_models
from fillerscope.errors import ModelError
from fillerscope.models.catalogue import CATALOGUE, DEFAULT
from fillerscope.models.digests import digest_of_files, file_sums
from fillerscope.models.gguf import VERSION, converted_folder
from support.tiny import tiny_model, tiny_tokenizer


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small model where a conversion of the catalogue's would be, and the same again as of a GGUF file."""
    monkeypatch.setenv("FILLERSCOPE_CACHE", str(tmp_path / "cache"))
    folder = converted_folder(DEFAULT, CATALOGUE[DEFAULT].sha256)
    tiny_model("llama").save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    sums = file_sums(folder)
    record = {
        "source": DEFAULT,
        "gguf_sha256": CATALOGUE[DEFAULT].sha256,
        "digest": digest_of_files(sums),
        "files": sums,
        "version": VERSION,
    }
    (folder / "fillerscope.json").write_text(json.dumps(record))
    shutil.copytree(folder, folder.with_name("mine-0123"))
    return folder


def test_models_that_were_converted_are_verified(cached: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify_models([], json=True)
    capsys.readouterr()
    weights = cached / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert not verify_models([], json=True)
    mine, ours = json.loads(capsys.readouterr().out)
    assert (mine["name"], mine["ok"]) == (str(cached.with_name("mine-0123")), True)
    assert (ours["name"], ours["ok"]) == (DEFAULT, False)
    assert ours["found"].startswith(f"{weights} is not what was converted")
    assert ours["found"].endswith(f"`fillerscope models get {DEFAULT}`")
    assert verify_models([str(cached.with_name("mine-0123"))], json=False)
    assert not verify_models([DEFAULT], json=False)


def test_doctor_fails_where_others_can_write(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as name:  # the folders of pytest are closed to others
        cache = Path(name).resolve() / "cache"
        monkeypatch.setenv("FILLERSCOPE_CACHE", str(cache))
        model = converted_folder(DEFAULT, CATALOGUE[DEFAULT].sha256)
        model.mkdir(parents=True)
        cache.parent.chmod(0o755)
        assert doctor._permissions() == f"only you can write to {cache}"
        model.chmod(0o777)
        with pytest.raises(ModelError, match=f"^other users can write to {model}, "):
            doctor._permissions()
