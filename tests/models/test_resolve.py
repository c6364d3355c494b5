"""Names become folders, and what cannot or must not be loaded is refused by name."""

from __future__ import annotations

import json
import shutil
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import errors

from fillerscope.errors import ModelError
from fillerscope.models import hub
from fillerscope.models.catalogue import CATALOGUE
from fillerscope.models.digests import cached_sha256, folder_digest
from fillerscope.models.gguf import VERSION, converted_folder
from fillerscope.models.resolve import _is_whole, find, resolve, resolve_here
from support.hub import Hub, serving, use

HUB_ID = "someone/some-model"


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_folder_is_taken_as_it_is(folder: Path) -> None:
    found = resolve(str(folder))
    assert (found.path, found.name, found.label) == (folder, str(folder), "tiny-llama")
    assert found.digest == folder_digest(folder)


def test_a_catalogue_model_in_the_cache_needs_nothing_else(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = CATALOGUE["gemma-3-270m"]
    made = cache / "models" / f"{entry.name}-{entry.sha256}"
    shutil.copytree(folder, made)
    record = {"source": entry.name, "gguf_sha256": entry.sha256, "digest": folder_digest(folder), "version": VERSION}
    (made / "fillerscope.json").write_text(json.dumps(record))
    monkeypatch.setattr("fillerscope.models.resolve.fetch", lambda *_: pytest.fail("fetched"))
    found = resolve("gemma-3-270m")
    assert (found.path, found.label, found.digest) == (made, "Gemma-3-270m", folder_digest(folder))


def test_the_gguf_of_a_catalogue_model_goes_when_it_is_converted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gguf = tmp_path / "fetched.gguf"
    gguf.write_text("GGUF")

    def convert(path: Path, stem: str, sha256: str, _: object) -> None:
        assert path == gguf
        target = tmp_path / "cache" / "models" / f"{stem}-{sha256}"
        shutil.copytree(folder, target)
        record = {"source": stem, "gguf_sha256": sha256, "digest": folder_digest(folder), "version": VERSION}
        (target / "fillerscope.json").write_text(json.dumps(record))

    monkeypatch.setattr("fillerscope.models.resolve.fetch", lambda *_: gguf)
    monkeypatch.setattr("fillerscope.models.resolve.convert", convert)
    assert resolve("smollm2-135m").digest == folder_digest(folder)
    assert not gguf.exists()


@pytest.mark.parametrize("name", ["smolm2-135m", "SmolLM2-135M", "smollm2"])
def test_a_misspelt_name_is_put_right(name: str) -> None:
    with pytest.raises(ModelError, match=rf"model '{name}' is not known; did you mean smollm2-135m\?"):
        resolve(name)


def test_another_name_is_told_what_there_is() -> None:
    with pytest.raises(ModelError, match=r"choose one of: smollm2-135m, .*a hub id, owner/name, works too"):
        resolve("gpt2")


@pytest.mark.parametrize("name", ["./missing", "~/missing", "/missing/model", "a/b/c", "owner/model.gguf", "x/"])
def test_paths_that_do_not_exist_are_not_looked_up_on_the_hub(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "snapshot", lambda *_: pytest.fail("asked the hub"))
    with pytest.raises(ModelError, match=r"there is no folder or GGUF file .*check the path"):
        resolve(name)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    path.write_text("x")
    with pytest.raises(ModelError, match=r"is a file; give the folder of a model, or a file that ends in \.gguf"):
        resolve(str(path))


@pytest.mark.parametrize("pickle", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "w.pt", "w.pth", "w.ckpt"])
def test_pickles_are_refused(folder: Path, pickle: str) -> None:
    (folder / "model.safetensors").rename(folder / pickle)
    with pytest.raises(ModelError, match=rf"only as {pickle}, a pickle, .*convert it to safetensors"):
        resolve(str(folder))


def test_pickles_next_to_safetensors_do_not_matter(folder: Path) -> None:
    before = resolve(str(folder))
    (folder / "pytorch_model.bin").write_text("never opened")
    assert resolve(str(folder)) == before


def test_code_that_comes_with_a_model_is_not_run(folder: Path) -> None:
    edit_config(folder, auto_map={"AutoModelForCausalLM": "modeling.Mine"}, model_type="brand-new")
    with pytest.raises(ModelError, match=r"tiny-llama \(model type 'brand-new'\) needs code that comes with it"):
        resolve(str(folder))


def test_a_model_that_transformers_knows_needs_no_code(folder: Path) -> None:
    edit_config(folder, auto_map={"AutoModelForCausalLM": "modeling.Mine"})
    assert resolve(str(folder)).label == "tiny-llama"


