"""Requests to the Hugging Face hub, limited in bytes, seconds, pages and redirects.

huggingface_hub reads descriptions of a repository without limits, and takes the user's token to whatever address a
listing says it goes on at. Here the token is sent to the hub itself alone. Knows nothing of what is asked for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fillerscope.display import holds_key
from fillerscope.files import parse_json
from fillerscope.problems.http_body import read_whole
from fillerscope.problems.http_heads import NoCookies, trace
from fillerscope.problems.proxies import passwords

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal
    from httpx2 import AsyncClient, Response

MOST_BYTES = 32 << 20  # of one answer that describes a repository
MOST_MEMORY = 1 << 28  # bytes that the values of such an answer may take
MOST_ERROR = 1 << 20  # bytes of an answer that refuses
MOST_PAGES = 200  # of a listing; the hub puts a thousand files on each
MOST_LISTED = 1 << 28  # bytes of all pages of a listing
SECONDS = 60.0  # for one such answer, for the beginning of a file, and for each piece of it
SECONDS_LISTED = 600.0  # for all pages of a listing
PIECE = 1 << 18  # bytes of a file that come at once
_REDIRECTS = 5
_WAITS = (1, 2, 4, 0)  # seconds, while the hub is busy
_BUSY = (408, 429, 500, 502, 503, 504)
_SAYING = {"x-error-code", "x-error-message", "x-request-id", "content-type"}  # headers that say why it refuses
_PORTS = {"http": 80, "https": 443}


class HubError(Exception):
    """The hub answers in a way in which it should not. The message is part of one line."""


@contextmanager
def connected() -> Iterator[Connection]:
    """A connection to the hub. Ctrl-C ends whatever is under way, at once."""
    from anyio.from_thread import start_blocking_portal
    from huggingface_hub.utils import get_async_session  # type: ignore[attr-defined]

    with start_blocking_portal() as portal:  # in a thread: notebooks have a loop running in this one
        try:
            session = get_async_session()
        except Exception:  # what it says may hold a part of a password
            raise HubError("no client can be made: correct HTTPS_PROXY and the like in the environment") from None
        session.event_hooks = {**session.event_hooks, "response": []}  # these read bodies of errors without a limit
        session.cookies = NoCookies()
        try:
            yield Connection(portal, session)
        finally:
            portal.call(session.aclose)


@dataclass(frozen=True)
class Connection:
    """What can be asked of the hub. Every call ends: with an answer, or with an error."""

    portal: BlockingPortal
    session: AsyncClient

    def json(self, url: str) -> object:
        return parse_json(self._answer(url).content, MOST_MEMORY)

    def pages(self, url: str) -> Iterator[object]:
        """The pages of a listing, each from the address that the one before names. All of them are limited together."""
        size, end = 0, time.monotonic() + SECONDS_LISTED
        for _ in range(MOST_PAGES):
            response = self._answer(url)
            size += len(response.content)
            if size > MOST_LISTED or time.monotonic() > end:
                raise HubError(f"its listing takes more than {MOST_LISTED >> 20} MiB or {SECONDS_LISTED:g} s")
            yield parse_json(response.content, MOST_MEMORY)
            following = response.links.get("next", {}).get("url")
            if following is None:
                return
            url = str(response.url.join(following))
            if not is_the_hub(url):
                raise HubError(f"its listing goes on at {urlsplit(url).hostname}, which is not followed")
        raise HubError(f"its listing has more than {MOST_PAGES} pages")

    def file(self, url: str, start: int) -> tuple[int, Generator[bytes]]:
        """From which byte on a file comes, and its pieces from there. Each comes in time, or TimeoutError is raised."""
        response = self.portal.call(self._begun, url, start)
        _raise_for(response)
        return (start if response.status_code == 206 else 0), self._pieces(response)

    def _pieces(self, response: Response) -> Generator[bytes]:
        pieces = response.aiter_raw(PIECE)
        try:
            while piece := self.portal.call(_next, pieces):
                yield piece
        finally:
            self.portal.call(response.aclose)

    def _answer(self, url: str) -> Response:
        for wait in _WAITS:
            response = self.portal.call(self._whole, url)
            if response.status_code not in _BUSY or not wait:
                break
            time.sleep(wait)
        _raise_for(response)
        return response

    async def _whole(self, url: str) -> Response:
        try:
            async with asyncio.timeout(SECONDS):
                return await _read(await self._opened(url, {"Accept-Encoding": "gzip"}))
        except TimeoutError:
            raise HubError(f"it gave no complete answer within {SECONDS:g} s") from None

    async def _begun(self, url: str, start: int) -> Response:
        """A response whose body is still to come; that of an error has been read."""
        async with asyncio.timeout(SECONDS):
            rest = {"Range": f"bytes={start}-"} if start else {}  # no server has a range of an empty file
            response = await self._opened(url, {"Accept-Encoding": "identity", **rest})
            return response if response.status_code < 400 else await _read(response)

    async def _opened(self, url: str, headers: dict[str, str]) -> Response:
        """A response whose body has not been read. Bodies of redirects are not read at all."""
        from huggingface_hub import constants, get_token

        # The headers that huggingface_hub builds come after a request of its own, which nothing limits.
        own = {"User-Agent": "fillerscope"}
        if (token := get_token()) is not None and not constants.HF_HUB_DISABLE_IMPLICIT_TOKEN:
            own["Authorization"] = f"Bearer {token}"
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        looked = {"trace": trace}
        request = self.session.build_request("GET", url, headers={**own, **headers}, timeout=timeout, extensions=looked)
        for _ in range(_REDIRECTS):
            if not is_the_hub(str(request.url)):
                request.headers.pop("Authorization", None)
            with _without_token():
                response = await self.session.send(request, stream=True, follow_redirects=False)
            _refuse_token("\n".join(f"{name}: {value}" for name, value in response.headers.multi_items()))
            if response.next_request is None:
                return response
            await response.aclose()
            request = response.next_request
            request.extensions |= looked
        raise HubError(f"it redirects more than {_REDIRECTS} times")


def is_the_hub(url: str) -> bool:
    """Whether an address has the scheme, host and port of the hub."""
    from huggingface_hub import constants

    return _origin(url) == _origin(constants.ENDPOINT)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


async def _read(response: Response) -> Response:
    """A response with its body. That of an error is short: the hub's library makes Python values of all of it."""
    with _without_token():
        whole = await read_whole(response, MOST_BYTES if response.status_code < 400 else MOST_ERROR)
    _refuse_token(whole.content.decode(errors="replace"))
    if b"\\" in whole.content:  # JSON may write any letter as an escape
        with suppress(ValueError):
            _refuse_token("\n".join(_strings(parse_json(whole.content, MOST_MEMORY))))
    return whole


