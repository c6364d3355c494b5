"""Servers that send too much, too slowly, elsewhere, or the key itself."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psutil
import pytest

from fillerscope.answers.endpoint.generator import EndpointGenerator
from fillerscope.answers.request import Reply, Request
from fillerscope.errors import GenerationError
from fillerscope.study.generation import Decoding, EndpointSpec
from support.tiny import tiny_tokenizer
from support.watchdog import in_a_fork

pytest.importorskip("openai")

SECRET = "sk-do-not-tell-4711"
MEGABYTE = 2**20
Send = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def serving(send: Send) -> Iterator[str]:
    """A server whose every answer `send` writes; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            with suppress(OSError):  # the client has gone, as it should
                send(self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


def completion(text: str = "42", finish: str = "stop") -> bytes:
    return json.dumps({"choices": [{"text": text, "finish_reason": finish, "index": 0}]}).encode()


def sending(body: bytes | Iterator[bytes], **headers: str) -> Send:
    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(int(headers.get("status", "200")))
        for name, value in {"Content-Type": "application/json", **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        for piece in [body] if isinstance(body, bytes) else body:
            handler.wfile.write(piece)

    return send


def ask(url: str, **options: object) -> Reply:
    spec = EndpointSpec.model_validate({"url": url, "retries": 0, "prompt": "ids", "timeout": 5.0} | options)
    request = Request((5, 6, 7), 1)
    return EndpointGenerator(spec, "tiny", tiny_tokenizer()).answer([request], Decoding(max_tokens=4), lambda _: None)[
        0
    ]


@contextmanager
def little_memory(most: int = 200 * MEGABYTE) -> Iterator[None]:
    """Watch how much memory this process takes while a block runs."""
    process, peak, over = psutil.Process(), [0], threading.Event()
    before = process.memory_info().rss

    def watch() -> None:
        while not over.wait(0.02):
            peak[0] = max(peak[0], process.memory_info().rss - before)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert peak[0] < most


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_packed_answer_is_read(encoding: str) -> None:
    import zlib

    body = gzip.compress(completion()) if encoding == "gzip" else zlib.compress(completion())
    with serving(sending(body, Content_Encoding=encoding)) as url:
        assert ask(url).text == "42"


def test_a_small_body_that_unpacks_into_gigabytes_is_not_unpacked() -> None:
    body = gzip.compress(gzip.compress(b" " * (2 * 1024 * MEGABYTE), 1), 1)
    bomb = gzip.decompress(body)
    with serving(sending(bomb, Content_Encoding="gzip")) as url, little_memory():
        reply = ask(url)
    assert reply.finish == "failed"
    assert "more than" in reply.error


def test_a_body_without_end_is_left() -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b" " * MEGABYTE

    with serving(lambda handler: sending(endless())(handler)) as url, little_memory():
        assert ask(url).finish == "failed"


@pytest.mark.parametrize("encoding", ["br", "zstd", "compress"])
def test_a_packing_that_was_not_asked_for_is_refused(encoding: str) -> None:
    with serving(sending(completion(), Content_Encoding=encoding)) as url:
        assert "gzip was asked for" in ask(url).error


def test_a_damaged_body_is_refused() -> None:
    with serving(sending(gzip.compress(completion())[:-20] + b"x" * 20, Content_Encoding="gzip")) as url:
        assert ask(url).finish == "failed"


def test_a_byte_now_and_then_does_not_outlive_the_time_limit() -> None:
    def dripping() -> Iterator[bytes]:
        while True:
            yield b" "
            time.sleep(0.05)

    def give_up() -> None:
        with pytest.raises(GenerationError, match="gave no complete answer within"):
            ask(url, timeout=0.5)

    with serving(lambda handler: sending(dripping())(handler)) as url:
        in_a_fork(give_up)


@pytest.mark.parametrize("status", ["301", "302", "307", "308"])
def test_a_redirect_is_not_followed(status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    reached = []

    def trap(handler: BaseHTTPRequestHandler) -> None:
        reached.append(dict(handler.headers))
        sending(completion())(handler)

    with (
        serving(trap) as other,
        serving(sending(b"", status=status, Location=other)) as url,
        pytest.raises(GenerationError, match="redirects to another address"),
    ):
        ask(url)
    assert reached == []


@pytest.mark.parametrize("body", [completion(finish=SECRET), completion(text=f"it is {SECRET}.")])
def test_a_key_that_comes_back_is_neither_shown_nor_kept(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with serving(sending(body)) as url:
        reply = ask(url)
    assert reply.finish == "failed"
    assert SECRET not in repr(reply)


def test_a_placeholder_key_may_stand_in_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with serving(sending(completion(text="none"))) as url:
        assert ask(url).text == "none"
