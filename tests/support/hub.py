"""A stand-in for the Hugging Face hub: one repository, spoken to by the real client over HTTP."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants

COMMIT = "1" * 40
LARGE = 10_000  # bytes: from here on a file is stored as large ones are


@dataclass
class Hub:
    """What the repository holds, how the server behaves, and what was asked of it."""

    files: dict[str, bytes]
    gated: bool = False
    pause: float = 0.0  # seconds after each piece of a large file
    drop_after: int | None = None  # bytes of a large file, after which the connection breaks; once
    ignores_ranges: bool = False
    other: Callable[[BaseHTTPRequestHandler, str], bool] | None = None  # true: it has answered that path by itself
    commit: str = COMMIT
    changes: dict[str, object] = field(default_factory=dict)  # to what the listing says about each file
    tokens: list[tuple[str, str | None]] = field(default_factory=list)  # path and Authorization of all requests
    wrong_size: int = 0  # bytes that a large file has more than the listing says; fewer where negative
    status: int = 200  # of every answer
    message: str = ""  # of every refusal
    url: str = ""
    ranges: list[tuple[str, int]] = field(default_factory=list)  # file, and the byte from which it was asked for
    paths: list[str] = field(default_factory=list)  # of all requests
    sent: int = 0  # bytes of files

    def entry(self, name: str) -> dict[str, object]:
        data = self.files[name]
        oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        entry: dict[str, object] = {"type": "file", "path": name, "size": len(data), "oid": oid}
        if len(data) >= LARGE:
            entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
        return entry | self.changes

    def etag(self, name: str) -> str:
        entry = self.entry(name)
        large = entry.get("lfs")
        return str(large["oid"] if isinstance(large, dict) else entry["oid"])


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """Serve a hub at `hub.url` until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


def use(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send the client to a stand-in, with a cache and a login in a folder."""
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(folder / "token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, body: bool) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.paths.append(path)
            hub.tokens.append((path, self.headers.get("Authorization")))
            if hub.other and hub.other(self, path):
                self.close_connection = True
            elif hub.status != 200:
                self.refuse(hub.status, "")
            elif "/resolve/" in path:
                self.file(path.partition("/resolve/")[2].partition("/")[2], body)
            elif "/tree/" in path:
                self.json([hub.entry(name) for name in hub.files])
            elif path.startswith("/api/") and "missing" in path:
                self.refuse(404, "RepoNotFound")
            else:
                siblings = [{"rfilename": name} for name in hub.files]
                self.json({"id": "owner/name", "sha": hub.commit, "siblings": siblings}, body)

        def refuse(self, status: int, code: str) -> None:
            self.send_response(status)
            if code:
                self.send_header("X-Error-Code", code)
            if hub.message:
                self.send_header("X-Error-Message", hub.message)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def json(self, value: object, body: bool = True) -> None:
            data = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if body:
                self.wfile.write(data)

        def file(self, name: str, body: bool) -> None:
            if hub.gated:
                self.refuse(403 if "Authorization" in self.headers else 401, "GatedRepo")
                return
            start, data = self.start(), hub.files[name]
            if "Range" in self.headers and not data:
                self.refuse(416, "")
                return
            if len(data) >= LARGE:
                data = data[: hub.wrong_size] if hub.wrong_size < 0 else data + b"x" * hub.wrong_size
                start = min(start, len(data))
            self.send_response(206 if start else 200)
            self.send_header("ETag", f'"{hub.etag(name)}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", str(len(data) - start))
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            self.end_headers()
            if body:
                hub.ranges.append((name, start))
                self.send_slowly(data, start)

        def start(self) -> int:
            asked = self.headers.get("Range", "bytes=0-")
            return 0 if hub.ignores_ranges else int(asked.removeprefix("bytes=").split("-")[0])

        def send_slowly(self, data: bytes, start: int) -> None:
            for at in range(start, len(data), 1 << 16):
                piece = data[at : at + (1 << 16)]
                if hub.drop_after is not None and len(data) >= LARGE and at >= hub.drop_after:
                    hub.drop_after = None
                    self.close_connection = True
                    self.connection.close()
                    return
                try:
                    self.wfile.write(piece)
                except OSError:  # whoever asked has gone
                    return
                hub.sent += len(piece)
                if len(data) >= LARGE:
                    time.sleep(hub.pause)

    return Handler
