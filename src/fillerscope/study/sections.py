"""The sections of a study file, as checked data: models, problems, prompt, probes, references, batch, figures.

What a key means stands in its description: `reference.py` makes the page, the help and the JSON Schema of them.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, field_serializer, field_validator, model_validator

from fillerscope.study.data_sets import BUILTIN, DEFAULT_SPLIT, Role
from fillerscope.study.generation import EndpointSpec
from fillerscope.study.strict import Strict
from fillerscope.study.token_classes import CLASSES, refuse_bad

Queries = Literal["all", "original", "last"]
QUERIES: tuple[Queries, ...] = ("all", "original", "last")
DEFAULT_SYSTEM = "Please reason step by step and put your final answer within \\boxed{}."


class ModelSpec(Strict):
    """A model by catalogue name, hub id, folder or GGUF file. The name alone stands for one with these defaults."""

    name: str = Field(
        min_length=1, description="Catalogue name, hub id, folder or .gguf file.", examples=["Qwen/Qwen2.5-Math-1.5B"]
    )
    endpoint: EndpointSpec | None = Field(None, description="A server that writes the answers instead of this machine.")
    dtype: Literal["auto", "float32", "bfloat16", "float16", "int8", "nf4"] = Field(
        "auto",
        description="Precision of the weights; auto: bfloat16 on CUDA, else float32; weights alone in "
        "8 (int8) or 4 bits (nf4) need the extra `quantised`.",
        examples=["float32"],
    )
    template: Literal["auto", "chat", "raw"] | None = Field(
        None,
        description="As prompt.template, for this model alone; null: as the study's prompt says.",
        examples=["raw"],
    )


class ProblemsSpec(Strict):
    """Where problems come from. Columns with usual names are recognised; `fillerscope fields FILE` shows them."""

    source: str = Field(
        BUILTIN,
        description="A .jsonl, .json, .parquet, .csv or .tsv file, a data set (gsm8k, math500, aime24, aime25), "
        "hub:owner/name, or builtin. A file is relative to the study.",
        examples=["my-problems.csv"],
    )
    limit: int | None = Field(
        None, ge=1, description="Take the first so many problems; null: all, or 64 built-in ones.", examples=[100]
    )
    seed: int = Field(0, ge=0, description="Seed of the built-in problems.", examples=[1])
    kind: Literal["words", "sums"] = Field(
        "words", description="Built-in problems in words, or plain sums such as 47 + 25.", examples=["sums"]
    )
    difficulty: tuple[int, ...] = Field(
        (1, 2, 3), description="Difficulties of the built-in problems, in turn: 0 (easiest) to 3.", examples=[[0]]
    )
    fields: dict[Role, str] = Field(
        default_factory=dict,
        description="The columns of question, answer and id, where they are not recognised.",
        examples=[{"question": "text", "answer": "gold"}],
    )
    answer_form: Literal["auto", "whole", "hashes", "box"] = Field(
        "auto",
        description="Which part of the answer's column is the answer: all of it, what follows #### at its end, or the "
        "last \\boxed{}; auto: as all rows have it.",
        examples=["hashes"],
    )
    on_error: Literal["stop", "skip"] = Field(
        "stop",
        description="What a row does that cannot be read or is no problem: stop the run, or be skipped and counted.",
        examples=["skip"],
    )
    split: str = Field(DEFAULT_SPLIT, description="Which split of a data set on the hub is taken.", examples=["train"])

    @field_validator("difficulty")
    @classmethod
    def _known(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or not set(value) <= {0, 1, 2, 3}:
            raise ValueError("difficulty takes a list of 0, 1, 2 and 3")
        return value


class Example(Strict):
    """A worked example: a question, and the answer as the model should write it."""

    question: str = Field(min_length=1, description="The question.", examples=["12 + 30 = ?"])
    answer: str = Field(min_length=1, description="The answer as the model should write it.", examples=["12 + 30 = 42"])


class PromptSpec(Strict):
    """What stands around the question."""

    system: str = Field(
        DEFAULT_SYSTEM, description="The system prompt.", examples=["Answer with a number in \\boxed{}."]
    )
    examples: tuple[Example, ...] = Field(
        (),
        description="Worked examples, shown before every question as earlier turns.",
        examples=[[{"question": "12 + 30 = ?", "answer": "12 + 30 = 42"}]],
    )
    template: Literal["auto", "chat", "raw"] = Field(
        "auto",
        description="chat: the tokenizer's own template; raw: the format below; auto: chat where there is one.",
        examples=["chat"],
    )
    raw: str = Field(
        "{system}\n\n{question}\n",
        description="The format of raw prompts, with {question} once and {system} at most once.",
        examples=["Question: {question}\nAnswer:"],
    )

    @field_validator("raw")
    @classmethod
    def _has_question(cls, value: str) -> str:
        if value.count("{question}") != 1 or value.count("{system}") > 1:
            raise ValueError("raw takes {question} exactly once and {system} at most once")
        return value

    @model_validator(mode="after")
    def _has_room_for_examples(self) -> Self:
        if self.examples and "{system}" not in self.raw:
            raise ValueError("examples stand after the system text: raw needs {system}")
        return self


class AttentionProbe(Strict):
    """How attention received is counted; docs/method.md has the definitions."""

    diagonal: bool = Field(False, description="Count what a token gives to itself.", examples=[True])
    skip_first: bool = Field(True, description="Leave the first token, where attention sinks, out.", examples=[False])
    positions: int = Field(
        256, ge=2, description="Positions that profiles keep; numbers for heads cover all of them.", examples=[512]
    )


class ActivationProbe(Strict):
    """How MLP activations are counted, and the classes of tokens for which they are counted apart."""

    c: float = Field(
        0.13, gt=0, allow_inf_nan=False, description="Near zero is below 1.4826 * MAD * c.", examples=[0.1]
    )
    classes: dict[str, str] = Field(
        default_factory=lambda: dict(CLASSES),
        description="Classes of tokens: a name and a pattern each; a token is in the first that fits its whole text.",
        examples=[{"digits": "[0-9]+"}],
    )

    @field_validator("classes", mode="before")
    @classmethod
    def _mapped(cls, value: object) -> object:
        """Stored as pairs: JSON is written with its keys sorted, and the order of classes matters."""
        if isinstance(value, list | tuple) and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in value):
            return {str(name): pattern for name, pattern in value}
        return value

    @field_validator("classes")
    @classmethod
    def _usable(cls, value: dict[str, str]) -> dict[str, str]:
        refuse_bad(value)
        return value

    @field_serializer("classes")
    def _paired(self, value: dict[str, str]) -> list[tuple[str, str]]:
        return list(value.items())


class Probes(Strict):
    """What is measured. All but answers happens in one pass over the prompts."""

    attention: AttentionProbe | None = Field(
        AttentionProbe(), description="Attention received, by head and position; off: answers alone.", examples=[False]
    )
    affine: bool = Field(
        False, description="Attention outputs with filler as an affine image of those without.", examples=[True]
    )
    activations: ActivationProbe | None = Field(
        None, description="MLP activations near zero, in every layer, by class of tokens.", examples=[True]
    )
    answering: bool = Field(
        False, description="Where the answer attends, in a pass over prompt and answer.", examples=[True]
    )

    @field_validator("attention", "activations", mode="before")
    @classmethod
    def _off(cls, value: object) -> object:
        return None if value is False else {} if value is True else value

    @model_validator(mode="after")
    def _attended(self) -> Self:
        if self.attention is None and (self.affine or self.activations or self.answering):
            raise ValueError("affine, activations and answering are measured with attention: leave it on")
        return self


class References(Strict):
    """References that are measured in the same run. Without untrained twins no effect on attention is claimed."""

    twin: int = Field(
        0, ge=0, le=100, description="How many untrained models: the same configuration, weights drawn anew.",
        examples=[3],
    )  # fmt: skip

    @field_validator("twin", mode="before")
    @classmethod
    def _counted(cls, value: object) -> object:
        if isinstance(value, bool):
            raise ValueError("twin takes a number: 2 or more (3 are advised), or 0")
        return value

    @field_validator("twin")
    @classmethod
    def _several(cls, value: int) -> int:
        if value == 1:
            raise ValueError(
                "one untrained twin does not show how much twins differ: ask for 2 or more (3 are advised), or 0"
            )
        return value


class BatchSpec(Strict):
    """How work is divided. Changes speed and memory, and rounding at most."""

    tokens: int | None = Field(
        None, ge=1, description="Tokens of one forward pass; null: as memory allows.", examples=[8192]
    )
    shard: int = Field(
        32,
        ge=1,
        description="Problems of a shard. A kill loses one, or a few in runs of over 500 files.",
        examples=[16],
    )
    prefix: Literal["share", "off"] = Field(
        "share", description="Whether what all prompts of a condition begin with is run once.", examples=["off"]
    )

    @field_validator("prefix", mode="before")
    @classmethod
    def _off(cls, value: object) -> object:
        return {False: "off", True: "share"}.get(value, value) if isinstance(value, bool) else value


class FigureSpec(Strict):
    """A figure to draw when the run is done, with the heads that it shows. Without any, all that can be are drawn."""

    name: str = Field(description="The figure: heads, depth, headmap, composite, ...", examples=["heads"])
    conditions: tuple[str, ...] = Field(
        (), description="Conditions to show; empty: its own choice.", examples=[["mless"]]
    )
    layers: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (), description="Layers to show, from 1; empty: its own choice.", examples=[[1, 15]]
    )
    heads: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (), description="Heads to show, from 1; `fillers` takes one a model, in order.", examples=[[2, 5, 7]]
    )
    queries: Queries | Literal["answer"] | None = Field(
        None, description="Query rows that count; null: as the figure has it.", examples=["last"]
    )
    skip_first: tuple[bool, ...] = Field(
        (), description="Leave out the first token: one for all models or one a model.", examples=[[True]]
    )
    y_max: tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...] = Field(
        (), description="Where the vertical axes end, in order.", examples=[[0.05]]
    )
