"""An HTTP client for one server: limited in bytes and seconds, without redirects, with headers of our own alone.

OpenAI's client takes organisation, project and any other header from the environment; none of that is sent. A server on
this machine is asked without a proxy.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from openai import DefaultAsyncHttpxClient

from fillerscope.problems.http_body import TooLarge, read_whole

if TYPE_CHECKING:
    from httpx2 import Request, Response

REFUSED = "fillerscope_refused"  # the key of a body that stands for one that was not read to its end
_NO_PROXY = {"all://": None, "http://": None, "https://": None}  # all keys that proxies of the environment have


class LimitedClient(DefaultAsyncHttpxClient):
    """A client whose responses are read whole, within `seconds` and `most_bytes` after decompression."""

    def __init__(self, key: str, seconds: float, most_bytes: int, proxies: bool) -> None:
        super().__init__(follow_redirects=False, mounts=None if proxies else _NO_PROXY)
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
            extensions=request.extensions,
        )
        try:
            async with asyncio.timeout(self.seconds):
                return await read_whole(await super().send(request, **options), self.most_bytes)
        except TooLarge as error:  # as a response: an exception would be taken for a fault to try again
            stand_in = sys.modules[_library(request)].Response
            return stand_in(200, json={REFUSED: str(error)}, request=request)  # type: ignore[no-any-return]
        except TimeoutError:
            raise sys.modules[_library(request)].ReadTimeout(
                "the answer was not complete in time", request=request
            ) from None


def _library(request: Request) -> str:
    """The name of the HTTP library that OpenAI's client is built on, which changes between releases."""
    return type(request).__module__.partition(".")[0]
