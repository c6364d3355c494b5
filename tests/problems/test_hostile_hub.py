"""A hub that sends too much, too slowly, elsewhere, or names that lead out of the cache."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from itertools import cycle, repeat
from pathlib import Path
from typing import Any

import pytest

from fillerscope.errors import ModelError, ProblemError
from fillerscope.models.hub import snapshot
from fillerscope.problems import hub_download, hub_http, hub_listing
from fillerscope.problems.hub_listing import Repo
from fillerscope.problems.sources import load_problems
from fillerscope.study.study import ProblemsSpec
from support.hub import Hub, serving, use
from support.watchdog import watched

ROW = b'{"question": "What is 1 + 1?", "answer": "2"}\n'
DATA = {"test.jsonl": ROW}
WEIGHTS = bytes(3_000_000)
TOKEN = "hf_of_somebody"
Answer = Callable[[BaseHTTPRequestHandler, str], bool]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with one data set, and a cache and a token of the test's own."""
    with serving(Hub(dict(DATA))) as stand_in:
        use(stand_in, tmp_path, monkeypatch)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setattr(hub_download.time, "sleep", lambda _: None)
        yield stand_in


pause = time.sleep


def answering(part: str, send: Callable[[BaseHTTPRequestHandler], None]) -> Answer:
    """Answer requests for addresses with a part, and leave the others to the hub."""

    def answer(handler: BaseHTTPRequestHandler, path: str) -> bool:
        if part not in path:
            return False
        with suppress(OSError):  # whoever asked has gone
            send(handler)
        return True

    return answer


def sending(pieces: Iterable[bytes], status: int = 200, **headers: str) -> Callable[..., None]:
    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        for piece in pieces:
            handler.wfile.write(piece)

    return send


def slow_body(handler: BaseHTTPRequestHandler) -> None:
    sending([])(handler)
    dripping(handler)


