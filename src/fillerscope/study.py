"""What to measure, as data: read from YAML, checked, and canonical enough to name a run.

Knows nothing of torch, files of weights or folders of results. A study holds names and arguments only,
so any stored run can be run again from its own folder.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from fillerscope.errors import StudyError
from fillerscope.yamllines import LinedYaml

Queries = Literal["all", "original", "last"]
QUERIES: tuple[Queries, ...] = ("all", "original", "last")
DEFAULT_SYSTEM = "Please reason step by step and put your final answer within \\boxed{}."


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class ModelSpec(_Strict):
    """A model by catalogue name, hub id, folder or GGUF file."""

    name: str = Field(min_length=1)
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    template: Literal["auto", "chat", "raw"] | None = None  # None: as the study's prompt says


class ProblemsSpec(_Strict):
    """Where problems come from: `builtin`, a .jsonl, .json or .parquet file, or `hub:owner/name`."""

    source: str = "builtin"
    limit: int | None = Field(None, ge=1)
    seed: int = Field(0, ge=0)
    difficulty: tuple[int, ...] = (1, 2, 3)  # builtin only
    fields: dict[Literal["id", "question", "answer"], str] = {}
    split: str = "test"  # hub only

    @field_validator("difficulty")
    @classmethod
    def _known(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or not set(value) <= {1, 2, 3}:
            raise ValueError("difficulty takes a list of 1, 2 and 3")
        return value


class PromptSpec(_Strict):
    """`chat` uses the tokenizer's own template, `raw` the format below, `auto` chat where there is one."""

    system: str = DEFAULT_SYSTEM
    template: Literal["auto", "chat", "raw"] = "auto"
    raw: str = "{system}\n\n{question}\n"

    @field_validator("raw")
    @classmethod
    def _has_question(cls, value: str) -> str:
        if value.count("{question}") != 1 or value.count("{system}") > 1:
            raise ValueError("raw takes {question} exactly once and {system} at most once")
        return value


