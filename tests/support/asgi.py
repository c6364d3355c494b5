"""Requests to an ASGI application in this process, without a network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from starlette.types import ASGIApp

from fillerscope.report.explorer.access import HEADERS


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))

    @property
    def error(self) -> str:
        found = self.json
        assert list(found) == ["error"]
        assert found["error"]
        assert "\n" not in found["error"]
        assert "Traceback" not in found["error"]
        return str(found["error"])


def sent(app: ASGIApp, address: str, method: str = "GET", headers: Mapping[str, str] | None = None) -> Answer:
    """The explorer's answer to a request by a client that waits. It must have the headers of all answers."""
    got: list[Any] = []

    async def call() -> None:
        asked = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def receive() -> Any:
            return next(asked, None) or await asyncio.Event().wait()  # nobody hangs up

        async def send(message: Any) -> None:
            got.append(message)

        await app(scope_of(address, method, headers or {}), receive, send)

    asyncio.run(call())
    found = {name.decode().lower(): value.decode() for name, value in got[0]["headers"]}
    assert {name: found.get(name.lower()) for name in HEADERS} == HEADERS
    return Answer(got[0]["status"], found, b"".join(message.get("body", b"") for message in got[1:]))


def scope_of(address: str, method: str, headers: Mapping[str, str]) -> dict[str, Any]:
    path, _, query = address.partition("?")
    given = {"host": "127.0.0.1:8642"} | {name.replace("_", "-").lower(): value for name, value in headers.items()}
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8642),
    }  # fmt: skip
