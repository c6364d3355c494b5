"""An HTTP client for one server: limited in bytes and seconds, without redirects, with headers of our own alone.

OpenAI's client takes organisation, project and any other header from the environment; none of that is sent. A server on
this machine is asked without a proxy.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from functools import lru_cache
from http import HTTPStatus
from types import ModuleType
from typing import TYPE_CHECKING, Any

from openai import DefaultAsyncHttpxClient

from fillerscope.answers.endpoint.errors import OTHER, REFUSED, SEARCHED
from fillerscope.files import Json, refuse_large_json
from fillerscope.problems.http_body import TooLarge, read_whole
from fillerscope.problems.http_heads import NoCookies, trace

if TYPE_CHECKING:
    from ssl import SSLContext

    from httpx2 import Request, Response

COUNTS = ("prompt_tokens", "completion_tokens")
MEMORY_OF_BYTE, MOST_MEMORY = 8, 1 << 28  # of a body's values: for each byte that it may have, and in all
MOST_ERROR = 1 << 20  # bytes of a body that refuses


class LimitedClient(DefaultAsyncHttpxClient):
    """A client whose responses are read whole, within `seconds` and `most_bytes` after decompression."""

    def __init__(self, key: str, seconds: float, most_bytes: int, proxies: bool) -> None:
        verify = _certificates(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
        hooks = {"response": [_forget_location]}
        super().__init__(
            follow_redirects=False, trust_env=proxies, cookies=NoCookies(), verify=verify, event_hooks=hooks
        )
        self.own_headers = {
            "Authorization": f"Bearer {key}",
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
            "Content-Type": "application/json",
            "User-Agent": "fillerscope",
        }
        self.seconds, self.most_bytes = seconds, most_bytes

    async def send(self, request: Request, **options: Any) -> Response:
        """The response to a request that is made anew, so that no header of the environment is sent."""
        options |= {"stream": True, "follow_redirects": False, "auth": None}
        request = type(request)(
            request.method,
            request.url,
            headers=self.own_headers,
            content=request.content,
            extensions={**request.extensions, "trace": trace},
        )
        status, end = HTTPStatus.OK.value, time.monotonic() + self.seconds
        try:
            async with asyncio.timeout(self.seconds):
                response = await super().send(request, **options)
                status = response.status_code
                most = self.most_bytes if status == HTTPStatus.OK else min(MOST_ERROR, self.most_bytes)
                response = await read_whole(response, most, end)
        except TooLarge as error:  # as a response: an exception would be taken for a fault to try again
            return _stand_in(request, {REFUSED: str(error)}, status)
        except TimeoutError:
            raise _library(type(request)).ReadTimeout("the answer was not complete in time", request=request) from None
        try:
            refuse_large_json(response.content, min(MEMORY_OF_BYTE * self.most_bytes, MOST_MEMORY))
        except ValueError as error:
            return _stand_in(request, {REFUSED: str(error)}, status)
        return _stand_in(request, _needed(response)) if response.is_success else response


async def _forget_location(response: Response) -> None:
    """Drop where a redirect leads to, which is not followed: the library reads it all the same."""
    response.headers.pop("location", None)


def _needed(response: Response) -> Json:
    """What is used of a completion, or what there is in its place: OpenAI's client makes an object of every value that
    a server sends, which takes it far longer than reading them, and some names of values break it."""
    try:
        whole = json.loads(response.content)
    except (ValueError, RecursionError):
        return {
            OTHER: "broken JSON" if "json" in response.headers.get("content-type", "") else _beginning(response.content)
        }
    match whole:
        case {"choices": [{"text": str(text)} as choice, *_]} if isinstance(choice.get("finish_reason"), str | None):
            ended, usage = choice.get("finish_reason"), whole.get("usage")
            counts = {name: usage[name] for name in COUNTS if name in usage} if isinstance(usage, dict) else {}
            counts = {name: count for name, count in counts.items() if type(count) is int}
            return {"choices": [{"text": text, "finish_reason": ended}], "usage": counts}
        case str(text):
            return {OTHER: text[: SEARCHED + 1]}
    return {OTHER: "other JSON"}


def _beginning(body: bytes) -> str:
    """As much of a text as an error looks at, and more where there is more."""
    return body[: 4 * (SEARCHED + 1)].decode(errors="replace")


def _stand_in(request: Request, body: Json, status: int = HTTPStatus.OK) -> Response:
    """A response in place of the server's. The status stays: what a server or a proxy in front of it cannot do now is
    tried again, whatever page it sends along."""
    content, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
    response: Response = _library(type(request)).Response(status, headers=kind, content=content, request=request)
    return response


def _library(kind: type) -> ModuleType:
    """The HTTP library that OpenAI's client is built on, which changes between releases, by one of its classes."""
    return sys.modules[kind.__module__.partition(".")[0]]


@lru_cache(maxsize=4)
def _certificates(_file: str | None, _folder: str | None) -> SSLContext:
    """The certificates that are trusted, read once for all clients: a megabyte and a tenth of a second for each. They
    are those of the system, or of what the environment names."""
    context: SSLContext = _library(DefaultAsyncHttpxClient.__bases__[0]).create_ssl_context()
    return context
