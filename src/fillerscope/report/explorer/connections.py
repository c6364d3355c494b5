"""Connections to the explorer: their number is limited, and whoever is slow is dropped.

uvicorn limits how long a connection may rest after an answer. It waits for ever for the rest of a request, and for a
client that does not read its answer: both have a deadline here.
"""

from __future__ import annotations

import asyncio
import re

from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

from fillerscope.report.explorer.access import COOKIE_BYTES, HEADER_BYTES, LONGEST
from fillerscope.report.explorer.cookies import CookieFilter

MOST = 100  # connections at a time; a browser opens six
PATIENCE = 10.0  # seconds, for a request to arrive whole
READING = 60.0  # seconds in which a client reads nothing of its answer
# Of a request, before anything is known of who sent it: all of it takes time. Cookies of others do not count.
MOST_LINES, LONGEST_ADDRESS = 200, 2 * LONGEST
BLANKS = 16  # in a row: h11 takes the square of their number where a line is none of HTTP
_STRANGE = re.compile(rb"[ \t]{%d}" % BLANKS)


def configured(app: ASGIApp) -> Config:
    """uvicorn's settings: nothing that the explorer does not need, and no word on the terminal about odd requests."""
    return Config(
        app, http=LimitedProtocol, ws="none", lifespan="off", proxy_headers=False, server_header=False,
        log_level="error", access_log=False, timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=HEADER_BYTES + COOKIE_BYTES,
    )  # fmt: skip


class LimitedProtocol(H11Protocol):
    """One connection."""

    _arrival: asyncio.TimerHandle | None = None  # the deadline of a request
    _reading: asyncio.TimerHandle | None = None  # the deadline of a client that reads nothing
    _since = 0.0
    _unread_since: float | None = None  # where the client reads nothing of its answer
    _lines = 0  # of the request that is arriving, that are complete
    _address = 0  # bytes of its first one
    _last = b""  # bytes of it, as many as blanks may be in a row

    @property
    def waits(self) -> bool:
        """Whether no answer is being made: the client has sent nothing, or a part of a request, or is leaving."""
        return self.cycle is None or self.cycle.response_complete or self.transport.is_closing()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since = self.loop.time()
        self._cookies = CookieFilter()
        self._make_room()
        self._arrival = self.loop.call_later(PATIENCE, self.drop)

    def data_received(self, data: bytes) -> None:
        self._count(data)
        if self._lines > MOST_LINES or self._address > LONGEST_ADDRESS:
            self.drop()
            return
        data = self._cookies.filtered(data)
        if _STRANGE.search(self._last + data):
            self.drop()
            return
        self._last = (self._last + data)[-BLANKS:]
        if data:  # no bytes would be the end of the connection
            super().data_received(data)
        if not self.waits:
            _cancel(self._arrival)
            self._arrival, self._lines, self._address, self._last = None, 0, 0, b""
        elif self._arrival is None:  # the first bytes of the next request
            self._arrival = self.loop.call_later(PATIENCE, self.drop)

    def _count(self, data: bytes) -> None:
        if not self._lines:
            data = data if self._address else data.lstrip(b"\r\n")  # which may come before a request
            self._address += len(data.partition(b"\n")[0])
        self._lines += data.count(b"\n")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_since = self.loop.time()
        self._reading = self.loop.call_later(READING, self.drop)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread_since = None
        _cancel(self._reading)

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._arrival)
        _cancel(self._reading)
        super().connection_lost(exc)

    def drop(self) -> None:
        """Ends the connection at once: nothing that is still to be sent is waited for."""
        self.connections.discard(self)
        self.transport.abort()

    def _make_room(self) -> None:
        """Drops a connection where there are too many: the oldest that waits, else the one that has read nothing of
        its answer for longest. This one, which may be the user's own, where all others are being answered."""
        if len(self.connections) > MOST:
            others = [one for one in self.connections if isinstance(one, LimitedProtocol) and one is not self]
            resting = {one: one._since for one in others if one.waits}
            unread = {one: one._unread_since for one in others if one._unread_since is not None}
            waiting = resting or unread
            (min(waiting, key=lambda one: waiting[one]) if waiting else self).drop()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
