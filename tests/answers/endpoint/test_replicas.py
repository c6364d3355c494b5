"""Several servers of one model: what each gets, and what happens when one is slow, hangs, dies or is wrong.

The servers are llama.cpp's own; what is wrong with them is put before them by proxies, or they are killed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fillerscope.answers.endpoint.allowed import allow, read_key
from fillerscope.answers.endpoint.generator import EndpointGenerator
from fillerscope.answers.request import Reply, Request
from fillerscope.errors import GenerationError
from fillerscope.measure.identity import identify
from fillerscope.study.generation import Decoding, EndpointSpec
from fillerscope.study.study import ModelSpec, Study
from support.server import (
    Proxy,
    free_port,
    hang,
    llama_cpp,
    proxy,
    slow,
    status,
    wants_key,
    write_gguf,
)
from support.tiny import tiny_model, tiny_tokenizer

pytest.importorskip("openai")
pytest.importorskip("xllamacpp")

SHORT = Decoding(max_tokens=6)
SECRET = "sk-do-not-tell-4711"
Between = Callable[..., Proxy]
Say = Callable[[str], None]


def quiet(_: object) -> None:
    """A tick that says nothing."""


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tiny_model("llama"), tiny_tokenizer(), tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="module")
def served(weights: Path) -> Iterator[str]:
    with llama_cpp(weights) as server:
        yield server.url


@pytest.fixture
def between(served: str) -> Iterator[Between]:
    """Puts proxies before the server: each is a replica of its own to whoever asks."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(proxy(served, **options))


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))


def endpoint(*urls: str, say: Say = quiet, **spec: Any) -> EndpointGenerator:
    options: dict[str, Any] = {"retries": 1, "timeout": 30.0, **spec}
    return EndpointGenerator(EndpointSpec(url=urls[0], replicas=urls[1:], **options), "tiny", tiny_tokenizer(), say)


def asked(count: int) -> list[Request]:
    tokenizer = tiny_tokenizer()
    return [Request(tuple(tokenizer.encode(f"What is {number} + 30?")), seed=number) for number in range(count)]


@pytest.fixture(scope="module")
def alone(served: str) -> list[Reply]:
    """What one server answers to the same requests."""
    return endpoint(served).answer(asked(40), SHORT, quiet)


def refused(generator: EndpointGenerator, count: int = 4) -> str:
    with pytest.raises(GenerationError) as raised:
        generator.answer(asked(count), SHORT, quiet)
    line = str(raised.value)
    assert "\n" not in line
    assert len(line) < 400
    return line


def answers(seen: Proxy) -> int:
    """How many requests it got, without the one that tries a server."""
    return sum(body["max_tokens"] > 1 for body in seen.asked)


def test_replicas_share_the_requests_and_give_the_answers_of_one(between: Between, alone: list[Reply]) -> None:
    first, second = between(always=slow(0.02)), between(always=slow(0.02))
    ticks: list[float] = []
    replies = endpoint(first.url, second.url, concurrency=2).answer(asked(40), SHORT, ticks.append)
    assert replies == alone
    assert sum(ticks) == 40
    assert answers(first) + answers(second) == 40
    assert min(answers(first), answers(second)) >= 5
    assert (first.most_at_once, second.most_at_once) == (2, 2)  # of each


def test_a_slow_replica_gets_fewer_requests(between: Between, alone: list[Reply]) -> None:
    fast, behind = between(), between(always=slow(0.5))
    began = time.monotonic()
    assert endpoint(fast.url, behind.url, concurrency=1).answer(asked(40), SHORT, quiet) == alone
    assert answers(fast) > 2 * answers(behind) > 0
    assert time.monotonic() - began < 15  # 20 s where half of them wait for the slow one


def test_the_death_of_a_replica_is_survived(weights: Path, served: str, alone: list[Reply]) -> None:
    said: list[str] = []
    with llama_cpp(weights) as mortal, proxy(served, always=slow(0.05)) as staying:
        generator = endpoint(mortal.url, staying.url, concurrency=2, retries=0, say=said.append)
        assert generator.answer(asked(40), SHORT, lambda _: mortal.kill()) == alone
    assert len(said) == 1
    assert said[0].startswith(f"a replica has gone, and the others answer for it: {mortal.url} cannot be reached (")


def test_where_all_have_gone_the_error_is_that_of_one(weights: Path) -> None:
    with llama_cpp(weights) as one, llama_cpp(weights) as other:

        def kill(_: float) -> None:
            one.kill()
            other.kill()

        generator = endpoint(one.url, other.url, retries=1, concurrency=2)
        with pytest.raises(GenerationError) as raised:
            generator.answer(asked(40), Decoding(max_tokens=64), kill)
    line = str(raised.value)
    assert line.startswith("none of 2 replicas is left; the last one: http://")
    assert "cannot be reached (" in line
    assert line.endswith("start the server or correct endpoint.url, then run again to resume")


