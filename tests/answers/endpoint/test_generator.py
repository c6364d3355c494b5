"""Answers from real servers: llama.cpp's, which takes token ids, and `transformers serve`, which takes text alone.

Faults are put between client and server by a proxy; what is answered in the end is the server's own.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import threading
import time
import traceback
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
import torch
from tokenizers.processors import TemplateProcessing

from fillerscope.answers.endpoint import generator as generator_module
from fillerscope.answers.endpoint.allowed import allow
from fillerscope.answers.endpoint.errors import PromptRefused
from fillerscope.answers.endpoint.generator import EndpointGenerator
from fillerscope.answers.endpoint.text import answer_text, prompt_text, token_count
from fillerscope.answers.request import Reply, Request
from fillerscope.errors import GenerationError
from fillerscope.prompts.tokenizer import encode
from fillerscope.study.generation import Decoding, EndpointSpec
from support.answering import completion, sending, serving
from support.server import (
    answer,
    drop,
    free_port,
    hang,
    llama_cpp,
    page,
    proxy,
    slow,
    status,
    then,
    transformers_serve,
    until,
    wants_key,
    write_gguf,
)
from support.tiny import tiny_model, tiny_tokenizer
from support.watchdog import watched

pytest.importorskip("openai")

QUESTIONS = ("What is 12 + 30?", "Anna has 3 apples and buys 4 more.", "A train leaves at 9: how long is the ride?")
GREEDY = Decoding(max_tokens=24)
ENDS = [0, 2]  # <|endoftext|> and <|im_end|> in both vocabularies; llama.cpp knows them by their names
SECRET = "sk-do-not-tell-4711"


@pytest.fixture(scope="session")
def tokenizer():
    return tiny_tokenizer()


@pytest.fixture(scope="session")
def model():
    return tiny_model("llama")


@pytest.fixture(scope="session")
def weights(model, tokenizer, tmp_path_factory):
    return write_gguf(model, tokenizer, tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="session")
def served(weights):
    pytest.importorskip("xllamacpp")
    with llama_cpp(weights) as server:
        yield server.url


@pytest.fixture
def between(served):
    """Puts a proxy before the server, with the faults that a test asks for."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(proxy(served, **options))


