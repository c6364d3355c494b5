from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fillerscope.errors import StoreError
from fillerscope.store.noted import damaged_fact
from fillerscope.store.run_folder import RunStore

CHECK: dict[str, Any] = {"difference": 1e-7, "tolerance": 1e-5}


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"label": "Tiny", "template": "raw", "batch_tokens": 4096, "later": [1]},
        {"selfcheck": CHECK | {"tokens": 48, "layer": 2, "head": 3}, "answercheck": CHECK | {"engine": "rows"}},
        {"rowcheck": CHECK | {"layout": "apart", "windows": [None, 0, 4096], "sinks": True, "tried": []}},
        {"recheck": {"checked": 8, "same": 7, "margins": [float("inf")]}, "calibration": {}},
    ],
)
def test_what_is_noted_may_be_noted(facts: object) -> None:
    assert damaged_fact(facts) == ""


@pytest.mark.parametrize("record", [[1], "text", 5, {"difference": 1}, CHECK | {"tolerance": 0},
                                    CHECK | {"difference": "1"}, CHECK | {"difference": 10**400},
                                    CHECK | {"difference": float("nan")}, CHECK | {"tokens": -1},
                                    CHECK | {"layer": 10**30}, CHECK | {"head": 1.5}])  # fmt: skip
@pytest.mark.parametrize("check", ["selfcheck", "rowcheck", "answercheck"])
def test_a_check_that_says_nothing_is_damage(check: str, record: object) -> None:
    assert damaged_fact({check: record}).split(".")[0] == check


@pytest.mark.parametrize(
    "windows", [["x"] * 3, [None, None, True], [1.5] * 3, [-1] * 3, [10**30] * 3, "abc", {}, 3, None]
)
def test_windows_that_cannot_be_are_damage(windows: object) -> None:
    assert damaged_fact({"rowcheck": CHECK | {"windows": windows}}).startswith("rowcheck.windows")


@pytest.mark.parametrize(
    "facts",
    [{"recheck": {"checked": 1}}, {"recheck": {"checked": 1, "same": 1, "margins": ["x"]}}, {"batch_tokens": True},
     {"batch_tokens": 0}, {"label": 5}, {"template": []}, {"calibration": {"eps": ["x"]}}, {"calibration": {"eps": []}},
     {"calibration": {"edges": [0.0]}}, {"calibration": [0.5]}, {"calibration": {"median": [float("inf")]}}],
)  # fmt: skip
def test_other_facts_that_cannot_be_are_damage(facts: dict[str, object]) -> None:
    assert damaged_fact(facts).split(".")[0] == next(iter(facts))


def test_a_run_with_such_a_fact_is_not_opened(tmp_path: Path) -> None:
    store = RunStore.create(tmp_path / "run", {"study": "x"}, {})
    store.note("models", {"tiny": {"rowcheck": "text"}})
    with pytest.raises(
        StoreError, match=r"manifest\.json is damaged \(its `rowcheck` of tiny\); restore it from a copy"
    ):
        RunStore.open(tmp_path / "run")