def test_a_replica_that_hangs_is_left_within_the_time_of_an_answer(between: Between, alone: list[Reply]) -> None:
    """Also where the client would try six more times, and no later call waits for it again."""
    said: list[str] = []
    fine, hung = between(), between(faults=[lambda _: False], always=hang)  # it passes the first try
    generator = endpoint(fine.url, hung.url, concurrency=2, timeout=2.0, retries=6, say=said.append)
    began = time.monotonic()
    assert generator.answer(asked(40), SHORT, quiet) == alone
    assert 2 <= time.monotonic() - began < 12
    assert len(said) == 1
    assert f"{hung.url} gave no complete answer within 2 s, all tries together;" in said[0]
    before, began = len(hung.asked), time.monotonic()
    assert generator.answer(asked(40), SHORT, quiet) == alone
    assert len(hung.asked) == before
    assert len(said) == 1


def test_what_a_replica_had_under_way_when_it_went_is_not_lost(between: Between, alone: list[Reply]) -> None:
    fine, gone = between(always=slow(0.02)), between(faults=[lambda _: False, hang], always=status(500))
    generator = endpoint(fine.url, gone.url, concurrency=2, timeout=60.0, retries=0)
    began = time.monotonic()
    assert generator.answer(asked(40), SHORT, quiet) == alone
    assert answers(gone) == 2
    assert time.monotonic() - began < 30  # nobody waited for the one that hung


def test_a_replica_that_hangs_from_the_start_holds_nobody_up(between: Between, alone: list[Reply]) -> None:
    fine, hung = between(), between(always=hang)
    began = time.monotonic()
    assert endpoint(hung.url, fine.url, timeout=60.0).answer(asked(40), SHORT, quiet) == alone
    assert time.monotonic() - began < 30


def test_one_that_was_left_alone_is_tried_before_there_is_none(between: Between, alone: list[Reply]) -> None:
    back, last = between(faults=[status(503)]), between()
    generator = endpoint(back.url, last.url, retries=0)
    last.faults.append(slow(1.0))  # the other one is found to have gone first
    assert generator.answer(asked(40), SHORT, quiet) == alone
    last.always = status(500)
    assert generator.answer(asked(40), SHORT, quiet) == alone
    assert answers(back) >= 40


def test_a_request_that_nobody_answers_does_not_go_round_for_ever(between: Between) -> None:
    poison = list(asked(1)[0].ids)

    def never(handler: Any) -> bool:
        return f'"prompt":{poison}'.replace(" ", "").encode() in handler.body.replace(b" ", b"") and hang(handler)

    generator = endpoint(between(always=never).url, between(always=never).url, timeout=1.0, concurrency=2)
    began = time.monotonic()
    with pytest.raises(GenerationError, match="gave no complete answer within 1 s"):
        generator.answer([*asked(40), *asked(40)[1:]], SHORT, quiet)
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (status(307, Location="http://127.0.0.1:9/v1"), "redirects to another address, which is not followed"),
        (wants_key("another"), "refuses the key (401)"),
        (status(404, "no such model"), "knows no model 'tiny'"),
    ],
    ids=["redirect", "key", "model"],
)
def test_a_wrong_replica_stops_the_run_as_a_single_one_does(fault: Any, words: str, between: Between) -> None:
    right, wrong = between(always=slow(0.5)), between(always=fault)
    line = refused(endpoint(right.url, wrong.url))
    assert line.startswith(f"{wrong.url} {words}")
    assert not answers(wrong)


def test_a_replica_that_reads_other_tokens_stops_the_run(between: Between) -> None:
    def miscount(_: object, answer: dict[str, Any]) -> None:
        answer["usage"]["prompt_tokens"] += 1

    right, wrong = between(always=slow(0.5)), between(alter=miscount)
    line = refused(endpoint(right.url, wrong.url))
    assert line.startswith(f"{wrong.url}: the server read ")
    assert "serve 'tiny' with its own tokenizer there" in line


def test_a_replica_that_takes_text_alone_is_asked_in_text(between: Between, alone: list[Reply]) -> None:
    def text_only(handler: Any) -> bool:
        time.sleep(0.02)
        return b'"prompt":[' in handler.body.replace(b" ", b"") and status(400, "not a string")(handler)

    ids, text = between(always=slow(0.02)), between(always=text_only)
    assert endpoint(ids.url, text.url).answer(asked(40), SHORT, quiet) == alone
    assert {type(body["prompt"]) for body in ids.asked} == {list}
    assert {type(body["prompt"]) for body in text.asked if body["max_tokens"] > 1} == {str}


# What a replica may have


HERE, FAR, OTHER = "http://127.0.0.1:8000/v1", "https://a.example.org/v1", "https://b.example.org/v1"


