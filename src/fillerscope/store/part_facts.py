"""The facts of a run that was measured in parts, from what each part noted.

Facts that decide numbers (pass size, layout, engine of answers, thresholds of activations) are found by every job from
the same first prompts, and must be the same in all parts. Of checks that decide nothing the worst one counts. The
recheck of answers is that of the run's first shard, as in a run of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from fillerscope.errors import StoreError
from fillerscope.files import Json
from fillerscope.store.contents import measured_models
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import ModelFacts, answers_name
from fillerscope.study.study import Study

Decision = Callable[[ModelFacts], object]
DECIDING: dict[str, Decision] = {
    "tokens of a pass": lambda facts: facts.get("batch_tokens"),
    "layout of passes": lambda facts: (facts.get("rowcheck") or {}).get("layout"),
    "engine of answers": lambda facts: (facts.get("answercheck") or {}).get("engine"),
    "thresholds of activations": lambda facts: facts.get("calibration"),
    "template": lambda facts: facts.get("template"),
    "rules of the tokenizer": lambda facts: facts.get("tokenizer", "") if "template" in facts else None,
}
CHECKS = ("selfcheck", "rowcheck", "answercheck")


def joined_facts(stores: Sequence[RunStore], study: Study, mixed: bool = False) -> Json:
    """What the manifest of the whole run notes, from parts in their order.

    Where facts that decide numbers differ it is an error, or with `mixed` all of them are kept."""
    differing = _differing(stores, study)
    if differing and not mixed:
        raise StoreError(
            f"{differing[0]}: the merged numbers would agree with those of one run to rounding only; accept that with "
            "--mixed, or measure one of these parts again on a machine like the others"
        )
    _refuse_other_bins(stores, study)
    facts: Json = {}
    for one in reversed(stores):  # the first part has the last word
        facts |= {key: value for key, value in one.manifest.items() if key in ("environment", "problems", "data")}
    models = {model: _model_facts(stores, study, model) for model, _ in measured_models(study)}
    facts["models"] = {model: found for model, found in models.items() if found}
    return facts | _several(stores, differing)


def _refuse_other_bins(stores: Sequence[RunStore], study: Study) -> None:
    """Raise where histograms of activations have different bins: counts of different bins cannot be added up."""
    for model, _ in measured_models(study):
        bins = {str(one.part): (_facts(one, model).get("calibration") or {}).get("edges") for one in stores}
        noted = {part: edges for part, edges in bins.items() if edges is not None}
        other = next((part for part, edges in noted.items() if edges != next(iter(noted.values()))), None)
        if other is not None:
            raise StoreError(
                f"{model}: histograms of activations have other bins in part {other} than in part {next(iter(noted))}, "
                "and cannot be added up; measure one of them again on a machine like the other"
            )


def _several(stores: Sequence[RunStore], differing: Sequence[str]) -> Json:
    """What cannot be said in one value: machines that are not alike, and facts that differ."""
    machines: Json = {}
    for one in stores:
        if "environment" in one.manifest:  # a job that was killed early has not noted it
            machines.setdefault(str(one.part), one.manifest["environment"])
    alike = all(one == next(iter(machines.values())) for one in machines.values())
    return {} if alike and not differing else {"parts": {"environments": machines, "differences": list(differing)}}


def _differing(stores: Sequence[RunStore], study: Study) -> list[str]:
    """A line for each fact that decides numbers and is not the same in all parts that noted it."""
    lines = []
    for model, _ in measured_models(study):
        for told, decision in DECIDING.items():
            noted = [(one, value) for one in stores if (value := decision(_facts(one, model))) is not None]
            other = next((pair for pair in noted if pair[1] != noted[0][1]), None)
            if other is not None:
                values = f" ({noted[0][1]} and {other[1]})" if not isinstance(other[1], dict) else ""
                parts = f"parts {noted[0][0].part} and {other[0].part}"
                lines.append(f"{model}: {parts} were measured with different {told}{values}")
    return lines


def _model_facts(stores: Sequence[RunStore], study: Study, model: str) -> ModelFacts:
    facts: Json = {}
    for one in reversed(stores):
        facts |= _facts(one, model)
    for check in CHECKS:
        records = [record for one in stores if (record := cast(Json, _facts(one, model)).get(check)) is not None]
        if records:
            facts[check] = max(records, key=lambda record: record["difference"] / record["tolerance"])
    facts.pop("recheck", None)
    return cast(ModelFacts, facts | _recheck(stores, study, model))


def _recheck(stores: Sequence[RunStore], study: Study, model: str) -> Json:
    """The recheck of the first shard that has a greedy answer: that of the job which answered it."""
    if not any("recheck" in _facts(one, model) for one in stores):
        return {}
    problems = max(one.manifest.get("problems", 0) for one in stores)  # a job that was killed early has none
    for shard in range(-(-problems // study.batch.shard)):
        name = answers_name(model, shard)
        holder = next((one for one in stores if one.is_sound(name)), None)
        if holder is not None and _has_greedy(holder, name):
            return {"recheck": _facts(holder, model).get("recheck")}
    return {}


def _has_greedy(store: RunStore, name: str) -> bool:
    """Whether a table has an answer of temperature 0 to a prompt that could be made."""
    table = store.get_table(name)
    rows = zip(table["temperature"], table["prompt_tokens"], strict=True)
    return any(temperature == 0 and tokens for temperature, tokens in rows)


def _facts(store: RunStore, model: str) -> ModelFacts:
    return store.manifest.get("models", {}).get(model, {})