def _strings(value: object) -> Iterator[str]:
    """The strings of a JSON value, in their order."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            left += reversed([part for pair in one.items() for part in pair])
        elif isinstance(one, list):
            left += reversed(one)


def _refuse_token(answer: str) -> None:
    """Raise for an answer with the user's token in it, or a proxy's password, which an error would show, in logs of
    jobs too."""
    from huggingface_hub import get_token

    if holds_key(answer, (get_token() or "", *passwords())):
        raise HubError("its answer holds your token, or a password, which it should not")


@contextmanager
def _without_token() -> Iterator[None]:
    """Errors of the network, which quote what is no HTTP, without the user's token."""
    try:
        yield
    except Exception as error:
        _refuse_token(str(error))
        raise


async def _next(pieces: AsyncIterator[bytes]) -> bytes:
    """The next piece; empty at the end."""
    with _without_token():
        async with asyncio.timeout(SECONDS):
            return await anext(pieces, b"")


def _raise_for(response: Response) -> None:
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]

    if response.is_success:
        return
    for name in set(response.headers) - _SAYING:  # some would be logged as they are, or searched for very long
        response.headers.pop(name)
    try:
        hf_raise_for_status(response)
    except HfHubHTTPError:
        raise
    except Exception:  # it takes the body of an error for an object of texts
        raise HubError(f"it answers {response.status_code}") from None
