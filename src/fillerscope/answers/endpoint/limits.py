"""An HTTP client for one server: limited in bytes and seconds, without redirects, with headers of our own alone.

OpenAI's client takes organisation, project and any other header from the environment; none of that is sent. A server on
this machine is asked without a proxy.
"""

from __future__ import annotations

import asyncio
import json
import sys
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from openai import DefaultAsyncHttpxClient

from fillerscope.files import Json, refuse_large_json
from fillerscope.problems.http_body import TooLarge, read_whole
from fillerscope.problems.http_heads import NoCookies, trace

if TYPE_CHECKING:
    from httpx2 import Request, Response

REFUSED = "fillerscope_refused"  # the key of a body that stands for one that was not read to its end
MEMORY_OF_BYTE, MOST_MEMORY = 8, 1 << 28  # of a body's values: for each byte that it may have, and in all
MOST_ERROR = 1 << 20  # bytes of a body that refuses
_NO_PROXY = {"all://": None, "http://": None, "https://": None}  # all keys that proxies of the environment have


class LimitedClient(DefaultAsyncHttpxClient):
    """A client whose responses are read whole, within `seconds` and `most_bytes` after decompression."""

    def __init__(self, key: str, seconds: float, most_bytes: int, proxies: bool) -> None:
        super().__init__(follow_redirects=False, mounts=None if proxies else _NO_PROXY, cookies=NoCookies())
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
        status = HTTPStatus.OK.value
        try:
            async with asyncio.timeout(self.seconds):
                response = await super().send(request, **options)
                status = response.status_code
                most = self.most_bytes if status == HTTPStatus.OK else min(MOST_ERROR, self.most_bytes)
                response = await read_whole(response, most)
        except TooLarge as error:  # as a response: an exception would be taken for a fault to try again
            return _stand_in(request, {REFUSED: str(error)}, status)
        except TimeoutError:
            raise sys.modules[_library(request)].ReadTimeout(
                "the answer was not complete in time", request=request
            ) from None
        try:
            refuse_large_json(response.content, min(MEMORY_OF_BYTE * self.most_bytes, MOST_MEMORY))
        except ValueError as error:
            return _stand_in(request, {REFUSED: str(error)}, status)
        needed = _needed(response.content) if response.is_success else None  # all of which the client reads as answers
        return response if needed is None else _stand_in(request, needed)


def _needed(body: bytes) -> Json | None:
    """What is used of a completion: OpenAI's client makes an object of every value that a server adds, which takes it
    far longer than reading them. None for anything else."""
    try:
        whole = json.loads(body)
    except (ValueError, RecursionError):
        return None
    choices = whole.get("choices") if isinstance(whole, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return None
    usage = whole.get("usage")
    return {
        "choices": [{key: value for key, value in choices[0].items() if key in ("text", "finish_reason")}],
        "usage": {key: value for key, value in usage.items() if type(value) is int}
        if isinstance(usage, dict)
        else None,
    }


def _stand_in(request: Request, body: Json, status: int = HTTPStatus.OK) -> Response:
    """A response in place of the server's. The status stays: what a server or a proxy in front of it cannot do now is
    tried again, whatever page it sends along."""
    content, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
    return sys.modules[_library(request)].Response(status, headers=kind, content=content, request=request)  # type: ignore[no-any-return]


def _library(request: Request) -> str:
    """The name of the HTTP library that OpenAI's client is built on, which changes between releases."""
    return type(request).__module__.partition(".")[0]