@pytest.fixture
def endpoint(tokenizer, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return lambda url, **spec: EndpointGenerator(
        EndpointSpec(url=url, **{"retries": 1, "timeout": 30.0, **spec}), "tiny", tokenizer
    )


@pytest.fixture
def ctrl_c():
    """What presses it. A process that was started in the background would not hear it otherwise."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    signal.signal(signal.SIGINT, before)


def asked(tokenizer, questions=QUESTIONS):
    """Requests for the questions, in the tokenizer's own chat format."""
    turns = [[{"role": "user", "content": question}] for question in questions]
    options = {"add_generation_prompt": True, "return_dict": False}
    return [Request(tuple(tokenizer.apply_chat_template(turn, **options)), seed=7) for turn in turns]


def expected(model, tokenizer, requests, most=24):
    """The replies that the model gives here, without a server."""
    return [_reply(_written(model, request, most), tokenizer) for request in requests]


def _written(model, request, most):
    ids = torch.tensor([request.ids])
    options = {"max_new_tokens": most, "do_sample": False, "attention_mask": torch.ones_like(ids)}
    return model.generate(ids, **options, eos_token_id=ENDS)[0, ids.shape[1] :].tolist()


def _reply(ids, tokenizer):
    ended = ids[-1] in ENDS
    text = tokenizer.decode(ids, skip_special_tokens=True)
    return Reply(text, len(ids) - ended, "stop" if ended else "length")


def quiet(count):
    """A tick that says nothing."""


def refused(generator, requests, decoding=GREEDY):
    """The one line of the error that stops the run."""
    with pytest.raises(GenerationError) as raised:
        generator.answer(requests, decoding, quiet)
    line = str(raised.value)
    assert "\n" not in line
    assert len(line) < 400
    return line


# What is answered


@pytest.mark.parametrize(("prompt", "kind"), [("auto", list), ("ids", list), ("text", str)])
def test_the_server_writes_what_the_model_writes_here(prompt, kind, between, endpoint, model, tokenizer):
    requests, seen = asked(tokenizer), between()
    replies = endpoint(seen.url, prompt=prompt).answer(requests, GREEDY, quiet)
    assert replies == expected(model, tokenizer, requests)
    assert {reply.finish for reply in replies} == {"stop", "length"}
    assert {type(body["prompt"]) for body in seen.asked} == {kind}


def test_the_decoding_and_the_seed_are_sent(between, endpoint, tokenizer):
    seen, request = between(), Request(asked(tokenizer)[0].ids, seed=2**40 + 5)
    endpoint(seen.url, model="other").answer([request], Decoding(max_tokens=3, temperature=0.7, top_p=0.9), quiet)
    body = seen.asked[-1]
    assert (body["model"], body["max_tokens"], body["temperature"], body["top_p"]) == ("other", 3, 0.7, 0.9)
    assert body["seed"] == 5  # within what every server keeps


def test_the_same_seed_draws_the_same_answer(served, endpoint, tokenizer):
    generator, (first, *_) = endpoint(served), asked(tokenizer)
    requests = [first, first, Request(first.ids, seed=8)]
    one, two, other = generator.answer(requests, Decoding(max_tokens=24, temperature=1.0), quiet)
    assert one.text == two.text != other.text


def test_special_tokens_are_taken_out_of_an_answer(between, endpoint, tokenizer):
    def leave_them_in(_, answer):
        answer["choices"][0].update(text="<|im_start|>It is 42.<|im_end|>\n<|im_start|>user", finish_reason="stop")

    (reply,) = endpoint(between(alter=leave_them_in).url).answer(asked(tokenizer)[:1], GREEDY, quiet)
    assert (reply.text, reply.finish) == ("It is 42.", "stop")


def test_an_answer_without_usage_is_counted_here(between, endpoint, tokenizer):
    def say_nothing(_, answer):
        del answer["usage"]
        answer["choices"][0].update(text="The answer is 42", finish_reason="stop")

    (reply,) = endpoint(between(alter=say_nothing).url).answer(asked(tokenizer)[:1], GREEDY, quiet)
    assert reply.tokens == len(tokenizer.encode("The answer is 42"))


@pytest.mark.parametrize(
    ("counted", "ended", "tokens"), [(4, True, 3), (3, True, 3), (6, True, 5), (4, False, 4), (0, True, 3)]
)
def test_the_end_of_a_turn_is_known_from_the_count(counted, ended, tokens, tokenizer):
    text = tokenizer.decode(tokenizer.encode("The answer is 42")[:3])
    assert len(tokenizer.encode(text)) == 3
    assert token_count(tokenizer, text, counted, ended) == tokens


def test_no_requests_ask_nothing_of_anyone(endpoint):
    assert endpoint(f"http://127.0.0.1:{free_port()}/v1").answer([], GREEDY, quiet) == []


# Prompts as text


def text_only(handler):
    """As servers do that take no ids."""
    return b'"prompt":[' in handler.body.replace(b" ", b"") and status(400, "prompt must be a string.")(handler)


def test_a_server_that_takes_no_ids_is_asked_in_text_after_one_try(between, endpoint, model, tokenizer):
    requests, seen = asked(tokenizer), between(always=text_only)
    generator = endpoint(seen.url)
    for _ in range(2):
        replies = generator.answer(requests, GREEDY, quiet)
        assert replies == expected(model, tokenizer, requests)
    assert [isinstance(body["prompt"], list) for body in seen.asked] == [True] + [False] * 7


def test_ids_that_no_text_gives_need_a_server_that_takes_ids(between, endpoint, model, tokenizer):
    seen = between()
    letters = tuple(token for letter in "answer" for token in tokenizer.encode(letter))
    requests = [Request(letters), asked(tokenizer)[0]]
    broken, fine = endpoint(seen.url, prompt="text").answer(requests, GREEDY, quiet)
    assert len(seen.asked) == 2  # the server was tried with the one that has a text
    assert broken.finish == "failed"
    assert broken.error == "no text gives the tokens of this prompt again; use a server that takes token ids"
    assert fine.error == ""
    replies = endpoint(seen.url).answer(requests, GREEDY, quiet)
    assert replies == expected(model, tokenizer, requests)


@pytest.fixture
def with_bos():
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    return tokenizer


def test_a_bos_that_tokenizers_add_is_left_out_of_the_text(with_bos):
    ids = with_bos.encode("The answer is 42")
    assert ids[0] == 0
    assert prompt_text(with_bos, ids) == "The answer is 42"
    assert prompt_text(with_bos, ids[1:]) is None  # there is no text without a BOS


def test_a_server_that_adds_a_bos_reads_it_once(model, tokenizer, with_bos, endpoint, tmp_path):
    pytest.importorskip("xllamacpp")
    request = Request(tuple(with_bos.encode("The answer is 42")))
    with llama_cpp(write_gguf(model, with_bos, tmp_path / "bos.gguf", bos=True)) as server:
        generator = EndpointGenerator(EndpointSpec(url=server.url, prompt="text"), "tiny", with_bos)
        (reply,) = generator.answer([request], GREEDY, quiet)
        assert [reply] == expected(model, with_bos, [request])

        line = refused(endpoint(server.url, prompt="text"), asked(tokenizer))  # our tokenizer adds none
        read = len(min(asked(tokenizer), key=lambda each: len(each.ids)).ids)
        assert f"the server read {read + 1} prompt tokens, {read} were sent: it does not see the same prompt" in line


def test_a_prompt_misread_later_is_one_failed_answer(between, endpoint, tokenizer):
    requests = asked(tokenizer)

    def misread_one(body, answer):
        if body["prompt"] == list(requests[1].ids) and body["max_tokens"] > 1:
            answer["usage"]["prompt_tokens"] -= 2

    replies = endpoint(between(alter=misread_one).url).answer(requests, GREEDY, quiet)
    length = len(requests[1].ids)
    wording = f"the server read {length - 2} prompt tokens, {length} were sent: it does not see the same prompt"
    assert replies[1] == Reply("", 0, "failed", wording)
    assert [reply.error for reply in replies] == ["", wording, ""]


def test_special_tokens_are_cut_out_whole(tokenizer):
    assert answer_text(tokenizer, "a<|im_start|>b<|im_end|>c", ("<|im_end|>",)) == ("ab", "c")
    assert answer_text(tokenizer, "a<|im_end|>", ("<|im_end|>",)) == ("a", "")
    assert answer_text(tokenizer, "a<|im_start|>b", ("<|im_end|>",)) == ("ab", None)


# What is tried again


@pytest.mark.parametrize(
    ("fault", "least"),
    [(status(429, Retry_After="1"), 1.0), (status(500), 0.3), (status(503), 0.3), (drop, 0.3)],
    ids=["429", "500", "503", "dropped"],
)
def test_a_passing_fault_is_tried_again(fault, least, between, endpoint, model, tokenizer):
    requests, seen = asked(tokenizer), between()
    generator = endpoint(seen.url)
    generator.answer(requests[:1], Decoding(max_tokens=1), quiet)
    seen.faults.append(fault)
    begin = time.monotonic()
    replies = generator.answer(requests, Decoding(max_tokens=8), quiet)
    assert time.monotonic() - begin >= least  # the server is left some time
    assert replies == expected(model, tokenizer, requests, most=8)
    assert len(seen.asked) == 2 + 3 + 1


@pytest.mark.parametrize("retries", [0, 3])  # 2 are the client's own
def test_a_fault_that_lasts_is_tried_again_as_often_as_the_study_says(retries, between, endpoint, tokenizer):
    seen = between(always=status(503, Retry_After_Ms="1"))
    refused(endpoint(seen.url, retries=retries), asked(tokenizer))
    assert len(seen.asked) == 1 + retries  # all of them for the one token that is asked for first


def test_without_a_number_in_the_study_a_fault_may_pass_after_six_more_tries(between, model, tokenizer, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    requests, seen = asked(tokenizer)[:1], between(faults=[status(503, Retry_After_Ms="1")] * 6)
    replies = EndpointGenerator(EndpointSpec(url=seen.url), "tiny", tokenizer).answer(requests, GREEDY, quiet)
    assert replies == expected(model, tokenizer, requests)
    assert len(seen.asked) == 6 + 2


def test_what_is_not_answered_in_time_is_tried_again(between, endpoint, model, tokenizer):
    """A busy machine may be late with the second answer, too: there are more tries than needed."""
    requests, seen = asked(tokenizer), between()
    generator = endpoint(seen.url, timeout=0.5, retries=9)
    generator.answer(requests[:1], Decoding(max_tokens=1), quiet)
    before = len(seen.asked)
    seen.faults.append(hang)
    assert generator.answer(requests[:1], Decoding(max_tokens=8), quiet) == expected(model, tokenizer, requests[:1], 8)
    assert len(seen.asked) >= before + 2
    assert seen.asked[-1] == seen.asked[-2]


def test_a_slow_answer_is_waited_for(between, endpoint, tokenizer):
    replies = endpoint(between(always=slow(0.3)).url, retries=0).answer(asked(tokenizer), GREEDY, quiet)
    assert [reply.error for reply in replies] == [""] * 3


# What belongs to one prompt


def test_a_prompt_that_is_too_long_is_one_failed_answer(served, endpoint, tokenizer):
    requests = asked(tokenizer)
    requests.insert(1, Request(requests[0].ids * 40))
    replies = endpoint(served).answer(requests, GREEDY, quiet)
    assert [reply.finish == "failed" for reply in replies] == [False, True, False, False]
    assert replies[1].error.startswith("the server refuses the prompt (400: request (")
    assert "exceeds the available context size" in replies[1].error


def test_when_every_prompt_is_refused_all_replies_say_why(between, endpoint, tokenizer):
    replies = endpoint(between(always=status(422, "not\ntoday")).url).answer(asked(tokenizer), GREEDY, quiet)
    assert replies == [Reply("", 0, "failed", "the server refuses the prompt (422: not today)")] * 3


def test_an_answer_that_was_filtered_is_no_answer(between, endpoint, tokenizer):
    def filtered(_, answer):
        answer["choices"][0]["finish_reason"] = "content_filter"

    (reply,) = endpoint(between(alter=filtered).url).answer(asked(tokenizer)[:1], GREEDY, quiet)
    assert (reply.finish, reply.text) == ("failed", "")
    assert "'content_filter'" in reply.error


def test_half_a_character_is_replaced(between, endpoint, tokenizer):
    def break_it(_, answer):
        answer["choices"][0]["text"] = "a\ud800b"

    (reply,) = endpoint(between(alter=break_it).url).answer(asked(tokenizer)[:1], GREEDY, quiet)
    assert reply.text == "a?b"


@pytest.mark.parametrize("counted", [-5, 10**30, True])
def test_a_count_that_is_none_is_made_here(counted, between, endpoint, tokenizer):
    def miscount(_, answer):
        answer["choices"][0].update(text="42", finish_reason="stop")
        answer["usage"] = {"prompt_tokens": counted, "completion_tokens": counted}

    (reply,) = endpoint(between(alter=miscount).url).answer(asked(tokenizer)[:1], GREEDY, quiet)
    assert reply.tokens == len(tokenizer("42")["input_ids"])


def test_a_text_far_beyond_what_was_asked_for_is_no_answer(between, endpoint, tokenizer):
    def go_on(_, answer):
        answer["choices"][0]["text"] = "a b " * 50_000

    (reply,) = endpoint(between(alter=go_on).url).answer(asked(tokenizer)[:1], GREEDY, quiet)
    assert reply == Reply("", 0, "failed", "the server wrote 200000 characters where 24 tokens were asked for")
    many = GREEDY.model_copy(update={"max_tokens": 3000})  # replies of a shard are in memory together
    (reply,) = endpoint(between(alter=go_on).url).answer(asked(tokenizer)[:1], many, quiet)
    assert reply.error == "the server wrote 200000 characters where 3000 tokens were asked for"


@pytest.mark.parametrize("counted", [None, 24, 26, 5000])
def test_a_server_that_ignores_how_many_tokens_were_asked_for_is_found(counted, between, endpoint, tokenizer):
    """It would be given answers under one condition that others were truncated before."""
    text = "42 " * 500

    def go_on(_, answer):
        answer["choices"][0].update(text=text, finish_reason="stop")
        answer["usage"] = None if counted is None else {"prompt_tokens": 0, "completion_tokens": counted}

    (reply,) = endpoint(between(alter=go_on).url).answer(asked(tokenizer)[:1], GREEDY, quiet)
    written = counted if counted in (26, 5000) else len(tokenizer.encode(text))
    assert reply.finish == "failed"
    assert reply.error == f"the server wrote at least {written} tokens where 24 were asked for: it ignores max_tokens"


@pytest.mark.parametrize("counted", [0, 26])
def test_no_more_of_a_text_is_made_tokens_than_is_needed(counted, tokenizer, monkeypatch):
    """Where the server may write long answers it is given gigabytes."""
    generator = EndpointGenerator(EndpointSpec(url="http://localhost/v1"), "tiny", tokenizer)
    seen = []
    monkeypatch.setattr(generator_module, "encode", lambda _, text: seen.append(text) or encode(tokenizer, text))
    with pytest.raises(PromptRefused, match="ignores max_tokens"):
        generator._refuse_longer("42 " * 300_000, counted, most=24)
    assert sum(map(len, seen)) <= (0 if counted else 20_000)


def test_a_long_answer_that_is_short_enough_is_not_refused_for_its_pieces(tokenizer):
    """Each piece may begin and end inside a token."""
    generator = EndpointGenerator(EndpointSpec(url="http://localhost/v1"), "tiny", tokenizer)
    text = "What is 17 plus 25? " * 10_000
    tokens = len(encode(tokenizer, text))
    generator._refuse_longer(text, 0, most=tokens // 3 + 1)
    with pytest.raises(PromptRefused):
        generator._refuse_longer(text, 0, most=tokens // 4)


@pytest.mark.parametrize("counted", [24, 25])
def test_a_stop_token_may_be_counted_besides(counted, between, endpoint, tokenizer):
    def end(_, answer):
        answer["choices"][0].update(text="42", finish_reason="stop")
        answer["usage"] = {"prompt_tokens": 0, "completion_tokens": counted}

    (reply,) = endpoint(between(alter=end).url).answer(asked(tokenizer)[:1], GREEDY, quiet)
    assert (reply.text, reply.finish) == ("42", "stop")


@pytest.mark.parametrize("counted", [None, 5, 24])
def test_an_answer_that_a_smaller_context_truncates_is_none(counted, between, endpoint, tokenizer):
    """Under a condition with a shorter prompt it would have more tokens."""

    def cut(_, answer):
        answer["choices"][0].update(text="42", finish_reason="length")
        answer["usage"] = None if counted is None else {"prompt_tokens": 0, "completion_tokens": counted}

    generator = endpoint(between(alter=cut).url)
    (reply,) = generator.answer(asked(tokenizer)[:1], GREEDY, quiet)
    if counted == 24:
        assert (reply.finish, reply.tokens) == ("length", 24)
        return
    written = counted or len(tokenizer.encode("42"))
    assert reply.finish == "failed"
    assert reply.error.startswith(f"the server truncated the answer after {written} tokens, and 24 were asked for: ")


def test_no_more_is_asked_for_than_a_context_has_room_for(between, endpoint, tokenizer):
    seen, request = between(), asked(tokenizer)[0]
    replies = endpoint(seen.url).answer([replace(request, room=room) for room in (0, 3)], GREEDY, quiet)
    assert [reply.finish for reply in replies] == ["failed", "length"]
    assert "no room" in replies[0].error
    assert replies[1].tokens == 3


# What stops the run


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (status(401, "no"), "refuses the key (401); put the right one into the environment variable OPENAI_API_KEY"),
        (status(403, "no"), "refuses the key (403); one that may use 'tiny' belongs into OPENAI_API_KEY"),
        (status(404, "no such model"), "knows no model 'tiny' or no completions (404: no such model); correct"),
        (page(404), "(404: an HTML page); correct endpoint.model, or endpoint.url, which mostly ends in /v1"),
        (page(405), "takes no completions (405: an HTML page); correct endpoint.url, which mostly ends in /v1"),
        (status(429, "slow down"), "is asked too often (429: slow down); lower endpoint.concurrency or wait"),
        (status(500, "out\nof memory"), "answers 500 (out of memory); see to the server, then run again to resume"),
        (status(402, "no money"), "answers 402 (no money); see to the server, then run again to resume"),
        (page(), "answers with an HTML page and not with a completion; correct endpoint.url"),
        (page(text="It works!"), "answers with It works! and not with a completion; correct endpoint.url"),
        (answer({"hello": 1}), "answers with other JSON and not with a completion"),
        (answer([1]), "answers with other JSON and not with a completion"),
        (answer({"choices": 5}), "answers with other JSON and not with a completion"),
        (answer({"choices": {"a": 1}}), "answers with other JSON and not with a completion"),
        (answer({"choices": [{"text": "a", "finish_reason": ["stop"]}]}), "answers with other JSON and not with a"),
        (answer({"choices": [{"message": {"content": "hi"}}]}), "answers with other JSON and not with a completion"),
        (
            hang,
            "gave no complete answer within 0.4 s, tried once; raise endpoint.timeout or lower endpoint.concurrency",
        ),
        (drop, "cannot be reached ("),
    ],
    ids=lambda given: given if isinstance(given, str) else "fault",
)
def test_a_lasting_fault_is_one_line(fault, words, between, endpoint, tokenizer):
    seen = between(always=fault)
    line = refused(endpoint(seen.url, retries=0, timeout=0.4 if fault is hang else 30.0), asked(tokenizer))
    assert line.startswith(f"{seen.url} ")
    assert words in line


@pytest.mark.parametrize("sent", [b'{"half": ', b'{"text": "\xff"}', b"[" * 100_000], ids=["half", "latin", "nested"])
def test_broken_json_is_one_line(sent, between, endpoint, tokenizer):
    def half(handler):
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(sent)))
        handler.end_headers()
        handler.wfile.write(sent)
        return True

    assert "answers with broken JSON" in refused(endpoint(between(always=half).url), asked(tokenizer))


