"""Bodies that arrive at the same time; tests of endpoints and hubs try one at a time."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING

import pytest

from fillerscope.problems import http_body
from fillerscope.problems.http_body import TooLarge, read_whole

if TYPE_CHECKING:
    from httpx2 import Response

httpx2 = pytest.importorskip("httpx2")
SIZE = 6000


def test_all_bodies_together_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them would be small enough, and a server may keep back the last bytes of all."""
    monkeypatch.setattr(http_body, "TOGETHER", 2 * SIZE + 100)

    async def bodies(count: int) -> list[object]:
        there = asyncio.Event()
        asyncio.get_running_loop().call_later(0.2, there.set)

        async def sent() -> AsyncIterator[bytes]:
            yield b"x" * SIZE
            await there.wait()
            yield b"x"

        request = httpx2.Request("GET", "http://here/")
        responses = [httpx2.Response(200, content=sent(), request=request) for _ in range(count)]
        return await asyncio.gather(*(read_whole(one, 10 * SIZE) for one in responses), return_exceptions=True)

    assert [len(one.content) for one in asyncio.run(bodies(2))] == [SIZE + 1] * 2  # type: ignore[attr-defined]
    results = asyncio.run(bodies(3))
    assert [type(one) for one in results].count(TooLarge) == 1
    assert not http_body._under_way


@pytest.mark.parametrize("text", ["caf\u00e9".encode(), b"caf\xe9"], ids=["utf-8", "latin-1"])
def test_headers_may_hold_more_than_ascii(text: bytes) -> None:
    headers = [(b"X-Name", text), (b"Content-Type", b"text/" + text + b"; charset=hex"), (b"X-Name", b"b")]

    async def sent() -> AsyncIterator[bytes]:
        yield b"body"

    response = httpx2.Response(200, content=sent(), request=httpx2.Request("GET", "http://here/"), headers=headers)
    whole = asyncio.run(read_whole(response, SIZE))
    assert whole.headers.get_list("X-Name") == ["caf\u00e9", "b"]
    assert whole.headers["Content-Type"] == "text/caf\u00e9"
    assert whole.content == b"body"


def test_no_piece_unpacks_to_more_than_the_limit() -> None:
    """However much arrives at once."""

    body = gzip.compress(bytes(64 << 20))

    async def taken() -> int:
        async def sent() -> AsyncIterator[bytes]:
            yield body

        request, packed = httpx2.Request("GET", "http://here/"), {"Content-Encoding": "gzip"}
        response = httpx2.Response(200, content=sent(), request=request, headers=packed)
        tracemalloc.start()
        with pytest.raises(TooLarge):
            await read_whole(response, SIZE)
        return tracemalloc.get_traced_memory()[1]

    try:
        assert asyncio.run(taken()) < 16 << 20
    finally:
        tracemalloc.stop()


def sent_in_pieces(pieces: Iterable[bytes], encoding: str = "identity") -> Response:
    """A response that never waits for more."""

    async def sent() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    request = httpx2.Request("GET", "http://here/")
    return httpx2.Response(200, content=sent(), request=request, headers={"Content-Encoding": encoding})


def test_bytes_one_by_one_let_others_have_their_turn() -> None:
    """Deadlines are among them."""
    left = iter(range(SIZE))

    async def read() -> int:
        async def other() -> int:
            return next(left)

        response = sent_in_pieces(b"x" for _ in left)
        whole, before = await asyncio.gather(read_whole(response, SIZE), other())
        assert len(whole.content) == SIZE - 1
        return before

    assert asyncio.run(read()) < 100


def test_nothing_is_read_behind_the_deadline() -> None:
    with pytest.raises(TimeoutError):
        asyncio.run(read_whole(sent_in_pieces([b"x"]), SIZE, end=0.0))


def test_bytes_that_unpack_to_nothing_are_limited() -> None:
    """The name of a file in a gzip head is skipped, however long it is."""
    head = b"\x1f\x8b\x08\x08" + bytes(5) + b"\x03"
    with pytest.raises(TooLarge, match=f"more than {SIZE} bytes"):
        asyncio.run(read_whole(sent_in_pieces([head, *[b"x" * SIZE] * 3], "gzip"), SIZE))
