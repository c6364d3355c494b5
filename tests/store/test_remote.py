"""Runs in an object store: the bytes of a run on a disk, whoever is killed, and what a copy of before cannot do."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from fillerscope.analysis.export import export
from fillerscope.api import open_run
from fillerscope.errors import StoreError, StudyError
from fillerscope.files import json_bytes
from fillerscope.measure.run_study import RunChoices, run_study
from fillerscope.store import inside, remote, run_folder
from fillerscope.store.addresses import address_of, is_address, local_folder, remote_of
from fillerscope.store.find_run import find_run
from fillerscope.store.job_part import JobPart
from fillerscope.store.join import join
from fillerscope.store.live import LiveStore
from fillerscope.store.manifest import sealed
from fillerscope.store.remote import RemoteFolder
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import MANIFEST, STUDY, merged_name
from fillerscope.store.status import status_of
from fillerscope.study.study import Study
from support.object_store import KEYS, Bucket, object_store
from support.studies import CONDITIONS, save_model, study_of
from support.watchdog import watched

KILLS = 3


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("work"))
        with object_store(patch) as made:
            yield made


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other_machine(monkeypatch, tmp_path, "here")


def other_machine(patch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    """Another cache, as another machine has one: nothing of a run but what is in the object store."""
    patch.setenv("FILLERSCOPE_CACHE", str(tmp_path / name))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("study")
    problems = [{"id": str(n), "question": f"What is {n} + 5?", "answer": str(n + 5)} for n in range(6)]
    (folder / "problems.jsonl").write_text("".join(json.dumps(one) + "\n" for one in problems), encoding="utf-8")
    return study_of(
        save_model(folder / "tiny"), problems={"source": str(folder / "problems.jsonl")},
        conditions=list(CONDITIONS[:2]), batch={"shard": 2}, probes={"attention": {"positions": 110}},
        generation={"max_tokens": 4},
    )  # fmt: skip


@pytest.fixture(scope="module")
def single(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process on a disk."""
    return run_study(study, tmp_path_factory.mktemp("single") / "run").path


def exported(run: str | Path, folder: Path) -> dict[str, bytes]:
    export(open_run(run), folder)
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def files(run: Path) -> list[str]:
    return sorted(RunStore.open(run).manifest["files"])


