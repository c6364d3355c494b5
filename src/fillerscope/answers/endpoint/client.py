"""One server with OpenAI's completions interface, through OpenAI's own client.

Time-outs and further tries are the client's: it tries again after 408, 409, 429 and 5xx and after dropped and refused
connections, and waits as long as Retry-After says, up to two minutes. Knows nothing of tokenizers or replies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import SecretStr

from fillerscope.answers.endpoint.allowed import host_of, is_loopback
from fillerscope.answers.endpoint.errors import OTHER, REFUSED, PromptRefused, Refusals
from fillerscope.errors import GenerationError
from fillerscope.study.generation import Decoding, EndpointSpec

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types import Completion

KEY_CAME_BACK = "the server sent the key back as its answer, which is not kept"
_NO_KEY = "none"  # local servers ask for no key, the client insists on one
_CONNECT = 10.0  # seconds: a server that listens takes a connection at once
_LONGEST_TOKEN, _LONG = 64, 10_000  # characters of a token, in long texts, and of a text that is never too long
_BYTES_OF_TOKEN, _BYTES = 1000, 1_000_000  # of a response: for every token that is asked for, and besides
_SEEDS = 2**31  # some servers keep 32 bits and take the largest number for "random"


@dataclass(frozen=True)
class Server:
    """An open client, the model to ask for, and the errors to raise."""

    client: AsyncOpenAI
    refusals: Refusals
    model: str

    async def complete(self, prompt: str | list[int], seed: int, decoding: Decoding) -> Completion:
        """Request a completion; raise an error for any other reply."""
        completion = await self._create(prompt, seed, decoding)
        if reason := _said(completion, REFUSED):
            raise PromptRefused(f"{self.refusals.line(reason)}, where {decoding.max_tokens} tokens were asked for")
        if (other := _said(completion, OTHER)) is not None:
            raise self.refusals.not_a_completion(other)
        choice = completion.choices[0]
        if len(choice.text) > max(_LONG, _LONGEST_TOKEN * decoding.max_tokens):  # to search it would take long
            asked = f"{decoding.max_tokens} tokens were asked for"
            raise PromptRefused(f"the server wrote {len(choice.text)} characters where {asked}")
        if self.refusals.holds_secret(choice.text):
            raise PromptRefused(KEY_CAME_BACK)
        choice.text = choice.text.encode("utf-8", "replace").decode("utf-8")  # no tokenizer takes half a character
        return completion

    async def _create(self, prompt: str | list[int], seed: int, decoding: Decoding) -> Completion:
        try:
            return await self.client.completions.create(
                model=self.model,
                prompt=prompt,
                seed=seed % _SEEDS,
                max_tokens=decoding.max_tokens,
                temperature=decoding.temperature,
                top_p=decoding.top_p,
            )
        except Exception as error:  # of the HTTP library as well: it may hold what the server sent, a key too
            refusal = self.refusals.of(error)
        raise refusal  # out here it does not carry the client's error along, which holds the request and its key


def _said(completion: Completion, key: str) -> str | None:
    """What a body says that stands for another one; None where it is a completion. See limits.py."""
    said = getattr(completion, key, None)
    return said if isinstance(said, str) else None


def require_client() -> None:
    try:
        import openai  # noqa: F401
    except ImportError:
        raise GenerationError("an endpoint needs the package openai: pip install 'fillerscope[endpoint]'") from None


def open_client(spec: EndpointSpec, url: str, key: SecretStr, max_tokens: int) -> AsyncOpenAI:
    """A client of one server for answers of so many tokens, to be closed by the caller."""
    from openai import AsyncOpenAI, Timeout

    from fillerscope.answers.endpoint.limits import LimitedClient

    sent, proxies = key.get_secret_value() or _NO_KEY, not is_loopback(host_of(url))
    try:
        client = LimitedClient(sent, spec.timeout, _BYTES + _BYTES_OF_TOKEN * max_tokens, proxies)
    except Exception:  # what it says may hold a part of a password
        raise GenerationError("no client can be made: correct HTTPS_PROXY and the like in the environment") from None
    try:
        return AsyncOpenAI(
            api_key=sent,
            base_url=url,
            timeout=Timeout(spec.timeout, connect=min(spec.timeout, _CONNECT), pool=None),
            max_retries=spec.retries,
            http_client=client,
        )
    except Exception as error:  # the client has no one class for a URL that is none
        raise GenerationError(f"endpoint.url {url} is not a URL: {error}") from None


def used(completion: Completion, name: str) -> int:
    """A count of the completion's usage; 0 where the server gives none that is valid."""
    value = getattr(completion.usage, name, None)
    return value if type(value) is int and 0 < value < _SEEDS else 0
