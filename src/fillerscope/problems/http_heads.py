"""Heads of HTTP responses, looked at before they are parsed.

h11 takes the square of the number of blanks where a line of a head is none of HTTP: minutes for one head, in which
nothing else runs. Knows nothing of bodies: see http_body.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http.cookiejar import CookieJar
from typing import TYPE_CHECKING, cast

from fillerscope.problems.http_body import TooLarge

if TYPE_CHECKING:
    from httpcore2 import AsyncNetworkStream

BLANKS = 64  # in a row, over lines too: h11 makes one line of those that begin with a blank
BLANKS_OF_BODY = 1 << 14  # where a body comes in chunks: their sizes stand in lines of their own, which h11 reads too
MOST_HEADS = 20  # before one answer
# Looked for at the first blank of a row alone: elsewhere a row that is too short would be read once for each blank.
_STRANGE, _VERY_STRANGE = (re.compile(rb"\s(?<!\s\s)\s{%d}" % (most - 1)) for most in (BLANKS, BLANKS_OF_BODY))
_CHUNKED = re.compile(rb"\ntransfer-encoding:", re.IGNORECASE)
_LENGTH = re.compile(rb"\ncontent-length:[ \t]*(\d{1,18})[ \t]*\r?\n", re.IGNORECASE)
_NO_BODY = re.compile(rb"HTTP/\S+ (204|304)")  # whatever length such a head gives
_END = re.compile(rb"\n\r?\n")
_MORE_TO_COME = re.compile(rb"HTTP/\S+ 1\d\d")  # such a head is followed by another one
_STREAMS = ("connect_tcp.complete", "connect_unix_socket.complete", "start_tls.complete")


async def trace(event: str, details: Mapping[str, object]) -> None:
    """What httpcore calls (as the extension `trace` of a request) whenever it has done something: each new connection
    is looked at from then on."""
    if event.endswith(_STREAMS):
        _Looked.at(cast("AsyncNetworkStream", details["return_value"]))


class NoCookies(CookieJar):
    """A jar that stays empty. Others keep each cookie of each response, and send all of them with each request."""

    def extract_cookies(self, response: object, request: object) -> None:
        pass


class _Looked:
    """A connection. What is read after something was written is a head, until a blank line.

    It is used again only after an answer that ended with the last byte that was read: h11 takes bytes behind an answer
    for the head of the next one, and they have been let through as a body."""

    def __init__(self, stream: AsyncNetworkStream) -> None:
        self._read, self._write, self._info = stream.read, stream.write, stream.get_extra_info
        self._is_head, self._is_chunked, self._head, self._heads = True, False, b"", 0
        self._left: int | None = None  # bytes of a body that are to come, where its head gives their number

    @classmethod
    def at(cls, stream: AsyncNetworkStream) -> None:
        looked = cls(stream)
        stream.read, stream.write = looked.read, looked.write  # type: ignore[method-assign]
        stream.get_extra_info = looked.get_extra_info  # type: ignore[method-assign]

    def get_extra_info(self, info: str) -> object:
        """httpcore closes a connection that could be read from between two requests."""
        return (info == "is_readable" and self._left != 0) or self._info(info)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._is_head, self._is_chunked, self._head, self._heads = True, False, b"", 0
        self._left = None
        await self._write(buffer, timeout)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = await self._read(max_bytes, timeout)
        rest, self._head = self._head + data, b""
        while self._is_head and rest:
            head, rest = _split(rest)
            if _STRANGE.search(head):
                raise TooLarge(f"the server sent a header with {BLANKS} blanks in a row")
            if not _END.search(head):
                self._head = head
                return data
            self._heads += 1
            if self._heads > MOST_HEADS:
                raise TooLarge(f"the server sent more than {MOST_HEADS} headers before its answer")
            self._is_head, self._is_chunked = bool(_MORE_TO_COME.match(head)), bool(_CHUNKED.search(head))
            self._left = None if self._is_head or self._is_chunked else _length(head)
        if self._left is not None:
            self._left -= len(rest)
        if self._is_chunked:
            if _VERY_STRANGE.search(rest):
                raise TooLarge(f"the server sent {BLANKS_OF_BODY} blanks in a row")
            self._head = rest[-BLANKS_OF_BODY:]
        return data


def _length(head: bytes) -> int | None:
    """How many bytes of a body follow a head; None where it does not tell."""
    length = _LENGTH.search(head)
    return int(length[1]) if length and not _NO_BODY.match(head) else None


def _split(data: bytes) -> tuple[bytes, bytes]:
    """A head up to its end, and what follows."""
    found = _END.search(data)
    return (data[: found.end()], data[found.end() :]) if found else (data, b"")
