"""Bodies of HTTP responses, read within a limit.

A server may send without end, a small body that unpacks into gigabytes, or bytes one by one: however it does, what else
runs in the event loop gets its turn, so that the deadlines that are set there hold. Knows nothing of addresses.
"""

from __future__ import annotations

import asyncio
import math
import time
import zlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from httpx2 import Response

TOGETHER = 512 * 2**20  # bytes of all bodies that are being read
TURN = 32  # pieces of a body, of which the smallest take some 50 microseconds each
_under_way: dict[int, int] = {}  # bytes that have arrived, by body
_OF_THE_BODY = (b"content-encoding", b"content-length", b"transfer-encoding", b"content-type")


class TooLarge(Exception):
    """A body is larger than the limit, damaged, or packed in a way that was not asked for."""


async def read_whole(response: Response, most: int, end: float = math.inf) -> Response:
    """A response with its body in memory, of at most so many bytes. It is made anew: its own body has no limit.

    Raises a TimeoutError for what comes after `end`, a time of `time.monotonic()`."""
    try:
        body = await _read(response, most, end)
    finally:
        await response.aclose()
    # As bytes: texts would have to be ASCII.
    headers = [(name, value) for name, value in response.headers.raw if name.lower() not in _OF_THE_BODY]
    # Without an encoding texts are read as UTF-8: Python has others that take minutes, or that are none of texts.
    kind = response.headers.get("content-type", "").partition(";")[0]
    headers.append((b"Content-Type", kind.encode(response.headers.encoding)))
    return type(response)(response.status_code, headers=headers, content=body, request=response.request)


async def _read(response: Response, most: int, end: float) -> bytes:
    body = bytearray()
    try:
        async for piece in _unpacked(response, most, end):
            body += piece
            _under_way[id(body)] = len(body)
            if len(body) > most:
                raise TooLarge(f"the server sent more than {most} bytes")
            if sum(_under_way.values()) > TOGETHER:
                raise TooLarge(f"responses that arrive at the same time have more than {TOGETHER} bytes")
        return bytes(body)
    finally:
        _under_way.pop(id(body), None)


async def _arrived(response: Response, most: int, end: float) -> AsyncIterator[bytes]:
    """The pieces of a body as they come. Twice as many bytes as it may have are too many: nobody packs texts like
    that, but the name of a file in a gzip head, of which nothing is unpacked, has no end."""
    size = count = 0
    async for piece in response.aiter_raw():
        size, count = size + len(piece), count + 1
        if size > 2 * most:
            raise TooLarge(f"the server sent more than {most} bytes")
        if time.monotonic() > end:
            raise TimeoutError
        if count % TURN == 0:
            await asyncio.sleep(0)
        yield piece


async def _unpacked(response: Response, most: int, end: float) -> AsyncIterator[bytes]:
    """The pieces of a body. No piece unpacks to more than a byte over the limit."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        async for piece in _arrived(response, most, end):
            yield piece
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise TooLarge("the server sent a body in another encoding, where gzip was asked for")
    packed = zlib.decompressobj(47 if "gzip" in encoding else 15)
    try:
        async for piece in _arrived(response, most, end):
            yield packed.decompress(piece, most + 1)
            if packed.unconsumed_tail:
                raise TooLarge(f"the server sent more than {most} bytes")
            if packed.eof:  # what follows would be kept, unread and without a limit
                return
    except zlib.error:
        raise TooLarge("the server sent a gzip body that is damaged") from None
