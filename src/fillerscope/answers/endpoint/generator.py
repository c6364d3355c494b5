"""Answers written by a server with OpenAI's completions interface: vLLM, llama.cpp, `transformers serve` and others.

Prompts go out as token ids, or as text where the server takes no ids and the text gives these very ids again.
A prompt that the server reads as another number of tokens is never taken for answered; a server that reports no
usage cannot be checked that way.

What is not in a `Decoding` is as the server has it: top_k, min_p or a penalty of its own stay in force, and so does
its decision to sample at all. Knows nothing of problems, grades or the store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import cached_property, partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Literal

from pydantic import SecretStr

from fillerscope.answers.endpoint.allowed import read_key
from fillerscope.answers.endpoint.client import KEY_CAME_BACK, Server, open_client, require_client, used
from fillerscope.answers.endpoint.errors import PromptRefused, Refusals
from fillerscope.answers.endpoint.replicas import Replicas, Talk
from fillerscope.answers.endpoint.text import answer_text, prompt_text, token_count, turn_ends
from fillerscope.answers.next_question import without_next
from fillerscope.answers.request import NO_ROOM, Finish, Reply, Request
from fillerscope.errors import GenerationError, PromptError
from fillerscope.problems.proxies import passwords
from fillerscope.prompts.tokenizer import Tokenizer, encode
from fillerscope.study.generation import Decoding, EndpointSpec

if TYPE_CHECKING:
    from openai.types import Completion

Form = Literal["ids", "text"]

_FORMS: dict[str, tuple[Form, ...]] = {"auto": ("ids", "text"), "ids": ("ids",), "text": ("text",)}
_SHORTEST_SECRET = 8  # characters; a shorter key is a placeholder, which answers may contain by chance
_SPELLED, _SPARE = 3, 16  # tokens of ours for one of a server (bytes that are no character come as three), and besides
_PIECE = 16_000  # characters of an answer that are made tokens at once, to see whether they are too many
_FINISHES: dict[str | None, Finish] = {"stop": "stop", "length": "length"}


@dataclass
class EndpointGenerator:
    """A `Generator` that keeps `spec.concurrency` requests under way at each replica. It holds no key: each call reads
    it anew.

    What belongs to one prompt (too long, no text for its ids, read as other tokens) makes one reply `failed`;
    whatever else goes wrong, an error 500 that does not pass included, is a GenerationError and stops the call.
    """

    spec: EndpointSpec
    name: str
    tokenizer: Tokenizer = field(repr=False)
    say: Callable[[str], None] = field(default=lambda _: None, repr=False)  # called where a replica has gone
    _forms: dict[str, Form] = field(default_factory=dict, init=False)  # by URL, what was settled
    _gone: dict[str, float] = field(default_factory=dict, init=False)  # by URL, when a replica went

    def answer(self, requests: Sequence[Request], decoding: Decoding, tick: Callable[[float], None]) -> list[Reply]:
        """`tick` and `say` are called in the caller's thread; what they raise, or Ctrl-C, cancels all that is under
        way."""
        require_client()
        from anyio.from_thread import start_blocking_portal

        if not requests:
            return []
        done: SimpleQueue[int | str] = SimpleQueue()
        with start_blocking_portal() as portal:  # in a thread: notebooks have a loop running in this one
            future = portal.start_task_soon(self._answer, requests, decoding, done.put)
            future.add_done_callback(lambda _: done.put(0))
            while more := done.get():
                self.say(more) if isinstance(more, str) else tick(more)
            return future.result()

    async def _answer(
        self, requests: Sequence[Request], decoding: Decoding, report: Callable[[int | str], None]
    ) -> list[Reply]:
        key = read_key(self.spec)
        async with AsyncExitStack() as stack:
            servers = []
            for url in self.spec.urls:
                client = await stack.enter_async_context(open_client(self.spec, url, key, decoding.max_tokens))
                servers.append(Server(client, self._refusals(url, key), self.spec.model or self.name))
            settle = partial(self._settle, requests=requests, decoding=decoding)
            talk = Talk(settle, partial(self._one, decoding=decoding), report, report)
            return await Replicas(servers, self.spec, talk, self._gone).replies(requests)

    async def _settle(self, server: Server, requests: Sequence[Request], decoding: Decoding) -> None:
        """Ask for a single token first, so that whatever is wrong with the server shows in one request.

        Settles whether it takes ids, and that it counts the tokens of a prompt as we do: where the first prompt
        is misread the others would be too, so the run stops. Where no form is answered nothing is settled, and
        each reply says why.
        """
        url = server.refusals.url
        if url in self._forms and url not in self._gone:
            return
        probe = min(requests, key=lambda request: (prompt_text(self.tokenizer, request.ids) is None, len(request.ids)))
        brief = decoding.model_copy(update={"max_tokens": 1})
        misread = ""
        for form in _FORMS[self.spec.prompt]:
            try:
                misread = _misread(await self._ask(server, probe, form, brief), probe)
            except PromptRefused:
                continue
            if not misread:
                self._forms[url] = form
                return
        if misread:
            raise GenerationError(f"{url}: {misread}; serve {self.name!r} with its own tokenizer there")

    async def _one(self, server: Server, request: Request, decoding: Decoding) -> Reply:
        form = self._forms.get(server.refusals.url, _FORMS[self.spec.prompt][-1])
        try:
            if (most := request.most_tokens(decoding)) <= 0:
                raise PromptRefused(NO_ROOM)
            completion = await self._ask(server, request, form, decoding.model_copy(update={"max_tokens": most}))
            return self._reply(completion, request, server.refusals, most)
        except (PromptRefused, PromptError) as refusal:
            return Reply("", 0, "failed", str(refusal))

    async def _ask(self, server: Server, request: Request, form: Form, decoding: Decoding) -> Completion:
        prompt = list(request.ids) if form == "ids" else prompt_text(self.tokenizer, request.ids)
        if prompt is None:
            raise PromptRefused("no text gives the tokens of this prompt again; use a server that takes token ids")
        return await server.complete(prompt, request.seed, decoding)

    def _reply(self, completion: Completion, request: Request, refusals: Refusals, most: int) -> Reply:
        if misread := _misread(completion, request):
            raise PromptRefused(misread)
        choice = completion.choices[0]
        reason = getattr(choice, "finish_reason", None)
        finish = _FINISHES.get(reason)
        if finish is None:
            said = refusals.line(reason)[:60]
            raise PromptRefused(f"the server ended the answer with {said!r}, not with stop or length")
        text, beyond = answer_text(self.tokenizer, choice.text, self._ends)
        if refusals.holds_secret(text):  # which special tokens in between may have hidden
            raise PromptRefused(KEY_CAME_BACK)
        if beyond is not None:  # whatever the server went on to write
            finish = "stop"
        counted = 0 if beyond else used(completion, "completion_tokens")
        self._refuse_longer(text, counted, most)
        if finish == "length":
            self._refuse_shorter(text, counted, most)
        reply = Reply(text, token_count(self.tokenizer, text, counted, ended=finish == "stop"), finish)
        return without_next(reply, request.heading, self.tokenizer)

    def _refuse_longer(self, text: str, counted: int, most: int) -> None:
        """Refuse an answer that had more tokens than were asked for: under other conditions it may have been cut."""
        is_counted = counted > most + 1  # some count the stop token besides
        written = counted if is_counted else _too_many(self.tokenizer, text, _SPELLED * most)
        if written:
            told = f"the server wrote at least {written} tokens where {most} were asked for"
            raise PromptRefused(f"{told}: it ignores max_tokens")

    def _refuse_shorter(self, text: str, counted: int, most: int) -> None:
        """Refuse an answer that was truncated before it had as many tokens: a longer prompt would leave it fewer."""
        written = counted or 2 * len(encode(self.tokenizer, text))  # which its tokens may be more than
        if written + _SPARE < most:
            raise PromptRefused(
                f"the server truncated the answer after {counted or written // 2} tokens, and {most} were asked for: "
                "its context or a limit of its own is smaller; lower generation.max_tokens, or serve a longer context"
            )

    @cached_property
    def _ends(self) -> tuple[str, ...]:
        return turn_ends(self.tokenizer)

    def _refusals(self, url: str, key: SecretStr) -> Refusals:
        value = key.get_secret_value()
        secrets = tuple(one for one in (value, *passwords()) if len(one) >= _SHORTEST_SECRET)
        model = self.spec.model or self.name
        return Refusals(url, model, self.spec.key, self.spec.timeout, self.spec.retries + 1, secrets)


def _too_many(tokenizer: Tokenizer, text: str, most: int) -> int:
    """How many tokens the beginning of a text has that has more than so many; 0 where the text has not. In pieces, of
    which each may begin and end with other tokens: of all of it a tokenizer makes gigabytes."""
    count = 0
    for start in range(0, len(text), _PIECE):
        most += _SPARE
        count += len(encode(tokenizer, text[start : start + _PIECE]))
        if count > most:
            return count
    return 0


def _misread(completion: Completion, request: Request) -> str:
    """An error where the server counts other prompt tokens than were sent; empty where it agrees or does not say."""
    read = used(completion, "prompt_tokens")
    if not read or read == len(request.ids):
        return ""
    return f"the server read {read} prompt tokens, {len(request.ids)} were sent: it does not see the same prompt"
