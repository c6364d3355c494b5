"""How the heads of a figure differ from the published ones, in words for its caption and the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from fillerscope.analysis.run import Run
from fillerscope.analysis.twins import UNTRAINED
from fillerscope.figures.style import Drawn
from fillerscope.study.published_names import published_name
from fillerscope.study.study import Study

Place = tuple[str, int, int]  # model, layer, head


def departure(run: Run, drawn: Drawn, published: Study) -> str:
    """Which heads were drawn and which were published; "" where they are the same, or none were published."""
    shown = _shown(run, drawn, _names(published))
    wanted = _published(published)
    if not wanted or not shown or set(shown) <= set(wanted):
        return ""
    return f"not the published heads: {_words(shown)}; published: {_words(wanted)}"


def _shown(run: Run, drawn: Drawn, models: Sequence[str]) -> list[Place]:
    """The heads in a figure; a published model by its published name, another one by its label."""
    sources = [line.source for line in drawn.lines if line.source.condition != UNTRAINED]
    places = [(published_name(one.model, models) or run.label(one.model), one.layer, one.head) for one in sources]
    return list(dict.fromkeys(places))


def _published(study: Study) -> list[Place]:
    """The heads that a ready study is for: one a model where it names as many, else all of them in every model."""
    spec, models = study.figures[0], _names(study)
    if len(spec.heads) == len(models):
        return [(model, layer, head) for model, head in zip(models, spec.heads, strict=True) for layer in spec.layers]
    return list(product(models, spec.layers, spec.heads))


def _names(study: Study) -> list[str]:
    """The models of a study, without their owners."""
    return [model.name.rsplit("/", 1)[-1] for model in study.models]


def _words(places: Iterable[Place]) -> str:
    """Heads by layer and model; models that show the same are named together."""
    by_model: dict[str, list[tuple[int, int]]] = {}
    for model, layer, head in places:
        by_model.setdefault(model, []).append((layer, head))
    same: dict[str, list[str]] = {}
    for model, own in by_model.items():
        layers, heads = (
            _listed(noun, numbers) for noun, numbers in zip(("layer", "head"), zip(*own, strict=True), strict=True)
        )
        same.setdefault(f"{layers}, {heads}", []).append(model)
    return "; ".join(f"{heads} of {' or '.join(models)}" for heads, models in same.items())


def _listed(noun: str, numbers: Sequence[int]) -> str:
    several = list(dict.fromkeys(numbers))
    return f"{noun if len(several) == 1 else f'{noun}s'} {', '.join(map(str, several))}"
