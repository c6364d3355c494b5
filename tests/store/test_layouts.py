"""Layouts of prompts: what the records say, however many they are, and whatever a file claims."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fillerscope.errors import StoreError
from fillerscope.prompts.prompt import FILLER
from fillerscope.store.array_file import Part
from fillerscope.store.layouts import DOT, Layouts, prompt_tokens
from fillerscope.store.run_folder import RunStore

NAME = "merged/tiny.safetensors"
texts = st.text("abc", min_size=1, max_size=2)


@st.composite
def records(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Problems of two conditions, some of which failed."""
    made: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 6))):
        if draw(st.integers(0, 5)) == 0:
            made.append({"number": number, "id": "x", "status": "failed", "error": "too long"})
            continue
        tokens = draw(st.lists(texts, min_size=1, max_size=8))
        plain = sorted(draw(st.lists(st.sampled_from((0, 2, 3)), min_size=len(tokens), max_size=len(tokens))))
        at, count = draw(st.integers(0, len(plain))), draw(st.integers(1, 3))
        spans = {"none": plain, "mless": plain[:at] + [FILLER] * count + plain[at:]}
        order = draw(st.permutations(list(spans)))
        prompts = {name: {"ids": [1] * len(spans[name]), "spans": spans[name]} for name in order}
        made.append({"number": number, "id": "x", "status": "ok", "tokens": tokens, "prompts": prompts})
    return made


def measured(made: list[dict[str, Any]]) -> list[Any]:
    return [record for record in made if record["status"] == "ok"]


@given(records())
def test_those_of_records_are_the_same_once_they_were_stored(made: list[Any]) -> None:
    stored = json.loads(json.dumps(made, sort_keys=True))
    assert Layouts.of_records(made).to_bytes() == Layouts.of_records(stored).to_bytes()


@given(st.lists(records(), min_size=1, max_size=4))
def test_those_of_files_joined_are_those_of_all_their_records(files: list[Any]) -> None:
    joined = Layouts.joined([Layouts.of_records(made) for made in files])
    assert joined.to_bytes() == Layouts.of_records([record for made in files for record in made]).to_bytes()


@given(records())
def test_spans_and_texts_are_those_of_the_records(made: list[Any]) -> None:
    layouts = Layouts.of_records(made)
    assert Layouts.from_bytes(layouts.to_bytes(), len(measured(made)), 1000).to_bytes() == layouts.to_bytes()
    for condition in ("none", "mless") if measured(made) else ():
        kinds, of = layouts.used(condition)
        rows = [prompt_tokens(record, condition) for record in measured(made)]
        for place, record in zip(of, measured(made), strict=True):
            assert layouts.spans(kinds[place]).tolist() == record["prompts"][condition]["spans"]
        for position, text in enumerate(layouts.texts[condition]):
            there = {row[position] for row in rows if position < len(row)}
            assert text == (there.pop() if len(there) == 1 else "")
        assert len(layouts.texts[condition]) == max(map(len, rows))


def test_filler_is_a_dot() -> None:
    record: Any = {"tokens": ["a", "b"], "prompts": {"m": {"spans": [0, FILLER, 2]}}}
    assert prompt_tokens(record, "m") == ["a", DOT, "b"]


def sound() -> dict[str, Any]:
    return {"kinds": [[[0, 2], [2, 3]]], "of": {"none": [0, 0]}, "texts": {"none": ["a"] * 5}}


@pytest.mark.parametrize(
    "change",
    [
        {"kinds": [[[0, 10**12]]]}, {"kinds": [[[0, 6]]]}, {"kinds": [[[0, 3]], [[0, 3]]]},
        {"kinds": [[[0, -1], [1, 2]]]}, {"kinds": [[[0, 0]]]}, {"kinds": [[0]]},
        {"kinds": []}, {"kinds": 3}, {"kinds": [[]]}, {"of": {"none": [0]}}, {"of": {"none": [0, 1]}},
        {"of": {"none": [0, -1]}}, {"of": {"none": [0, 1e30]}}, {"of": {"none": "ab"}}, {"of": []},
        {"texts": {"none": 3}}, {"texts": None},
    ],
)  # fmt: skip
def test_what_no_prompts_have_is_damage(tmp_path: Path, change: dict[str, Any]) -> None:
    """Records of ten bytes have five tokens at most."""
    store = RunStore.create(tmp_path / "run", {"study": 1}, {})
    layouts = json.dumps(sound() | change).encode()
    header = {
        "__metadata__": {"records": "[]", "sizes": "[]"},
        "layouts": {"dtype": "U8", "shape": [len(layouts)], "data_offsets": [0, len(layouts)]},
        "records": {"dtype": "U8", "shape": [10], "data_offsets": [len(layouts), len(layouts) + 10]},
    }
    text = json.dumps(header).encode()
    store.put_bytes(NAME, struct.pack("<Q", len(text)) + text + layouts + bytes(10))
    with pytest.raises(StoreError, match="damaged"):
        store.layouts(NAME, 2)


def test_sound_layouts_are_read_back(tmp_path: Path) -> None:
    store = RunStore.create(tmp_path / "run", {"study": 1}, {})
    spans = [0, 0, FILLER, 2]
    record: Any = {
        "number": 0, "id": "a", "status": "ok", "tokens": ["x", "y", "z"],
        "prompts": {"m": {"ids": [1, 2, 3, 4], "spans": spans}},
    }  # fmt: skip
    store.put(NAME, Part({"m/heads": np.ones(1)}, [record]))
    found = store.layouts(NAME, 1)
    assert found.spans(0).tolist() == spans
    assert found.texts == {"m": ("x", "y", DOT, "z")}


def test_spans_that_no_prompt_has_are_refused() -> None:
    layouts = Layouts.of_records([{"number": 0, "id": "x", "status": "ok", "tokens": ["a"], "prompts": {
        "none": {"ids": [1], "spans": [0]}}}])  # fmt: skip
    given = json.loads(layouts.to_bytes())
    for span in (300, 4, -1):
        given["kinds"] = [[[span, 1]]]
        with pytest.raises(ValueError, match="it has spans that no prompt has"):
            Layouts.from_bytes(json.dumps(given).encode(), 1, 10)