@pytest.mark.parametrize(
    ("remove", "add", "reason"),
    [
        ("config.json", None, r"has no config\.json in .*; give a folder that save_pretrained wrote"),
        ("config.json", "model.gguf", r"has no config\.json, but a GGUF file; give its path: .*model\.gguf"),
        ("config.json", "adapter_config.json", "is an adapter, not a model; merge it"),
        ("tokenizer.json", None, r"has no tokenizer: expected one of tokenizer\.json"),
        ("model.safetensors", None, r"has no \.safetensors files in .*; download the weights again"),
    ],
)
def test_missing_files_are_named(folder: Path, remove: str, add: str | None, reason: str) -> None:
    (folder / remove).unlink()
    if add:
        (folder / add).write_text("{}")
    with pytest.raises(ModelError, match=reason):
        resolve(str(folder))


@pytest.mark.parametrize("text", ["{", "[]", "\xff"])
def test_a_damaged_config_is_refused(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text, encoding="latin-1")
    with pytest.raises(ModelError, match=r"config\.json .*download it again"):
        resolve(str(folder))


@pytest.mark.parametrize("keep", [-1, 1000, 9, 4, 0])
def test_truncated_weights_are_refused(folder: Path, keep: int) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:keep])
    with pytest.raises(ModelError, match=r"model\.safetensors is damaged \(.*\); remove it and download"):
        resolve(str(folder))


def test_a_web_page_in_the_place_of_weights_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").write_text("<html>" + "not found " * 100)
    with pytest.raises(ModelError, match=r"is damaged \(its header is cut off\)"):
        resolve(str(folder))


def test_a_missing_shard_is_named(folder: Path) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"model-00002-of-00002\.safetensors is missing .*2 files of weights"):
        resolve(str(folder))


