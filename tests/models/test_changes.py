"""What is loaded is what was hashed: a byte that changed in a cache is refused by name, and `repair` puts it right."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fillerscope.errors import ModelError
from fillerscope.measure.run_study import run_study
from fillerscope.models import loading
from fillerscope.models.description import load_tokenizer
from fillerscope.models.digests import folder_digest
from fillerscope.models.in_memory import tokenizer_of
from fillerscope.models.loading import load_folder
from fillerscope.models.resolve import resolve, resolve_here
from fillerscope.progress import Silent
from fillerscope.study.study import Study
from support.hub import Hub, serving, use
from support.progress import Told
from support.studies import settings

HUB_ID = "someone/some-model"
Change = Callable[[Path], None]


class Said(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def flip_a_bit(path: Path) -> None:
    """One bit in the middle of a file, in place: size and inode stay."""
    path.chmod(path.stat().st_mode | stat.S_IWUSR)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"])
def test_a_converted_file_with_a_flipped_bit_is_refused_by_name_and_made_again(
    write_gguf: Callable[..., Path], name: str
) -> None:
    gguf = str(write_gguf())
    first = resolve(gguf)
    flip_a_bit(first.path / name)
    reason = rf"/{re.escape(name)} is not what was converted .*; make it again with `fillerscope models get {gguf}`$"
    with pytest.raises(ModelError, match=reason):
        resolve(gguf)
    with pytest.raises(ModelError, match=reason):
        resolve_here(gguf)
    said = Said()
    assert resolve(gguf, said, repair=True) == first == resolve(gguf)
    assert [line for line in said.lines if "made again" in line]


def test_a_bit_behind_unchanged_times_is_found_when_every_byte_is_read(
    write_gguf: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a failing disk does it: nothing but the content changes."""
    gguf = str(write_gguf())
    first = resolve(gguf)
    notes = {path: path.read_bytes() for path in first.path.parents[1].glob("digests-*/*.json")}
    flip_a_bit(first.path / "model.safetensors")
    keep_the_old_note(first.path / "model.safetensors", notes, monkeypatch)
    assert resolve(gguf) == first  # believed, for hours
    with pytest.raises(ModelError, match=r"model\.safetensors is not what was converted"):
        resolve_here(gguf, fresh=True)


