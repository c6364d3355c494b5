"""Errors of a server in one line: for one prompt that cannot be answered, or to stop the run.

A line never contains a key, even where the server sends it back. Knows nothing of prompts or answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from errno import EMFILE
from typing import TYPE_CHECKING

from fillerscope.display import holds_key, letter_count
from fillerscope.errors import GenerationError

if TYPE_CHECKING:
    from openai import APIConnectionError, APIStatusError

_OF_ONE_PROMPT = (400, 413, 422)
_OF_NOW = (408, 409, 429)  # and from 500 on: what may be otherwise later, or on another server
_REDIRECTS = (301, 302, 303, 307, 308)
MOVED = "redirects to another address, which is not followed; give that address in endpoint.url"
REFUSED = "fillerscope_refused"  # the key of a body that stands for one that was not read to its end
OTHER = "fillerscope_other"  # and for one that is no completion
_LONGEST = 200  # characters of what a server says
SEARCHED = 20_000  # characters of it that are looked at


class ServerGone(GenerationError):
    """The server does not answer now, and another one may: it is not there, too slow, too busy or broken."""


class TooLate(ServerGone):
    """An answer did not come in time: the server hangs, or the answer is long."""


class PromptRefused(Exception):
    """The server works, but does not answer this prompt. The message is one line."""


@dataclass(frozen=True)
class Refusals:
    """Makes errors of what one server refuses."""

    url: str
    model: str
    key: str  # the name of the environment variable
    timeout: float
    tries: int
    secrets: tuple[str, ...] = field(repr=False)

    def of(self, error: Exception) -> GenerationError | PromptRefused:
        """The error to raise for one of the client, which has retried as often as configured."""
        from openai import APIConnectionError, APIStatusError, APITimeoutError

        if isinstance(error, APIStatusError):
            return self._status(error)
        if isinstance(error, APITimeoutError):
            return self.too_late(self._times)
        if isinstance(error, APIConnectionError):
            return self._unreachable(error)
        return GenerationError(f"{self.url} cannot be used: {self.line(error)}")

    def too_late(self, times: str) -> TooLate:
        """The error for an answer that did not come in time, with how often it was asked for."""
        return TooLate(
            f"{self.url} gave no complete answer within {self.timeout:g} s, {times}; "
            "raise endpoint.timeout or lower endpoint.concurrency, then run again to resume"
        )

    def not_a_completion(self, what: object) -> GenerationError:
        """The error for a reply that is not a completion."""
        return GenerationError(
            f"{self.url} answers with {self.line(what) or 'nothing'} and not with a completion; "
            "correct endpoint.url, which mostly ends in /v1"
        )

    def holds_secret(self, text: str) -> bool:
        return holds_key(text, self.secrets)

    def line(self, said: object) -> str:
        """What a server said, as part of one line. Secrets are removed first: shortening could split one."""
        whole = str(said)
        text = whole[:SEARCHED]
        for secret in self.secrets:
            text = text.replace(repr(secret)[1:-1], "[key]").replace(secret, "[key]")
        if self.holds_secret(text):
            return "a text with the key in it"
        text = " ".join(text.split())
        if text[:1] == "<":
            return "an HTML page"
        if len(whole) > SEARCHED and self._may_begin_secret(text):
            return "a long text"
        return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."

    def _may_begin_secret(self, text: str) -> bool:
        """Whether a secret may begin in what is shown of a text and end behind what was searched: where too little of
        the text follows what is shown."""
        return letter_count(text[_LONGEST - 3 :]) < max(map(len, self.secrets), default=1)

    def _status(self, error: APIStatusError) -> GenerationError | PromptRefused:
        status, reason = error.status_code, self.line(_reason(error.body))
        if status in _OF_ONE_PROMPT:
            return PromptRefused(f"the server refuses the prompt ({status}: {reason})")
        if status in _REDIRECTS:
            return GenerationError(f"{self.url} {MOVED}")
        advice = {
            # What a server says about a key may show a part of it.
            401: f"refuses the key (401); put the right one into the environment variable {self.key}",
            403: f"refuses the key (403); one that may use {self.model!r} belongs into {self.key}",
            404: f"knows no model {self.model!r} or no completions (404: {reason}); "
            "correct endpoint.model, or endpoint.url, which mostly ends in /v1",
            405: f"takes no completions (405: {reason}); correct endpoint.url, which mostly ends in /v1",
            429: f"is asked too often (429: {reason}); lower endpoint.concurrency or wait, then run again to resume",
        }
        other = f"answers {status} ({reason}); see to the server, then run again to resume"
        kind = ServerGone if status in _OF_NOW or status >= 500 else GenerationError
        return kind(f"{self.url} {advice.get(status, other)}")

    def _unreachable(self, error: APIConnectionError) -> ServerGone:
        cause = self.line(error.__cause__ or error) or type(error.__cause__).__name__
        if any(getattr(one, "errno", None) == EMFILE for one in _causes(error)):
            advice = "lower endpoint.concurrency or raise `ulimit -n`, then run again to resume"
            return ServerGone(f"{self.url}: this process may open no more connections; {advice}")
        return ServerGone(
            f"{self.url} cannot be reached ({cause}), {self._times}; "
            "start the server or correct endpoint.url, then run again to resume"
        )

    @property
    def _times(self) -> str:
        return "tried once" if self.tries == 1 else f"tried {self.tries} times"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what led to it. Where several attempts failed at once, the first of them."""
    while error is not None:
        yield error
        error = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__ or error.__context__


def _reason(body: object) -> object:
    """The message inside the body of an error, wherever this kind of server puts it."""
    while isinstance(body, Mapping) or (isinstance(body, list) and body):
        if isinstance(body, list):
            body = body[0]
        elif name := next((name for name in ("message", "detail", "error", "msg") if body.get(name)), None):
            body = body[name]
        else:
            return dict(body)
    return body
