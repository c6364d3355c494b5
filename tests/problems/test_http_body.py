"""Bodies that arrive at the same time; tests of endpoints and hubs try one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fillerscope.problems import http_body
from fillerscope.problems.http_body import TooLarge, read_whole

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
