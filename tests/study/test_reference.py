"""The reference of the study file: complete, not stale, its examples true; and a schema that says what `load` says."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from fillerscope.errors import StudyError
from fillerscope.study import conditions, generation, interventions, sections
from fillerscope.study.json_schema import schema_file, study_schema
from fillerscope.study.reference import PLACES, REQUIRED, Key, find
from fillerscope.study.reference import sections as reference
from fillerscope.study.study import Study
from support.json_schema import complaints

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "src" / "fillerscope" / "study" / "ready").glob("*.yaml"))
START = "name: small\nmodels: [a]\n"
SHIFTED = "conditions: [none, {name: s, intervention: {kind: shift, by: [10, 55]}}]\n"
GOOD = (
    "",
    "problems: {source: rows.csv, limit: 3, fields: {question: text}, answer_form: hashes, split: train}\n",
    "conditions: [none, mless, {name: d, kind: repeat, text: ' .', count: 5}]\n",
    "conditions: [none, {name: d, kind: repeat, text: [' .', ' /'], count: [0, 5, 10], position: [start, end]}]\n",
    SHIFTED,
    "conditions: [none, {name: x, intervention: {kind: arm, c: [0.1, 0.2], layers: [[1], [1, 2]]}}]\n",
    "conditions: [none, {name: x, intervention: {kind: arm, layers: 1}}]\n",
    "probes: {attention: on, affine: on, activations: on}\n",
    "probes: {activations: {c: 0.1, classes: {digits: '[0-9]+'}}}\n",
    "probes: {attention: off}\ngeneration: {}\n",
    "generation: {temperature: 0.8, samples: [1, 4], k: 4, noise: on, exact: on}\n",
    "generation: {temperature: [0, 0.8], noise: {dtype: float32}}\n",
    "batch: {prefix: off, tokens: 100}\nreferences: {twin: 3}\ndevice: cuda:1\n",
    "figures: [{name: heads, layers: [1], queries: answer, y_max: [0.1], skip_first: [on]}]\n",
)
BAD = (
    "nmae: x\n",
    "problems: {sorce: a}\n",
    "problems: {limit: 0}\n",
    "problems: {fields: {frage: a}}\n",
    "problems: {answer_form: tail}\n",
    "conditions: [none, mles]\n",
    "conditions: [none, {name: d, kind: repeated, text: a, count: 5}]\n",
    "conditions: [none, {name: d, kind: repeat, text: a, count: 0}]\n",
    "conditions: [none, {name: d, kind: repeat, text: a, count: []}]\n",
    "conditions: [none, {name: d, intervention: {kind: arm, cc: 1}}]\n",
    "conditions: [none, {name: d, intervention: {kind: shove}}]\n",
    "generation: {max_tokens: many}\n",
    "generation: {samples: 0}\n",
    "references: {twin: 101}\n",
    "device: gpu\n",
)


def wrong(text: str) -> list[str]:
    schema = study_schema()
    return list(complaints(yaml.safe_load(text), schema, schema))


def all_keys() -> list[Key]:
    return [key for section in reference() for key in section.keys]


def test_the_page_and_the_schemas_are_as_the_models_are() -> None:
    for path, text in runpy.run_path(str(ROOT / "docs" / "study_page.py"))["written"]().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is stale: write it with `make study-page`"
    assert json.loads(schema_file().read_text(encoding="utf-8")) == study_schema()


def test_every_section_of_a_study_has_its_place() -> None:
    modules = (sections, conditions, generation, interventions)
    models = {
        name
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, BaseModel)
    }
    assert models - {"BaseModel", "Strict", "Decoding"} == {name for _, name in PLACES if name}


def test_every_key_says_what_it_is() -> None:
    for key in all_keys():
        assert key.text, key.path
        assert key.text.endswith((".", "?", "...")) or key.text[0].isupper(), key.path
        assert key.type, key.path
        assert "|" not in key.path


def nested(path: str, value: Any) -> Any:
    """A value at its place in a study file."""
    for part in reversed(path.split(".")):
        name = part.removesuffix("[]")
        value = {name: [value] if part.endswith("[]") else value}
    return value


NEEDED: dict[str, dict[str, Any]] = {
    "prompt.examples[]": {"question": "1 + 1 = ?", "answer": "2"},
    "conditions[]": {"name": "x", "kind": "repeat", "text": " .", "count": 5},
    "models[]": {"name": "a"},
    "models[].endpoint": {"url": "http://localhost/v1"},
    "figures[]": {"name": "heads"},
}


@pytest.mark.parametrize(
    "key", [key for key in all_keys() if key.example], ids=lambda key: f"{key.path} {key.type[:8]}"
)
def test_examples_and_defaults_are_accepted(tmp_path: Path, key: Key) -> None:
    """Each example at its place in a study that asks for nothing else, by the schema and by `load` alike."""
    place = key.path.rpartition(".")[0]
    own = yaml.safe_load(key.example)
    settings = NEEDED.get(place, {}) | own
    if place.endswith("intervention"):
        section = next(one for one in reference() if key in one.keys)
        kind = {"kind": section.kinds.split(",")[0]} | own
        settings = {"name": "x", "intervention": kind} | (
            {"kind": "sentence", "count": 5} if kind["kind"] == "knockout" else {}
        )
        place = "conditions[]"
    if place == "models[].endpoint":
        place, settings = "models[]", {"name": "a", "endpoint": settings}
    study: dict[str, Any] = {"name": "small", "models": ["a"], **(nested(place, settings) if place else own)}
    if place == "conditions[]":
        study["conditions"] = ["none", settings]
    if place.startswith("probes"):
        study["generation"] = {}
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(study))
    assert Study.load(path)
    assert wrong(path.read_text()) == []


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_schema_accepts_the_studies_that_are_shipped(path: Path) -> None:
    assert wrong(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("text", GOOD)
def test_the_schema_accepts_what_load_accepts(tmp_path: Path, text: str) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(START + text)
    assert Study.load(path)
    assert wrong(START + text) == []


@pytest.mark.parametrize("text", BAD)
def test_the_schema_refuses_what_load_refuses(tmp_path: Path, text: str) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(START + text)
    with pytest.raises(StudyError):
        Study.load(path)
    assert wrong(START + text)


def test_the_schema_accepts_a_stored_study() -> None:
    """What a run folder holds: every setting written out. Classes of tokens are pairs there, to keep their order."""
    study = Study.model_validate(
        {"name": "a", "models": ["b"], "generation": {}, "conditions": ["none", "arm", "mless"]}
    )
    schema = study_schema()
    assert list(complaints(json.loads(study.model_dump_json()), schema, schema)) == []


def test_keys_are_found_by_path_by_last_part_and_by_section() -> None:
    assert [key.path for key in find("generation.max_tokens")] == ["generation.max_tokens"]
    assert [key.path for key in find("max_tokens")] == ["generation.max_tokens"]
    assert [key.path for key in find("models.dtype")] == ["models[].dtype"]
    assert {key.path for key in find("references")} == {"references", "references.twin"}
    assert {key.path for key in find("seed")} == {"seed"}
    assert find("name")[0].default == REQUIRED
    with pytest.raises(StudyError, match="no key 'max_token'; did you mean max_tokens"):
        find("max_token")
    with pytest.raises(StudyError, match="no key 'zzz'; `fillerscope study` lists them"):
        find("zzz")