@pytest.fixture
def served(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that holds the tiny model."""
    with serving(Hub({path.name: path.read_bytes() for path in folder.iterdir()})) as stand_in:
        use(stand_in, tmp_path / "client", monkeypatch)
        yield stand_in


def test_a_hub_id_is_downloaded_without_pickles_or_code(served: Hub, folder: Path) -> None:
    others = ["a.bin", "a.pt", "modeling.py", "original/a.safetensors", "onnx/config.json", "README.md"]
    served.files |= dict.fromkeys([*others, "consolidated.safetensors"], b"others")
    found = resolve(HUB_ID)
    assert (found.name, found.label) == (HUB_ID, "some-model")
    assert {path.name for path in found.path.iterdir()} == {path.name for path in folder.iterdir()}
    assert found.digest == resolve(str(folder)).digest


def test_a_repository_of_pickles_is_refused(served: Hub) -> None:
    served.files = {"config.json": b"{}", "pytorch_model.bin": b"pickled"}
    with pytest.raises(ModelError, match=rf"{HUB_ID} has its weights only as pytorch_model\.bin"):
        resolve(HUB_ID)
    assert served.ranges == []


def hub_error(kind: type[Exception]) -> Exception:
    """As the hub's library makes them, less the answer from the server that they carry."""
    error = kind.__new__(kind)
    error.args = ("what happened\nand a long story",)
    return error


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (
            errors.GatedRepoError,
            rf"gated: run `hf auth login`, and ask for access at https://huggingface\.co/{HUB_ID} if you have none",
        ),
        (errors.RepositoryNotFoundError, "no folder here and not on the hub; check the spelling"),
        (errors.LocalEntryNotFoundError, r"from the hub \(.*\); .*needs no hub: smollm2-135m, qwen"),
        (errors.OfflineModeIsEnabled, "needs no hub: smollm2-135m"),
        (ConnectionError, r"from the hub \(what happened\); check the network"),
        (RuntimeError, r"cannot download .* from the hub \(what happened\)"),
    ],
)
def test_what_the_hub_says_is_put_into_one_line(
    kind: type[Exception], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> list[str]:
        raise hub_error(kind)

    monkeypatch.setattr("fillerscope.problems.hub_download.list_files", fail)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    with pytest.raises(ModelError, match=reason) as caught:
        resolve(HUB_ID)
    assert "\n" not in str(caught.value)


# What is here already


@pytest.fixture
def nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    for what in ("fetch", "convert"):
        monkeypatch.setattr(f"fillerscope.models.resolve.{what}", lambda *_: pytest.fail("done"))
    monkeypatch.setattr(hub, "snapshot", lambda *_: pytest.fail("asked the hub"))


def converted(folder: Path, stem: str, sha256: str) -> Path:
    """As a conversion leaves it."""
    made = converted_folder(stem, sha256)
    shutil.copytree(folder, made)
    record = {"source": stem, "gguf_sha256": sha256, "digest": folder_digest(made), "version": VERSION}
    (made / "fillerscope.json").write_text(json.dumps(record))
    return made


@pytest.mark.usefixtures("nothing_is_done")
def test_a_folder_is_found_without_reading_its_weights(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("fillerscope.models.digests._hash_file", lambda *_: pytest.fail("read"))
        found = find(str(folder))
    assert (found.path, found.name, found.label, found.digest) == (folder, str(folder), "tiny-llama", "")
    assert resolve_here(str(folder)) == resolve(str(folder))
    assert find(str(folder)).digest == folder_digest(folder)  # it has been read by now
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    assert find(str(folder)).digest == ""


@pytest.mark.usefixtures("cache")
def test_two_files_whose_digests_begin_alike_have_folders_of_their_own(folder: Path, tmp_path: Path) -> None:
    made = converted(folder, "model", "1" * 63 + "2")
    assert converted_folder("model", "1" * 63 + "3") != made
    assert len(converted_folder("m" * 250, "1" * 64).name) < 200
    shutil.copytree(made, tmp_path / "model-other")
    assert (_is_whole(made), _is_whole(tmp_path / "model-other")) == (True, False)


@pytest.mark.usefixtures("nothing_is_done")
def test_a_catalogue_model_is_found_where_it_is_in_the_cache(folder: Path) -> None:
    entry = CATALOGUE["smollm2-135m"]
    reason = "^smollm2-135m is not on this machine, or not converted yet: fillerscope models get smollm2-135m$"
    with pytest.raises(ModelError, match=reason):
        find(entry.name)
    made = converted(folder, entry.name, entry.sha256)
    assert find(entry.name) == resolve_here(entry.name) == resolve(entry.name)
    (made / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=reason):
        resolve_here(entry.name)


@pytest.mark.usefixtures("nothing_is_done")
def test_a_gguf_is_found_where_it_was_converted(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gguf = tmp_path / "mine.gguf"
    gguf.write_bytes(b"GGUF and more")
    reason = r"mine\.gguf is not on this machine, or not converted yet: fillerscope models get"
    with monkeypatch.context() as patch:
        patch.setattr("fillerscope.models.digests._hash_file", lambda *_: pytest.fail("read"))
        with pytest.raises(ModelError, match=reason):
            find(str(gguf))
    made = converted(folder, "mine", cached_sha256(gguf))
    assert find(str(gguf)) == resolve_here(str(gguf)) == resolve(str(gguf))
    assert find(str(gguf)).path == made
    gguf.write_bytes(b"GGUF and something else")
    with pytest.raises(ModelError, match="not converted yet"):
        find(str(gguf))


@pytest.mark.usefixtures("nothing_is_done")
@pytest.mark.parametrize("name", ["./missing", "/missing/model", "x.gguf", "not-a-name"])
def test_what_is_nowhere_is_not_looked_up_on_the_hub(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "cached", lambda *_: pytest.fail("asked the hub"))
    with pytest.raises(ModelError, match=f"there is no folder or GGUF file {name} on this machine: put it there"):
        find(name)


def test_a_hub_id_is_found_in_the_hubs_cache_alone(served: Hub) -> None:
    with pytest.raises(ModelError, match=f"^{HUB_ID} is not on this machine: fillerscope models get {HUB_ID}$"):
        find(HUB_ID)
    downloaded = resolve(HUB_ID)
    served.status = 500
    assert resolve_here(HUB_ID) == downloaded


def test_the_hubs_cache_is_asked_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    asked: list[str] = []
    monkeypatch.setattr("socket.getaddrinfo", lambda host, *_, **__: asked.append(str(host)) or [])
    assert hub.cached(HUB_ID) is None
    assert asked == []


@pytest.mark.parametrize("step", ["list_files", "download"])
def test_nothing_of_a_refusal_shows_addresses_with_passwords(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that are submitted write the whole of an error into the run folder."""
    from fillerscope.problems import hub_download

    def refuse(*_: object) -> None:
        raise OSError("403 for http://alice:hunter2@hub/owner/name?X-Amz-Signature=5ecret")

    if step == "download":
        listing = SimpleNamespace(names=["config.json", "model.safetensors"])
        monkeypatch.setattr(hub_download, "list_files", lambda _: listing)
    monkeypatch.setattr(hub_download, step, refuse)
    with pytest.raises(ModelError) as caught:
        hub.snapshot("owner/name")
    told = "".join(traceback.format_exception(caught.value))
    assert "hunter2" not in told
    assert "5ecret" not in told
