"""Downloads from the hub, with its real client and a server that stands in for it."""

from __future__ import annotations

import errno
import os
import pty
import random
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from fillerscope.errors import ModelError, ProblemError
from fillerscope.models.hub import snapshot
from fillerscope.problems import hub_download as hub
from fillerscope.problems.sources import load_problems
from fillerscope.study.study import ProblemsSpec
from support.hub import Hub, serving, use
from support.progress import Heard, Told
from support.watchdog import watched

WEIGHTS = random.Random(0).randbytes(3_000_000)
CONFIG = b'{"model_type": "llama"}'
MODEL = {"config.json": CONFIG, "model.safetensors": WEIGHTS, "empty.txt": b"", "modeling.py": b"raise SystemExit"}
PAGE = r"https://huggingface\.co/owner/name"


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with one model, and a cache and a login of the test's own."""
    with serving(Hub(dict(MODEL))) as stand_in:
        use(stand_in, tmp_path, monkeypatch)
        monkeypatch.setattr(hub.time, "sleep", lambda _: None)
        yield stand_in


def parts(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "hub").rglob("*.incomplete"))


def test_a_model_is_downloaded_whole_under_one_progress(served: Hub) -> None:
    seen: list[tuple[str, int, int]] = []
    folder = snapshot("owner/name", Told(lambda *step: seen.append(step)))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        name: data for name, data in MODEL.items() if name != "modeling.py"
    }
    assert served.sent == len(WEIGHTS) + len(CONFIG)
    assert {(text, total) for text, _, total in seen} == {("downloading owner/name", served.sent)}
    done = [done for _, done, _ in seen]
    assert done == sorted(done)
    assert done[-1] == served.sent


def test_an_empty_file_is_downloaded(served: Hub) -> None:
    """Servers refuse to send a range of it."""
    served.files["vocab.txt"] = b""
    assert (snapshot("owner/name") / "vocab.txt").read_bytes() == b""


def test_a_hub_is_asked_for_nothing_else(served: Hub, tmp_path: Path) -> None:
    """Its client would ask on its own account, and read the answer without a limit."""
    places = {"HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": served.url}
    command = [sys.executable, "-c", "from fillerscope.models.hub import snapshot; snapshot('owner/name')"]
    subprocess.run(command, env=os.environ | places, check=True, timeout=120)
    assert served.paths
    assert all("owner/name" in path for path in served.paths)


def test_what_is_in_the_cache_is_not_downloaded_again(served: Hub) -> None:
    first = snapshot("owner/name")
    served.ranges.clear()
    assert snapshot("owner/name") == first
    assert served.ranges == []
    served.files["config.json"] = b'{"model_type": "qwen2"}'
    snapshot("owner/name")
    assert served.ranges == [("config.json", 0)]


