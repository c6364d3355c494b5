"""One measurement at a time, a few waiting, none for clients that have gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from threading import Event
from typing import Any

import pytest

from fillerscope.report.explorer.jobs import ClientGoneError, MeasuringQueue, QueueFullError

PATIENCE = 60  # seconds, for a machine that has much else to do


async def stays() -> None:
    """A client that waits for its answer."""
    await asyncio.Event().wait()


class Bench:
    """Jobs that end when they are let go, and what they were seen to do."""

    def __init__(self) -> None:
        self.queue, self.began, self.together, self.most = MeasuringQueue(waiting=2), list[str](), 0, 0
        self.free, self.running = Event(), asyncio.Event()
        self.loop = asyncio.get_running_loop()

    def job(self, name: str) -> Callable[[], str]:
        def work() -> str:
            self.together += 1
            self.most = max(self.most, self.together)
            self.began.append(name)
            self.loop.call_soon_threadsafe(self.running.set)
            assert self.free.wait(PATIENCE)
            self.together -= 1
            return name

        return work

    async def ask(self, name: str, gone: Callable[[], Coroutine[Any, Any, None]] = stays) -> asyncio.Task[str]:
        """Asked for, and it has its place in the queue."""
        task = asyncio.create_task(self.queue.run(self.job(name), gone))
        await asyncio.sleep(0)
        return task


def held(test: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    """A test with one job that runs."""

    async def within() -> None:
        bench = Bench()
        first = await bench.ask("first")
        await asyncio.wait_for(bench.running.wait(), PATIENCE)
        try:
            await test(bench)
        finally:
            bench.free.set()
        assert await first == "first"
        assert await bench.queue.run(lambda: "after", stays) == "after", "nothing stays behind"

    asyncio.run(within())


def test_one_at_a_time_in_their_order() -> None:
    async def test(bench: Bench) -> None:
        waiting = [await bench.ask(name) for name in ("second", "third")]
        assert bench.began == ["first"]
        bench.free.set()
        assert await asyncio.gather(*waiting) == ["second", "third"]
        assert bench.began == ["first", "second", "third"]
        assert bench.most == 1

    held(test)


def test_a_full_queue_says_so() -> None:
    async def test(bench: Bench) -> None:
        waiting = [await bench.ask(name) for name in ("second", "third")]
        with pytest.raises(
            QueueFullError, match="measures one thing at a time, and 2 requests wait already: try again"
        ):
            await (await bench.ask("fourth"))
        bench.free.set()
        await asyncio.gather(*waiting)
        assert "fourth" not in bench.began

    held(test)


def test_who_has_gone_is_dropped_and_makes_room() -> None:
    async def test(bench: Bench) -> None:
        hung_up = asyncio.Event()

        async def leaves() -> None:
            await hung_up.wait()

        leaving = [await bench.ask(name, leaves) for name in ("second", "third")]
        hung_up.set()
        for task in leaving:
            with pytest.raises(ClientGoneError):
                await task
        last = await bench.ask("fourth")
        bench.free.set()
        assert await last == "fourth"
        assert bench.began == ["first", "fourth"]

    held(test)


def test_who_has_gone_when_the_turn_comes_is_not_measured_for() -> None:
    async def has_gone() -> None:
        """Known in the moment in which the turn comes."""

    async def within() -> None:
        queue = MeasuringQueue(waiting=0)
        with pytest.raises(ClientGoneError):
            await queue.run(lambda: pytest.fail("measured"), has_gone)
        assert await queue.run(lambda: "next", stays) == "next"

    asyncio.run(within())


def test_a_request_that_is_cancelled_leaves_the_queue() -> None:
    async def test(bench: Bench) -> None:
        waiting = await bench.ask("second")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    held(test)


def test_a_job_that_fails_makes_room() -> None:
    def fails() -> None:
        raise ZeroDivisionError

    async def within() -> None:
        queue = MeasuringQueue(waiting=0)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await queue.run(fails, stays)

    asyncio.run(within())