def keep_the_old_note(path: Path, notes: dict[Path, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file be found under a note that was written before it changed."""
    from fillerscope.models import digest_notes, digests

    real, weights = digest_notes.note_of, path.resolve()
    expected = json.loads((path.parent / "fillerscope.json").read_text())["files"][path.name]
    old = next(note for note, text in notes.items() if json.loads(text)["sha256"] == expected)
    monkeypatch.setattr(
        digests, "note_of", lambda asked, *now: old if asked.resolve() == weights else real(asked, *now)
    )


def test_a_record_that_was_changed_is_refused(write_gguf: Callable[..., Path]) -> None:
    gguf = str(write_gguf())
    record = resolve(gguf).path / "fillerscope.json"
    noted = json.loads(record.read_text())
    record.write_text(json.dumps(noted | {"digest": "0" * 64}))
    with pytest.raises(ModelError, match=r"fillerscope\.json is not what was converted"):
        resolve(gguf)


def test_an_older_record_without_sums_is_held_against_the_files(write_gguf: Callable[..., Path]) -> None:
    gguf = str(write_gguf())
    first = resolve(gguf)
    record = first.path / "fillerscope.json"
    noted = json.loads(record.read_text())
    del noted["files"]
    record.write_text(json.dumps(noted))
    assert resolve(gguf) == first
    flip_a_bit(first.path / "model.safetensors")
    with pytest.raises(ModelError, match=f"^{re.escape(str(first.path))} is not what was converted"):
        resolve(gguf)


def forget_notes(cache: Path) -> None:
    """As if all files had been read longer ago than notes are believed."""
    for note in cache.glob("digests-*/*.json"):
        note.unlink()


def test_a_converted_gguf_is_found_after_its_note_has_expired(write_gguf: Callable[..., Path], cache: Path) -> None:
    from fillerscope.models.resolve import find, place_of

    path = write_gguf()
    first = resolve(str(path))
    forget_notes(cache)
    assert (find(str(path)).path, find(str(path)).digest) == (first.path, "")
    assert place_of(str(path)) == "here"
    assert resolve_here(str(path), fresh=True) == first == resolve_here(str(path))


def test_a_gguf_with_other_bytes_is_not_that_of_its_conversion(write_gguf: Callable[..., Path], cache: Path) -> None:
    path = write_gguf()
    first = resolve(str(path))
    flip_a_bit(path)
    forget_notes(cache)
    with pytest.raises(ModelError, match="is not on this machine, or not converted yet"):
        resolve_here(str(path))
    assert resolve(str(path)).path != first.path


def test_every_byte_of_a_gguf_is_read_to_verify_it(
    write_gguf: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fillerscope.models import digests

    path = write_gguf()
    resolve(str(path))
    noted, real = digests.note_of(path), digests.note_of
    flip_a_bit(path)  # behind unchanged times
    monkeypatch.setattr(digests, "note_of", lambda one, *now: noted if one.name == path.name else real(one, *now))
    with pytest.raises(ModelError, match="not converted yet"):
        resolve_here(str(path), fresh=True)


def test_a_gguf_that_cannot_be_converted_is_called_by_its_own_path(write_gguf: Callable[..., Path]) -> None:
    path = write_gguf()
    with path.open("r+b") as file:
        file.truncate(2000)
    with pytest.raises(ModelError, match=f"^{re.escape(str(path))} is no sound GGUF file"):
        resolve(str(path))


def test_a_gguf_that_changes_while_it_is_converted_is_refused(
    write_gguf: Callable[..., Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fillerscope.models import gguf as conversion

    path, convert_into = write_gguf(), conversion._convert_into

    def meanwhile(*arguments: Any) -> None:
        convert_into(*arguments)
        flip_a_bit(path)

    monkeypatch.setattr(conversion, "_convert_into", meanwhile)
    with pytest.raises(ModelError, match=r"tiny\.gguf changed while it was converted"):
        resolve(str(path))
    assert list((cache / "models").iterdir()) == []


@pytest.mark.parametrize("how", ["link", "in place", "renamed"])
def test_a_gguf_that_is_another_one_for_a_while_is_not_converted_as_the_first(
    how: str, write_gguf: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after, its contents are those of the first."""
    from fillerscope.models import gguf as conversion

    first, other = write_gguf(), tmp_path / "other.gguf"
    other.write_bytes(first.read_bytes())
    flip_a_bit(other)
    path, convert_into, contents = first, conversion._convert_into, first.read_bytes()
    if how == "link":
        path = tmp_path / "current.gguf"
        path.symlink_to(first)

    def show(shown: Path) -> None:
        if how == "link":
            path.unlink()
            path.symlink_to(shown)
        elif how == "in place":
            first.write_bytes(other.read_bytes() if shown is other else contents)
        elif shown is other:
            first.rename(tmp_path / "kept")
            other.rename(first)
        else:
            first.rename(other)
            (tmp_path / "kept").rename(first)

    def meanwhile(*arguments: Any) -> None:
        show(other)
        convert_into(*arguments)
        show(first)

    with monkeypatch.context() as patch:
        patch.setattr(conversion, "_convert_into", meanwhile)
        try:
            found = resolve(str(path)).path
        except ModelError as error:
            assert "changed while it was converted" in str(error)  # noqa: PT017
            return
    assert how == "link"  # which was followed once
    shown = {file.name: file.read_bytes() for file in found.glob("*.safetensors")}
    shutil.rmtree(found)
    assert {file.name: file.read_bytes() for file in resolve(str(first)).path.glob("*.safetensors")} == shown


@pytest.fixture
def served(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving(Hub({path.name: path.read_bytes() for path in folder.iterdir()})) as stand_in:
        use(stand_in, tmp_path / "client", monkeypatch)
        yield stand_in


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer_config.json"])
def test_a_changed_file_in_the_hubs_cache_is_refused_and_downloaded_again(served: Hub, name: str) -> None:
    """A large one, which the cache names by its SHA-256, and a small one, which it names as git does."""
    first = resolve(HUB_ID)
    blob = (first.path / name).resolve()
    blob.write_bytes(blob.read_bytes()[:-1] + (b"\0" if name.endswith("safetensors") else b" "))
    reason = rf"/{name} is not what was .*; make it again with `fillerscope models get {HUB_ID}`"
    with pytest.raises(ModelError, match=reason):
        resolve(HUB_ID)
    with pytest.raises(ModelError, match=reason):
        resolve_here(HUB_ID)
    with pytest.raises(ModelError, match=rf"/{name} is not what .*; remove .*/blobs/.* and download"):
        resolve(str(first.path))
    assert resolve(HUB_ID, repair=True) == first == resolve(HUB_ID)
    assert served.files[name] == (first.path / name).read_bytes()


def test_a_file_in_place_of_a_link_of_the_hubs_cache_is_refused(served: Hub) -> None:
    """Its name says nothing of its bytes, and in a shared cache anybody may have put it there."""
    first = resolve(HUB_ID)
    file = first.path / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.unlink()
    file.write_bytes(data)
    with pytest.raises(ModelError, match=r"model\.safetensors is not what was converted or downloaded"):
        resolve_here(HUB_ID)
    assert served.files["model.safetensors"] != bytes(data)


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("way", ["a link elsewhere", "another blob", "no link at all"])
def test_links_of_the_hubs_cache_that_were_exchanged_are_refused(way: str, tmp_path: Path) -> None:
    first = resolve(HUB_ID)
    file, blobs = first.path / "model.safetensors", first.path.parent.parent / "blobs"
    data = file.read_bytes()[:-1] + b"\0"
    named = hashlib.sha256(data).hexdigest()
    planted = blobs / "planted" if way == "another blob" else tmp_path / named
    planted.write_bytes(data)
    if way == "no link at all":
        for one in list(first.path.iterdir()):
            content = data if one == file else one.read_bytes()
            one.unlink()
            one.write_bytes(content)
    else:
        file.unlink()
        file.symlink_to(planted)
    with pytest.raises(ModelError, match="is not what was converted or downloaded"):
        resolve_here(HUB_ID)


def test_a_hubs_cache_that_others_can_write_to_is_said(
    served: Hub, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(served, open_folder / "client", monkeypatch)
    first, said = resolve(HUB_ID), Said()
    (first.path.parent.parent / "blobs").chmod(0o777)
    resolve_here(HUB_ID, said)
    assert any("other users can write to" in line and "set HF_HUB_CACHE" in line for line in said.lines)


@pytest.mark.usefixtures("served")
def test_a_damaged_file_stays_where_the_hub_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    blob = (resolve(HUB_ID).path / "model.safetensors").resolve()
    flip_a_bit(blob)

    def unreachable(_: object) -> list[str]:
        raise ConnectionError("no route")

    monkeypatch.setattr("fillerscope.problems.hub_download.list_files", unreachable)
    with pytest.raises(ModelError, match="cannot download"):
        resolve(HUB_ID, repair=True)
    assert blob.exists()


def share(snapshot: Path, names: tuple[str, ...]) -> None:
    """Move blobs to where huggingface_hub keeps those that several repositories have."""
    for name in names:
        blob = snapshot.parents[1] / "blobs" / (snapshot / name).readlink().name
        shared = snapshot.parents[2] / "blobs" / "ab" / ("ab" + hashlib.sha256(blob.read_bytes()).hexdigest()[2:])
        shared.parent.mkdir(parents=True, exist_ok=True)
        blob.rename(shared)
        blob.symlink_to(os.path.relpath(shared, blob.parent))


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_blob_that_repositories_share_is_taken_for_what_it_is(served: Hub, name: str) -> None:
    first = resolve(HUB_ID)
    share(first.path, ("model.safetensors", "tokenizer.json"))
    assert resolve(HUB_ID) == first == resolve_here(HUB_ID, fresh=True)
    load_folder(first)
    flip_a_bit((first.path / name).resolve())
    with pytest.raises(ModelError, match=rf"/{name} is not what was converted or downloaded"):
        resolve(HUB_ID)
    assert resolve(HUB_ID, repair=True) == first
    assert served.files[name] == (first.path / name).read_bytes()


@pytest.mark.usefixtures("served")
def test_a_blob_that_leads_out_of_the_hubs_cache_is_refused(tmp_path: Path) -> None:
    first = resolve(HUB_ID)
    blob = first.path.parents[1] / "blobs" / (first.path / "tokenizer.json").readlink().name
    blob.rename(tmp_path / blob.name)
    blob.symlink_to(tmp_path / blob.name)
    with pytest.raises(ModelError, match=r"tokenizer\.json is a link that leads out of the model's folder"):
        resolve(HUB_ID)


def test_a_shared_store_that_others_can_write_to_is_said(
    served: Hub, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(served, open_folder / "client", monkeypatch)
    first, said = resolve(HUB_ID), Said()
    share(first.path, ("model.safetensors",))
    (first.path.parents[2] / "blobs").chmod(0o777)
    resolve_here(HUB_ID, said)
    assert any("other users can write to" in line and "set HF_HUB_CACHE" in line for line in said.lines)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_disk_without_links_holds_copies(served: Hub, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Such as exFAT, many network disks, and Windows."""

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "symlink_to", refused)
        first = resolve(HUB_ID)
        assert not (first.path / name).is_symlink()
        flip_a_bit(first.path / name)
        with pytest.raises(ModelError, match=rf"/{name} is not what was converted or downloaded"):
            resolve(HUB_ID)
        assert resolve(HUB_ID, repair=True) == first == resolve(HUB_ID)
    assert served.files[name] == (first.path / name).read_bytes()


@pytest.mark.usefixtures("served")
def test_what_is_damaged_again_and_again_is_downloaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from fillerscope.models import hub

    real, said = hub.snapshot, Said()

    def damaging(*arguments: Any) -> Path:
        folder = real(*arguments)
        flip_a_bit((folder / "model.safetensors").resolve())
        return folder

    monkeypatch.setattr(hub, "snapshot", damaging)
    with pytest.raises(ModelError, match=r"model\.safetensors is not what was converted or downloaded"):
        resolve(HUB_ID, said, repair=True)
    assert sum("downloaded again" in line for line in said.lines) == 1


# Loading


@pytest.mark.parametrize("load", [load_folder, tokenizer_of])
def test_files_that_change_while_they_are_read_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, load: Callable[..., object]
) -> None:
    found = resolve(str(folder))

    def meanwhile(*arguments: Any) -> Any:
        tokenizer = load_tokenizer(*arguments)
        flip_a_bit(folder / "model.safetensors")
        return tokenizer

    for module in ("loading", "in_memory"):
        monkeypatch.setattr(f"fillerscope.models.{module}.load_tokenizer", meanwhile)
    with pytest.raises(ModelError, match=r"files in .*tiny-llama changed while they were read"):
        load(found)


def test_a_twin_is_held_against_the_digest_of_its_model(folder: Path) -> None:
    found = resolve(str(folder)).twin("twin", 1)
    load_folder(found)
    flip_a_bit(folder / "model.safetensors")
    with pytest.raises(ModelError, match="changed while they were read"):
        load_folder(found)


def test_weights_in_memory_do_not_follow_their_file(folder: Path) -> None:
    """transformers leaves them in the file, which the system reads when they are used."""
    loaded = load_folder(resolve(str(folder)), device="cpu").model
    before = [weight.clone() for weight in loaded.parameters()]
    weights = folder / "model.safetensors"
    with weights.open("r+b") as file:
        file.seek(-weights.stat().st_size // 2, os.SEEK_END)
        file.write(bytes(weights.stat().st_size // 2))
    assert all(torch.equal(a, b) for a, b in zip(before, loaded.parameters(), strict=True))
    assert not any(str(weights) in line for line in maps())


def maps() -> list[str]:
    path = Path("/proc/self/maps")
    return path.read_text().splitlines() if path.exists() else []


def test_weights_without_room_stay_in_their_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading.psutil, "virtual_memory", lambda: type("Memory", (), {"available": 0}))
    model = load_folder(resolve(str(folder)), device="cpu").model
    assert any(str(folder) in line for line in maps()) or not maps()
    del model


def test_weights_that_are_written_over_while_they_are_used_end_a_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as by the next checkpoint of a training. No shard of both is kept."""
    record = settings(folder, problems={"limit": 4}, batch={"shard": 1, "tokens": 512}, figures=[])
    monkeypatch.setattr(loading.psutil, "virtual_memory", lambda: SimpleNamespace(available=0, total=0))
    weights = folder / "model.safetensors"

    def change(text: str, done: float, _: object) -> None:
        if text.startswith("measuring") and done:
            with weights.open("r+b") as file:
                file.seek(-1000, os.SEEK_END)
                file.write(bytes(1000))

    with pytest.raises(ModelError, match="changed while they were read"):
        run_study(Study.model_validate(record), tmp_path / "run", Told(change))
    assert not list((tmp_path / "run").glob("shards/*/*"))


def test_weights_that_are_written_over_while_answers_are_repeated_in_another_dtype_end_a_run(
    folder: Path, llama: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy.deepcopy(llama).to(torch.bfloat16).save_pretrained(folder)
    generation = {"max_tokens": 4, "temperature": 1.0, "noise": {"dtype": "bfloat16"}, "recheck": 0}
    record = settings(folder, problems={"limit": 2}, probes={"attention": None}, generation=generation, figures=[])
    monkeypatch.setattr(loading.psutil, "virtual_memory", lambda: SimpleNamespace(available=0, total=0))

    def change(text: str, done: float, _: object) -> None:
        if text.startswith("answering again") and done:
            flip_a_bit(folder / "model.safetensors")

    with pytest.raises(ModelError, match="changed while they were read"):
        run_study(Study.model_validate(record), tmp_path / "run", Told(change))
    assert not list((tmp_path / "run").glob("again*/*/*"))


def test_nothing_is_noted_that_changed_weights_say(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be put back before the run is resumed, which believes what is noted."""
    record = settings(folder, problems={"limit": 2}, probes={"activations": True}, figures=[])
    monkeypatch.setattr(loading.psutil, "virtual_memory", lambda: SimpleNamespace(available=0, total=0))

    def change(text: str, *_: object) -> None:
        if text.startswith("calibrating"):
            flip_a_bit(folder / "model.safetensors")

    with pytest.raises(ModelError, match="changed while they were read"):
        run_study(Study.model_validate(record), tmp_path / "run", Told(change))
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert not [facts for facts in manifest.get("models", {}).values() if "calibration" in facts]


# Files that are counted


def test_weights_that_an_index_names_elsewhere_are_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "model.safetensors").rename(tmp_path / "others.safetensors")
    (folder / "a.safetensors").write_bytes((tmp_path / "others.safetensors").read_bytes())
    index = {"metadata": {}, "weight_map": {"lm_head.weight": "../others.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"names weights that are not in its folder, '\.\./others\.safetensors'"):
        resolve(str(folder))


@pytest.mark.parametrize("file", ["adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"])
def test_an_adapter_beside_the_weights_is_refused_with_and_without_peft(folder: Path, file: str) -> None:
    (folder / file).write_text("{}")
    with pytest.raises(ModelError, match=rf"has an adapter beside its weights \({file}\), .*merge it into the model"):
        resolve(str(folder))


def test_templates_in_their_own_folder_are_counted(folder: Path) -> None:
    before = folder_digest(folder)
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "default.jinja").write_text("another")
    assert folder_digest(folder) != before


# Who else can write


def test_a_cache_that_others_can_write_to_is_said_once(
    write_gguf: Callable[..., Path], open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FILLERSCOPE_CACHE", str(open_folder / "cache"))
    gguf, said = str(write_gguf()), Said()
    weights = resolve(gguf, said).path / "model.safetensors"
    assert said.lines == []
    weights.chmod(0o664)
    resolve(gguf, said)
    resolve(gguf, said)
    (line,) = said.lines
    assert line.startswith(
        f"other users can write to {weights}, and change what is measured: `chmod -R go-w {weights}`"
    )
