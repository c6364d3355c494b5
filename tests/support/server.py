"""Real servers for the tests of the endpoint, and a proxy that does to their traffic what networks do.

`llama_cpp` is llama.cpp's own server behind a model written here as GGUF: it takes token ids and text.
`transformers_serve` takes text alone. Neither downloads anything.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import gguf

# A server ends with the tests even where these are killed: its standard input closes then.
MORTAL = """
import os, sys, threading

threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
"""
LLAMA_CPP = """
import time
import xllamacpp

params = xllamacpp.CommonParams()
params.model.path, key = sys.argv[1:]
params.hostnames, params.port = ["127.0.0.1"], 0
params.n_parallel, params.n_ctx = 4, 4 * 512
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.warmup, params.verbosity = False, 0
params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32  # as exact as transformers
params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
if key:
    params.api_keys = [key]
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
time.sleep(3600)
"""
TRANSFORMERS = """
from transformers.cli.transformers import main

main()
"""


@dataclass
class Served:
    url: str
    process: subprocess.Popen[str]

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


@contextmanager
def llama_cpp(weights: Path, key: str = "") -> Iterator[Served]:
    process = _started(LLAMA_CPP, str(weights), key, stdout=subprocess.PIPE)
    served = Served("", process)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, "llama.cpp's server did not start"
        served.url = f"{address}/v1"
        yield served
    finally:
        served.kill()


@contextmanager
def transformers_serve(folder: Path) -> Iterator[Served]:
    port = free_port()
    options = ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32"]
    process = _started(TRANSFORMERS, "serve", str(folder), *options, stdout=subprocess.DEVNULL)
    served = Served(f"http://127.0.0.1:{port}/v1", process)
    try:
        _wait_until_healthy(served.process, port)
        yield served
    finally:
        served.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _started(code: str, *arguments: str, stdout: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", MORTAL + code, *arguments],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "2"},
        text=True,
        start_new_session=True,
    )


def _wait_until_healthy(process: subprocess.Popen[str], port: int, seconds: float = 300) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert process.poll() is None, "transformers serve did not start"
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.2)
        finally:
            connection.close()
    raise AssertionError(f"transformers serve was not ready after {seconds:g} s")


WATCHDOG = 120.0  # seconds, after which a test has failed
Fault = Callable[["_Handler"], bool]  # true: the client has had its answer, or never will


@dataclass
class Proxy:
    """Stands before a server. Each request meets the next fault, and the server itself when they are used up."""

    target: str
    faults: list[Fault] = field(default_factory=list)
    always: Fault | None = None
    alter: Callable[[dict[str, Any], dict[str, Any]], None] | None = None  # of (what was asked, the answer)
    asked: list[dict[str, Any]] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    closed: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def next_fault(self) -> Fault | None:
        with self.lock:
            return self.faults.pop(0) if self.faults else self.always

    @contextmanager
    def counted(self) -> Iterator[None]:
        with self.lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            yield
        finally:
            with self.lock:
                self.at_once -= 1


@contextmanager
def proxy(target: str, **options: Any) -> Iterator[Proxy]:
    server = _Listener(("127.0.0.1", 0), _Handler)
    server.proxy = Proxy(target, **options)
    server.proxy.url = f"http://127.0.0.1:{server.server_port}{urlsplit(target).path}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server.proxy
    finally:
        server.proxy.closed.set()
        server.shutdown()
        server.server_close()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    proxy: Proxy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Listener

    def do_POST(self) -> None:
        proxy = self.server.proxy
        self.body = self.rfile.read(int(self.headers["Content-Length"]))
        with proxy.counted():
            proxy.asked.append(json.loads(self.body))
            fault = proxy.next_fault()
            if fault is None or not fault(self):
                self.forward()

    def forward(self) -> None:
        proxy = self.server.proxy
        parts = urlsplit(proxy.target)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        headers = {name: self.headers[name] for name in ("Content-Type", "Authorization") if name in self.headers}
        connection.request("POST", self.path, self.body, headers)
        answer = connection.getresponse()
        data = json.loads(answer.read())
        connection.close()
        if proxy.alter:
            proxy.alter(json.loads(self.body), data)
        self.say(answer.status, data)

    def say(self, status: int, data: Any, **headers: str) -> bool:
        text = data if isinstance(data, str) else json.dumps(data)
        kind = "text/html" if isinstance(data, str) else "application/json"
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(text.encode())), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(text.encode())
        return True

    def log_message(self, format: str, *args: Any) -> None:
        """Tests look at what is written to the terminal."""


def status(code: int, message: str = "injected", **headers: str) -> Fault:
    return lambda handler: handler.say(code, {"error": {"message": message}}, **headers)


def answer(data: Any) -> Fault:
    return lambda handler: handler.say(200, data)


def page(code: int = 200, text: str = "<!doctype html>\n<html><body>Welcome</body></html>") -> Fault:
    return lambda handler: handler.say(code, text)


def hang(handler: _Handler) -> bool:
    """No answer, as long as the test goes on."""
    handler.server.proxy.closed.wait(WATCHDOG)
    return drop(handler)


def until(condition: Callable[[Proxy], bool]) -> Fault:
    """The answer comes when this is so. A test that waits in vain is let go, and fails."""

    def wait(handler: _Handler) -> bool:
        proxy, end = handler.server.proxy, time.monotonic() + WATCHDOG
        while not condition(proxy) and not proxy.closed.wait(0.005):
            if time.monotonic() > end:
                proxy.closed.set()
        return False

    return wait


def then(fault: Fault, do: Callable[[], None]) -> Fault:
    """The fault, with something done as soon as a request has come upon it."""

    def both(handler: _Handler) -> bool:
        do()
        return fault(handler)

    return both


def slow(seconds: float) -> Fault:
    def wait(handler: _Handler) -> bool:  # noqa: ARG001
        time.sleep(seconds)
        return False

    return wait


def drop(handler: _Handler) -> bool:
    """The connection breaks in the middle of an answer."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"id": "half')
    handler.wfile.flush()
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True
    return True


