"""Connections to the explorer: slow ones are dropped, their number is limited, and others go on to be served."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from threading import Event, Thread

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from fillerscope.report.explorer import connections
from fillerscope.report.explorer.access import COOKIE_BYTES, HEADER_BYTES

PATIENCE = 60  # seconds, for a machine that has much else to do
REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
MOST_BYTES = HEADER_BYTES + COOKIE_BYTES
LARGE = 64 * 1024 * 1024  # more than the buffers of a connection hold


class Held:
    """An application whose answers at /held come when they are let go."""

    server: uvicorn.Server

    def __init__(self) -> None:
        self.free = Event()

        def hold(_: Request) -> Response:
            assert self.free.wait(PATIENCE)
            return PlainTextResponse("held")

        routes = [
            Route("/", lambda _: PlainTextResponse("quick")),
            Route("/large", lambda _: Response(b"x" * LARGE)),
            Route("/held", hold),
        ]
        self.app = Starlette(routes=routes)


@contextmanager
def serving(held: Held) -> Iterator[int]:
    """The port of a server."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=300)
    held.server = server = uvicorn.Server(connections.configured(held.app))
    thread = Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield int(listening.getsockname()[1])
    finally:
        held.free.set()
        server.should_exit = True
        thread.join(PATIENCE)
        listening.close()


def connected(port: int, sent: bytes = b"") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    client.sendall(sent)
    return client


def answer(port: int, sent: bytes = REQUEST) -> bytes:
    """All that comes until the server closes the connection, or has sent one short answer."""
    with connected(port, sent) as client:
        return client.recv(65536)


def assert_dropped(client: socket.socket) -> None:
    """The server ends it, before a client's patience ends."""
    with client:
        try:
            while client.recv(1 << 20):
                pass
        except ConnectionResetError:
            pass


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def change(**values: float) -> None:
        for name, value in values.items():
            monkeypatch.setattr(connections, name, value)

    return change


def test_an_unfinished_request_is_dropped(quick: Callable[..., None]) -> None:
    quick(PATIENCE=0.2)
    with serving(Held()) as port:
        for beginning in (b"", b"G", REQUEST[:-2]):
            assert_dropped(connected(port, beginning))


def test_an_unfinished_request_after_another_is_dropped(quick: Callable[..., None]) -> None:
    quick(PATIENCE=1)
    with serving(Held()) as port, connected(port, REQUEST) as client:
        got = b""
        while not got.endswith(b"quick"):
            chunk = client.recv(65536)
            assert chunk
            got += chunk
        client.sendall(REQUEST[:-2])
        assert_dropped(client)


def test_a_request_of_very_many_lines_or_with_a_very_long_address_is_dropped() -> None:
    """Before it is read: that takes time, and nobody has shown a token yet."""
    with serving(Held()) as port:
        long = b"GET /" + b"%41" * 3000 + b" HTTP/1.1\r\nHost: here\r\n\r\n"
        for sent in (REQUEST[:-2] + b"a:b\r\n" * 200 + b"\r\n", long, b"\r\n" + long):
            with connected(port, sent) as client:
                assert received(client) == b""
        with connected(port) as client:
            for _ in range(40):  # one after the other
                client.sendall(REQUEST[:-2] + b"a: b\r\n" * 50 + b"\r\n")
                got = b""
                while not got.endswith(b"quick"):
                    chunk = client.recv(65536)
                    assert chunk
                    got += chunk


def test_blanks_without_end_are_dropped_before_they_are_read() -> None:
    """h11 takes the square of their number, for a line of a header or of a chunk."""
    chunked = REQUEST[:-2] + b"Transfer-Encoding: chunked\r\n\r\n5;"
    with serving(Held()) as port:
        for start in (REQUEST[:-2] + b"Accept:", REQUEST[:-2] + b"Accept: a", chunked):
            with connected(port, start + b" \t" * 30_000 + b"\x00\n") as client:
                assert received(client) == b""
        with connected(port, REQUEST[:-2] + b"Accept:") as client:
            with suppress(OSError):  # it has hung up
                for _ in range(100):
                    client.sendall(b" ")
                    time.sleep(0.01)
            assert received(client) == b""


@pytest.mark.parametrize(
    "cookies",
    [b"a=b" + b" " * 16 + b"c", b"a=b" + b"\t" * 60_000, b"a=\x01\x7f\x00\xff", b"; ".join([b"a=" + b"b" * 4093] * 180),
     b"a" * 3 * COOKIE_BYTES, b";" * 100_000],
)  # fmt: skip
def test_cookies_of_others_change_nothing(cookies: bytes) -> None:
    """Pages at other ports of this machine set them, and browsers send them."""
    with serving(Held()) as port:
        for _ in range(2):
            assert answer(port, REQUEST[:-2] + b"Cookie: " + cookies + b"\r\n\r\n").startswith(b"HTTP/1.1 200")


