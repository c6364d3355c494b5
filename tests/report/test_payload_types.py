"""Every payload has the form that its type says, which is what the page is compiled against."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest
from starlette.testclient import TestClient

from fillerscope.analysis.run import Run
from fillerscope.report import answer_payload, answer_types
from fillerscope.report import payload_types as types
from fillerscope.report.explorer.access import Access
from fillerscope.report.explorer.server import application
from fillerscope.report.html import render
from fillerscope.report.packed_arrays import unpack
from fillerscope.report.panel_types import LinePanel
from support.answered import build, drawn_at_random
from support.synthetic import Synthetic

AT = "model=tiny-a&layer=2&head=3&queries=last&view=aligned"
JSON: dict[str, tuple[str, Any]] = {
    "runs": ("runs", types.Runs),
    "overview": ("0/overview", types.RunOverview),
    "tokens": ("0/tokens?model=tiny-a", types.Tokens),
    "ready": ("0/ready?model=tiny-a", types.Ready),
    "depth": ("0/depth?model=tiny-a&queries=all", list[LinePanel]),
    "affine": ("0/affine?model=tiny-a", list[LinePanel]),
    "activations": ("0/activations?model=tiny-a&cls=all", list[LinePanel]),
    "histogram": ("0/histogram?model=tiny-a&layer=1&cls=all", LinePanel),
    "comparison": ("0/comparison", answer_types.Comparison),
    "flips": ("0/flips?model=tiny-a&condition=mless&against=none", answer_types.Flips),
    "answers": ("0/answers?model=tiny-a", answer_types.Transcripts),
    "findings": ("0/findings", list[types.ModelFindings]),
    "methods": ("0/methods", types.Methods),
    "refusal": ("0/map", types.Refusal),
}
PACKED = {
    "map": ("0/map?model=tiny-a&condition=mless&queries=last", types.MapHeader),
    "head": (f"0/head?{AT}", types.ProfileHeader),
    "layer": (f"0/layer?{AT}", types.ProfileHeader),
}
OPEN = (answer_types.ComparisonRow,)  # of which more may be sent


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    recipe = Synthetic(right={"none": 0.5, "mless": 0.75}, affine=True, activations=True, problems=4, layers=2, heads=3)
    return recipe.build(tmp_path_factory.mktemp("types") / "run")


@pytest.fixture(scope="module")
def ask(run: Run) -> Callable[[str], Any]:
    access = Access()
    told = {"Authorization": f"Bearer {access.token}"}
    client = TestClient(application([run.path], access), base_url="http://127.0.0.1", headers=told)
    return lambda address: client.get(f"/api/{address}")


def faults(value: Any, hint: Any, path: str = "") -> list[str]:
    """Where a value is not of a type, in words."""
    origin, parts = get_origin(hint), get_args(hint)
    if is_typeddict(hint):
        return _faults_of_record(value, hint, path)
    if origin in (Union, UnionType):
        return [] if any(not faults(value, part) for part in parts) else [f"{path}: {value!r} is not {hint}"]
    if origin is Literal:
        return [] if value in parts else [f"{path}: {value!r} is not one of {parts}"]
    if origin is list and isinstance(value, list):
        return [fault for i, one in enumerate(value) for fault in faults(one, parts[0], f"{path}[{i}]")]
    if origin is tuple and isinstance(value, list) and len(value) == len(parts):
        return [fault for one, part in zip(value, parts, strict=True) for fault in faults(one, part, path)]
    if origin is dict and isinstance(value, dict):
        return [fault for key, one in value.items() for fault in faults(one, parts[1], f"{path}.{key}")]
    plain = {int: int, float: (int, float), str: str, bool: bool, NoneType: NoneType}.get(hint, ())
    fits = isinstance(value, plain) and (hint is bool or not isinstance(value, bool))
    return [] if fits else [f"{path}: {value!r} is not {hint}"]


def _faults_of_record(value: Any, hint: Any, path: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{path}: {value!r} is not {hint.__name__}"]
    fields, plain = get_type_hints(hint, include_extras=True), get_type_hints(hint)
    needed = {key for key, one in fields.items() if get_origin(one) is not NotRequired}
    odd = [f"{path}.{key} is missing" for key in needed - value.keys()]
    odd += [f"{path}.{key} is not in {hint.__name__}" for key in value.keys() - fields.keys() if hint not in OPEN]
    for key in value.keys() & plain.keys():
        odd += faults(value[key], plain[key], f"{path}.{key}")
    return odd


@pytest.mark.parametrize("name", JSON)
def test_json(ask: Callable[[str], Any], name: str) -> None:
    address, hint = JSON[name]
    assert faults(ask(address).json(), hint) == []


@pytest.mark.parametrize("name", PACKED)
def test_headers_of_packed_numbers(ask: Callable[[str], Any], name: str) -> None:
    address, hint = PACKED[name]
    assert faults(unpack(ask(address).content)[0], hint) == []


def test_the_data_of_a_report(run: Run) -> None:
    page = render(run)
    start = page.index('id="report-data">') + len('id="report-data">')
    assert faults(json.loads(page[start : page.index("</script>", start)]), types.Report) == []


def test_the_noise_floor(tmp_path: Path) -> None:
    comparison = answer_payload.comparison(build(tmp_path / "run", drawn_at_random(0), noise=True))
    assert comparison["noise"]
    assert faults(comparison, answer_types.Comparison) == []


def test_another_form_is_a_fault() -> None:
    wrong = partial(faults, hint=types.Ready)
    assert wrong({"reason": ""}) == []
    for value in ({}, {"reason": None}, {"reason": "", "more": 1}, [], None):
        assert len(wrong(value)) == 1
    assert faults({"flips": []}, answer_types.Flips) != []
    assert faults([True], list[int]) != []