def slow_headers(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    dripping(handler)


def dripping(handler: BaseHTTPRequestHandler) -> None:
    while True:
        handler.wfile.write(b"x")
        pause(0.05)


def questions() -> list[str]:
    with watched():
        return [problem.question for problem in load_problems(ProblemsSpec(source="hub:owner/name"))]


def refused(match: str) -> None:
    with pytest.raises(ProblemError, match=match) as caught:
        questions()
    assert "\n" not in str(caught.value)


# Too much and too slowly


@pytest.mark.parametrize("part", ["/revision/", "/tree/"])
def test_a_description_without_end_is_left(served: Hub, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_http, "MOST_BYTES", 1 << 20)
    served.other = answering(part, sending(repeat(b" " * 100_000)))
    refused("more than 1048576 bytes")


def test_a_small_description_that_unpacks_into_much_is_not_unpacked(
    served: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_http, "MOST_BYTES", 1 << 20)
    bomb = gzip.compress(json.dumps({"sha": served.commit, "more": " " * (1 << 22)}).encode())
    served.other = answering("/revision/", sending([bomb], Content_Encoding="gzip"))
    refused("more than 1048576 bytes")


@pytest.mark.parametrize("send", [slow_body, slow_headers])
def test_a_description_that_comes_slowly_is_left(
    served: Hub, send: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_http, "SECONDS", 0.5)
    served.other = answering("/tree/", send)
    refused("no complete answer within 0.5 s")


def test_a_listing_without_a_last_page_is_left(served: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_http, "MOST_PAGES", 5)
    link = '</api/datasets/owner/name/tree/again>; rel="next"'
    served.other = answering("/tree/", sending([b"[]"], Link=link))
    refused("more than 5 pages")
    assert len([path for path in served.paths if "/tree/" in path]) == 5


@pytest.mark.parametrize(("limit", "most"), [("MOST_LISTED", 1 << 20), ("SECONDS_LISTED", 0.3)])
def test_the_pages_of_a_listing_are_limited_together(
    served: Hub, limit: str, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_http, limit, most)

    def page(handler: BaseHTTPRequestHandler) -> None:
        pause(0.05)
        link = '</api/datasets/owner/name/tree/again>; rel="next"'
        sending([b" " * 200_000, b"[]"], Link=link, Content_Length="200002")(handler)

    served.other = answering("/tree/", page)
    refused("its listing takes more than")
    assert len([path for path in served.paths if "/tree/" in path]) < 20


def test_a_listing_of_too_many_files_is_refused(served: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_listing, "MOST_FILES", 10)
    served.files |= {f"{number}.txt": b"" for number in range(10)}
    refused("it lists more than 10 files")


@pytest.mark.parametrize("part", ["/revision/", "/tree/"])
def test_a_description_of_many_small_values_is_not_made_of_them(served: Hub, part: str) -> None:
    """Of 9 MB they would take 200 of memory, and of the largest description 800."""
    body = gzip.compress(b"[" + b"[]," * 3_000_000 + b"0]", 1)
    served.other = answering(part, sending([body], Content_Encoding="gzip"))
    refused("its values take more than 256 MiB of memory")


def test_only_sizes_and_digests_of_a_listing_are_kept(served: Hub) -> None:
    digest = served.entry("test.jsonl")["oid"]
    served.changes = {"more": [[]] * 1000, "size": 10**4000}
    listing = hub_download.list_files(Repo("owner/name", "dataset"))
    assert listing.entries == {"test.jsonl": (1 << 63, digest)}
    served.changes = {"oid": "a" * 1000, "path": "b" * 2000}
    listing = hub_download.list_files(Repo("owner/name", "dataset"))
    assert listing.entries == {"b" * 1001: (len(ROW), "a" * 65)}


def test_the_pages_of_a_listing_are_put_together(served: Hub) -> None:
    link = f'<{served.url}/api/datasets/owner/name/tree/more>; rel="next"'
    first = json.dumps([served.entry("test.jsonl") | {"path": "README.md"}]).encode()
    served.other = answering(f"/tree/{served.commit}", sending([first], Link=link))
    assert questions() == ["What is 1 + 1?"]


@pytest.mark.parametrize("body", [b"{}", b"[" * 100_000, b"", b'"a"', b"[3]"])
def test_a_listing_that_is_none_is_refused(served: Hub, body: bytes) -> None:
    served.other = answering("/tree/", sending([body]))
    refused("hub:owner/name")


@pytest.mark.parametrize("send", [slow_body, slow_headers])
def test_a_file_that_comes_slowly_is_left(
    served: Hub, send: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_http, "SECONDS", 0.2)
    served.files["test.jsonl"] = ROW * 1000
    served.other = answering("/resolve/", send)
    refused("test.jsonl comes too slowly")


def slow_error(handler: BaseHTTPRequestHandler) -> None:
    """For some seconds: whoever waits without a deadline gets another error then."""
    sending([], 500, Content_Length="30000000")(handler)
    for _ in range(60):
        handler.wfile.write(b" ")
        pause(0.05)


def test_an_error_that_comes_slowly_in_place_of_a_file_is_left(served: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_http, "SECONDS", 0.2)
    served.other = answering("/resolve/", slow_error)
    refused("test.jsonl comes too slowly")


@pytest.mark.parametrize("part", ["/resolve/", "/tree/"])
def test_an_error_without_end_is_left(served: Hub, part: str) -> None:
    served.other = answering(part, sending(repeat(b"[]," * 100_000), 404))
    refused("more than 1048576 bytes")


def test_a_file_that_comes_byte_by_byte_is_left(served: Hub) -> None:
    """Each request brings something, and none of them enough."""
    served.files = {"model.safetensors": WEIGHTS}

    left = iter(range(40))  # requests after which it would come whole

    def one_byte(handler: BaseHTTPRequestHandler, path: str) -> bool:
        if "/resolve/" not in path or next(left, None) is None:
            return False
        sending([WEIGHTS[:1]], 206, Content_Length="1")(handler)
        return True

    served.other = one_byte
    with watched(), pytest.raises(ModelError, match="cannot download owner/name"):
        snapshot("owner/name")
    assert len([path for path in served.paths if "/resolve/" in path]) <= 2 * hub_download.PATIENCE


def test_a_file_that_begins_anew_again_and_again_is_left(served: Hub) -> None:
    served.files = {"model.safetensors": WEIGHTS}
    sizes = cycle((2_000_000, 1_000_000))

    def part_of_it(handler: BaseHTTPRequestHandler) -> None:
        sending([WEIGHTS[: next(sizes)]], Content_Length=str(len(WEIGHTS)))(handler)

    served.other = answering("/resolve/", part_of_it)
    with watched(), pytest.raises(ModelError, match="cannot download owner/name"):
        snapshot("owner/name")
    assert len([path for path in served.paths if "/resolve/" in path]) <= 2 * hub_download.PATIENCE


# Elsewhere


def test_the_token_goes_to_the_hub_alone(served: Hub) -> None:
    assert questions() == ["What is 1 + 1?"]
    assert {token for _, token in served.tokens} == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_listing_that_goes_on_elsewhere_is_not_followed(served: Hub, host: str) -> None:
    with serving(Hub(dict(DATA))) as elsewhere:
        link = f'<{elsewhere.url.replace("127.0.0.1", host)}/api/datasets/owner/name/tree/main>; rel="next"'
        served.other = answering("/tree/", sending([b"[]"], Link=link))
        refused(f"goes on at {host}, which is not followed")
        assert elsewhere.paths == []


def test_no_token_goes_to_another_address(served: Hub) -> None:
    with serving(Hub(dict(DATA))) as elsewhere, hub_http.connected() as connection:
        connection.json(f"{elsewhere.url}/api/datasets/owner/name/revision/main")
        connection.json(f"{served.url}/api/datasets/owner/name/revision/main")
        assert [token for _, token in elsewhere.tokens] == [None]
        assert [token for _, token in served.tokens] == [f"Bearer {TOKEN}"]


@pytest.mark.parametrize("part", ["/resolve/", "/revision/"])
def test_a_redirect_elsewhere_has_no_token(served: Hub, part: str) -> None:
    with serving(Hub(dict(DATA))) as elsewhere:

        def moved(handler: BaseHTTPRequestHandler) -> None:
            sending([], 302, Location=elsewhere.url + handler.path, Content_Length="0")(handler)

        served.other = answering(part, moved)
        assert questions() == ["What is 1 + 1?"]
        assert [token for _, token in elsewhere.tokens] == [None]


def test_a_redirect_to_another_content_is_refused(served: Hub, tmp_path: Path) -> None:
    with serving(Hub({"test.jsonl": ROW.replace(b"2", b"3")})) as elsewhere:
        where = f"{elsewhere.url}/owner/name/resolve/main/test.jsonl"
        served.other = answering("/resolve/", sending([], 302, Location=where, Content_Length="0"))
        refused("arrived damaged and was removed")
    assert not list((tmp_path / "hub").rglob("*.jsonl"))


@pytest.mark.parametrize("part", ["/resolve/", "/tree/"])
def test_redirects_end(served: Hub, part: str) -> None:
    def again(handler: BaseHTTPRequestHandler) -> None:
        sending([], 302, Location=handler.path, Content_Length="0")(handler)

    served.other = answering(part, again)
    refused("redirects more than 5 times")
    assert len([path for path in served.paths if part in path]) <= 5 * hub_download.PATIENCE


@pytest.mark.parametrize("headed", [True, False])
@pytest.mark.parametrize("status", [200, 500])
def test_the_token_does_not_come_back(served: Hub, headed: bool, status: int) -> None:
    """Errors say what a hub answers, and stand in logs."""
    body = json.dumps({"sha": "" if headed else f"long, long, long, long, long, {TOKEN}", "error": TOKEN.upper()})
    served.other = answering(
        "/revision/", sending([b"{}" if headed else body.encode()], status, **{"x-request-id": TOKEN if headed else ""})
    )
    refused("its answer holds your token")


ESCAPED = "".join(f"\\u{ord(letter):04x}" for letter in TOKEN)
HALVES = f'"{ESCAPED[:42]}", "{ESCAPED[42:]}"'


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, f'{{"sha": "{ESCAPED}"}}'),
        (200, f'{{"sha": "hf\\u0001{ESCAPED[12:]}"}}'),
        (200, f'[{{"{ESCAPED}": [{ESCAPED.count("u")}, null]}}]'),
        (400, f'{{"error": [{HALVES}]}}'),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_the_token_does_not_come_back_in_escapes(served: Hub, status: int, body: str, encoding: str) -> None:
    assert TOKEN not in body
    served.other = answering("/revision/", sending([body.encode(encoding)], status))
    refused("its answer holds your token")


