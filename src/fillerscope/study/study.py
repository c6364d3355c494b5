"""A study as data: what to measure, read from YAML and checked.

Knows nothing of torch, files of weights or folders of results. A study holds names and arguments only,
so any stored run can be run again from its own folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    ValidationError,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from fillerscope.errors import StudyError
from fillerscope.files import Json
from fillerscope.study.conditions import USUAL, Condition, expanded, ready_made
from fillerscope.study.generation import EndpointSpec, GenerationSpec, Strict, refuse_repeats
from fillerscope.study.sweeps import places, swept
from fillerscope.study.token_classes import CLASSES, refuse_bad
from fillerscope.study.yaml_lines import LinedYaml, located

Queries = Literal["all", "original", "last"]
QUERIES: tuple[Queries, ...] = ("all", "original", "last")
DEFAULT_SYSTEM = "Please reason step by step and put your final answer within \\boxed{}."


class ModelSpec(Strict):
    """A model by catalogue name, hub id, folder or GGUF file."""

    name: str = Field(min_length=1)
    endpoint: EndpointSpec | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    template: Literal["auto", "chat", "raw"] | None = None  # None: as the study's prompt says


class ProblemsSpec(Strict):
    """Where problems come from: `builtin`, a .jsonl, .json or .parquet file, or `hub:owner/name`."""

    source: str = "builtin"
    limit: int | None = Field(None, ge=1)
    seed: int = Field(0, ge=0)
    kind: Literal["words", "sums"] = "words"  # builtin only: problems in words, or sums such as 47 + 25
    difficulty: tuple[int, ...] = (1, 2, 3)  # builtin only
    fields: dict[Literal["id", "question", "answer"], str] = Field(default_factory=dict)
    split: str = "test"  # hub only

    @field_validator("difficulty")
    @classmethod
    def _known(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or not set(value) <= {0, 1, 2, 3}:
            raise ValueError("difficulty takes a list of 0, 1, 2 and 3")
        return value


class Example(Strict):
    """A worked example: a question, and the answer as the model should write it."""

    question: str = Field(min_length=1)
    answer: str = Field(min_length=1)


class PromptSpec(Strict):
    """`chat` uses the tokenizer's own template, `raw` the format below, `auto` chat where there is one."""

    system: str = DEFAULT_SYSTEM
    examples: tuple[Example, ...] = ()  # shown before every question, as earlier turns
    template: Literal["auto", "chat", "raw"] = "auto"
    raw: str = "{system}\n\n{question}\n"

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


def _named(value: object) -> object:
    """A name alone stands for a model with default settings."""
    return {"name": value} if isinstance(value, str) else value


class AttentionProbe(Strict):
    """How attention received is counted; see docs/method.md for the definitions."""

    diagonal: bool = False
    skip_first: bool = True
    positions: int = Field(256, ge=2)  # profiles keep this many positions; head summaries see them all


class ActivationProbe(Strict):
    """How MLP activations are counted, and the classes of tokens for which they are counted apart."""

    c: float = Field(0.13, gt=0, allow_inf_nan=False)  # near zero is below 1.4826 * MAD * c
    classes: dict[str, str] = Field(default_factory=lambda: dict(CLASSES))  # names and patterns, the first that fits

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

    attention: AttentionProbe | None = AttentionProbe()  # `off` where answers are all that is wanted
    affine: bool = False  # attention outputs with filler as an affine image of those without
    activations: ActivationProbe | None = None
    answering: bool = False  # where the answer attends, in a pass over prompt and answer

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
    """References that are measured in the same run: untrained twins of the model."""

    twin: int = Field(0, ge=0, le=100)  # how many: the same configuration with weights drawn anew

    @field_validator("twin", mode="before")
    @classmethod
    def _counted(cls, value: object) -> object:
        if isinstance(value, bool):
            raise ValueError("twin takes a number: 3 or more, or 0")
        return value

    @field_validator("twin")
    @classmethod
    def _several(cls, value: int) -> int:
        if value == 1:
            raise ValueError("one untrained twin does not show how much twins differ: ask for 3 or more, or 0")
        return value


