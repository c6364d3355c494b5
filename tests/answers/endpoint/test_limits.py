"""Servers that send too much, too slowly, elsewhere, or the key itself."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import psutil
import pytest
from pydantic import SecretStr

from fillerscope.answers.endpoint.client import open_client
from fillerscope.answers.endpoint.errors import SEARCHED, Refusals
from fillerscope.answers.endpoint.generator import EndpointGenerator
from fillerscope.answers.endpoint.limits import LimitedClient
from fillerscope.answers.request import Request
from fillerscope.errors import GenerationError
from fillerscope.study.generation import Decoding, EndpointSpec
from support.answering import SECRET, ask, completion, sending, serving
from support.tiny import tiny_tokenizer
from support.watchdog import in_a_fork, watched

pytest.importorskip("openai")

MEGABYTE = 2**20


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


@pytest.mark.parametrize(
    ("body", "headers"),
    [(b"x" * 20 * MEGABYTE, {}), (b"<html>", {"Content_Encoding": "br"}), (b"\x1f\x8b", {"Content_Encoding": "gzip"}),
     (b"[" * 100_000, {})],
    ids=["large", "of another encoding", "cut off", "nested"],
)  # fmt: skip
def test_a_fault_of_the_moment_is_tried_again_whatever_page_comes_with_it(body: bytes, headers: dict[str, str]) -> None:
    """A proxy in front of the server has pages of its own."""
    faults = iter([sending(body, status="503", **headers)] * 2)
    with serving(lambda handler: next(faults, sending(completion()))(handler)) as url:
        assert ask(url, retries=3).text == "42"


@pytest.mark.parametrize("value", ["{}", "[]", '{"text":""}', "0"])
def test_values_without_number_behind_an_answer_are_refused(value: str) -> None:
    """OpenAI's client makes an object of each, which takes it minutes."""
    body = completion().replace(
        b'"choices": [', b'"more": [' + b",".join([value.encode()] * 300_000) + b'], "choices": ['
    )
    assert len(json.loads(body)["more"]) == 300_000
    with serving(sending(gzip.compress(body), Content_Encoding="gzip")) as url, little_memory():
        reply = ask(url)
    assert reply.finish == "failed"
    assert "more than" in reply.error


