"""A study as data: what to measure, read from YAML and checked.

Knows nothing of torch, files of weights or folders of results. A study holds names and arguments only,
so any stored run can be run again from its own folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from fillerscope.errors import StudyError
from fillerscope.files import Json
from fillerscope.study.arguments import check_arguments
from fillerscope.study.conditions import MOST_FILLER, USUAL, Condition, expanded, ready_made
from fillerscope.study.data_sets import is_file
from fillerscope.study.generation import VLLM, GenerationSpec, refuse_repeats
from fillerscope.study.sections import (
    DEFAULT_SYSTEM,
    QUERIES,
    ActivationProbe,
    AttentionProbe,
    BatchSpec,
    Example,
    FigureSpec,
    ModelSpec,
    Probes,
    ProblemsSpec,
    PromptSpec,
    Queries,
    References,
)
from fillerscope.study.settings import unknown_key
from fillerscope.study.strict import Strict
from fillerscope.study.sweeps import places, swept
from fillerscope.study.yaml_lines import LinedYaml, located

__all__ = [
    "ALL_GPUS", "DEFAULT_SYSTEM", "QUERIES", "ActivationProbe", "AttentionProbe", "BatchSpec", "Example", "FigureSpec",
    "ModelSpec", "Probes", "ProblemsSpec", "PromptSpec", "Queries", "References", "Study",
]  # fmt: skip

ALL_GPUS = "cuda:all"  # the device of a model that is larger than a GPU


def _named(value: object) -> object:
    """A name alone stands for a model with default settings."""
    return {"name": value} if isinstance(value, str) else value


class Study(Strict):
    """Everything a run needs to know. `load` reads one from a file."""

    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9_.-]*$", max_length=60,
        description="What the run folder is called: small letters, digits and - _ .", examples=["my-study"],
    )  # fmt: skip
    models: tuple[Annotated[ModelSpec, BeforeValidator(_named)], ...] = Field(  # () for a model in memory
        (), min_length=1, description="The models, each by name or with settings.", examples=[["smollm2-135m"]]
    )
    problems: ProblemsSpec = Field(ProblemsSpec(), description="Where problems come from, and how many.")
    prompt: PromptSpec = Field(PromptSpec(), description="What stands around the question.")
    conditions: Annotated[tuple[Annotated[Condition, BeforeValidator(ready_made)], ...], BeforeValidator(expanded)] = (
        Field(
            USUAL, description="What is compared: `none` first, then ready-made names or conditions of your own.",
            examples=[["none", "mless", "random"]],
        )
    )  # fmt: skip
    probes: Probes = Field(Probes(), description="What is measured inside the model.")
    generation: GenerationSpec | None = Field(None, description="How answers are written; null: no answers.")
    references: References = Field(References(), description="Untrained models to compare with.")
    seed: int = Field(0, ge=0, description="Seed of drawn fillers, positions, interventions and answers.", examples=[1])
    batch: BatchSpec = Field(BatchSpec(), description="How work is divided.")
    device: str = Field(
        "auto",
        pattern=r"^(auto|cpu|mps|cuda(:(\d+|all))?)$",
        description="auto, cpu, mps, cuda, cuda:N, or cuda:all for a model larger than a GPU.",
        examples=["cpu"],
    )
    figures: tuple[FigureSpec, ...] = Field(
        (), description="Figures to draw; empty: all that the run has numbers for.", examples=[[{"name": "heads"}]]
    )

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
        if (filler := sum(condition.count or len(condition.text) for condition in value)) > MOST_FILLER:
            raise ValueError(f"conditions have {filler:,} tokens of filler in all, and {MOST_FILLER:,} are the most")
        return value

    @model_validator(mode="after")
    def _asks_for_something(self) -> Self:
        if self.probes.attention is None and self.generation is None:
            raise ValueError("nothing is asked for: leave probes.attention on, or give `generation`")
        if self.probes.answering and self.generation is None:
            raise ValueError("probes.answering looks at answers: give `generation`")
        if self.references.twin and self.probes.attention is None:
            raise ValueError("references.twin measures attention of untrained models: leave probes.attention on")
        rounded = next((model for model in self.models if model.dtype in ("int8", "nf4")), None)
        if self.references.twin and rounded:
            raise ValueError(f"references.twin draws weights anew, not in {rounded.dtype}: choose another dtype")
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

    @model_validator(mode="after")
    def _can_be_done_by_vllm(self) -> Self:
        """Refuse settings that vLLM cannot serve. All conditions of a study have one engine: answers of two differ by
        their rounding, and could not be compared as pairs."""
        if self.generation is None or self.generation.engine != VLLM:
            return self
        changed = next((condition.name for condition in self.conditions if condition.intervention), None)
        served = next((model.name for model in self.models if model.endpoint), None)
        rounded = next((model for model in self.models if model.dtype in ("int8", "nf4")), None)
        refused = {
            f"condition {changed!r} changes the model itself, which vLLM does not: give such conditions, with `none`, "
            "a study of their own without it": changed,
            f"{served!r} answers from a server: leave its endpoint out, or generation.engine": served,
            f"vLLM does not round weights to {rounded and rounded.dtype}: choose another dtype": rounded,
            "generation.exact is not kept by vLLM: leave one of them out": self.generation.exact,
            "vLLM answers again in other batches, not in another dtype: set generation.noise to `on`": (
                self.generation.noise and self.generation.noise.dtype
            ),
        }
        if told := next((text for text, holds in refused.items() if holds), None):
            raise ValueError(told)
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
    def stored(cls, data: Json) -> Study:
        """The study of a run, as its folder holds it; a ValueError where it is none that could have been run."""
        study = cls.model_validate(data)
        if not study.models:
            raise ValueError("a study that was run names its models")
        return study

    @classmethod
    def _checked(cls, data: Any, needs_models: bool, locate: Callable[[Sequence[str | int], str], str]) -> Study:
        try:
            study = cls.model_validate(data)
        except ValidationError as error:
            # A misspelt key comes first: that another is missing may only follow from it.
            first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
            place = _as_written(first["loc"], data)
            unknown = unknown_key(cls, place) if first["type"] == "extra_forbidden" else ""
            raise StudyError(locate(place, unknown or _wording(first))) from None
        if needs_models and not study.models:
            raise StudyError(locate((), "'models' is required and missing"))
        return study

    def with_sources_from(self, folder: Path) -> Study:
        """Relative paths in a study file are relative to that file."""
        source = self.problems.source
        if not is_file(source) or Path(source).is_absolute():
            return self
        problems = self.problems.model_copy(update={"source": str((folder / source).resolve())})
        return self.model_copy(update={"problems": problems})

    def is_served(self, model: ModelSpec) -> bool:
        """Whether answers are written by a server or by vLLM, not by the model as it is loaded here."""
        return self.generation is not None and (model.endpoint is not None or self.generation.engine == VLLM)

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
        if self.generation is not None and self.generation.engine != VLLM:
            left_out["generation"].add("engine")
        return self.model_dump(mode="json", exclude=left_out)


def study_from(study: Study | Mapping[str, Any] | str | Path, needs_models: bool = True) -> Study:
    """The study that is meant by a file, a mapping or a study."""
    if isinstance(study, Study):
        return study
    if isinstance(study, Mapping):
        return Study.parse(study, needs_models)
    if not isinstance(study, str | Path):
        raise StudyError(f"a study is a file, a mapping or a Study, not {type(study).__name__}")
    check_arguments({"path": study})
    return Study.load(study, needs_models)


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
    if error["type"] == "union_tag_not_found":
        return "'kind' is required and missing"
    if error["type"] == "union_tag_invalid":
        return f"there is no kind {error['ctx']['tag']!r}; there are {error['ctx']['expected_tags']}"
    if error["type"] == "missing":
        return f"{error['loc'][-1]!r} is required and missing"
    if error["type"] in _EXPECTED:
        return f"{_EXPECTED[error['type']]} is expected here, not {error['input']!r:.60}"
    return str(error["msg"]).removeprefix("Value error, ")
