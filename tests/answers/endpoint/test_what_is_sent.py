"""What arrives at a server, byte for byte, whatever the environment holds."""

from __future__ import annotations

import re
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from support.answering import SECRET, ask, completion, sending, serving

openai = pytest.importorskip("openai")

CANARY = "canary"
# The names and values of every header that is sent; what stands for a number is compared as one.
HEADERS = {
    "host": r"127\.0\.0\.1:\d+",
    "authorization": "Bearer none",
    "accept": "application/json",
    "accept-encoding": "gzip",
    "content-type": "application/json",
    "content-length": r"\d+",
    "user-agent": "fillerscope",
}


def variables_of_openai() -> set[str]:
    """Every environment variable that the installed client reads."""
    sources = Path(openai.__file__).parent.rglob("*.py")
    reading = re.compile(r"environ(?:\.get\(|\[)\s*[\"'](\w+)[\"']")
    return {name for source in sources for name in reading.findall(source.read_text(encoding="utf-8"))}


@pytest.fixture
def canaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which whatever could be sent names itself."""
    for name in variables_of_openai() - {"OPENAI_API_KEY", "OPENAI_LOG", "DEFER_PYDANTIC_BUILD"}:
        monkeypatch.setenv(name, f"{CANARY}-{name}")
    headers = ["X-Secret", "Authorization", "Accept", "Content-Type", "User-Agent", "Host", "Cookie", "Content-Length"]
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "\n".join(f"{name}: {CANARY}" for name in headers))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / ".netrc").write_text(f"default login {CANARY} password {CANARY}\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))


def recorded() -> list[dict[str, str]]:
    """Ask a server that notes what it is sent: the headers of each request, and its path under an empty name."""
    arrived: list[dict[str, str]] = []

    def record(handler: BaseHTTPRequestHandler) -> None:
        arrived.append({name.lower(): value for name, value in handler.headers.items()} | {"": handler.path})
        sending(completion())(handler)

    with serving(record) as url:
        assert ask(url).text == "42"
    return arrived


def test_the_variables_are_found() -> None:
    assert {"OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_CUSTOM_HEADERS", "OPENAI_BASE_URL"} <= variables_of_openai()


@pytest.mark.usefixtures("canaries")
def test_no_header_comes_from_the_environment() -> None:
    for headers in recorded():
        assert headers.pop("") == "/v1/completions"
        assert set(headers) == set(HEADERS)
        for name, value in headers.items():
            assert re.fullmatch(HEADERS[name], value), name


@pytest.mark.usefixtures("canaries")
def test_the_key_of_the_study_is_the_one_that_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    assert {headers["authorization"] for headers in recorded()} == {f"Bearer {SECRET}"}


PROXIES = ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


@pytest.mark.parametrize("variable", PROXIES)
def test_this_machine_is_asked_without_a_proxy(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*PROXIES, "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    seen: list[str] = []

    def proxy(handler: BaseHTTPRequestHandler) -> None:
        seen.append(handler.path)
        sending(completion("by the proxy"))(handler)

    with serving(proxy) as address, serving(sending(completion())) as url:
        monkeypatch.setenv(variable, address.removesuffix("/v1"))
        assert ask(url).text == "42"
    assert seen == []


@pytest.mark.parametrize(("variable", "value"), [("ALL_PROXY", "socks5://127.0.0.1:9"), ("HTTP_PROXY", "http://a/b:c")])
def test_no_setting_of_proxies_keeps_this_machine_from_being_asked(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv(variable, value)
    with serving(sending(completion())) as url:
        assert ask(url).text == "42"
