"""What may be sent to which servers: environment variables, and questions."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fillerscope.answers.endpoint.allowed import allow, is_loopback, looks_like_a_key, read_key
from fillerscope.errors import GenerationError
from fillerscope.study.generation import EndpointSpec

SECRET = "sk-do-not-tell-4711"
HERE, FAR, PLAIN = "http://127.0.0.1:8000/v1", "https://api.example.org/v1", "http://api.example.org/v1"


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "fillerscope" / "keys.json"


def key(name: str, url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(name, SECRET)
    return read_key(EndpointSpec(url=url, key=name)).get_secret_value()


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "MY_KEY", "VLLM_API_TOKEN", "my_api_key", "HF_TOKEN"])
@pytest.mark.parametrize("url", [HERE, "http://localhost:1/v1", "http://[::1]:1/v1"])
def test_an_api_key_goes_to_this_machine(name: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert key(name, url, monkeypatch) == SECRET


@pytest.mark.parametrize(
    "name",
    [
        "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GITHUB_TOKEN", "DATABASE_URL", "PATH", "SSH_PRIVATE_KEY",
        "PASSWORD", "SECRET_KEY", "NPM_TOKEN", "HOME",
    ],
)  # fmt: skip
def test_no_other_variable_is_sent_even_to_this_machine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not looks_like_a_key(name)
    with pytest.raises(
        GenerationError, match=f"send the environment variable {name} to 127.0.0.1.*--allow-key {name}=127.0.0.1$"
    ):
        key(name, HERE, monkeypatch)


def test_another_host_is_confirmed_once_and_for_that_host_alone(
    monkeypatch: pytest.MonkeyPatch, settings: Path
) -> None:
    with pytest.raises(GenerationError, match=r"to api\.example\.org.*--allow-key OPENAI_API_KEY=api\.example\.org$"):
        key("OPENAI_API_KEY", FAR, monkeypatch)
    allow(["OPENAI_API_KEY"], [], [EndpointSpec(url=FAR)])
    assert key("OPENAI_API_KEY", FAR, monkeypatch) == SECRET
    assert SECRET not in settings.read_text()
    for name, url in (("OTHER_API_KEY", FAR), ("OPENAI_API_KEY", "https://evil.example.org/v1")):
        with pytest.raises(GenerationError, match="--allow-key"):
            key(name, url, monkeypatch)


def test_no_key_leaves_this_machine_over_plain_http(monkeypatch: pytest.MonkeyPatch) -> None:
    allow(["OPENAI_API_KEY"], [], [EndpointSpec(url=PLAIN)])
    with pytest.raises(GenerationError, match="over plain http"):
        key("OPENAI_API_KEY", PLAIN, monkeypatch)


@pytest.fixture
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)


@pytest.mark.usefixtures("no_key")
def test_a_variable_that_is_not_set_sends_nothing_anywhere() -> None:
    spec = EndpointSpec(url=PLAIN, key="AWS_SECRET_ACCESS_KEY")
    allow([], ["api.example.org"], [spec])
    assert read_key(spec).get_secret_value() == ""


@pytest.mark.usefixtures("no_key")
@pytest.mark.parametrize("url", [FAR, PLAIN, "http://10.0.0.7:8000/v1", "http://a.localhost/v1", "http://0.0.0.0/v1"])
def test_questions_go_to_another_host_once_it_is_confirmed(url: str, settings: Path) -> None:
    spec = EndpointSpec(url=url, key="AWS_SECRET_ACCESS_KEY")
    host = str(urlsplit(url).hostname)
    with pytest.raises(GenerationError, match=rf"send its questions to {host};.*--allow-host {host}$"):
        read_key(spec)
    assert not settings.exists()
    allow([], [host.upper()], [spec])
    read_key(spec)
    with pytest.raises(GenerationError, match="--allow-host"):
        read_key(EndpointSpec(url="https://evil.example.org/v1", key=spec.key))


@pytest.mark.usefixtures("no_key")
@pytest.mark.parametrize("url", [HERE, "http://localhost:1/v1", "http://[::1]:1/v1"])
def test_questions_go_to_this_machine(url: str) -> None:
    read_key(EndpointSpec(url=url, key="AWS_SECRET_ACCESS_KEY"))


def test_a_host_that_has_the_key_may_have_the_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    allow(["OPENAI_API_KEY"], [], [EndpointSpec(url=FAR)])
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    read_key(EndpointSpec(url=FAR))


def test_a_host_that_may_have_the_questions_does_not_get_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    allow([], ["api.example.org"], [EndpointSpec(url=FAR)])
    with pytest.raises(GenerationError, match="--allow-key OPENAI_API_KEY"):
        key("OPENAI_API_KEY", FAR, monkeypatch)


def test_a_key_is_confirmed_for_no_host_that_was_not_named(monkeypatch: pytest.MonkeyPatch, settings: Path) -> None:
    evil = "https://evil.example.org/v1"
    specs = [EndpointSpec(url=FAR), EndpointSpec(url=evil), EndpointSpec(url=PLAIN, key="OTHER")]
    with pytest.raises(GenerationError, match=r"2 hosts; give --allow-key OPENAI_API_KEY=api\.example\.org or .*evil"):
        allow(["OPENAI_API_KEY"], [], specs)
    with pytest.raises(GenerationError, match=r"no endpoint of the study with this variable is on other\.org"):
        allow(["OPENAI_API_KEY=other.org"], [], specs)
    assert not settings.exists()
    allow(["OPENAI_API_KEY=API.example.org"], [], specs)
    assert key("OPENAI_API_KEY", FAR, monkeypatch) == SECRET
    with pytest.raises(GenerationError, match=r"--allow-key OPENAI_API_KEY=evil\.example\.org"):
        key("OPENAI_API_KEY", evil, monkeypatch)


def test_a_host_that_the_study_does_not_use_is_refused(settings: Path) -> None:
    with pytest.raises(GenerationError, match=r"--allow-host b\.org: no endpoint of the study is on this host"):
        allow([], ["b.org"], [EndpointSpec(url=FAR)])
    assert not settings.exists()


def test_a_name_that_the_study_does_not_use_is_refused(settings: Path) -> None:
    with pytest.raises(GenerationError, match="no endpoint of the study names this variable"):
        allow(["OTHER"], [], [EndpointSpec(url=FAR)])
    assert not settings.exists()


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"allowed": 3}', '{"allowed": [], "hosts": 3}', '{"allowed": [["OPENAI_API_KEY"]]}']
)
def test_broken_settings_confirm_nothing(text: str, settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.parent.mkdir()
    settings.write_text(text)
    with pytest.raises(GenerationError, match="--allow-key"):
        key("OPENAI_API_KEY", FAR, monkeypatch)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("a.localhost", False),
     ("localhost.evil.org", False), ("127.0.0.1.evil.org", False), ("0.0.0.0", False), ("10.0.0.1", False)],
)  # fmt: skip
def test_only_loopback_is_this_machine(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