class Condition(_Strict):
    """A named change to the prompt: a filler recipe and the place where the filler goes."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=60)
    kind: Literal["none", "repeat", "text", "sentence", "characters"]
    text: str = ""
    count: int | None = Field(None, ge=1, le=100_000)
    position: Literal["start", "before_question", "end", "random"] = "before_question"
    draw: Literal["once", "problem"] = "once"
    label: str = ""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.kind in ("repeat", "text") and not self.text:
            raise ValueError(f"a condition of kind {self.kind} needs `text`")
        if self.kind in ("repeat", "sentence", "characters") and self.count is None:
            raise ValueError(f"a condition of kind {self.kind} needs `count`, the number of tokens")
        return self


PRESETS = {
    condition.name: condition
    for condition in (
        Condition(name="none", kind="none", label="None"),
        Condition(name="mless", kind="repeat", text=" /", count=55, label="Meaningless tokens"),
        Condition(name="mful", kind="repeat", text=" he", count=55, label="Meaningful tokens"),
        Condition(name="random", kind="sentence", count=55, label="Random sentence"),
    )
}


def _ready_made(value: Any) -> Any:
    """A name alone stands for a ready-made condition."""
    if isinstance(value, str) and value not in PRESETS:
        raise ValueError(f"{value!r} is not a ready-made condition; there are {', '.join(PRESETS)}")
    return PRESETS[value] if isinstance(value, str) else value


def _named(value: Any) -> Any:
    """A name alone stands for a model with nothing else said about it."""
    return {"name": value} if isinstance(value, str) else value


class AttentionProbe(_Strict):
    """How attention received is counted; see docs/method.md for the definitions."""

    diagonal: bool = False
    skip_first: bool = True
    positions: int = Field(256, ge=2)  # profiles keep this many positions; head summaries see them all


class Probes(_Strict):
    attention: AttentionProbe = AttentionProbe()


class BatchSpec(_Strict):
    tokens: int = Field(4096, ge=1)  # padded tokens in one forward pass
    shard: int = Field(32, ge=1)  # problems in one shard


class FigureSpec(_Strict):
    """A figure to draw when the run is done, with the heads that it shows."""

    name: str
    conditions: tuple[str, ...] = ()
    layers: tuple[Annotated[int, Field(ge=1)], ...] = ()
    heads: tuple[Annotated[int, Field(ge=1)], ...] = ()  # `fillers` takes one a model, in order
    queries: Queries | None = None
    skip_first: tuple[bool, ...] = ()  # one for all models or one a model; empty: as the probe says
    y_max: tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...] = ()


class Study(_Strict):
    """Everything a run needs to know. `load` reads one from a file."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$", max_length=60)
    models: tuple[Annotated[ModelSpec, BeforeValidator(_named)], ...] = Field(min_length=1)
    problems: ProblemsSpec = ProblemsSpec()
    prompt: PromptSpec = PromptSpec()
    conditions: tuple[Annotated[Condition, BeforeValidator(_ready_made)], ...] = tuple(PRESETS.values())
    probes: Probes = Probes()
    seed: int = Field(0, ge=0)
    batch: BatchSpec = BatchSpec()
    device: str = Field("auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")
    figures: tuple[FigureSpec, ...] = ()

    @field_validator("models")
    @classmethod
    def _models_differ(cls, value: tuple[ModelSpec, ...]) -> tuple[ModelSpec, ...]:
        _refuse_repeats([model.name for model in value], "model")
        return value

    @field_validator("conditions")
    @classmethod
    def _baseline_first(cls, value: tuple[Condition, ...]) -> tuple[Condition, ...]:
        _refuse_repeats([condition.name for condition in value], "condition")
        baseline = [condition.name for condition in value if condition.kind == "none"]
        if baseline != ["none"] or value[0].name != "none":
            raise ValueError("conditions must begin with `none`, the baseline of every pair, once")
        return value

    @classmethod
    def load(cls, path: str | Path) -> Study:
        """Read and check a study file; whatever is wrong is named with file and line."""
        document = LinedYaml.read(Path(path))
        try:
            study = cls.model_validate(document.data)
        except ValidationError as error:
            # A misspelt key comes first: that another is missing may only follow from it.
            first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
            raise StudyError(document.locate(first["loc"], _wording(first))) from None
        return study.with_sources_from(Path(path).parent)

    def with_sources_from(self, folder: Path) -> Study:
        """Relative paths in a study file are relative to that file."""
        source = self.problems.source
        if source == "builtin" or source.startswith("hub:") or Path(source).is_absolute():
            return self
        problems = self.problems.model_copy(update={"source": str((folder / source).resolve())})
        return self.model_copy(update={"problems": problems})

    def template_of(self, model: ModelSpec) -> Literal["auto", "chat", "raw"]:
        return model.template or self.prompt.template

    def measured(self) -> dict[str, Any]:
        """The part that can change a number, ready for a digest. Names, labels and figures are not in it."""
        return self.model_dump(
            mode="json", exclude={"name": True, "figures": True, "conditions": {"__all__": {"label"}}}
        )


def digest_of(value: Any) -> str:
    """The sha256 of a JSON value in canonical form."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _refuse_repeats(names: list[str], noun: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{noun} {name!r} is given {names.count(name)} times; names must differ")


_EXPECTED = {"tuple_type": "a list", "model_type": "a mapping of keys to values"}


def _wording(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return f"unknown key {error['loc'][-1]!r}; check the spelling, or remove it"
    if error["type"] == "missing":
        return f"{error['loc'][-1]!r} is required and missing"
    if error["type"] in _EXPECTED:
        return f"{_EXPECTED[error['type']]} is expected here, not {error['input']!r:.60}"
    return str(error["msg"]).removeprefix("Value error, ")