@pytest.mark.parametrize("status", [200, 500])
def test_a_hub_out_of_reach_leaves_the_cached_version(
    served: Hub, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    folder = snapshot("owner/name")
    served.status = status
    if status == 200:
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert snapshot("owner/name") == folder


def test_a_broken_connection_is_taken_up_where_it_broke(served: Hub) -> None:
    served.drop_after = 1 << 20
    folder = snapshot("owner/name")
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    starts = [start for name, start in served.ranges if name == "model.safetensors"]
    assert len(starts) == 2
    assert starts[1] > 0


def test_a_server_without_ranges_starts_the_file_anew(served: Hub) -> None:
    served.drop_after, served.ignores_ranges = 1 << 20, True
    assert (snapshot("owner/name") / "model.safetensors").read_bytes() == WEIGHTS


@pytest.mark.parametrize(
    ("size", "message"), [(9_000_000, "more comes of model.safetensors than the 3,000,000 bytes"), (-9, "as a whole")]
)
def test_a_file_of_another_size_than_the_hub_says_is_refused(
    served: Hub, tmp_path: Path, size: int, message: str
) -> None:
    served.wrong_size = size
    with watched(), pytest.raises(ModelError, match=message):
        snapshot("owner/name")
    assert sum(part.stat().st_size for part in parts(tmp_path)) <= len(WEIGHTS)


def test_a_damaged_part_is_removed(served: Hub, tmp_path: Path) -> None:
    blobs = tmp_path / "hub" / "models--owner--name" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{served.etag('model.safetensors')}.incomplete").write_bytes(b"x" * 1000)
    with pytest.raises(ModelError, match=r"model\.safetensors arrived damaged and was removed; try again"):
        snapshot("owner/name")
    assert parts(tmp_path) == []
    assert (snapshot("owner/name") / "model.safetensors").read_bytes() == WEIGHTS


def test_a_part_larger_than_the_file_is_started_anew(served: Hub, tmp_path: Path) -> None:
    blobs = tmp_path / "hub" / "models--owner--name" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{served.etag('config.json')}.incomplete").write_bytes(b"x" * 1000)
    assert (snapshot("owner/name") / "config.json").read_bytes() == CONFIG


def test_a_link_in_the_place_of_a_part_is_not_written_through(served: Hub, tmp_path: Path) -> None:
    """A cache may come from somebody else."""
    own = tmp_path / "own"
    own.write_bytes(b"mine")
    blobs = tmp_path / "hub" / "models--owner--name" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{served.etag('model.safetensors')}.incomplete").symlink_to(own)
    assert (snapshot("owner/name") / "model.safetensors").read_bytes() == WEIGHTS
    assert own.read_bytes() == b"mine"


@pytest.mark.parametrize("size", [4, 2 * len(WEIGHTS)])
def test_a_file_with_another_name_in_the_place_of_a_part_is_not_written_to(
    served: Hub, tmp_path: Path, size: int
) -> None:
    """tar makes such a hard link to any file beside the cache."""
    own = tmp_path / "own"
    own.write_bytes(b"x" * size)
    blobs = tmp_path / "hub" / "models--owner--name" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{served.etag('model.safetensors')}.incomplete").hardlink_to(own)
    assert (snapshot("owner/name") / "model.safetensors").read_bytes() == WEIGHTS
    assert own.read_bytes() == b"x" * size


def test_a_part_that_is_exchanged_for_a_hard_link_is_begun_anew(
    served: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, asked = tmp_path / "own", hub.Connection.file
    blobs = tmp_path / "hub" / "models--owner--name" / "blobs"
    part = blobs / f"{served.etag('model.safetensors')}.incomplete"

    def exchanging(connection: hub.Connection, url: str, start: int) -> tuple[int, Generator[bytes]]:
        if start and not own.exists():
            own.write_bytes(b"x" * start)
            part.unlink()
            part.hardlink_to(own)
        return asked(connection, url, start)

    monkeypatch.setattr(hub.Connection, "file", exchanging)
    served.drop_after = 1 << 20
    assert (snapshot("owner/name") / "model.safetensors").read_bytes() == WEIGHTS
    assert set(own.read_bytes()) == {ord("x")}
    assert own.stat().st_size < len(WEIGHTS)


@pytest.mark.skipif(os.name == "nt" or os.getuid() != 0, reason="only root gives files away")
def test_a_part_of_another_user_is_begun_anew(served: Hub, tmp_path: Path) -> None:
    blobs = tmp_path / "hub" / "models--owner--name" / "blobs"
    blobs.mkdir(parents=True)
    part = blobs / f"{served.etag('model.safetensors')}.incomplete"
    part.write_bytes(b"x" * 1000)
    os.chown(part, 12345, -1)
    assert (snapshot("owner/name") / "model.safetensors").read_bytes() == WEIGHTS


@pytest.mark.parametrize(
    "name",
    ["blobs", "snapshots", "refs", "snapshots/" + "1" * 40, ".", "../.locks", "../.locks/models--owner--name"],
)
def test_folders_of_the_cache_that_lead_elsewhere_are_refused(served: Hub, tmp_path: Path, name: str) -> None:  # noqa: ARG001
    elsewhere, link = tmp_path / "elsewhere", Path(os.path.normpath(tmp_path / "hub" / "models--owner--name" / name))
    elsewhere.mkdir()
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(elsewhere)
    with pytest.raises(ModelError, match=rf"{link.name} is a link; remove it"):
        snapshot("owner/name")
    assert not list(elsewhere.iterdir())


def test_a_damaged_file_that_leads_elsewhere_is_removed_alone(served: Hub, tmp_path: Path) -> None:
    own, folder = tmp_path / "own", snapshot("owner/name")
    own.write_bytes(b"mine")
    blob = (folder / "model.safetensors").resolve()
    blob.unlink()
    blob.symlink_to(own)  # such as one on another disk
    (folder / "added_tokens.json").symlink_to(own)
    for name in ("model.safetensors", "added_tokens.json"):
        snapshot("owner/name", damaged=folder / name)
    assert own.read_bytes() == b"mine"
    assert not (folder / "added_tokens.json").is_symlink()
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert served.sent == 2 * len(WEIGHTS) + len(CONFIG)


def test_a_gated_model_without_a_login_asks_for_one(served: Hub) -> None:
    served.gated = True
    with pytest.raises(ModelError, match=rf"^owner/name is gated: run `hf auth login`, and ask for access at {PAGE}"):
        snapshot("owner/name")


def test_a_gated_model_with_a_login_says_where_to_ask_for_access(served: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    served.gated = True
    monkeypatch.setenv("HF_TOKEN", "hf_of_somebody_without_access")
    with pytest.raises(
        ModelError, match=rf"gated and your account has no access: ask for it at {PAGE}, then"
    ) as caught:
        snapshot("owner/name")
    assert "login" not in str(caught.value)


def test_a_token_that_the_hub_refuses_is_named(served: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    served.status, served.message = 401, "Invalid credentials in Authorization header"
    monkeypatch.setenv("HF_TOKEN", "hf_expired")
    with pytest.raises(ModelError, match="the hub refuses your token for owner/name: run `hf auth login` again"):
        snapshot("owner/name")


def test_a_model_that_is_not_there(served: Hub) -> None:  # noqa: ARG001
    with pytest.raises(ModelError, match="no folder here and not on the hub; check the spelling"):
        snapshot("owner/missing")


def test_without_a_network_the_advice_is_a_model_that_needs_none(
    served: Hub,  # noqa: ARG001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(
        ModelError, match=r"check the network, or use a model that needs no hub: smollm2-135m"
    ) as caught:
        snapshot("owner/name")
    assert "\n" not in str(caught.value)


def test_a_password_of_a_proxy_is_not_told(served: Hub, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    monkeypatch.setenv("HTTPS_PROXY", "http://user:pa/ss@host:3128")
    with pytest.raises(ModelError, match="correct HTTPS_PROXY") as caught:
        snapshot("owner/name")
    assert "'pa'" not in str(caught.value)


def test_a_disk_without_room_is_refused_before_anything_comes(served: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1 << 20}))
    with pytest.raises(ModelError, match=r"does not fit on the disk of .*3 MiB to download, 1 MiB free\); make room"):
        snapshot("owner/name")
    assert served.sent == 0


def test_a_disk_that_fills_up_is_one_line(served: Hub, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(hub, "_stream", full)
    with pytest.raises(ModelError, match=r"does not fit on the disk .*No space left on device\); make room"):
        snapshot("owner/name")


def test_a_data_set_comes_the_same_way(served: Hub) -> None:
    served.files = {"data/test.jsonl": b'{"question": "What is 1 + 1?", "answer": "2"}\n'}
    seen: list[str] = []
    problems = load_problems(ProblemsSpec(source="hub:owner/name"), Told(lambda text, *_: seen.append(text)))
    assert [problem.answer for problem in problems] == ["2"]
    assert set(seen) == {"downloading owner/name"}
    served.gated, served.files = True, {"data/test.jsonl": b'{"question": "Another?"}\n'}
    with pytest.raises(ProblemError, match=r"hub:owner/name is gated: .*https://huggingface\.co/datasets/owner/name"):
        load_problems(ProblemsSpec(source="hub:owner/name"))


@pytest.mark.parametrize("size", [1, 10_000])  # a small file, which git names, and a large one
def test_data_that_has_changed_in_the_cache_is_downloaded_again(served: Hub, tmp_path: Path, size: int) -> None:
    data = b'{"question": "What is 1 + 1?", "answer": "2"}\n' + b" " * size
    served.files = {"test.jsonl": data}
    heard = Heard()
    spec = ProblemsSpec(source="hub:owner/name")
    assert [problem.answer for problem in load_problems(spec, heard)] == ["2"]
    assert [problem.answer for problem in load_problems(spec, heard)] == ["2"]
    assert (served.ranges, heard.lines) == ([("test.jsonl", 0)], [])
    blob = tmp_path / "hub" / "datasets--owner--name" / "blobs" / served.etag("test.jsonl")
    blob.write_bytes(data.replace(b'"2"', b'"3"'))
    assert [problem.answer for problem in load_problems(spec, heard)] == ["2"]
    assert len(served.ranges) == 2
    assert heard.lines == [f"test.jsonl in {blob.parents[1]} is not what was downloaded; it is downloaded again"]


def test_a_pipe_in_the_cache_is_no_data(served: Hub, tmp_path: Path) -> None:
    served.files = {"test.jsonl": b'{"question": "What is 1 + 1?", "answer": "2"}\n'}
    blob = tmp_path / "hub" / "datasets--owner--name" / "blobs" / served.etag("test.jsonl")
    blob.parent.mkdir(parents=True)
    os.mkfifo(blob)
    with watched(), pytest.raises(ProblemError, match="it is a pipe or a device, not a file"):
        load_problems(ProblemsSpec(source="hub:owner/name"))


# In a terminal


class Terminal:
    """`fillerscope models get owner/name` in a terminal of 80 columns."""

    def __init__(self, served: Hub, tmp_path: Path) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in ("CI", "NO_COLOR", "HF_TOKEN")}
        environment |= {"HF_ENDPOINT": served.url, "HF_HOME": str(tmp_path / "home"), "COLUMNS": "80", "TERM": "xterm"}
        environment |= {"FILLERSCOPE_CACHE": str(tmp_path / "cache")}
        self.screen, worker = pty.openpty()
        command = [sys.executable, "-c", "from fillerscope.cli.app import main; main()", "models", "get", "owner/name"]
        self.process = subprocess.Popen(
            command, stdin=worker, stdout=worker, stderr=worker, env=environment, start_new_session=True
        )
        os.close(worker)
        self.shown = ""

    def read(self, seconds: float) -> None:
        """Take what is shown in some seconds, or until the command has ended."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and select.select([self.screen], [], [], 0.1)[0]:
            try:
                self.shown += os.read(self.screen, 1 << 16).decode(errors="replace")
            except OSError:  # the other side has gone
                return

    def wait_for(self, done: Callable[[], bool]) -> None:
        while not done() and self.process.poll() is None:
            self.read(0.2)

    def end(self) -> int:
        while self.process.poll() is None:
            self.read(0.2)
        self.read(0.2)
        os.close(self.screen)
        return self.process.returncode


def received(tmp_path: Path) -> int:
    return sum(path.stat().st_size for path in (tmp_path / "home").rglob("*.incomplete"))


@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_download_ends_at_once_and_resumes(tmp_path: Path, signal_number: signal.Signals) -> None:
    with serving(Hub(dict(MODEL), pause=1.0)) as served:  # a minute, if it were not stopped: no slow machine ends it
        terminal = Terminal(served, tmp_path)
        terminal.wait_for(lambda: received(tmp_path) > 1_000_000)
        terminal.process.send_signal(signal_number)
        assert terminal.end() in (130, -signal.SIGKILL)
        assert served.sent < len(WEIGHTS)
        assert "Traceback" not in terminal.shown
        kept, served.pause = received(tmp_path), 0.0
        assert kept > 0
        Terminal(served, tmp_path).end()
        assert ("model.safetensors", kept) in served.ranges
    files = list((tmp_path / "home").rglob("snapshots/*/model.safetensors"))
    assert [path.read_bytes() for path in files] == [WEIGHTS]


@pytest.mark.slow
def test_a_terminal_shows_one_bar(tmp_path: Path) -> None:
    with serving(Hub(dict(MODEL), pause=0.05)) as served:
        terminal = Terminal(served, tmp_path)
        terminal.end()
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]+", terminal.shown)]
    bars = {line.split("owner/name")[0].strip(" ⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏") for line in lines if "%" in line}
    assert bars == {"downloading"}, terminal.shown
    assert not [line for line in lines if "Fetching" in line or "it/s" in line]