def test_of_an_answer_no_more_is_kept_than_is_used() -> None:
    whole = json.loads(completion())
    whole["choices"] = [whole["choices"][0] | {"logprobs": [{}] * 9}, *[{}] * 9]
    whole["usage"] = {"prompt_tokens": 3, "completion_tokens": 1, "details": {"more": [1]}}
    assert json.loads(received(json.dumps(whole).encode())) == {
        "choices": [{"text": "42", "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
    }


def received(body: bytes, **headers: str) -> bytes:
    """The body that OpenAI's client gets where a server sends another."""

    async def asked(url: str) -> bytes:
        async with LimitedClient("key", 5.0, MEGABYTE, False) as client:
            content: bytes = (await client.post(url, json={})).content
            return content

    with serving(sending(body, **headers)) as url:
        return asyncio.run(asked(url))


@pytest.mark.parametrize("status", ["201", "206"])
def test_so_it_is_with_every_status_that_is_taken_for_an_answer(status: str) -> None:
    assert received(b'{"more": [], ' + completion()[1:], status=status) == received(completion())


@pytest.mark.parametrize(
    "body",
    [b'{"choices": [0%s]}', b'{"choices": [[]%s]}', b'{"choices": [{"text": [0%s]}]}', b"[0%s]", b'"%s"', b"broken%s",
     b'{"choices": [{"text": "", "finish_reason": [0%s]}]}', b'{"choices": [{"text": "", "logprobs": [0%s]}]}'],
)  # fmt: skip
def test_no_body_reaches_the_client_as_it_came(body: bytes) -> None:
    """It would make objects of all values."""
    assert len(received(body % (b",{}" * 30_000))) < 25_000


@pytest.mark.parametrize(
    "body",
    [{"_fields_set": 1, "id": "x"}, {"_BaseModel__cls": 1}, {"choices": [1, {"_fields_set": 1, "text": "x"}]}],
)
def test_names_that_break_the_client_are_one_line(body: dict[str, object]) -> None:
    with serving(sending(json.dumps(body).encode())) as url, pytest.raises(GenerationError, match="with other JSON"):
        ask(url)


def test_a_body_without_end_is_left() -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b" " * MEGABYTE

    with serving(lambda handler: sending(endless())(handler)) as url, little_memory():
        assert ask(url).finish == "failed"


def test_bytes_behind_the_end_of_a_packed_body_are_not_kept() -> None:
    def endless() -> Iterator[bytes]:
        yield gzip.compress(completion())
        while True:
            yield b"J" * MEGABYTE

    with serving(lambda handler: sending(endless(), Content_Encoding="gzip")(handler)) as url, little_memory():
        assert ask(url).text == "42"


@pytest.mark.parametrize("encoding", ["br", "zstd", "compress"])
def test_a_packing_that_was_not_asked_for_is_refused(encoding: str) -> None:
    with serving(sending(completion(), Content_Encoding=encoding)) as url:
        assert "gzip was asked for" in ask(url).error


@pytest.mark.parametrize("charset", ["punycode", "zlib", "hex", "utf-16", "idna", "nothing"])
@pytest.mark.parametrize("status", ["200", "404"])
def test_a_text_is_read_as_utf8_whatever_the_server_says(charset: str, status: str) -> None:
    """Python has encodings that take minutes for a megabyte, and others that are none of texts."""
    send = sending(b"x" * 100_000 + b"-" + b"a" * 300_000, status=status, Content_Type=f"text/plain; charset={charset}")
    with serving(send) as url, watched(20), pytest.raises(GenerationError, match="xxx"):
        ask(url)
    with serving(sending(completion(), Content_Type=f"application/json; charset={charset}")) as url:
        assert ask(url).text == "42"


@pytest.mark.parametrize("secrets", [(), (SECRET,)])
def test_a_text_of_marks_is_searched_for_the_key_in_time(secrets: tuple[str, ...]) -> None:
    """Python sorts marks by insertion: the square of their number, and no time limit is heard meanwhile."""
    marks = "a" + "\u0301" * 200_000 + "\u0316" * 200_000
    refusals = Refusals("http://127.0.0.1", "tiny", "KEY", 2.0, 1, secrets)
    with watched(20):
        assert not refusals.holds_secret(marks)
        assert refusals.holds_secret(f"{marks}{SECRET}") == bool(secrets)


@pytest.mark.parametrize("text", [f"no {'x' * 9_000_000}", " " * 9_000_000, f"{' ' * 19_990}{SECRET}{' ' * 99_999}"])
def test_a_long_refusal_is_not_searched_to_its_end(text: str) -> None:
    refusals = Refusals("http://127.0.0.1", "tiny", "KEY", 2.0, 1, (SECRET,))
    with watched(20), little_memory():
        told = refusals.line(text)
    assert SECRET[:8] not in told
    assert told == "a long text" or told.startswith("no xxx")


@pytest.mark.parametrize("blank", [" ", "\u200b", "\u0301", "-", "\u3164"])
@pytest.mark.parametrize("shown", range(1, len(SECRET), 5))
def test_a_key_of_which_a_part_was_searched_is_not_shown(shown: int, blank: str) -> None:
    """Its beginning is looked at, and its end is not."""
    refusals = Refusals("http://127.0.0.1", "tiny", "KEY", 2.0, 1, ("another-key-of-many-letters", SECRET))
    words, end = "A" * (197 - shown), SECRET[shown:]
    for text in (
        words + SECRET[:shown] + blank * (SEARCHED - 197) + end,
        words + blank * (SEARCHED - 197) + SECRET,
        words + blank * (SEARCHED - 199) + SECRET + " and more",
    ):
        told = refusals.line(text)
        assert told == "a long text" or SECRET[:shown] not in told.rstrip(".")


def test_a_long_page_of_an_error_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long an answer may be."""
    monkeypatch.setattr("fillerscope.answers.endpoint.client._BYTES", 99 * MEGABYTE)
    with serving(sending(b'{"error": "' + b"x" * 3 * MEGABYTE + b'"}', status="400")) as url:
        assert "more than 1048576 bytes" in ask(url).error


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


@pytest.mark.parametrize(
    "place", [f"//{SECRET}_xn--1/", "javascript:1", "mailto:x", ":a:b", "http://[::1", "http://" + "a" * 70_000, ""]
)
def test_where_a_redirect_leads_is_not_even_read(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The HTTP library raises errors for some, with the host in them, which may be the key."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with (
        serving(sending(b"", status="302", Location=place)) as url,
        pytest.raises(GenerationError, match=r"redirects to another address|answers 302") as caught,
    ):
        ask(url)
    assert SECRET.lower() not in str(caught.value).lower()


def test_an_error_of_the_library_is_one_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it raises may hold what the server sent."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)

    async def broken(*_: object, **__: object) -> None:
        raise UnicodeError(f"no host: {SECRET}")

    monkeypatch.setattr("openai.resources.completions.AsyncCompletions.create", broken)
    with pytest.raises(GenerationError, match=r"cannot be used: no host: \[key\]$"):
        ask("http://127.0.0.1:9/v1")


def test_an_error_that_is_nested_deeply_is_told_at_once() -> None:
    """Each level was written as a text: minutes, for which nothing else went on."""
    inner: object = {"x": [1] * 100_000}
    for _ in range(900):
        inner = {"error": inner}
    body = json.dumps(inner).encode()
    with serving(sending(body, status="400")) as url, watched(30):
        reply = ask(url)
    assert reply.error.startswith("the server refuses the prompt (400: {'x': [1, 1, ")


def test_connections_that_cannot_be_opened_are_not_blamed_on_the_server() -> None:
    resource = pytest.importorskip("resource")

    def crowded() -> None:
        used = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 64
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 8, used + 8))
        spec = EndpointSpec(url=url, concurrency=64, retries=0, prompt="ids", timeout=5.0)
        generator = EndpointGenerator(spec, "tiny", tiny_tokenizer())
        requests = [Request((5, 6, 7), number) for number in range(64)]
        with pytest.raises(GenerationError, match=r"may open no more connections; lower endpoint\.concurrency"):
            generator.answer(requests, Decoding(max_tokens=4), lambda _: None)

    def slow(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(0.5)
        sending(completion())(handler)

    with serving(slow) as url:
        in_a_fork(crowded)


@pytest.mark.parametrize("status", ["300", "304"])
def test_a_status_that_leads_nowhere_is_named(status: str) -> None:
    with serving(sending(b"", status=status)) as url, pytest.raises(GenerationError, match=f"answers {status} "):
        ask(url)


@pytest.mark.parametrize("body", [completion(finish=SECRET), completion(text=f"it is {SECRET}.")])
def test_a_key_that_comes_back_is_neither_shown_nor_kept(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with serving(sending(body)) as url:
        reply = ask(url)
    assert reply.finish == "failed"
    assert SECRET not in repr(reply)


def special_token() -> str:
    return str(tiny_tokenizer().all_special_tokens[0])


@pytest.mark.parametrize(
    "written",
    [
        lambda key: special_token().join((key[:6], key[6:])),
        lambda key: "\u200b".join((key[:6], key[6:])),
        lambda key: "\u2060\u00ad".join(key),
        lambda key: " ".join(key),
        lambda key: "\u0301".join(key),
        lambda key: "\u3164".join(key),
        lambda key: "\u2800".join(key),
        lambda key: key.replace("-", "\u2011"),
        lambda key: "".join(chr(ord(letter) + 0xFEE0) for letter in key),
        str.upper,
    ],
)
def test_a_key_in_pieces_is_neither_shown_nor_kept(
    written: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with serving(sending(completion(text=f"it is {written(SECRET)}"))) as url:
        reply = ask(url)
    assert (reply.finish, reply.text) == ("failed", "")
    assert reply.error == "the server sent the key back as its answer, which is not kept"


def test_a_short_key_with_hidden_characters_is_found_and_one_by_chance_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "12345678")
    for text, finish in (("1234\u200b5678", "failed"), ("1 2 3 4 5 6 7 8", "stop")):
        with serving(sending(completion(text=text))) as url:
            assert ask(url).finish == finish


def test_a_key_in_pieces_in_an_error_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    body = json.dumps({"error": {"message": f"bad key {SECRET[:6]}\u200b{SECRET[6:]}"}}).encode()
    with serving(sending(body, status="400")) as url:
        assert SECRET[6:] not in ask(url).error


def test_a_key_that_python_writes_otherwise_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a\"b'\\c0123456")
    body = json.dumps({"what": {"auth": "Bearer a\"b'\\c0123456"}}).encode()
    with serving(sending(body, status="400")) as url:
        assert "0123456" not in ask(url).error


def raw(head: bytes, body: bytes = b"") -> Callable[[BaseHTTPRequestHandler], None]:
    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 " + head + b"\r\nConnection: close\r\n\r\n" + body)
        handler.close_connection = True

    return send


BLANKS = b" " * 60_000 + b"\x00"


@pytest.mark.parametrize("before", [b"", b"100 Continue\r\n\r\nHTTP/1.1 "])
def test_a_header_of_blanks_does_not_outlive_the_time_limit(before: bytes) -> None:
    """h11 takes the square of their number, in which nothing else runs."""
    with serving(raw(before + b"200 OK\r\nX:" + BLANKS)) as url:
        assert ask(url).error == "the server sent a header with 64 blanks in a row, where 4 tokens were asked for"


def test_a_chunk_of_blanks_does_not_outlive_the_time_limit() -> None:
    with serving(raw(b"200 OK\r\nTransfer-Encoding: chunked", b"5;" + BLANKS + b"\n")) as url:
        assert "16384 blanks in a row" in ask(url).error


def test_blanks_in_an_answer_are_none_of_a_header() -> None:
    body = completion(text=" " * 30_000)
    with serving(raw(b"200 OK\r\nContent-Length: %d" % len(body), body)) as url:
        assert ask(url, most=30_000).text == " " * 30_000


def test_bytes_behind_an_answer_are_not_the_next_one() -> None:
    """They would be parsed as a head that nobody has looked at."""

    def answer(text: str) -> bytes:
        body = completion(text=text)
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(answer("42") + answer("behind"))
        handler.close_connection = False

    with serving(send) as url, watched():
        spec = EndpointSpec(url=url, retries=0, prompt="ids", timeout=5.0, concurrency=1)
        requests = [Request((5, 6, 7), 1)] * 3
        replies = EndpointGenerator(spec, "tiny", tiny_tokenizer()).answer(
            requests, Decoding(max_tokens=4), lambda _: None
        )
    assert [reply.text for reply in replies] == ["42"] * 3


def test_headers_may_hold_more_than_ascii() -> None:
    with serving(sending(completion(), X_Name="caf\u00e9", Content_Type="application/json; caf\u00e9")) as url:
        assert ask(url).text == "42"


def test_no_cookie_is_kept() -> None:
    async def kept(url: str) -> int:
        async with LimitedClient("key", 5.0, MEGABYTE, False) as client:
            response = await client.post(url, json={})
            assert response.status_code == 400
            assert "set-cookie" in response.headers
            return len(list(client.cookies.jar))

    with serving(sending(b"[]", **{"Set-Cookie": "a=1; Path=/", "status": "400"})) as url:
        assert asyncio.run(kept(url)) == 0


@pytest.mark.parametrize("end", ["", "xyz"])
def test_a_password_with_a_colon_that_a_proxy_repeats_is_not_shown(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", f"http://user:LongSecretPart:{end}@127.0.0.1:9")
    with serving(sending(f"your password LongSecretPart:{end} is wrong".encode(), status="400")) as url:
        assert "refuses the prompt" in (error := ask(url).error)
    assert "LongSecret" not in error


def test_a_password_that_a_proxy_repeats_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://user:Pass%2FWordOfProxy@127.0.0.1:9")
    for said in ("Pass/WordOfProxy", "Pass%2FWordOfProxy"):
        with serving(raw(f"599 {said}\r\nContent-Length: 0".encode())) as url, pytest.raises(GenerationError) as caught:
            ask(url, retries=0)
        assert said not in str(caught.value)


def test_a_placeholder_key_may_stand_in_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with serving(sending(completion(text="none"))) as url:
        assert ask(url).text == "none"


def test_a_password_of_a_proxy_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://user:pa/ss@host:3128")
    spec = EndpointSpec(url="https://api.example.com/v1")
    with pytest.raises(GenerationError, match="correct HTTPS_PROXY") as caught:
        open_client(spec, spec.url, SecretStr(""), 4)
    assert "'pa'" not in str(caught.value)


def test_certificates_are_read_once_for_all_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trusted() -> object:
        return LimitedClient("key", 5.0, MEGABYTE, True)._transport._pool._ssl_context  # type: ignore[attr-defined]

    one = trusted()
    assert trusted() is one
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))  # as a notebook may set it
    assert trusted() is not one
