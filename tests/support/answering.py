"""Servers for the tests of the endpoint that send whatever a test wants, and a question to them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from fillerscope.answers.endpoint.generator import EndpointGenerator
from fillerscope.answers.request import Reply, Request
from fillerscope.study.generation import Decoding, EndpointSpec
from support.tiny import tiny_tokenizer

SECRET = "sk-do-not-tell-4711"
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
        for name, value in {"Content_Type": "application/json", **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        for piece in [body] if isinstance(body, bytes) else body:
            handler.wfile.write(piece)

    return send


def ask(url: str, most: int = 4, **options: object) -> Reply:
    """The reply to a prompt of three tokens, for an answer of `most` tokens."""
    spec = EndpointSpec.model_validate({"url": url, "retries": 0, "prompt": "ids", "timeout": 5.0} | options)
    generator, request = EndpointGenerator(spec, "tiny", tiny_tokenizer()), Request((5, 6, 7), 1)
    return generator.answer([request], Decoding(max_tokens=most), lambda _: None)[0]
