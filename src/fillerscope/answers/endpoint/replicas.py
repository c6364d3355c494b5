"""Requests shared out among servers of one model: each takes the next one when it has finished one.

A slow server gets fewer of them. The requests of a server that has gone move to the others, and it is left alone for a
while, also by later calls. What one refuses the others are asked: it fails where all refuse it. A server that is there
and wrong (another tokenizer, a refused key, a redirect) stops the call, as a single one does. Knows nothing of prompts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fillerscope.answers.endpoint.client import Server
from fillerscope.answers.endpoint.errors import ServerGone, TooLate
from fillerscope.answers.request import Reply, Request
from fillerscope.study.generation import EndpointSpec

REST = 600.0  # seconds for which a server that has gone is left alone
PAUSE = 0.05  # seconds before one that refused a request looks for the next
Result = TypeVar("Result")


@dataclass(frozen=True)
class Talk:
    """How a server is talked to, and what is reported of it."""

    settle: Callable[[Server], Coroutine[object, object, None]]  # tries a server before it gets requests
    ask: Callable[[Server, Request], Coroutine[object, object, Reply]]
    done: Callable[[int], None]  # called with how many more are answered
    tell: Callable[[str], None]  # called with a line for every server that has gone


class Replicas:
    """Servers that answer requests together."""

    def __init__(self, servers: Sequence[Server], spec: EndpointSpec, talk: Talk, gone: dict[str, float]) -> None:
        """`gone` says by URL when a server went; it is kept between calls, and changed here."""
        self.servers, self.spec, self.talk, self.gone = servers, spec, talk, gone
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by URL
        self._answered: dict[str, float] = {}  # by URL, when it last did
        self._replies: dict[int, Reply] = {}
        self._refused: dict[int, dict[str, Reply]] = {}  # by request and URL
        self._told: set[str] = set()  # URLs of servers of which it was said that they refuse

    async def replies(self, requests: Sequence[Request]) -> list[Reply]:
        """The replies in the order of the requests. Raises where no server is left, or one is wrong."""
        self._requests, self._open = requests, asyncio.Queue[int]()
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for number in range(len(requests)):
            self._open.put_nowait(number)
        self._start([server for server in self.servers if not self._is_resting(server)] or self.servers)
        try:
            await self._over
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        return [self._replies[number] for number in range(len(requests))]

    def _is_resting(self, server: Server) -> bool:
        return time.monotonic() - self.gone.get(server.refusals.url, -REST) < REST

    def _start(self, servers: Sequence[Server]) -> None:
        for server in servers:
            self._tasks[server.refusals.url] = asyncio.create_task(self._serve(server))

    async def _serve(self, server: Server) -> None:
        """Try a server, and give it requests until it has gone."""
        try:
            await self._in_time(server, self.talk.settle(server))
            self.gone.pop(server.refusals.url, None)
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self.spec.concurrency, len(self._requests))):
                    group.create_task(self._work(server))
        except ServerGone as error:
            self._leave(server, error)
        except BaseExceptionGroup as failures:  # the first one has cancelled the others
            first = failures.exceptions[0]
            if isinstance(first, ServerGone):
                self._leave(server, first)
            else:
                self._stop(first)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # a panic of a library, too: nobody else ends what waits for this
            self._stop(error)

    async def _work(self, server: Server) -> None:
        """Give a server one request after another. What it does not answer is open again."""
        while True:
            number, began = await self._open.get(), time.monotonic()
            if before := self._refused.get(number, {}).get(server.refusals.url):
                self._weigh(server, number, before)
                await asyncio.sleep(PAUSE)
                continue
            try:
                reply = await self._in_time(server, self.talk.ask(server, self._requests[number]))
            except ServerGone as error:
                self._open.put_nowait(number)
                answers_others = self._answered.get(server.refusals.url, 0.0) > began
                if len(self.servers) == 1 or not answers_others or not isinstance(error, TooLate):
                    raise
            except asyncio.CancelledError:
                self._open.put_nowait(number)
                raise
            else:
                self._weigh(server, number, reply)

    async def _in_time(self, server: Server, answer: Awaitable[Result]) -> Result:
        """What a server gives, its client's further tries included, in the time of one answer: where there are others,
        they are asked sooner than it again."""
        if len(self.servers) == 1:
            return await answer
        try:
            async with asyncio.timeout(self.spec.timeout):
                return await answer
        except TimeoutError:
            raise server.refusals.too_late("all tries together") from None

    def _weigh(self, server: Server, number: int, reply: Reply) -> None:
        """Take a reply; a refusal where no server is left that has not refused: whoever refuses is the fastest, and
        would decide for all."""
        refused = self._refused.setdefault(number, {})
        if reply.finish == "failed":
            refused[server.refusals.url] = reply
            if any(url not in refused and not task.done() for url, task in self._tasks.items()):
                self._open.put_nowait(number)
                return
            reply = next(refused[one.refusals.url] for one in self.servers if one.refusals.url in refused)
        for url in refused.keys() - self._told if reply.finish != "failed" else ():
            self._told.add(url)
            self.talk.tell(f"{url} refuses what another replica answers: {refused[url].error}")
        self._take(server, number, reply)

    def _take(self, server: Server, number: int, reply: Reply) -> None:
        self._answered[server.refusals.url] = time.monotonic()
        self._replies[number] = reply
        self.talk.done(1)
        if len(self._replies) == len(self._requests) and not self._over.done():
            self._over.set_result(None)

    def _leave(self, server: Server, error: ServerGone) -> None:
        """Do without a server. Those that were left alone so far are tried before there is none."""
        url = server.refusals.url
        self.gone[url] = time.monotonic()
        if len(self.servers) == 1:
            self._stop(error)
            return
        others = [task for other, task in self._tasks.items() if other != url and not task.done()]
        resting = [one for one in self.servers if one.refusals.url not in self._tasks]
        if others or resting:
            self.talk.tell(f"a replica has gone, and the others answer for it: {error}")
            self._start([] if others else resting)
        else:
            self._stop(ServerGone(f"none of {len(self.servers)} replicas is left; the last one: {error}"))

    def _stop(self, error: BaseException) -> None:
        if not self._over.done():
            self._over.set_exception(error)