def test_a_run_in_an_object_store_has_the_bytes_of_one_on_a_disk(
    bucket: Bucket, study: Study, single: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run_study(study, Path(bucket.address("same")))
    assert address_of(store.path) == bucket.address("same")
    assert sorted(bucket.names("same")) == sorted([*files(single), MANIFEST])
    for name in files(single):
        assert bucket.read("same", name) == (single / name).read_bytes(), name
    other_machine(monkeypatch, tmp_path, "there")
    assert exported(bucket.address("same"), tmp_path / "one") == exported(single, tmp_path / "two")
    assert RunStore.open(find_run(bucket.address("same/"))).verify() == []


def test_opening_a_run_fetches_what_is_read_alone(
    bucket: Bucket, study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_study(study, Path(bucket.address("lazy")))
    other_machine(monkeypatch, tmp_path, "there")
    run = open_run(bucket.address("lazy"))
    assert run.models
    run[None].records()
    there = sorted(path.relative_to(run.path).as_posix() for path in run.path.rglob("*") if path.is_file())
    assert there == sorted([MANIFEST, STUDY, merged_name(run.models[0])])


def _started(study: Study, bucket: Bucket, run: str, folder: Path, cache: str) -> subprocess.Popen[bytes]:
    (folder / "study.yaml").write_text(yaml.safe_dump(study.model_dump(mode="json")), encoding="utf-8")
    command = [sys.executable, "-m", "fillerscope.cli", "run", str(folder / "study.yaml"), "--out", bucket.address(run)]
    environment = os.environ | bucket.environment | {"FILLERSCOPE_CACHE": str(folder / cache)}
    return subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_on_another_machine(
    bucket: Bucket, study: Study, single: Path, tmp_path: Path
) -> None:
    rng, kills = random.Random(5), 0
    for attempt in range(40):
        process = _started(study, bucket, "killed", tmp_path, str(attempt))
        wanted = len(bucket.names("killed")) + rng.randint(1, 3)
        while process.poll() is None and (kills >= KILLS or len(bucket.names("killed")) < wanted):
            time.sleep(0.01)
        if process.poll() is not None:
            _, told = process.communicate()
            assert process.returncode == 0, told.decode()
            break
        time.sleep(rng.random() * 0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += 1
    assert kills == KILLS
    for name in files(single):
        assert bucket.read("killed", name) == (single / name).read_bytes(), name
    drawn = [name for name in bucket.names("killed") if name.startswith("figures/")]
    assert any(name.endswith(".png") for name in drawn)


def test_parts_of_machines_that_share_nothing_are_merged(
    bucket: Bucket, study: Study, single: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = bucket.address("parted")
    for number in (3, 1, 2):
        other_machine(monkeypatch, tmp_path, f"machine-{number}")
        run_study(study, Path(address), choices=RunChoices(part=JobPart(number, 3)))
    other_machine(monkeypatch, tmp_path, "merging")
    assert [one.state for one in status_of(find_run(address))] == ["finished"] * 3
    with pytest.raises(StoreError, match="holds parts of 3"):
        run_study(study, Path(address), choices=RunChoices(part=JobPart(1, 2)))
    join(Path(address), [])
    for name in files(single):
        assert bucket.read("parted", name) == (single / name).read_bytes(), name


def test_the_mark_of_a_writer_goes_with_it_though_files_are_still_to_be_listed(
    bucket: Bucket, single: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of many files lists them now and then."""
    address, identity = bucket.address("many"), RunStore.open(single).manifest["identity"]
    store = RunStore.create(local_folder(address), identity, {})
    monkeypatch.setattr(run_folder, "SHARE", 1)
    with store.writing():
        for number in range(4):
            store.put_bytes(f"shards/tiny/{number:05d}.safetensors", b"x")
        assert store._unlisted
    assert "writer" not in RunStore.open(local_folder(address)).manifest


def test_the_slower_of_two_writers_is_stopped_and_nothing_is_lost(
    bucket: Bucket, single: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, name = bucket.address("two"), files(single)[0]
    identity = RunStore.open(single).manifest["identity"]
    first = RunStore.create(local_folder(address), identity, {})
    with pytest.raises(StoreError, match="another process is writing s3://"), first.writing():  # noqa: PT012
        first.put_bytes(files(single)[1], b"of the first")
        other_machine(monkeypatch, tmp_path, "there")
        second = RunStore.create(local_folder(address), identity, {})
        with second.writing():
            second.put_bytes(name, b"of the second")
            for refused in (name, files(single)[2]):
                with pytest.raises(StoreError, match="another process is writing s3://"):
                    first.put_bytes(refused, b"of the first, late")
            second.note("problems", 3)
    stored = RunStore.open(local_folder(address))
    assert stored.manifest["problems"] == 3
    assert "writer" not in stored.manifest
    assert stored.verify() == []
    assert bucket.read("two", name) == b"of the second"


@pytest.mark.parametrize("data", [b"second", b"the second"], ids=["as long", "longer"])
@pytest.mark.parametrize("is_stored", [False, True], ids=["not stored", "its answer lost"])
def test_a_file_that_could_not_be_replaced_for_sure_is_the_old_one_or_the_new_one(
    is_stored: bool, data: bytes, bucket: Bucket, single: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, publish = files(single)[0], RemoteFolder.publish
    place = f"replaced-{is_stored}-{len(data)}"
    folder = local_folder(bucket.address(place))
    store = RunStore.create(folder, RunStore.open(single).manifest["identity"], {})

    def lost(remote: RemoteFolder, name: str) -> None:
        if is_stored:
            publish(remote, name)
        raise StoreError("cannot reach it")

    with store.writing():
        store.put_bytes(name, b"first!")
    down = monkeypatch.context()
    with down as broken, pytest.raises(StoreError, match="cannot reach it"), store.writing():  # noqa: PT012
        broken.setattr(RemoteFolder, "publish", lost)
        store.put_bytes(name, data)
    expected = data if is_stored else b"first!"
    assert bucket.read(place, name) == expected
    for machine in ("here", "there"):
        if machine == "there":
            other_machine(monkeypatch, tmp_path, "there")
        stored = RunStore.open(local_folder(bucket.address(place)))
        assert stored.verify() == []
        assert stored.get_bytes(name) == expected
    stored.tidy()
    assert "replacing" not in json.loads(bucket.read(place, MANIFEST))


def test_a_manifest_whose_answer_was_lost_is_not_another_writer_s(bucket: Bucket, single: Path) -> None:
    store = RunStore.create(local_folder(bucket.address("lost")), RunStore.open(single).manifest["identity"], {})
    with store.writing():
        store.note("problems", 3)
        assert store.remote is not None
        seen = store.remote.version
        store.note("problems", 4)
        store.remote.version, after = seen, store.remote.version  # as if its answer to the last one had been lost
        store._save_manifest()
        assert store.remote.version == after
    assert json.loads(bucket.read("lost", MANIFEST))["problems"] == 4


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_damage_in_the_object_store_is_found_and_restored(
    damage: str, bucket: Bucket, study: Study, single: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_study(study, Path(bucket.address(damage)))
    name = merged_name(study.models[0].name)
    data = bucket.read(damage, name)
    if damage == "gone":
        bucket.remove(damage, name)
    else:
        changed = data[:-1] if damage == "cut" else data[:-1] + bytes([data[-1] ^ 1])
        bucket.write(damage, name, changed)
    assert len(RunStore.open(find_run(bucket.address(damage))).verify()) == 1
    with monkeypatch.context() as there:
        other_machine(there, tmp_path, "there")
        with pytest.raises(StoreError, match=r"damaged|not finished"):
            open_run(bucket.address(damage))[None].records()
    run_study(study, Path(bucket.address(damage)))
    assert bucket.read(damage, name) == (single / name).read_bytes()


def test_a_copy_of_before_is_not_believed(
    bucket: Bucket, study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_study(study, Path(bucket.address("old")))
    copy = local_folder(bucket.address("old"))
    name = merged_name(study.models[0].name)
    right = (copy / name).read_bytes()
    (copy / name).write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    (copy / STUDY).write_text("{}", encoding="utf-8")
    assert open_run(bucket.address("old"))[None].records()
    assert (copy / name).read_bytes() == right
    for one in bucket.names("old"):
        bucket.remove("old", one)
    with pytest.raises(StoreError, match="no run"):
        open_run(bucket.address("old"))
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(copy)


def test_what_a_copy_has_of_another_run_goes(bucket: Bucket, study: Study, single: Path) -> None:
    address = bucket.address("reused")
    store = run_study(study, Path(address))
    (store.path / "figures").mkdir()
    (store.path / "figures" / "old.png").write_bytes(b"of the first run")
    for one in bucket.names("reused"):
        bucket.remove("reused", one)
    again = run_study(study, Path(address))
    assert not (again.path / "figures").exists()
    (again.path / "report.html").write_text("of the first run")
    bucket.write("reused", MANIFEST, json_bytes(sealed(RunStore.open(single).manifest | {"identity": {"study": 2}})))
    other = RunStore.open(local_folder(address))
    other.publish_others()
    assert "report.html" not in bucket.names("reused")


def test_a_run_is_watched_while_another_machine_writes_it(
    bucket: Bucket, single: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = RunStore.open(single)
    other_machine(monkeypatch, tmp_path, "writer")
    store = RunStore.create(local_folder(bucket.address("live")), whole.manifest["identity"], whole.study)
    with store.writing():
        store.note("problems", 6)
        other_machine(monkeypatch, tmp_path, "watcher")
        live = LiveStore.open(local_folder(bucket.address("live")))
        assert live.progress()[0].shards == 0
        store.adopt({name: whole for name in files(single) if name.endswith("00000.safetensors")})
        assert live.refresh()
        assert live.progress()[0].shards == 1
        assert not live.refresh()


def test_jobs_that_begin_together_do_not_disturb_each_other(bucket: Bucket, single: Path) -> None:
    """They share a cache, and whoever looks at one sees folders of others that have published nothing yet."""
    address = bucket.address("together")
    manifest = RunStore.open(single).manifest
    run = local_folder(address)
    stores = []
    for number in (1, 2, 3):
        folder = JobPart(number, 3).folder(run)
        folder.mkdir(parents=True)
        (folder / "lock").touch()
        assert local_folder(address) == run
        assert (folder / "lock").exists()
        stores.append(RunStore.create(folder, manifest["identity"], {}, JobPart(number, 3)))
    for store in stores:
        with store.writing():
            store.put_bytes("shards/tiny/00000.safetensors", b"1")
    assert [one.part for one in status_of(local_folder(address))] == ["1/3", "2/3", "3/3"]


@pytest.mark.parametrize(
    "name", ["..", ".", "a/../b", "a//b", "a\0", "x" * 300, "", "a?versionId=7", "a#1", "a*", "a[b]"]
)
def test_addresses_that_lead_elsewhere_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is no address of a run"):
        local_folder(f"s3://bucket/{name}")
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize("place", ["", "0123", "0123/run", "0123/run/parts"])
def test_links_that_others_planted_among_copies_are_refused(
    place: str, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = local_folder(bucket.address("run"))
    planted = tmp_path / "here" / "copies" / place.replace("0123", copy.parent.name)
    shutil.rmtree(planted, ignore_errors=True)
    (tmp_path / "victim" / "1-of-2").mkdir(parents=True)
    planted.symlink_to(tmp_path / "victim")
    with pytest.raises(StoreError, match="is a link"):
        local_folder(bucket.address("run"))
    assert [path.name for path in (tmp_path / "victim").rglob("*")] == ["1-of-2"]
    other_machine(monkeypatch, tmp_path, "open")
    local_folder(bucket.address("run"))
    (tmp_path / "open" / "copies").chmod(0o777)
    with pytest.raises(StoreError, match="other users can write"):
        local_folder(bucket.address("run"))


@pytest.mark.parametrize(
    "place", ["parts/1-of-2", "parts/2-of-2", "parts/1-of-2/shards/tiny", "shards", "figures/a/b/c/d", STUDY, "lock"]
)
def test_links_anywhere_in_a_copy_are_refused(place: str, bucket: Bucket, tmp_path: Path) -> None:
    """A cache may come from somebody else: what a link leads to is not emptied, and not written to."""
    address = bucket.address("planted")
    bucket.write("planted", f"parts/2-of-2/{MANIFEST}", b'{"identity": {}}')
    planted = local_folder(address) / place
    shutil.rmtree(planted, ignore_errors=True)
    planted.parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "victim" / "photos").mkdir(parents=True)
    (tmp_path / "victim" / "thesis.txt").write_text("mine")
    planted.symlink_to(tmp_path / "victim")
    with pytest.raises(StoreError, match=f"{place} is a link, which may lead anywhere: remove"):
        local_folder(address)
    with pytest.raises(StoreError, match="is a link"):
        RunStore.open(planted)  # the copy by its own path
    assert sorted(path.name for path in (tmp_path / "victim").rglob("*")) == ["photos", "thesis.txt"]


def test_a_file_of_a_copy_that_has_another_name_is_not_published(bucket: Bucket, single: Path, tmp_path: Path) -> None:
    """tar makes such a hard link to any file beside the cache."""
    address, own = bucket.address("hard"), tmp_path / ".env"
    store = RunStore.create(local_folder(address), RunStore.open(single).manifest["identity"], {})
    own.write_text("KEY=secret")
    (store.path / "tables").mkdir()
    (store.path / "tables" / "notes.csv").hardlink_to(own)
    (store.path / "tables" / "other.csv").write_text("a,b")
    with pytest.raises(StoreError, match=r"notes\.csv is a link, which may lead anywhere: remove"):
        local_folder(address)
    store.publish_others()
    assert [name for name in bucket.names("hard") if name.startswith("tables/")] == ["tables/other.csv"]
    assert own.read_text() == "KEY=secret"


def test_a_copy_that_cannot_be_looked_through_is_refused(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = local_folder(bucket.address("full"))
    for number in range(4):
        (copy / "figures" / str(number)).mkdir(parents=True)
    monkeypatch.setattr(inside, "MOST_FILES", 4)
    with pytest.raises(StoreError, match=r"cannot look through .* over 4 files"):
        local_folder(bucket.address("full"))


@pytest.mark.parametrize("name", ["a\0b", "a\ud800", "../a", "/a", "shards/a\nb"])
def test_a_bucket_s_manifest_with_odd_names_is_damaged(name: str, bucket: Bucket, single: Path) -> None:
    manifest = RunStore.open(single).manifest
    manifest["files"][name] = {"bytes": 1, "sha256": "0" * 64}
    bucket.write("odd", MANIFEST, json_bytes(sealed(manifest)))
    with pytest.raises(StoreError, match="damaged"):
        open_run(bucket.address("odd"))


def test_an_empty_object_is_damage_and_no_server_that_is_gone(bucket: Bucket) -> None:
    bucket.write("empty", MANIFEST, b"")
    with pytest.raises(StoreError, match="is damaged"):
        open_run(bucket.address("empty"))


def test_an_object_that_is_exchanged_for_a_longer_one_does_not_fill_the_memory(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "LARGEST_JSON", 4096)
    bucket.write("long", MANIFEST, b"[" * 5000)
    with pytest.raises(StoreError, match="is larger than"):
        local_folder(bucket.address("long"))
    read = []
    real = remote.RemoteFolder._pieces
    monkeypatch.setattr(remote.RemoteFolder, "_pieces", lambda *one: (read.append(len(p)) or p for p in real(*one)))
    bucket.write("long", "file", b"x" * 5000)
    remote.RemoteFolder(bucket.address("long"), Path("copy")).fetch("file", 100)
    assert (sum(read), Path("copy/file").read_bytes()) == (100, b"x" * 100)


class Packed(BaseHTTPRequestHandler):
    """An object that its owner has stored with a content encoding, as Google sends it: packed to whoever accepts it."""

    stored = gzip.compress(b" " * 1_000_000)

    def do_GET(self) -> None:
        assert self.headers["Accept-Encoding"] == "gzip"
        start, end = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        data = self.stored[start : end + 1]
        self.send_response(206)
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


class Google:
    """What of gcsfs reads a file: a session of aiohttp with the settings that it was given."""

    def __init__(self, address: str, session_kwargs: dict[str, Any] | None = None, **_: object) -> None:
        self.address, self.settings = address, session_kwargs or {}

    def cat_file(self, _: str, start: int, end: int) -> bytes:
        async def read() -> bytes:
            ranged = {"Range": f"bytes={start}-{end - 1}"}
            async with (
                aiohttp.ClientSession(**self.settings) as session,
                session.get(self.address, headers=ranged) as answer,
            ):
                return await answer.read()

        return asyncio.run(read())


def test_what_google_stores_packed_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1 MB is read as the 1 kB that it is stored as: the sizes that are compared are those of what is stored."""
    import fsspec

    with ThreadingHTTPServer(("127.0.0.1", 0), Packed) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        monkeypatch.setattr(fsspec, "filesystem", lambda kind, **given: {"gs": Google}[kind](address, **given))
        remote._connected.cache_clear()
        folder = remote.RemoteFolder("gs://studies/run", tmp_path)
        folder.fetch("file", len(Packed.stored))
        server.shutdown()
    remote._connected.cache_clear()
    assert (tmp_path / "file").read_bytes() == Packed.stored


def test_what_s3_stores_packed_is_not_unpacked(bucket: Bucket, tmp_path: Path) -> None:
    bucket.write("packed", "file", Packed.stored, ContentEncoding="gzip")
    remote.RemoteFolder(bucket.address("packed"), tmp_path).fetch("file", len(Packed.stored))
    assert (tmp_path / "file").read_bytes() == Packed.stored


class Generous:
    """An object store, or its client, that gives more than was asked for."""

    def cat_file(self, _: str, start: int, end: int) -> bytes:
        return b"x" * (end - start + 1)

    def info(self, _: str) -> dict[str, Any]:
        return {"type": "file", "size": 1, "ETag": "1"}

    def invalidate_cache(self) -> None:
        pass


@pytest.mark.parametrize("kind", sorted(remote.EXTRAS))
def test_more_bytes_than_were_asked_for_are_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_connected", lambda *_, **__: Generous())
    monkeypatch.setattr(remote, "LARGEST_JSON", 4096)
    folder = remote.RemoteFolder(f"{kind}://studies/run", tmp_path)
    for read in (lambda: folder.fetch("file", 100), lambda: folder.sha256("file", 100), folder.pull):
        with pytest.raises(StoreError, match=rf"^{kind}://studies/run/.*: the object store sent more bytes than"):
            read()
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


@pytest.mark.parametrize(
    ("text", "path"),
    [("runs/demo", "runs/demo"), ("file:///tmp/run", "/tmp/run"), ("file:/tmp/run", "/tmp/run"), ("s3", "s3")],
)
def test_paths_of_this_machine_are_taken_as_they_are(text: str, path: str) -> None:
    assert local_folder(text) == Path(path)
    assert local_folder(Path(text)) == Path(path)
    assert not is_address(text)
    assert remote_of(Path(path)) is None
    assert address_of(Path(path)) == path


def test_what_keeps_an_object_store_from_answering_is_told_in_a_line(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreError, match="no run at s3://studies/none"):
        open_run("s3://studies/none")
    with pytest.raises(StoreError, match="specified bucket does not exist"):
        RunStore.create(local_folder("s3://nobody/none"), {}, {})
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(StoreError, match=r"pip install 'fillerscope\[gcs\]'"):
        local_folder("gs://bucket/run")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StoreError, match="cannot reach s3://studies/none: Could not connect"):
        local_folder(bucket.address("none"))


class Repeating(BaseHTTPRequestHandler):
    """A server that refuses, and says a token."""

    said = ""

    def do_HEAD(self) -> None:
        self.send_error(404)

    def do_GET(self) -> None:
        body = f"<Error><Code>AccessDenied</Code><Message>no entry with {self.said}</Message></Error>".encode()
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


TOKEN = "FwoGZXIvYXdzE-a-secret-token"


@pytest.mark.parametrize("place", ["nowhere", "environment", "file", "in capitals"])
def test_a_key_that_an_object_store_says_is_not_repeated(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {name.lower(): "a-key" for name in KEYS if "KEY" in name} | {"aws_session_token": TOKEN}
    monkeypatch.setattr(Repeating, "said", TOKEN.upper() if place == "in capitals" else TOKEN)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    for name, key in keys.items():
        monkeypatch.delenv(name.upper(), raising=False)
        if place != "file" and (place != "nowhere" or "token" not in name):
            monkeypatch.setenv(name.upper(), key)
    if place == "file":
        lines = [f"{name} = {key}" for name, key in keys.items()]
        (tmp_path / "keys").write_text("\n".join(["[default]", *lines]))
    with ThreadingHTTPServer(("127.0.0.1", 0), Repeating) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(StoreError, match="no entry with" if place == "nowhere" else "it says your key") as told:
            local_folder("s3://studies/run")
        server.shutdown()
    assert (TOKEN.lower() in str(told.value).lower()) is (place == "nowhere")


@pytest.mark.parametrize(
    "said",
    [
        f"{TOKEN[:-1]}\n{TOKEN[-1]}",
        f"{'word ' * 900}"[: remote.LONGEST - len(TOKEN) + 1] + TOKEN,
        f"{TOKEN[:9]}://x@{TOKEN[9:]}",
        f"{TOKEN[:9]}://{TOKEN[9:12]}?x {TOKEN[12:]}",
        "ProxySecret:12",
    ],
    ids=["line break", "at the end", "password left out", "signature left out", "of a proxy"],
)
def test_no_part_of_a_key_is_told(said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    monkeypatch.setenv("HTTPS_PROXY", "http://user:ProxySecret:12@127.0.0.1:9")
    folder = remote.RemoteFolder("s3://studies/run", tmp_path)
    with pytest.raises(StoreError, match="s3://studies/run: it says your key"), folder._reached():
        raise PermissionError(said)


def test_a_long_text_of_an_object_store_is_shortened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    said = "no entry " * 1_000_000
    with watched(30):
        told = remote.RemoteFolder("s3://studies/run", tmp_path)._told(PermissionError(said))
    assert told == said[: remote.LONGEST]


@pytest.mark.parametrize("place", ["environment", "file"])
def test_keys_that_are_set_after_a_failed_attempt_are_used(
    place: str, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {name: value for name, value in KEYS.items() if "KEY" in name}
    for name in keys:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # keys of a machine, asked over the network
    with pytest.raises(StoreError, match="Unable to locate credentials"):
        local_folder(bucket.address("late"))
    if place == "file":
        lines = [f"{name.lower()} = {value}" for name, value in keys.items()]
        (tmp_path / "keys").write_text("\n".join(["[default]", *lines]))
    else:
        for name, value in keys.items():
            monkeypatch.setenv(name, value)
    assert local_folder(bucket.address("late")).name == "late"


def test_jobs_are_not_submitted_to_an_object_store(bucket: Bucket, study: Study) -> None:
    from fillerscope.cli.submit import Submission, submit

    with pytest.raises(StudyError, match="a disk that they share"):
        submit(study, Path(bucket.address("none")), Submission("local", 2), False, False)


def test_an_address_is_read_as_it_was_written_in_any_locale(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from fillerscope.store.addresses import remote_of; "
        "print(ascii(remote_of(Path(sys.argv[1])).address))"
    )
    copies = tmp_path / "copies"
    (copies / "key" / "demo").mkdir(parents=True)
    (copies / "key.txt").write_bytes("s3://bucket/l\u00e4ufe/demo".encode())
    of_c = {"FILLERSCOPE_CACHE": str(tmp_path), "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", code, str(copies / "key" / "demo")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | of_c)
    assert done.stdout.strip() == r"'s3://bucket/l\xe4ufe/demo'"