def test_an_answer_that_does_not_say_what_it_is_is_one_line(between, endpoint, tokenizer):
    def bare(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", "4")
        handler.end_headers()
        handler.wfile.write(b"Oops")
        return True

    assert "Oops" in refused(endpoint(between(always=bare).url), asked(tokenizer))


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"])
def test_a_server_that_is_not_there_is_one_line(host, endpoint, tokenizer, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    url = f"http://{host}:{free_port()}/v1"
    allow([], [host], [EndpointSpec(url=url)])
    line = refused(endpoint(url), asked(tokenizer))
    assert line.startswith(f"{url} cannot be reached (")
    assert line.endswith("), tried 2 times; start the server or correct endpoint.url, then run again to resume")


@pytest.mark.parametrize("url", ["http://[::1/v1", "http://localhost:99999999/v1"])
def test_a_url_that_is_none_is_refused_with_the_study(url):
    with pytest.raises(ValueError, match="a URL looks like http://localhost:8000/v1"):
        EndpointSpec(url=url)


def test_a_server_killed_while_it_answers_is_one_line(weights, endpoint, tokenizer):
    pytest.importorskip("xllamacpp")
    with llama_cpp(weights) as server:
        generator = endpoint(server.url, concurrency=2)
        ticks = []

        def kill_after_the_first(count):
            ticks.append(count)
            server.kill()

        with pytest.raises(GenerationError, match=r"cannot be reached \(.*\), tried 2 times"):
            generator.answer(asked(tokenizer) * 20, Decoding(max_tokens=64), kill_after_the_first)
        assert len(ticks) < 60


def test_a_missing_client_is_one_line(served, endpoint, tokenizer, monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    line = refused(endpoint(served), asked(tokenizer))
    assert line == "an endpoint needs the package openai: pip install 'fillerscope[endpoint]'"


# Keys


@pytest.fixture
def heard(caplog, capfd):
    """Everything that was logged or printed, whatever its level."""
    caplog.set_level(logging.DEBUG)

    def everything():
        out, err = capfd.readouterr()
        return out + err + caplog.text + "".join(str(record.__dict__) for record in caplog.records)

    return everything


def test_a_wrong_key_is_one_line_that_does_not_show_it(between, endpoint, tokenizer, monkeypatch, heard):
    monkeypatch.setenv("MY_KEY", SECRET)
    generator = endpoint(between(always=wants_key("another")).url, key="MY_KEY")
    with pytest.raises(GenerationError) as raised:
        generator.answer(asked(tokenizer), GREEDY, quiet)
    assert str(raised.value).endswith("refuses the key (401); put the right one into the environment variable MY_KEY")
    log = heard()
    assert "openai" in log  # the client was heard at all
    assert SECRET not in log + traceback_with_values(raised.value) + repr(generator) + repr(vars(generator))


def traceback_with_values(error):
    """What those see who have the variables of every frame printed."""
    frames = [repr(frame.f_locals) for frame, _ in traceback.walk_tb(error.__traceback__)]
    assert len(frames) > 5
    return repr([error, error.__cause__, error.__context__, *frames])


def test_a_key_that_a_server_sends_back_is_taken_out(between, endpoint, tokenizer, monkeypatch, heard):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    generator = endpoint(between(always=status(400, "x" * 190 + SECRET)).url)
    (reply,) = generator.answer(asked(tokenizer)[:1], GREEDY, quiet)
    assert "xxx" in reply.error
    assert SECRET[:6] not in reply.error + heard()
    line = refused(endpoint(between(always=status(500, f"bad {SECRET}")).url, retries=0), asked(tokenizer))
    assert "(bad [key])" in line


def test_the_right_key_is_sent_and_a_wrong_one_refused_by_a_real_server(
    weights, endpoint, model, tokenizer, monkeypatch
):
    pytest.importorskip("xllamacpp")
    requests = asked(tokenizer)
    with llama_cpp(weights, key=SECRET) as server:
        assert "(401)" in refused(endpoint(server.url), requests)
        monkeypatch.setenv("OPENAI_API_KEY", f"{SECRET}\n")
        replies = endpoint(server.url).answer(requests, GREEDY, quiet)
    assert replies == expected(model, tokenizer, requests)


def test_a_key_that_fits_no_header_is_one_line(served, endpoint, tokenizer, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-\u00e9-4711")
    line = refused(endpoint(served), asked(tokenizer))
    assert line == "the key in the environment variable OPENAI_API_KEY has characters that no key has"


@pytest.mark.parametrize(
    "url",
    [
        "http://anna:pass@localhost:1/v1", "http://localhost:1/v1?key=abc", "http://:80/v1", "http://localhost:1/v1?",
        "http://[::1].evil.example/v1", "http://localhost\\.evil.example/v1", "http://\u217docalhost/v1",
    ],
)  # fmt: skip
def test_a_secret_in_the_url_is_refused_before_it_is_stored(url):
    with pytest.raises(ValueError, match="without name, password or query"):
        EndpointSpec(url=url)


@pytest.mark.parametrize("key", [SECRET, "", "MY KEY", "\u00e9"])
def test_a_key_in_place_of_its_variable_is_refused_and_not_repeated(key):
    with pytest.raises(ValueError, match="`key` is the name of the environment variable") as refusal:
        EndpointSpec(url="http://localhost:1/v1", key=key)
    assert SECRET not in refusal.value.errors()[0]["msg"]


def test_replies_keep_the_order_of_the_requests(between, endpoint, model, tokenizer):
    requests = asked(tokenizer, [f"What is {number} + 30?" for number in range(24)])
    last_of_the_first = until(lambda proxy: len(proxy.asked) >= 20)
    eight_at_once = until(lambda proxy: proxy.most_at_once >= 8)
    seen = between(faults=[slow(0), last_of_the_first, *[eight_at_once] * 7])
    ticks, threads = [], set()

    def tick(count):
        ticks.append(count)
        threads.add(threading.current_thread())

    replies = endpoint(seen.url, concurrency=8).answer(requests, Decoding(max_tokens=6), tick)
    assert replies == expected(model, tokenizer, requests, most=6)
    assert sum(ticks) == 24
    assert threads == {threading.current_thread()}
    assert seen.most_at_once == 8


def test_one_at_a_time_where_that_is_asked_for(between, endpoint, tokenizer):
    seen = between(always=slow(0.02))
    endpoint(seen.url, concurrency=1).answer(asked(tokenizer), Decoding(max_tokens=2), quiet)
    assert seen.most_at_once == 1


def test_it_answers_where_a_loop_is_running_already(served, endpoint, tokenizer):
    async def notebook():
        return endpoint(served).answer(asked(tokenizer), Decoding(max_tokens=2), quiet)

    assert len(asyncio.run(notebook())) == 3


@pytest.mark.parametrize("fault", [hang, status(429, Retry_After="30")], ids=["hanging", "backing off"])
def test_ctrl_c_does_not_wait_for_what_is_under_way(fault, between, endpoint, tokenizer, ctrl_c):
    seen, arrived = between(), count(1)
    generator = endpoint(seen.url, concurrency=8)
    generator.answer(asked(tokenizer)[:1], Decoding(max_tokens=1), quiet)
    seen.always = then(fault, lambda: next(arrived) == 8 and ctrl_c())
    with pytest.raises(KeyboardInterrupt):
        generator.answer(asked(tokenizer) * 8, GREEDY, quiet)
    assert len(seen.asked) == 2 + 8  # nothing was waited for: it would have been tried again


def test_what_tick_raises_ends_the_call(between, endpoint, tokenizer):
    def tick(count):
        raise RuntimeError(f"{count} was enough")

    all_three = until(lambda proxy: proxy.at_once == 3)
    seen = between(faults=[slow(0), all_three], always=hang)
    with pytest.raises(RuntimeError, match="1 was enough"):
        endpoint(seen.url).answer(asked(tokenizer), Decoding(max_tokens=1), tick)
    assert seen.at_once == 2  # and nobody waited for them


# A server that takes text alone, with a trained model


@pytest.fixture(scope="session")
def smollm2_served(smollm2):
    pytest.importorskip("fastapi")
    folder = Path(smollm2.model.name_or_path)
    with transformers_serve(folder) as server:
        yield server.url, str(folder)


@pytest.mark.slow
@pytest.mark.weights
def test_transformers_serve_writes_what_the_model_writes_here(smollm2_served, smollm2, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    url, name = smollm2_served
    requests = asked(smollm2.tokenizer, (*QUESTIONS[:2], "What is the capital of France?"))
    with proxy(url) as seen:
        generator = EndpointGenerator(
            EndpointSpec(url=seen.url, model=name, concurrency=1), "smollm2-135m", smollm2.tokenizer
        )
        replies = generator.answer(requests, GREEDY, quiet)
    assert replies == expected(smollm2.model, smollm2.tokenizer, requests)
    assert {reply.finish for reply in replies} == {"stop", "length"}
    assert [type(body["prompt"]) for body in seen.asked] == [list, str, str, str, str]


@pytest.mark.slow
@pytest.mark.weights
def test_transformers_serve_says_which_model_it_has(smollm2_served, smollm2):
    generator = EndpointGenerator(EndpointSpec(url=smollm2_served[0]), "another", smollm2.tokenizer)
    (reply,) = generator.answer(asked(smollm2.tokenizer, ["Say hi."]), GREEDY, quiet)
    assert reply.finish == "failed"
    assert "requested 'another'" in reply.error


def test_a_tokenizer_that_panics_on_an_answer_fails_for_that_answer() -> None:
    """Nobody waits for ever: a panic is no Exception, and ends the task in silence."""
    from tokenizers import Regex, pre_tokenizers

    panicking = tiny_tokenizer()
    panicking.backend_tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"(x+x+)+y"), "isolated")
    with watched(60), serving(sending(completion("x" * 60))) as url:
        generator = EndpointGenerator(EndpointSpec(url=url, retries=0, prompt="ids"), "tiny", panicking)
        (reply,) = generator.answer([Request((5, 6, 7))], GREEDY, quiet)
    assert reply.finish == "failed"
    assert "the tokenizer fails on 'xxx" in reply.error


def test_whatever_ends_a_server_s_task_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    class Panic(BaseException):
        pass

    def panic(*_: object) -> None:
        raise Panic("as of a library")

    monkeypatch.setattr(generator_module, "answer_text", panic)
    with watched(60), serving(sending(completion())) as url, pytest.raises(Panic):
        EndpointGenerator(EndpointSpec(url=url, retries=0, prompt="ids"), "tiny", tiny_tokenizer()).answer(
            [Request((5, 6, 7))], GREEDY, quiet
        )