def wants_key(key: str) -> Fault:
    """Refuses every other key, and says which one it was."""

    def check(handler: _Handler) -> bool:
        given = handler.headers["Authorization"]
        return given != f"Bearer {key}" and handler.say(401, {"error": {"message": f"wrong key: {given}"}})

    return check


def write_gguf(model: Any, tokenizer: Any, path: Path, bos: bool = False) -> Path:
    """A Llama of transformers as llama.cpp reads it, in float32. `bos`: the server puts one before a text."""
    config = model.config
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    _add_vocabulary(writer, tokenizer, config.vocab_size)
    writer.add_eos_token_id(config.eos_token_id)
    writer.add_bos_token_id(config.bos_token_id)
    writer.add_add_bos_token(bos)
    for name, tensor in model.state_dict().items():
        writer.add_tensor(*_tensor(name, tensor.float(), config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_vocabulary(writer: Any, tokenizer: Any, size: int) -> None:
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    tokens = [f"[UNUSED{index}]" for index in range(size)]
    kinds = [int(gguf.TokenType.UNUSED)] * size
    for token, index in tokenizer.get_vocab().items():
        special = index in tokenizer.added_tokens_decoder
        tokens[index], kinds[index] = token, int(gguf.TokenType.CONTROL if special else gguf.TokenType.NORMAL)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]])
    writer.add_vocab_size(size)


_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers": "blk",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def _tensor(name: str, tensor: Any, config: Any) -> tuple[str, Any]:
    """llama.cpp rotates neighbouring dimensions, transformers those half a head apart."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for projection, count in heads.items():
        if projection in name:
            halves = tensor.reshape(count, 2, tensor.shape[0] // count // 2, tensor.shape[1])
            tensor = halves.swapaxes(1, 2).reshape(tensor.shape)
    for ours, theirs in _NAMES.items():
        name = name.replace(ours, theirs)
    return name, tensor.contiguous().numpy()
