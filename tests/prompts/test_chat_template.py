"""Chat templates of others: rendered as transformers renders them, stopped where they do not end."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fillerscope.errors import PromptError
from fillerscope.prompts import chat_template, child_process
from fillerscope.prompts.chat_template import RendererError, TemplateLimitError, apply_chat_template
from fillerscope.prompts.prompt import PromptMaker
from fillerscope.study.study import PromptSpec
from support.tiny import tiny_tokenizer
from support.watchdog import watched

TURNS = [{"role": "system", "content": "Ä\ud800 {{ x }}"}, {"role": "user", "content": "What is 12 + 30?\n"}]
LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(9) %}{% endfor %}" + 2 * "{% endfor %}"
HOSTILE = {
    "loops": LOOPS + "{{ messages }}",
    "loops that write": LOOPS.replace("range(9) %}", "range(9) %}x") + "{{ messages }}",
    "a product": "{{ 'a' * 10**12 }}",
    "a power": "{{ (10 ** 10 ** messages|length ** 5)|length }}",
    "doublings": "{% set n = namespace(s='a') %}{% for a in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n }}",
    "a width": "{{ 'a'|center(10**12) }}",
}


def tokenizer_with(template: str) -> Any:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    return tokenizer


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "SECONDS", 2.0)
    apply_chat_template(tiny_tokenizer(), TURNS)  # the process is there


@pytest.mark.parametrize("options", [{}, {"add_generation_prompt": True, "date_string": "26 Jul 2024"}])
def test_a_template_gives_what_transformers_gives(options: dict[str, Any]) -> None:
    tokenizer = tiny_tokenizer()
    assert apply_chat_template(tokenizer, TURNS, **options) == tokenizer.apply_chat_template(
        TURNS, tokenize=False, **options
    )
    shown = tokenizer_with("{{ bos_token }}|{{ eos_token }}|{{ date_string }}|{{ tools }}|{{ messages|tojson }}")
    assert apply_chat_template(shown, TURNS, **options) == shown.apply_chat_template(TURNS, tokenize=False, **options)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ("loops", "a product") else pytest.mark.slow) for name in HOSTILE]
)
@pytest.mark.usefixtures("impatient")
def test_a_template_without_end_is_stopped(name: str) -> None:
    maker = PromptMaker.of(tokenizer_with(HOSTILE[name]), PromptSpec(), "chat", 0)
    with watched(), pytest.raises(PromptError, match="the chat template") as caught:
        maker.plain("What is 1 + 1?")
    assert "\n" not in str(caught.value)
    if isinstance(caught.value, TemplateLimitError):  # and is not tried again
        with pytest.raises(TemplateLimitError):
            maker.plain("What is 2 + 2?")
        assert chat_template._RENDERER._process is None
    assert PromptMaker.of(tiny_tokenizer(), PromptSpec(), "chat", 0).plain("What is 1 + 1?").ids


@pytest.mark.parametrize("drawn", ["{{ range(99999) | random }}", "{{ lipsum(n=1) }}"])
def test_a_template_that_draws_gives_the_same_text_in_every_process(drawn: str) -> None:
    def rendered() -> str:
        chat_template._RENDERER.stop()
        return apply_chat_template(tokenizer_with(drawn), TURNS)

    first = rendered()
    assert apply_chat_template(tokenizer_with(drawn), TURNS) == first
    assert rendered() == first


@pytest.mark.parametrize(
    "shown",
    [
        "{{ joiner() }}", "{{ cycler('a', 'b') }}", "{{ (joiner() | string)[-8:-1] }}", "{{ joiner() | upper }}",
        "{{ joiner() | replace(' at ', ' ') }}", "{{ (raise_exception | string)[-8:-1] }}",
        "{{ ('a b'.join | string)[-8:-1] }}",
    ],
)  # fmt: skip
def test_a_template_that_writes_addresses_is_refused(shown: str) -> None:
    with pytest.raises(PromptError, match="it writes the address of an object"):
        apply_chat_template(tokenizer_with(shown), TURNS)


def test_a_template_knows_one_time_zone() -> None:
    """Whatever that of the machine is: jobs on several machines must write the same prompts."""
    assert child_process._environment()["TZ"] == "UTC0"
    template = "{{ strftime_now('%s') }} {{ messages[-1]['content'] }}"
    text = apply_chat_template(tokenizer_with(template), [{"role": "user", "content": "What?"}])
    assert text == "1721952000 What?"


def test_a_question_may_hold_an_address() -> None:
    turns = [{"role": "user", "content": "What is <a.B object at 0x7f0011223344>?"}]
    assert "0x7f0011223344" in apply_chat_template(tokenizer_with("{{ messages[0].content }}"), turns)


@pytest.mark.parametrize("start", ["", "\n", "\n\n", "  ", "{# of mine #}\n", "{%- if true %}\n  a{% endif %}\n"])
def test_how_a_template_begins_is_no_reason(start: str) -> None:
    """It is rendered twice, once behind a comment."""
    assert apply_chat_template(tokenizer_with(start + "{{ messages[0].content }}\n"), TURNS)


def test_a_template_that_refuses_says_why() -> None:
    maker = PromptMaker.of(tokenizer_with("{{ raise_exception('no\nthanks') }}"), PromptSpec(), "chat", 0)
    with pytest.raises(PromptError, match="the chat template refuses a plain question: no thanks"):
        maker.plain("What is 1 + 1?")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_fork_waits_for_no_thread_of_its_parent() -> None:
    """Another thread may render at the moment of the fork; in the fork it is not there to end."""
    expected = apply_chat_template(tiny_tokenizer(), TURNS)
    lock = chat_template._RENDERER._lock
    lock.acquire()
    child = os.fork()
    if child:
        lock.release()
    else:
        status = 1
        try:
            signal.alarm(120)  # ends the fork where it waits
            status = int(apply_chat_template(tiny_tokenizer(), TURNS) != expected)
            chat_template._RENDERER.stop()
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert apply_chat_template(tiny_tokenizer(), TURNS) == expected


def test_a_tokenizer_that_panics_fails_for_that_question() -> None:
    from tokenizers import Regex, pre_tokenizers

    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"(a+)+\$"), "isolated")
    maker = PromptMaker.of(tokenizer, PromptSpec(), "raw", 0)
    with pytest.raises(PromptError, match="the tokenizer fails on"):
        maker.plain("a" * 60 + "!")
    assert maker.plain("What is 1 + 1?").ids


def test_a_template_that_fills_memory_is_one_line() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{{ 'x' * 5000000000 }}"  # more than the process that renders may have
    with pytest.raises(PromptError, match="the chat template refuses a plain question: MemoryError"):
        PromptMaker.of(tokenizer, PromptSpec(), "auto", 0).plain("What is 1 + 1?")
    assert apply_chat_template(tiny_tokenizer(), TURNS)


@pytest.mark.parametrize("longest", ["x", [], {}])
def test_a_tokenizer_with_settings_of_other_types_is_one_line(longest: object) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.model_max_length = longest
    with pytest.raises(PromptError, match=r"the tokenizer fails on '.*; use the tokenizer of another model"):
        PromptMaker.of(tokenizer, PromptSpec(), "raw", 0).plain("What is 1 + 1?")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc")
def test_a_template_without_end_ends_with_the_process_that_asked() -> None:
    """The process that asks is killed while the template runs."""
    loop, end = "{% for a in range(99999) %}", "{% endfor %}"
    template = 3 * loop + 3 * end
    script = (
        "import os, threading, time\n"
        "from fillerscope.prompts.chat_template import _RENDERER\n"
        "process = _RENDERER._running()\n"
        f"threading.Thread(target=_RENDERER.render, args=({template!r}, [], {{}}), daemon=True).start()\n"
        "time.sleep(1)\n"
        "print(process.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    child = Path("/proc") / done.stdout.strip()
    for _ in range(600):
        if not child.exists() or "Z (zombie)" in (child / "status").read_text():
            return
        time.sleep(0.1)
    pytest.fail("the process that renders goes on for ever")


def test_an_interrupt_leaves_no_reply_for_the_next_question() -> None:
    """As Ctrl-C in a notebook while prompts are made, and the next cell."""
    slow = "{% for a in range(4000) %}{% for b in range(4000) %}{% endfor %}{% endfor %}{{ messages[-1].content }}"
    apply_chat_template(tiny_tokenizer(), TURNS)  # the process is there

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            apply_chat_template(tokenizer_with(slow), TURNS)
    finally:
        signal.signal(signal.SIGALRM, before)
    for question in ("one", "two"):
        turns = [{"role": "user", "content": question}]
        assert apply_chat_template(tokenizer_with("{{ messages[-1].content }}"), turns) == question


def test_a_process_that_was_ended_from_outside_is_started_again() -> None:
    expected = apply_chat_template(tiny_tokenizer(), TURNS)
    process = chat_template._RENDERER._process
    assert process is not None
    slow = "{% for a in range(3000) %}{% for b in range(3000) %}{% endfor %}{% endfor %}{{ messages[-1].content }}"
    timer = threading.Timer(0.2, process.kill)
    timer.start()
    assert apply_chat_template(tokenizer_with(slow), TURNS) == TURNS[-1]["content"]
    timer.join()
    assert apply_chat_template(tiny_tokenizer(), TURNS) == expected


def test_a_process_that_cannot_be_started_says_nothing_of_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is the question asked in another way, without the system turn."""
    maker = PromptMaker.of(tiny_tokenizer(), PromptSpec(), "chat", 0)

    def refuse(*_: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    chat_template._RENDERER.stop()
    monkeypatch.setattr(chat_template, "start", refuse)
    with pytest.raises(RendererError, match="cannot be started: Resource temporarily unavailable; end other processes"):
        maker.plain("What is 1 + 1?")


def test_a_template_that_is_slow_every_time_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "SLOW", 0.0)
    renderer = chat_template._Renderer()
    template, turns = "{{ messages[-1].content }}", [{"role": "user", "content": "one"}]
    try:
        assert renderer.render(template, turns, {}) == "one"
        monkeypatch.setattr(chat_template, "SECONDS_IN_ALL", 0.0)
        assert renderer.render(template, turns, {}) == "one"
        with pytest.raises(chat_template.TemplateLimitError, match="has taken over 0 s for a few prompts"):
            renderer.render(template, turns, {})
        assert renderer.render(f"{template} ", turns, {}) == "one "  # another one
    finally:
        renderer.stop()
