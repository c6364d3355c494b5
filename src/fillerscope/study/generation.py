"""Settings of generation, as data: of one answer, of all answers of a study, and of a server.

Knows nothing of prompts or models.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from fillerscope.study.strict import Strict

LOWEST_TEMPERATURE = 1e-6
VLLM = "vllm"
MOST_TOKENS = 1_000_000  # of one answer: more is a typing error, and no model has room for it
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(:\d+)?", re.ASCII)  # and port; what else is there is read differently


class EndpointSpec(Strict):
    """A server with OpenAI's completions interface that writes the answers instead of the model loaded here."""

    url: str = Field(
        pattern=r"^https?://\S+$", description="Where the server is, with its version.",
        examples=["http://localhost:8000/v1"],
    )  # fmt: skip
    replicas: tuple[Annotated[str, Field(pattern=r"^https?://\S+$")], ...] = Field(
        (), max_length=1023, description="Where more servers of the same model are: they share the requests.",
        examples=[["http://localhost:8001/v1"]],
    )  # fmt: skip
    model: str | None = Field(None, description="What the server calls the model; null: as the study does.")
    key: str = Field(
        "OPENAI_API_KEY", description="The environment variable that holds the key, never the key.", examples=["MY_KEY"]
    )
    prompt: Literal["auto", "ids", "text"] = Field(
        "auto", description="How prompts are sent; auto: as ids, or as text where ids are refused.", examples=["text"]
    )
    concurrency: int = Field(8, ge=1, le=1024, description="Answers asked for at once, of each replica.", examples=[32])
    timeout: float = Field(300.0, gt=0, allow_inf_nan=False, description="Seconds for one answer.", examples=[600])
    retries: int = Field(6, ge=0, le=100, description="How often a failed request is sent again.", examples=[2])

    @property
    def urls(self) -> tuple[str, ...]:
        """Where all servers are."""
        return self.url, *self.replicas

    @field_validator("url")
    @classmethod
    def _without_secrets(cls, value: str) -> str:
        return _checked_url(value)

    @field_validator("replicas")
    @classmethod
    def _all_without_secrets(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(_checked_url, value))

    @model_validator(mode="after")
    def _servers_differ(self) -> Self:
        refuse_repeats([url.rstrip("/") for url in self.urls], "server")
        return self

    @field_validator("key")
    @classmethod
    def _names_a_variable(cls, value: str) -> str:
        if not (value.isascii() and value.isidentifier()):  # what was written is not repeated: it may be a key
            raise ValueError("`key` is the name of the environment variable that holds the key, such as MY_KEY")
        return value


def _checked_url(value: str) -> str:
    """A URL with nothing secret in it; a ValueError for any other."""
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{error}; a URL looks like http://localhost:8000/v1") from None
    if not host or not _HOST.fullmatch(parts.netloc) or "?" in value:
        raise ValueError(
            "write the URL with a host and without name, password or query, since it is stored with the run; a "
            "key comes from the environment variable that `key` names"
        )
    return value


def listed(value: object) -> object:
    """Put a single value into a list."""
    return value if isinstance(value, list | tuple) else [value]


class Decoding(Strict):
    """Settings of one answer; temperature 0 is greedy."""

    max_tokens: int = Field(512, ge=1, le=MOST_TOKENS)
    temperature: float = Field(0.0, ge=0, le=10, allow_inf_nan=False)
    top_p: float = Field(1.0, gt=0, le=1)


def _usable_temperature(value: float) -> float:
    if 0 < value < LOWEST_TEMPERATURE:
        raise ValueError(f"a temperature is 0 or at least {LOWEST_TEMPERATURE:g}: below, logits become infinite")
    return value + 0.0  # -0 becomes 0


Temperature = Annotated[float, AfterValidator(_usable_temperature)]


class NoiseSpec(Strict):
    """The noise floor: prompts without filler are answered twice, the second time with other neighbours in the batch,
    or in another dtype where one is named. A server is asked again."""

    dtype: Literal["float32", "bfloat16", "float16"] | None = Field(
        None, description="The dtype of the second answers; null: the same.", examples=["float32"]
    )


class GenerationSpec(Strict):
    """How answers are drawn. Lists ask for every temperature, and for the first so many samples of each."""

    engine: Literal["fillerscope", "vllm"] = Field(
        "fillerscope", description="What writes the answers on this machine; vllm wants a CUDA device.",
        examples=["vllm"],
    )  # fmt: skip
    max_tokens: int = Field(512, ge=1, le=MOST_TOKENS, description="The most tokens of an answer.", examples=[1024])
    temperature: Annotated[tuple[Temperature, ...], BeforeValidator(listed)] = Field(
        (0.0,), min_length=1, description="One or a list; 0 is greedy.", examples=[0.8]
    )
    samples: Annotated[tuple[Annotated[int, Field(ge=1, le=1024)], ...], BeforeValidator(listed)] = Field(
        (1,), min_length=1, description="Answers to each prompt, one number or a list; above 1 with a temperature.",
        examples=[1],
    )  # fmt: skip
    top_p: float = Field(1.0, gt=0, le=1, description="Share of probability that is drawn from.", examples=[0.95])
    k: Annotated[tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(listed)] = Field(
        (), description="The k of pass@k; empty: 1, 4, 8 and 16 as far as samples go.", examples=[1]
    )
    rows: int | None = Field(
        None, ge=1, description="Answers in progress at once; null: as suits the device and its memory.", examples=[16]
    )
    recheck: int = Field(
        4, ge=0, description="So many greedy answers are written again one at a time, and compared.", examples=[0]
    )
    noise: NoiseSpec | None = Field(
        None, description="Answer the baseline twice: how many verdicts does rounding alone change?", examples=[True]
    )
    exact: bool = Field(
        False, description="Answers are the same to the bit whatever is answered beside them; slower.", examples=[True]
    )

    @field_validator("noise", mode="before")
    @classmethod
    def _off(cls, value: object) -> object:
        return None if value is False else {} if value is True else value

    @model_validator(mode="after")
    def _drawn(self) -> Self:
        refuse_repeats([f"{value:g}" for value in self.temperature], "temperature")
        refuse_repeats([str(value) for value in self.samples], "number of samples")
        if max(self.samples) > 1 and max(self.temperature) == 0:
            raise ValueError("samples above 1 need a temperature above 0: greedy answers are all alike")
        if self.k and max(self.k) > max(self.samples):
            raise ValueError(f"pass@{max(self.k)} needs {max(self.k)} samples, and there are {max(self.samples)}")
        if self.noise is not None and self.rows == 1 and not self.exact and self.noise.dtype is None:
            raise ValueError(
                "noise takes neighbours in the batch, and rows is 1: leave rows out, or give noise a dtype"
            )
        for value in self.temperature:
            self.decoding(value)
        return self

    def decoding(self, temperature: float) -> Decoding:
        return Decoding(max_tokens=self.max_tokens, temperature=temperature, top_p=self.top_p)

    def drawn(self, temperature: float) -> int:
        """How many samples are generated."""
        return max(self.samples) if temperature else 1

    def cells(self) -> list[tuple[float, int]]:
        """Temperature and number of samples of every row of the tables."""
        return [(t, n) for t in self.temperature for n in (sorted(self.samples) if t else (1,))]


def refuse_repeats(names: list[str], noun: str) -> None:
    """Raise ValueError where a name is given more than once."""
    for name, times in Counter(names).items():
        if times > 1:
            raise ValueError(f"{noun} {name!r} is given {times} times; names must differ")
