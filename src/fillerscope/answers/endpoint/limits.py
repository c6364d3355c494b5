"""An HTTP client that reads no more of a response than is asked for, in no more time, and follows no redirects.

A server may send without end, slowly without end, or a small body that unpacks into gigabytes.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from openai import DefaultAsyncHttpxClient

if TYPE_CHECKING:
    from httpx2 import Request, Response

REFUSED = "fillerscope_refused"  # the key of a body that stands for one that was not read to its end
_UNPACKED = ("content-encoding", "content-length", "transfer-encoding")


class TooLarge(Exception):
    """A body is larger than the limit, or packed in a way that was not asked for."""


class LimitedClient(DefaultAsyncHttpxClient):
    """A client whose responses are read whole, within `seconds` and `most_bytes` after decompression."""

    def __init__(self, seconds: float, most_bytes: int) -> None:
        super().__init__(follow_redirects=False, headers={"Accept-Encoding": "gzip"})
        self.seconds, self.most_bytes = seconds, most_bytes

    async def send(self, request: Request, **options: Any) -> Response:
        """The response, with its body. It is made anew, since the client's own would read without a limit."""
        options |= {"stream": True, "follow_redirects": False}
        try:
            async with asyncio.timeout(self.seconds):
                response = await super().send(request, **options)
                try:
                    body = await _read(response, self.most_bytes)
                except TooLarge as error:  # as a response: an exception would be taken for a fault to try again
                    return type(response)(200, json={REFUSED: str(error)}, request=request)
                finally:
                    await response.aclose()
        except TimeoutError:
            library = sys.modules[type(request).__module__.partition(".")[0]]  # whichever OpenAI's client is built on
            raise library.ReadTimeout("the answer was not complete in time", request=request) from None
        headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in _UNPACKED]
        return type(response)(response.status_code, headers=headers, content=body, request=request)


async def _read(response: Response, most: int) -> bytes:
    body = bytearray()
    async for piece in _unpacked(response, most):
        body += piece
        if len(body) > most:
            raise TooLarge(f"the server sent more than {most} bytes")
    return bytes(body)


async def _unpacked(response: Response, most: int) -> AsyncIterator[bytes]:
    """The pieces of a body. No piece unpacks to more than a byte over the limit."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        async for piece in response.aiter_raw():
            yield piece
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise TooLarge(f"the server sent a body as {encoding[:20]!r}, where gzip was asked for")
    packed = zlib.decompressobj(47 if "gzip" in encoding else 15)
    try:
        async for piece in response.aiter_raw():
            yield packed.decompress(piece, most + 1)
            if packed.unconsumed_tail:
                raise TooLarge(f"the server sent more than {most} bytes")
    except zlib.error:
        raise TooLarge("the server sent a gzip body that is damaged") from None
