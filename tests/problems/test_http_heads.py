"""Heads that come behind an answer, or folded over lines; tests of endpoints and hubs try a plain one."""

from __future__ import annotations

import asyncio

import pytest

from fillerscope.problems.http_body import TooLarge
from fillerscope.problems.http_heads import _STRANGE, _VERY_STRANGE, BLANKS, BLANKS_OF_BODY, NoCookies, trace
from support.watchdog import in_a_fork, watched

httpx2 = pytest.importorskip("httpx2")
BEHIND = b"HTTP/1.1 299 Other\r\nContent-Length: 0\r\n\r\n"


def statuses(answer: bytes, count: int = 2) -> tuple[list[int], int]:
    """The statuses of requests to a server that always sends the same, and how many connections they took."""
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(answer)
        except (asyncio.IncompleteReadError, OSError):
            writer.close()

    async def asked() -> list[int]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with httpx2.AsyncClient(trust_env=False, cookies=NoCookies()) as client:
            try:
                responses = [await client.get(url, extensions={"trace": trace}) for _ in range(count)]
                assert not list(client.cookies.jar)
            finally:
                server.close()
        return [response.status_code for response in responses]

    return asyncio.run(asked()), connections


@pytest.mark.parametrize(
    "answer",
    [
        b"200 OK\r\nContent-Length: 2\r\n\r\nab",
        b"200 OK\r\ncontent-length:2\r\nX: y\n\nab",
        b"200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        b"200 OK\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % (5 + len(BEHIND)),
        b"204 No Content\r\nContent-Length: %d\r\n\r\n" % len(BEHIND),
        b"304 Not Modified\r\nContent-Length: %d\r\n\r\n" % len(BEHIND),
        b"100 Continue\r\nContent-Length: 2\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab",
    ],
)
def test_bytes_behind_an_answer_are_not_the_next_one(answer: bytes) -> None:
    """Nobody has looked at them as a head."""
    status = int(answer[:3]) if answer[:3] != b"100" else 200
    assert statuses(b"HTTP/1.1 " + answer + BEHIND) == ([status] * 2, 2)


def test_a_connection_is_used_again_after_an_answer_that_ends_where_it_says() -> None:
    assert statuses(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"a" * 100_000, 3) == ([200] * 3, 1)


@pytest.mark.parametrize(
    ("before", "match"),
    [(b"", "64 blanks"), (b"Transfer-Encoding: chunked\r\n\r\n0\r\n", "16384 blanks")],
    ids=["head", "trailer"],
)
@pytest.mark.parametrize("fold", [b"\r\n ", b"\n\t"])
def test_blanks_of_lines_that_h11_joins_are_not_read(before: bytes, match: str, fold: bytes) -> None:
    def refused() -> None:
        with pytest.raises(TooLarge, match=match):
            statuses(b"HTTP/1.1 200 OK\r\n" + before + b"a:" + fold * 30_000 + b"\x00\r\n\r\n")

    in_a_fork(refused)


def test_rows_of_almost_as_many_blanks_are_read_once() -> None:
    """Not once for each blank, in which nothing else runs."""
    with watched(20):
        assert not _VERY_STRANGE.search((b" " * (BLANKS_OF_BODY - 1) + b"x") * 200)
    for pattern, most in ((_STRANGE, BLANKS), (_VERY_STRANGE, BLANKS_OF_BODY)):
        assert not pattern.search(b"x" + b" " * (most - 1) + b"x")
        assert pattern.search(b"x" + b"\t\n" * (most // 2))


def test_heads_before_an_answer_are_counted() -> None:
    """h11 reads thousands of them at once."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    assert statuses(b"HTTP/1.1 100 Continue\r\n\r\n" * 10 + answer)[0] == [200] * 2
    with pytest.raises(TooLarge, match="headers before its answer"):
        statuses(b"HTTP/1.1 100 Continue\r\n\r\n" * 30 + answer)


def test_no_cookie_is_kept() -> None:
    cookies = b"".join(b"Set-Cookie: c%d=1; Path=/\r\n" % number for number in range(1000))
    assert statuses(b"HTTP/1.1 200 OK\r\n" + cookies + b"Content-Length: 0\r\n\r\n") == ([200] * 2, 1)
