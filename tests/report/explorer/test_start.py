"""`fillerscope view` from its beginning to its end."""

from __future__ import annotations

import errno
import html
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

import pytest

from fillerscope.errors import FigureError, StoreError
from fillerscope.report.explorer import start
from support.synthetic import Synthetic

# As a shell starts it: a process in the background may have been told to ignore Ctrl-C.
COMMAND = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from fillerscope.cli.app import main; main()"
)


ADDRESS = r"http://127\.0\.0\.1:\d+/\?token=[\w-]{40,}"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Synthetic(problems=2, layers=1, heads=1).build(tmp_path_factory.mktemp("serving") / "run").path


@pytest.fixture
def taken() -> Iterator[socket.socket]:
    """A port that somebody else listens at."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other


def port_of(listening: socket.socket) -> int:
    return int(listening.getsockname()[1])


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "this has not come about"
        time.sleep(0.02)


def test_the_port_that_was_asked_for(taken: socket.socket) -> None:
    with start._listen(0) as found:
        assert found.getsockname()[0] == "127.0.0.1"
        assert port_of(found) not in (0, port_of(taken))
    message = rf"^cannot serve at port {port_of(taken)}: Address already in use; leave --port out for a free one$"
    with pytest.raises(FigureError, match=message):
        start._listen(port_of(taken))


def test_without_one_another_each_time() -> None:
    """Browsers keep service workers for an address, and those of others would see the token."""
    ports = set()
    for _ in range(8):
        with start._listen(None) as found:
            ports.add(port_of(found))
    assert len(ports) > 4


def test_others_do_not_choose_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever holds all free ports but one chooses what the system gives; they cannot choose what is drawn."""
    ports, bound, asked = range(20_000, 65_536), start._bound, list[int]()

    def counted(port: int, host: str) -> socket.socket:
        asked.append(port)
        return bound(port, host)

    monkeypatch.setattr(start, "_bound", counted)
    for given in (None, 0):
        with start._listen(given) as found:
            assert port_of(found) in asked
    assert set(asked) <= set(ports)
    assert len(set(asked)) > start.DRAWS


def test_where_most_ports_are_held_nothing_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """The few that are left may be the choice of whoever holds the others."""
    bound, made, tried = start._bound, list[socket.socket](), list[int]()

    def held(port: int, host: str) -> socket.socket:
        tried.append(port)
        if len(tried) % 2 or len(tried) == start.DRAWS:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        made.append(bound(port, host))
        return made[-1]

    monkeypatch.setattr(start, "_bound", held)
    with pytest.raises(FigureError, match=r"^another program holds most ports of this machine: .* --port$"):
        start._listen(None)
    assert len(tried) == start.DRAWS
    assert made
    assert all(one.fileno() == -1 for one in made), "they are not given back"


