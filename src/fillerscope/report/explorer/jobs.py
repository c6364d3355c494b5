"""Measurements that were asked for: one at a time, a few waiting, none for a client that has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from fillerscope.errors import FillerscopeError

WAITING = 4  # beside the one that runs; a page asks for one at a time
Result = TypeVar("Result")


class QueueFullError(FillerscopeError):
    """More measurements are asked for than may wait."""


class ClientGoneError(Exception):
    """Whoever asked has hung up before it was their turn."""


class MeasuringQueue:
    """Runs one job at a time, in a thread, in the order in which they were asked for."""

    def __init__(self, waiting: int = WAITING) -> None:
        self._most, self._present, self._lock = waiting + 1, 0, asyncio.Lock()

    async def run(self, job: Callable[[], Result], gone: Callable[[], Awaitable[None]]) -> Result:
        """What the job returns. `gone` returns when the client has hung up: a job that has not begun is then dropped,
        one that runs goes on to its end, because a forward pass cannot be stopped."""
        if self._present >= self._most:
            raise QueueFullError(
                f"the explorer measures one thing at a time, and {self._most - 1} requests wait already: "
                "try again when one is done"
            )
        self._present += 1
        try:
            await self._take_turn(gone)
            try:
                return await run_in_threadpool(job)
            finally:
                self._lock.release()
        finally:
            self._present -= 1

    async def _take_turn(self, gone: Callable[[], Awaitable[None]]) -> None:
        turn, leaving = asyncio.ensure_future(self._lock.acquire()), asyncio.ensure_future(gone())
        taken = False
        try:
            await asyncio.wait({turn, leaving}, return_when=asyncio.FIRST_COMPLETED)
            taken = turn.done() and not leaving.done()
        finally:
            leaving.cancel()
            if not taken and not turn.cancel():  # it was done: the lock is held by nobody who needs it
                self._lock.release()
        if not taken:
            raise ClientGoneError


async def hung_up(request: Request) -> None:
    """Returns when the client of a request has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