def test_every_replica_needs_its_host_confirmed() -> None:
    spec = EndpointSpec(url=HERE, replicas=(FAR, OTHER))
    with pytest.raises(GenerationError, match=r"send its questions to a\.example\.org; .* --allow-host a\.example"):
        read_key(spec)
    allow([], ["a.example.org"], [spec])
    with pytest.raises(GenerationError, match=r"--allow-host b\.example\.org$"):
        read_key(spec)
    allow([], ["b.example.org"], [spec])
    assert read_key(spec).get_secret_value() == ""


def test_every_replica_needs_the_key_confirmed_for_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    spec = EndpointSpec(url=FAR, replicas=(OTHER,))
    with pytest.raises(GenerationError, match=r"2 hosts; give --allow-key OPENAI_API_KEY=a\.example\.org or --allow"):
        allow(["OPENAI_API_KEY"], [], [spec])
    allow(["OPENAI_API_KEY=a.example.org"], [], [spec])
    with pytest.raises(GenerationError, match=r"--allow-key OPENAI_API_KEY=b\.example\.org$"):
        read_key(spec)
    allow(["OPENAI_API_KEY=b.example.org"], [], [spec])
    assert read_key(spec).get_secret_value() == SECRET
    with pytest.raises(GenerationError, match=r"would go to c\.example\.org over plain http"):
        read_key(EndpointSpec(url=FAR, replicas=("http://c.example.org/v1",)))


def test_nothing_is_sent_to_anybody_while_one_is_not_confirmed(between: Between) -> None:
    seen = between()
    assert "--allow-host a.example.org" in refused(endpoint(seen.url, FAR))
    assert seen.asked == []


def test_the_key_goes_to_every_replica(between: Between, alone: list[Reply], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    one, other = between(always=wants_key(SECRET)), between(always=wants_key(SECRET))
    assert endpoint(one.url, other.url).answer(asked(40), SHORT, quiet) == alone
    assert answers(one) + answers(other) == 40


@pytest.mark.parametrize(
    ("replica", "words"),
    [
        ("http://me:secret@localhost:1/v1", "without name, password or query"),
        ("http://localhost:99999999/v1", "a URL looks like"),
        ("localhost:8000/v1", "should match pattern"),
        ("http://127.0.0.1:8000/v1/", "is given 2 times"),
    ],
)
def test_a_replica_is_checked_as_the_first_server_is(replica: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        EndpointSpec(url=HERE, replicas=(replica,))


def test_replicas_do_not_change_what_a_run_is_called() -> None:
    def identity(*replicas: str) -> object:
        spec = ModelSpec(name="tiny", endpoint=EndpointSpec(url=HERE, replicas=replicas))
        return identify(Study.model_validate({"name": "a", "models": [spec]}), [], {"tiny": _Folder()})  # type: ignore[dict-item]

    assert identity() == identity(f"http://127.0.0.1:{free_port()}/v1", FAR)


class _Folder:
    digest = "0"


def too_long(handler: Any) -> bool:
    """A server with less room than the others: it takes the prompt that tries it, and no answer of some tokens."""
    if json.loads(handler.body)["max_tokens"] <= 1:
        return False
    return bool(status(400, "This model's maximum context length is 4 tokens")(handler))


@pytest.mark.parametrize("first", [True, False])
def test_what_a_replica_refuses_another_answers(between: Between, alone: list[Reply], first: bool) -> None:
    good, bad = between(always=slow(0.05)), between(always=too_long)
    urls = (bad.url, good.url) if first else (good.url, bad.url)
    said: list[str] = []
    assert endpoint(*urls, say=said.append, concurrency=2).answer(asked(40), SHORT, quiet) == alone
    assert len(said) == 1
    assert f"{bad.url} refuses what another replica answers" in said[0]
    assert "context length" in said[0]


def refusing(odd: bool) -> Any:
    """A server that refuses every second prompt."""

    def refuse(handler: Any) -> bool:
        body = json.loads(handler.body)
        wanted = body["max_tokens"] > 1 and body["seed"] % 2 == odd
        return bool(wanted and status(400, "not this one")(handler))

    return refuse


def test_replicas_that_each_refuse_what_the_other_answers(between: Between, alone: list[Reply]) -> None:
    urls = [between(always=refusing(odd)).url for odd in (False, True)]
    assert endpoint(*urls, concurrency=4).answer(asked(40), SHORT, quiet) == alone


def test_a_prompt_that_all_replicas_refuse_is_refused(between: Between) -> None:
    servers = [between(always=too_long) for _ in range(3)]
    replies = endpoint(*(one.url for one in servers)).answer(asked(6), SHORT, quiet)
    assert [reply.finish for reply in replies] == ["failed"] * 6
    assert all("context length" in reply.error for reply in replies)


def test_a_refusal_counts_where_the_others_have_gone(between: Between) -> None:
    replies = endpoint(between(always=too_long).url, f"http://127.0.0.1:{free_port()}/v1").answer(
        asked(4), SHORT, quiet
    )
    assert [reply.finish for reply in replies] == ["failed"] * 4