def test_cookies_that_never_end_are_dropped(quick: Callable[..., None]) -> None:
    quick(PATIENCE=0.3)
    with serving(Held()) as port, connected(port, REQUEST[:-2] + b"Cookie: ") as client:
        assert is_dropped_while(lambda: client.sendall(b"a" * 1000))


def received(client: socket.socket) -> bytes:
    with suppress(ConnectionResetError):
        return client.recv(1 << 16)
    return b""


def test_a_trickle_is_dropped(quick: Callable[..., None]) -> None:
    """A byte now and then is not a sign of life."""
    quick(PATIENCE=0.3)
    with serving(Held()) as port, connected(port, b"GET / HTTP/1.1\r\nX: ") as client:
        assert is_dropped_while(lambda: client.sendall(b"a"))


def is_dropped_while(act: Callable[[], None]) -> bool:
    """Whether the server ends the connection of somebody who does this again and again."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            act()
        except ConnectionError:
            return True
        time.sleep(0.05)
    return False


def test_who_does_not_read_is_dropped(quick: Callable[..., None]) -> None:
    quick(READING=0.2, PATIENCE=3600)
    held = Held()
    with serving(held) as port, connected(port, REQUEST.replace(b"/ ", b"/large ")) as client:
        assert client.recv(1)
        deadline = time.monotonic() + PATIENCE
        while held.server.server_state.connections:
            assert time.monotonic() < deadline, "the rest is kept for them"
            time.sleep(0.05)


def test_an_answer_that_takes_long_is_waited_for(quick: Callable[..., None]) -> None:
    quick(PATIENCE=1, READING=1)
    held = Held()
    with serving(held) as port, connected(port, REQUEST.replace(b"/ ", b"/held ")) as client:
        time.sleep(2)
        held.free.set()
        assert client.recv(65536).startswith(b"HTTP/1.1 200")


def test_many_connections_lock_nobody_out(quick: Callable[..., None]) -> None:
    """Those that wait make room for new ones, the oldest first; who is being answered keeps their connection."""
    quick(MOST=20, PATIENCE=3600)
    held = Held()
    with serving(held) as port, ExitStack() as stack:
        asking = stack.enter_context(connected(port, REQUEST.replace(b"/ ", b"/held ")))
        assert answer(port).startswith(b"HTTP/1.1 200")
        many = [stack.enter_context(connected(port)) for _ in range(100)]
        assert answer(port).startswith(b"HTTP/1.1 200")
        for client in many[:70]:
            assert_dropped(client)
        held.free.set()
        assert asking.recv(65536).startswith(b"HTTP/1.1 200")


def test_where_all_are_being_answered_the_newest_is_dropped(quick: Callable[..., None]) -> None:
    quick(MOST=3, PATIENCE=3600)
    held = Held()
    with serving(held) as port, ExitStack() as stack:
        asking = []
        for _ in range(3):
            asking.append(stack.enter_context(connected(port, REQUEST.replace(b"/ ", b"/held "))))
            time.sleep(0.2)
        assert_dropped(connected(port))
        held.free.set()
        assert [client.recv(12) for client in asking] == [b"HTTP/1.1 200"] * 3


def test_whoever_reads_nothing_makes_room_for_the_newest(quick: Callable[..., None]) -> None:
    """Strangers could lock the user out for as long as an unread answer is waited for."""
    quick(MOST=3, PATIENCE=3600, READING=3600)
    with serving(Held()) as port, ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(connected(port, 9 * REQUEST.replace(b"/ ", b"/large ")))
            time.sleep(0.2)
        assert answer(port).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: here\r\nX: " + b"a" * MOST_BYTES,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"GET /\xff\xfe HTTP/1.1\r\nHost: here\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: here\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: here\r\nHost: there\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"G\x00T / HTTP/1.1\r\nHost: here\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused_quietly(sent: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(Held()) as port:
        assert answer(port, sent).startswith(b"HTTP/1.1 4")
        assert answer(port).startswith(b"HTTP/1.1 200")
    assert capfd.readouterr() == ("", "")


def test_an_upgrade_is_not_one(capfd: pytest.CaptureFixture[str]) -> None:
    upgrade = (
        b"Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: aaaa\r\n\r\n"
    )
    with serving(Held()) as port:
        assert answer(port, REQUEST[:-2] + upgrade).startswith(b"HTTP/1.1 200")
    assert capfd.readouterr() == ("", "")