class BatchSpec(Strict):
    tokens: int | None = Field(None, ge=1)  # in one forward pass; None: as many as memory holds and speed asks for
    shard: int = Field(32, ge=1)  # problems in one shard
    prefix: Literal["share", "off"] = "share"  # whether what all prompts of a condition begin with is run once

    @field_validator("prefix", mode="before")
    @classmethod
    def _off(cls, value: object) -> object:
        return {False: "off", True: "share"}.get(value, value) if isinstance(value, bool) else value


class FigureSpec(Strict):
    """A figure to draw when the run is done, with the heads that it shows."""

    name: str
    conditions: tuple[str, ...] = ()
    layers: tuple[Annotated[int, Field(ge=1)], ...] = ()
    heads: tuple[Annotated[int, Field(ge=1)], ...] = ()  # `fillers` takes one a model, in order
    queries: Queries | Literal["answer"] | None = None
    skip_first: tuple[bool, ...] = ()  # one for all models or one a model; empty: as the probe says
    y_max: tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...] = ()


class Study(Strict):
    """Everything a run needs to know. `load` reads one from a file."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$", max_length=60)
    models: tuple[Annotated[ModelSpec, BeforeValidator(_named)], ...] = Field((), min_length=1)  # () for one in memory
    problems: ProblemsSpec = ProblemsSpec()
    prompt: PromptSpec = PromptSpec()
    conditions: Annotated[tuple[Annotated[Condition, BeforeValidator(ready_made)], ...], BeforeValidator(expanded)] = (
        USUAL
    )
    probes: Probes = Probes()
    generation: GenerationSpec | None = None
    references: References = References()
    seed: int = Field(0, ge=0)
    batch: BatchSpec = BatchSpec()
    device: str = Field("auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")
    figures: tuple[FigureSpec, ...] = ()

    @field_validator("models")
    @classmethod
    def _models_differ(cls, value: tuple[ModelSpec, ...]) -> tuple[ModelSpec, ...]:
        refuse_repeats([model.name for model in value], "model")
        return value

    @field_validator("conditions")
    @classmethod
    def _baseline_first(cls, value: tuple[Condition, ...]) -> tuple[Condition, ...]:
        refuse_repeats([condition.name for condition in value], "condition")
        baseline = [condition.name for condition in value if condition.is_baseline]
        if baseline != ["none"] or value[0].name != "none":
            raise ValueError("conditions must begin with `none`, the baseline of every pair, once")
        return value

    @model_validator(mode="after")
    def _asks_for_something(self) -> Self:
        if self.probes.attention is None and self.generation is None:
            raise ValueError("nothing is asked for: leave probes.attention on, or give `generation`")
        if self.probes.answering and self.generation is None:
            raise ValueError("probes.answering looks at answers: give `generation`")
        if self.references.twin and self.probes.attention is None:
            raise ValueError("references.twin measures attention of untrained models: leave probes.attention on")
        return self

    @model_validator(mode="after")
    def _can_be_done(self) -> Self:
        """Refuse settings that a server cannot serve: it takes a prompt and nothing else."""
        served = next((model.name for model in self.models if model.endpoint), None)
        changed = next((condition.name for condition in self.conditions if condition.intervention), None)
        if served and self.generation and (changed or self.probes.answering):
            what = f"condition {changed!r} changes the model itself" if changed else "probes.answering needs the model"
            raise ValueError(f"{what}, and {served!r} answers from a server; leave its endpoint out")
        if served and self.generation and self.generation.exact:
            raise ValueError(f"generation.exact needs the model itself, and {served!r} answers from a server")
        if served and self.generation and self.generation.noise and self.generation.noise.dtype:
            raise ValueError(
                f"generation.noise names a dtype, and {served!r} answers from a server: set it to `on`, and the server "
                "is asked again"
            )
        return self

    @classmethod
    def load(cls, path: str | Path, needs_models: bool = True) -> Study:
        """Read and check a study file; whatever is wrong is named with file and line."""
        document = LinedYaml.read(Path(path))
        return cls._checked(document.data, needs_models, document.locate).with_sources_from(Path(path).parent)

    @classmethod
    def parse(cls, data: Mapping[str, Any], needs_models: bool = True) -> Study:
        """Check a study given as a mapping; whatever is wrong is named with the path of its key.

        A relative path of problems is relative to the current folder."""
        settings = dict(data)
        return cls._checked(settings, needs_models, partial(located, settings)).with_sources_from(Path())

    @classmethod
    def _checked(cls, data: Any, needs_models: bool, locate: Callable[[Sequence[str | int], str], str]) -> Study:
        try:
            study = cls.model_validate(data)
        except ValidationError as error:
            # A misspelt key comes first: that another is missing may only follow from it.
            first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
            raise StudyError(locate(_as_written(first["loc"], data), _wording(first))) from None
        if needs_models and not study.models:
            raise StudyError(locate((), "'models' is required and missing"))
        return study

    def with_sources_from(self, folder: Path) -> Study:
        """Relative paths in a study file are relative to that file."""
        source = self.problems.source
        if source == "builtin" or source.startswith("hub:") or Path(source).is_absolute():
            return self
        problems = self.problems.model_copy(update={"source": str((folder / source).resolve())})
        return self.model_copy(update={"problems": problems})

    def template_of(self, model: ModelSpec) -> Literal["auto", "chat", "raw"]:
        return model.template or self.prompt.template

    @property
    def reference(self) -> Condition | None:
        """The condition whose filler length the closed-form reference uses: the first that only inserts filler."""
        return next((one for one in self.conditions if one.has_filler and not one.intervention), None)

    def twins(self, model: str) -> list[str]:
        """Names of a model's untrained twins, by which their numbers are stored."""
        return [f"{model}#twin{seed}" for seed in range(1, self.references.twin + 1)]

    @property
    def untrained(self) -> Study:
        """The study of untrained twins: prompts only, since their answers would be noise."""
        probes = self.probes.model_copy(update={"answering": False})
        return self.model_copy(update={"generation": None, "probes": probes})

    def measured(self) -> Json:
        """The part that can change a number, ready for a digest. Names, labels and figures are not in it."""
        left_out: Json = {
            "name": True,
            "figures": True,
            "conditions": {"__all__": {"label", "sweep"}},
            "generation": {"k", "recheck", "noise"},  # what is answered again has files of its own
        }
        if self.generation is not None and not self.generation.exact:
            left_out["generation"].add("exact")  # as in runs made before there was a choice
        return self.model_dump(mode="json", exclude=left_out)


