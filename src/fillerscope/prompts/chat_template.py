"""Chat templates, rendered in a process of their own with limits of time and memory.

A template is a program that comes with a model. The sandbox in which transformers runs it has no such limits: three
nested loops run for days, and `'a' * 10**12` ends the process.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from fillerscope.errors import FillerscopeError, PromptError
from fillerscope.files import Json
from fillerscope.prompts.child_process import exchange, kill, start
from fillerscope.prompts.tokenizer import Tokenizer

SECONDS = 10.0
SLOW, SECONDS_IN_ALL = 1.0, 120.0  # renderings that take longer than the first are added up, to the second at most
START_SECONDS = 120.0  # to load transformers, on a busy machine
LONGEST = 10_000_000  # characters of a rendered prompt
RENDERER = "fillerscope.prompts.render_template"
Turns = Sequence[Mapping[str, str]]


class TemplateLimitError(PromptError):
    """A template that was stopped: another question would fare no better."""


class RendererError(FillerscopeError):
    """The process that renders is not there: this says nothing of the template, or of the question."""


def apply_chat_template(tokenizer: Tokenizer, turns: Turns, **options: object) -> str:
    """The text that a tokenizer's chat template makes of turns, as its own `apply_chat_template` gives it."""
    if not _is_jinja(tokenizer):
        return str(tokenizer.apply_chat_template(turns, tokenize=False, **options))
    known: Any = tokenizer
    settings = {**known.special_tokens_map, **options}
    return _RENDERER.render(known.get_chat_template(), [dict(turn) for turn in turns], settings)


def start_renderer(tokenizer: Tokenizer) -> None:
    """Start the process that renders, where a template will need it: it takes a second, in which weights are loaded."""
    if getattr(tokenizer, "chat_template", None) and _is_jinja(tokenizer):
        _RENDERER.start()


def _is_jinja(tokenizer: Tokenizer) -> bool:
    """Whether its templates are rendered by transformers; some tokenizers have code for that in place of a template."""
    method = getattr(type(tokenizer), "apply_chat_template", None)
    return getattr(method, "__module__", "") == "transformers.tokenization_utils_base"


class _Renderer:
    """The process that renders, shared by all templates."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ready = False
        self._lock = threading.Lock()
        self._stopped: dict[str, str] = {}  # templates that were stopped, and why
        self._slow: defaultdict[str, float] = defaultdict(float)  # seconds of slow renderings, by template

    def render(self, template: str, turns: list[dict[str, str]], settings: Mapping[str, object]) -> str:
        with self._lock:
            if template in self._stopped:
                raise TemplateLimitError(self._stopped[template])
            asked = {"template": template, "turns": turns, "settings": settings}
            self._running()  # its start does not count
            began = time.monotonic()
            reply = self._exchange(asked)
            if "lost" in reply:  # somebody else may have ended it, for want of memory, or the machine stood still
                reply = self._exchange(asked)
            if "lost" in reply:
                self._stopped[template] = _overrun(reply["lost"])
                raise TemplateLimitError(self._stopped[template])
            self._add_up(template, time.monotonic() - began)
        if "error" in reply:
            raise PromptError(reply["error"])
        return str(reply["text"])

    def _add_up(self, template: str, seconds: float) -> None:
        if seconds > SLOW:
            self._slow[template] += seconds
        if self._slow[template] > SECONDS_IN_ALL:
            self._stopped[template] = _overrun("slow")

    def _exchange(self, asked: Json) -> Json:
        reply = exchange(self._running(), asked, SECONDS)
        if "lost" in reply:
            self.stop()
        return reply

    def start(self) -> None:
        """Start the process, and do not wait until it is ready."""
        with self._lock:
            self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            try:
                self._process, self._is_ready = start(RENDERER, [str(LONGEST)]), False
            except OSError as error:
                told = f"the process that renders chat templates cannot be started: {error.strerror or error}"
                raise RendererError(f"{told}; end other processes, and run the study again") from None
        return self._process

    def _running(self) -> subprocess.Popen[bytes]:
        process = self._started()
        if not self._is_ready and "ready" not in exchange(process, None, START_SECONDS):
            self.stop()
            raise RendererError("the process that renders chat templates does not start; install fillerscope again")
        self._is_ready = True
        return process

    def forget(self) -> None:
        """Leave the process, and a lock that a thread may hold, to the parent, in a fork of it."""
        process, self._process, self._lock = self._process, None, threading.Lock()
        for pipe in (process.stdin, process.stdout) if process else ():
            if pipe is not None:
                pipe.close()

    def stop(self) -> None:
        if self._process is not None:
            kill(self._process)
            self._process = None


def _overrun(lost: str) -> str:
    reasons = {"hung": f"takes over {SECONDS:g} s", "slow": f"has taken over {SECONDS_IN_ALL:g} s for a few prompts"}
    reason = reasons.get(lost, "takes too much memory, or ends the process")
    return f"the chat template of this model {reason}, and was stopped; write `template: raw`, or mend the template"


_RENDERER = _Renderer()
atexit.register(_RENDERER.stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_RENDERER.forget)