@pytest.mark.parametrize("between", [" ", "\u200b", "\u0301"])
def test_the_token_does_not_come_back_with_characters_between(
    served: Hub, between: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", f"{TOKEN}_and_more")
    body = json.dumps({"sha": between.join(f"{TOKEN}_and_more")}, ensure_ascii=False)
    served.other = answering("/revision/", sending([body.encode()]))
    refused("its answer holds your token")


@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize("part", ["/revision/", "/resolve/"])
def test_a_warning_of_the_hub_is_not_logged(
    served: Hub, status: int, part: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """It may hold what moves the cursor."""
    warnings = {"X-HF-Warning": f"{status}{part}; \x1b[31mred", "x-hf-warning": f"more{status}{part}; \x1b[31mred"}
    served.other = answering(part, sending([b"{}"], status, **warnings))
    with pytest.raises(ProblemError):
        questions()
    assert "red" not in capfd.readouterr().err


def test_no_header_of_a_hub_that_refuses_is_searched(served: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own client looks for limits of requests in some, for the square of their length."""
    from huggingface_hub import utils

    real, seen = utils.hf_raise_for_status, set[str]()  # type: ignore[attr-defined]

    def noting(response: Any) -> None:
        seen.update(response.headers)
        real(response)

    monkeypatch.setattr(utils, "hf_raise_for_status", noting)
    monkeypatch.setattr(hub_http, "_WAITS", (0,))
    limits = {"RateLimit": '"api";r=0;t=55', "RateLimit-Policy": '"fixed window";"api";q=500;w=300'}
    served.other = answering("/revision/", sending([b"{}"], 429, **limits, **{"X-Error-Message": "wait"}))
    refused("429")
    assert "x-error-message" in seen
    assert not [name for name in seen if "ratelimit" in name]


def test_headers_may_hold_more_than_ascii(served: Hub) -> None:
    body = json.dumps({"sha": served.commit}).encode()
    served.other = answering("/revision/", sending([body], **{"X-Name": "caf\u00e9", "Content-Type": "caf\u00e9"}))
    assert questions() == ["What is 1 + 1?"]


def test_no_cookie_of_the_hub_is_kept(served: Hub) -> None:
    sent = []

    def page(handler: BaseHTTPRequestHandler) -> None:
        sent.append(handler.headers.get("Cookie"))
        sending([b"{}"], **{"Set-Cookie": "a=1; Path=/", "set-cookie": "b=1; Path=/"})(handler)

    served.other = answering("/api/", page)
    with hub_http.connected() as connection:
        for _ in range(2):
            connection.json(f"{served.url}/api/datasets/owner/name")
        assert not list(connection.session.cookies.jar)
    assert sent == [None, None]


def test_bytes_behind_an_answer_of_the_hub_are_not_the_next_one(served: Hub) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d"

    def send(handler: BaseHTTPRequestHandler, path: str) -> bool:  # noqa: ARG001
        handler.wfile.write(answer % 1 + answer % 2)
        while line := handler.rfile.readline():  # the connection stays open
            if line == b"\r\n":
                handler.wfile.write(answer % 3)
        return True

    served.other = send
    with watched(), hub_http.connected() as connection:
        assert [connection.json(f"{served.url}/api/datasets/owner/name") for _ in range(3)] == [1, 1, 1]


def quoted(what: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(what)
        handler.close_connection = True

    return send


@pytest.mark.parametrize("part", ["/revision/", "/resolve/"])
@pytest.mark.parametrize(
    "line", ["200 OK\r\nX {}: 1\r\n", "{} OK\r\n", "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}"]
)
def test_the_token_does_not_come_back_in_what_is_no_http(served: Hub, line: str, part: str) -> None:
    served.other = answering(part, quoted(f"HTTP/1.1 {line.format(TOKEN)}\r\n\r\n".encode()))
    refused("its answer holds your token")


@pytest.mark.parametrize("body", [b'["no"]', b'{"errors": [1]}', b'"\xff"', b"[" * 100_000])
@pytest.mark.parametrize("status", [401, 404])
def test_an_error_of_another_form_is_named(served: Hub, body: bytes, status: int) -> None:
    served.other = answering("/revision/", sending([body], status))
    refused(rf"it answers {status}")


def test_a_header_of_blanks_is_not_read(served: Hub) -> None:
    served.other = answering("/revision/", quoted(b"HTTP/1.1 200 OK\r\nX:" + b" " * 60_000 + b"\x00\r\n\r\n"))
    refused("a header with 64 blanks in a row")


# Out of the cache


def outside(tmp_path: Path) -> list[Path]:
    return [path for path in tmp_path.rglob("*") if path.is_file() and tmp_path / "hub" not in path.parents]


@pytest.mark.parametrize(
    "name", ["../x", "../../../x", "/x", "0" * 39, "A" * 40, "0" * 63, "", "..", "a/b", "0" * 39 + "\n"]
)
@pytest.mark.parametrize("large", [False, True])
def test_a_digest_that_is_none_is_refused(served: Hub, name: str, large: bool, tmp_path: Path) -> None:
    digest = str(tmp_path / "x") if name == "/x" else name
    served.changes = {"lfs": {"oid": digest}} if large else {"oid": digest}
    refused("as the digest of test.jsonl")
    assert outside(tmp_path) == []


@pytest.mark.parametrize("commit", ["../../x", "main", "/x", "1" * 39, "1" * 40 + "\n", ""])
def test_a_commit_that_is_none_is_refused(served: Hub, commit: str, tmp_path: Path) -> None:
    served.commit = commit
    refused("as the newest commit")
    assert outside(tmp_path) == []


@pytest.mark.parametrize(
    "name", ["../test.jsonl", "/test.jsonl", "a\\test.jsonl", "a\0.jsonl", "C:test.jsonl", "a//b.jsonl"]
)
def test_a_name_that_leads_elsewhere_is_refused(served: Hub, name: str, tmp_path: Path) -> None:
    served.changes = {"path": name}
    refused("which no folder can hold")
    assert outside(tmp_path) == []


@pytest.mark.parametrize("size", [-1, "9", None, 1.5])
def test_a_size_that_is_none_is_refused(served: Hub, size: object) -> None:
    served.changes = {"size": size}
    refused(r"hub:owner/name from the hub \(it gives test.jsonl")