def digest_of(value: object) -> str:
    """The sha256 of a JSON value in canonical form."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _as_written(where: tuple[int | str, ...], data: Any) -> tuple[int | str, ...]:
    """The place of a condition in the file, which may hold a sweep where the study has all its cells."""
    if where[:1] != ("conditions",) or len(where) < 2:
        return where
    below = where[2:3] + where[4:] if where[2:3] == ("intervention",) else where[2:]  # less the name of its kind
    place = places(data["conditions"])[int(where[1])]
    if "layers" in below and "layers" in swept(data["conditions"][place]):
        below = below[: below.index("layers") + 1]  # one list of several, and it is not known which
    return ("conditions", place, *below)


_MAPPING = "a mapping of keys to values"
_EXPECTED = {"tuple_type": "a list", "model_type": _MAPPING, "model_attributes_type": _MAPPING}


def _wording(error: ErrorDetails) -> str:
    if error["type"] == "extra_forbidden":
        return f"unknown key {error['loc'][-1]!r}; check the spelling, or remove it"
    if error["type"] == "union_tag_not_found":
        return "'kind' is required and missing"
    if error["type"] == "union_tag_invalid":
        return f"there is no kind {error['ctx']['tag']!r}; there are {error['ctx']['expected_tags']}"
    if error["type"] == "missing":
        return f"{error['loc'][-1]!r} is required and missing"
    if error["type"] in _EXPECTED:
        return f"{_EXPECTED[error['type']]} is expected here, not {error['input']!r:.60}"
    return str(error["msg"]).removeprefix("Value error, ")
