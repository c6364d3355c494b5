"""What the owner of a bucket can bring onto the disk of whoever looks at a run in it: the files of one, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fillerscope.errors import StoreError
from fillerscope.files import Json, json_bytes
from fillerscope.store import remote
from fillerscope.store.addresses import local_folder
from fillerscope.store.manifest import sealed
from fillerscope.store.schema import JOB, MANIFEST, STUDY
from support.object_store import Bucket, object_store

STUDY_BYTES = b'{"models": []}\n'
LISTED: Json = {"bytes": len(STUDY_BYTES), "sha256": "0" * 64}


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with pytest.MonkeyPatch.context() as patch, object_store(patch) as made:
        yield made


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FILLERSCOPE_CACHE", str(tmp_path))


def manifest(**changed: object) -> bytes:
    """The manifest of a run with a study, or another that has its digest."""
    facts: Json = {"format": 5, "identity": {"study": 1}, "files": {STUDY: LISTED}, **changed}
    return json_bytes(sealed(facts))  # type: ignore[arg-type]


def stored(run: Path) -> dict[str, bytes]:
    """The files of a copy by name."""
    return {path.relative_to(run).as_posix(): path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_parts_are_numbered_from_one_to_their_number(bucket: Bucket) -> None:
    run = local_folder(bucket.address("parts-numbers"))
    (run / "parts" / "4-of-2").mkdir(parents=True)
    (run / "parts" / "4-of-2" / MANIFEST).write_bytes(b"of an earlier version")
    for name in (
        "1-of-2",
        "2-of-2",
        "0-of-2",
        "3-of-2",
        "4-of-2",
        "01-of-2",
        "00002-of-00002",
        "1-of-0",
        "1-of-123456",
    ):
        bucket.write("parts-numbers", f"parts/{name}/{MANIFEST}", manifest())
    assert local_folder(bucket.address("parts-numbers")) == run
    assert sorted(stored(run)) == [f"parts/1-of-2/{MANIFEST}", f"parts/2-of-2/{MANIFEST}"]


def test_parts_are_of_one_number(bucket: Bucket) -> None:
    for name in ("1-of-3", "2-of-3", "1-of-2"):
        bucket.write("parts-mixed", f"parts/{name}/{MANIFEST}", manifest())
    with pytest.raises(StoreError, match="parts-mixed/parts holds parts of 2 and of 3: remove those that"):
        local_folder(bucket.address("parts-mixed"))


def test_parts_are_limited_together(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = b" " * 1000
    listing = manifest(files={STUDY: LISTED | {"bytes": len(study)}})
    for number in range(1, 10):
        for name, data in ((MANIFEST, listing), (STUDY, study), (JOB, study)):
            bucket.write("parts-large", f"parts/{number}-of-9/{name}", data)
    each = len(listing) + 2 * len(study)
    monkeypatch.setattr(remote, "LARGEST_PARTS", 9 * each)
    local_folder(bucket.address("parts-large"))
    monkeypatch.setenv("FILLERSCOPE_CACHE", str(tmp_path / "another"))
    monkeypatch.setattr(remote, "LARGEST_PARTS", 3 * each)
    with pytest.raises(StoreError, match="says of its parts takes more than"):
        local_folder(bucket.address("parts-large"))
    assert len(list((tmp_path / "another").rglob(STUDY))) == 4


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"{" * 1000, b"x" * 1000, json_bytes({"identity": 1}), manifest(files={}), manifest(files=[]),
        manifest(files={STUDY: {"bytes": "9"}}), manifest(files={STUDY: LISTED | {"bytes": -1}}),
        manifest().replace(b'"study": 1', b'"study": 2'), manifest(format=4).replace(b'"digest"', b'"digests"'),
        manifest(format="2").replace(b'"digest"', b'"digests"'),
    ],
)  # fmt: skip
def test_the_study_is_left_where_no_manifest_lists_it(bucket: Bucket, data: bytes) -> None:
    bucket.write("parts-none", MANIFEST, data)
    bucket.write("parts-none", STUDY, STUDY_BYTES)
    assert stored(local_folder(bucket.address("parts-none"))) == {MANIFEST: data}


@pytest.mark.parametrize("there", [STUDY_BYTES, STUDY_BYTES + b"x" * 1000, STUDY_BYTES[:-1], b""])
def test_the_study_has_the_size_that_is_listed(bucket: Bucket, there: bytes) -> None:
    """Its checksum tells whether it is the right one."""
    bucket.write("parts-sized", MANIFEST, manifest())
    bucket.write("parts-sized", STUDY, there)
    assert stored(local_folder(bucket.address("parts-sized")))[STUDY] == there[: len(STUDY_BYTES)]


def test_a_study_that_is_listed_may_be_gone(bucket: Bucket) -> None:
    bucket.write("parts-gone", MANIFEST, manifest())
    bucket.write("parts-gone", JOB, b"{}")
    assert stored(local_folder(bucket.address("parts-gone"))) == {MANIFEST: manifest(), JOB: b"{}"}


def test_early_formats_had_no_digest_and_listed_no_study(bucket: Bucket) -> None:
    bucket.write("parts-early", MANIFEST, json_bytes({"format": 2, "identity": {}, "files": {}}))
    bucket.write("parts-early", STUDY, STUDY_BYTES)
    assert stored(local_folder(bucket.address("parts-early")))[STUDY] == STUDY_BYTES