def test_the_address_that_is_told_is_the_one_that_answers(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name may have others too, where another account listens."""
    import uvicorn

    said: list[str] = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda *_, sockets: [one.close() for one in sockets])
    start.serve([made], None, browse=False, say=said.append, host="localhost")
    assert re.search(r"http://(127\.0\.0\.1|\[::1\]):\d+/\?token=", said[0])


def test_two_never_have_the_same_port() -> None:
    """Before either of them answers."""
    with start._listen(0) as one, pytest.raises(FigureError, match="Address already in use"):
        start._listen(port_of(one))


def test_the_address_takes_visitors_as_soon_as_it_is_told() -> None:
    with start._listen(0) as found, socket.create_connection(("127.0.0.1", port_of(found)), timeout=60):
        pass


def test_what_is_no_run_is_refused_before_anything_is_served(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no run at .*: it has no manifest\.json"):
        start.serve([tmp_path], None, True, lambda _: pytest.fail("nothing to look at"))


def test_sound_runs_are_shown_without_those_that_are_not(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import uvicorn

    monkeypatch.setattr(uvicorn.Server, "run", lambda _, sockets: [one.close() for one in sockets])
    said: list[str] = []
    start.serve([made, tmp_path, made], None, False, said.append)
    assert len(said) == 2
    assert said[0].startswith(f"{tmp_path} is left out: no run at {tmp_path}: it has no manifest.json")
    assert said[1].startswith(f"Looking at {made}, {made}: http")
    with pytest.raises(FigureError, match=r"is left out: no run at .*; .* is left out: no run at"):
        start.serve([tmp_path, tmp_path], None, False, lambda _: pytest.fail("nothing to look at"))


def test_the_browser_is_opened_where_it_is_wanted(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import uvicorn

    opened: Queue[tuple[str, tuple[int, int]]] = Queue()
    folders: list[Path] = []

    def open_browser(address: str) -> None:
        page = Path(unquote(urlsplit(address).path))
        assert "token" not in address, "arguments of a process can be read by all"
        folders.append(page.parent)
        opened.put((page.read_text(), (page.stat().st_mode & 0o777, page.parent.stat().st_mode & 0o777)))

    def run(_: object, sockets: list[socket.socket]) -> None:
        """Until the browser has been opened."""
        if said[1:]:
            until(lambda: not opened.empty())
        for one in sockets:
            one.close()

    monkeypatch.setattr(start.webbrowser, "open", open_browser)
    monkeypatch.setattr(uvicorn.Server, "run", run)
    said: list[str] = []
    start.serve([made], 0, False, said.append)
    start.serve([made, made], 0, True, said.append)
    address = re.search(ADDRESS, said[1])
    assert address
    ((content, modes),) = opened.queue  # and not that of the first, which nobody wanted to see
    assert html.unescape(re.search('url=(.*)"', content).group(1)) == address.group()
    assert modes == (0o600, 0o700), "the token is not for other accounts"
    assert said[1] == f"Looking at {made}, {made}: {address.group()} (Ctrl-C ends it)"
    assert said[0].partition("token=")[2] != said[1].partition("token=")[2]
    assert not any(folder.exists() for folder in folders)


def test_ctrl_c_ends_it_quietly(made: Path) -> None:
    """It is the way to end it: no error, and nothing to go on with."""
    command = [sys.executable, "-u", "-c", COMMAND, "view", str(made), "--no-browser", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.search(ADDRESS, said)
        assert found, said
        with urlopen(found.group(), timeout=60) as page:  # somebody clicks on it as soon as it is told
            assert page.status == 200
        base, _, token = found.group().partition("?token=")
        told = {"Authorization": f"Bearer {token}"}
        with urlopen(Request(f"{base}api/runs", headers=told), timeout=60) as answer:
            assert answer.headers["Cache-Control"] == "no-store"
        with pytest.raises(HTTPError) as refused:
            urlopen(Request(f"{base}api/0/histogram?model=tiny-a&layer=9&cls=all", headers=told), timeout=60)
        assert refused.value.code == 400
        refused.value.close()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out, err) == (0, "", "")


@pytest.mark.parametrize("host", ["0.0.0.0", "0"])
def test_beyond_this_machine(made: Path, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for by name, it has a token as well, and answers under the names of this machine alone."""
    import uvicorn

    monkeypatch.setattr(uvicorn.Server, "run", lambda _, sockets: [one.close() for one in sockets])
    listen, said = start._listen, list[str]()
    monkeypatch.setattr(start, "_listen", lambda port, _: listen(port, "0.0.0.0"))
    start.serve([made], 0, False, said.append, host)
    assert re.search(rf"http://{re.escape(socket.gethostname())}:\d+/\?token=[\w-]{{40,}}", said[0])
    assert start.names_of("127.0.0.1") == {"127.0.0.1", "localhost", "[::1]"}
    assert start.names_of("10.1.2.3") - start.names_of("127.0.0.1") == {"10.1.2.3"}
    assert "[fd00::7]" in start.names_of("FD00::7")
    everywhere = start.names_of("0.0.0.0")
    assert {socket.gethostname().lower(), "127.0.0.1"} <= everywhere
    assert not {"0.0.0.0", "evil.example", "*"} & everywhere


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(FigureError, match=r"^cannot serve at a free port of 192\.0\.2\.1: .*; --host takes an address"):
        start._listen(None, "192.0.2.1")
    with pytest.raises(FigureError, match="--host takes an address of this machine"):
        start._listen(None, "no such host")


def test_elsewhere_too_a_free_port_is_taken(taken: socket.socket) -> None:
    with start._listen(None, "0.0.0.0") as found:
        assert port_of(found) not in (0, port_of(taken))


def test_an_empty_host_is_refused(made: Path) -> None:
    """A variable that is not set must not open the explorer to the network."""
    with pytest.raises(FigureError, match="--host is empty"):
        start.serve([made], None, browse=False, say=lambda _: None, host="")
