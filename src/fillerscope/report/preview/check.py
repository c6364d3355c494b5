"""A study looked at without running it: models, data, prompts, work and reachable verdicts.

Fetches no weights and loads none: prompts need the tokenizer of a model that is on this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from fillerscope.errors import FillerscopeError, ModelError
from fillerscope.figures.condition_text import described
from fillerscope.figures.registry import check as check_figures
from fillerscope.files import Json
from fillerscope.measure.prepare import Prepared, prepare, refuse_missing_layers
from fillerscope.models.catalogue import CATALOGUE
from fillerscope.models.description import load_tokenizer, stated_context, stated_layers, stated_vocabulary
from fillerscope.models.resolve import Place, find, place_of
from fillerscope.problems.problem import Problem
from fillerscope.problems.sources import read_problems
from fillerscope.prompts.prompt import PromptMaker
from fillerscope.report.preview.data import DataPreview
from fillerscope.report.preview.prompts import PromptPreview
from fillerscope.report.preview.verdicts import Outlook, outlooks
from fillerscope.study.study import ModelSpec, Study

MOST_PREPARED = 300  # problems whose prompts are made; numbers for more are scaled up
LONGEST = 8  # and so many of the longest questions


@dataclass(frozen=True)
class ModelCheck:
    """A model of a study: where it is, how large, and what its prompts come to."""

    name: str
    place: Place
    bytes: int | None = None  # of the weights, or of the download
    context: int | None = None
    longest: int | None = None  # tokens of the longest prompt that was made
    failed: int = 0  # problems whose prompts cannot be made or are too long
    reason: str = ""  # of the first of them
    prompt_tokens: int = 0  # of all prompts of all conditions

    def record(self) -> Json:
        """The same for programs."""
        return asdict(self)


@dataclass(frozen=True)
class StudyCheck:
    """What a study asks for, and what stands in its way."""

    study: Study
    models: tuple[ModelCheck, ...]
    data: DataPreview
    conditions: dict[str, str]  # what each is made of
    prompts: tuple[PromptPreview, ...]  # of the first problem, under every condition
    outlooks: tuple[Outlook, ...]
    refusals: tuple[str, ...] = ()  # what `run` would say before it measures anything

    @property
    def obstacles(self) -> list[str]:
        """Why it cannot run as it is."""
        found = []
        if self.study.generation and self.data.unanswered:
            count, total = self.data.unanswered, self.data.count
            found.append(
                f"{count} of {total} problems have no answer to grade by: name the column in `problems.fields`, or "
                "leave `generation` out"
            )
        gone = [one for one in self.models if one.failed and one.failed == self.data.count]
        found += [f"{one.name}: no problem can be measured: {one.reason}" for one in gone]
        return [*found, *self.refusals]

    @property
    def answers(self) -> int:
        """How many answers are written, by all models."""
        if self.study.generation is None:
            return 0
        drawn = sum(self.study.generation.drawn(one) for one in self.study.generation.temperature)
        again = drawn if self.study.generation.noise else 0
        return self.data.count * len(self.models) * (len(self.study.conditions) * drawn + again)

    @property
    def forward_tokens(self) -> int | None:
        """Tokens of prompts that are run, by models and their untrained twins; None where no tokenizer is here."""
        if self.study.probes.attention is None:
            return 0
        known = [one.prompt_tokens for one in self.models if one.longest is not None]
        mean = sum(known) / len(known) if known else None
        return None if mean is None else round(mean * len(self.models) * (1 + self.study.references.twin))

    def record(self) -> Json:
        """The same for programs."""
        longest = self.study.generation.max_tokens if self.study.generation else 0
        return {
            "study": self.study.name,
            "obstacles": self.obstacles,
            "models": [one.record() for one in self.models],
            "data": self.data.record(),
            "conditions": self.conditions,
            "prompts": [one.record() for one in self.prompts],
            "verdicts": [one.record() for one in self.outlooks],
            "work": {
                "forward_tokens": self.forward_tokens,
                "answers": self.answers,
                "most_answer_tokens": self.answers * longest,
            },
        }


def check_study(study: Study) -> StudyCheck:
    """Look at a study without running it."""
    data = read_problems(study.problems, graded=study.generation is not None)
    looked = [_looked_at(study, spec, data.problems) for spec in study.models]
    prompts = next((prompts for _, prompts in looked if prompts), ())
    conditions = {one.name: described([one]) or "the prompt as it is" for one in study.conditions}
    return StudyCheck(
        study, tuple(model for model, _ in looked), DataPreview.of(study.problems, data), conditions, prompts,
        tuple(outlooks(study, len(data.problems))), tuple(refusals(study)),
    )  # fmt: skip


def refusals(study: Study) -> Iterator[str]:
    """What a run would refuse of a study: figures, the device, and layers that a model on this machine lacks."""
    checks: list[Callable[[], object]] = [partial(check_figures, study)]
    if study.device not in ("auto", "cpu"):
        from fillerscope.models.loading import choose_device  # needs torch, which takes a second to load

        checks.append(partial(choose_device, study.device))
    here = [find(spec.name) for spec in study.models if place_of(spec.name) == "here"]
    checks += [partial(refuse_missing_layers, study, stated_layers(one), one.label) for one in here]
    for check in checks:
        try:
            check()
        except FillerscopeError as error:
            yield str(error)


def _looked_at(
    study: Study, spec: ModelSpec, problems: Sequence[Problem]
) -> tuple[ModelCheck, tuple[PromptPreview, ...]]:
    """A model, and the prompts of the first problem where its tokenizer is here."""
    place = place_of(spec.name)
    if place != "here":
        size = CATALOGUE[spec.name].download_bytes if spec.name in CATALOGUE else None
        return ModelCheck(spec.name, place, size), ()
    folder = find(spec.name)
    tokenizer, context = load_tokenizer(folder), stated_context(folder)
    known = stated_vocabulary(folder)
    maker = PromptMaker.of(tokenizer, study.prompt, study.template_of(spec), study.seed, known)
    prepared = [prepare(study, maker, context, number, one) for number, one in _sample(problems)]
    first = next((one for one in prepared if one.prompts), None)
    shown = [(one, first.prompts[one.name]) for one in study.conditions] if first else []
    numbers = _numbers(prepared, len(problems))
    model = ModelCheck(spec.name, place, weights_size(folder.path), context, **numbers)
    return model, tuple(PromptPreview.of(condition, prompt, tokenizer) for condition, prompt in shown)


def _sample(problems: Sequence[Problem]) -> list[tuple[int, Problem]]:
    """The first problems, and of the others those with the longest questions."""
    numbered = list(enumerate(problems))
    rest = sorted(numbered[MOST_PREPARED:], key=lambda one: -len(one[1].question))
    return numbered[:MOST_PREPARED] + rest[:LONGEST]


def _numbers(prepared: Sequence[Prepared], count: int) -> Json:
    failed = [one for one in prepared if one.error]
    first = [one for one in prepared[:MOST_PREPARED] if one.prompts]
    tokens = sum(len(prompt) for one in first for prompt in one.prompts.values())
    lengths = [prompt.position_count for one in prepared for prompt in one.prompts.values()]
    return {
        "longest": max(lengths, default=0),
        "failed": len(failed),
        "reason": failed[0].error if failed else "",
        "prompt_tokens": round(tokens * count / max(1, min(count, MOST_PREPARED))),
    }


def weights_size(folder: Path) -> int:
    """Bytes of the weights in a folder."""
    try:
        return sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    except OSError as error:
        raise ModelError(f"cannot read {folder}: {error.strerror}; check the folder") from None
