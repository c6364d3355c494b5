"""Arguments of the library's functions: one line with the name, what was expected and what came."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fillerscope.errors import ArgumentError
from fillerscope.progress import SILENT
from fillerscope.study.arguments import check_arguments, refuse_unknown

WRONG: list[tuple[str, object, str]] = [
    ("layer", None, "layer is a whole number, 1 or more, not None"),
    ("layer", True, "layer is a whole number, 1 or more, not True"),
    ("layer", 0, "layer is a whole number, 1 or more, not 0"),
    ("layer", 1.0, "layer is a whole number, 1 or more, not 1.0"),
    ("seed", -1, "seed is a whole number, 0 or more, not -1"),
    ("question", "  ", "question is a text that is not empty, not '  '"),
    ("question", b"x", "question is a text that is not empty, not an object of type bytes"),
    ("text", "a \ud800", "text holds lone surrogates, which are halves of characters: 'a \\ud800'; mend it"),
    ("path", "a\0", "path is a path that the system takes, not 'a\\x00'"),
    ("path", "a\ud800", "path holds lone surrogates, which are halves of characters: 'a\\ud800'; mend it"),
    ("path", "a\udcff", "path has a name that is not UTF-8: 'a\\udcff'; rename it"),
    ("out", Path("a\udcff"), "out has a name that is not UTF-8: 'a\\udcff'; rename it"),
    ("path", Path("a\ud800"), "path is a path that the system takes, not an object of type"),
    ("path", 3, "path is a path that the system takes, not 3"),
    ("check", "yes", "check is True or False, not 'yes'"),
    ("check", None, "check is True or False, not None"),
    ("progress", print, "progress is an object with the methods stage and say, not an object of type"),
    ("on_measured", 3, "on_measured is a function, not 3"),
    ("layers", 3, "layers is a list of whole numbers, 1 or more, not 3"),
    ("layers", [0], "layers is a list of whole numbers, 1 or more, not an object of type list"),
    ("models", "abc", "models is a list of names, not 'abc'"),
    ("band", "zz", "band is 'interval' or 'sd', not 'zz'"),
]


@pytest.mark.parametrize(("name", "value", "told"), WRONG)
def test_an_argument_of_another_kind_is_told(name: str, value: object, told: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        check_arguments({"raw": False, name: value})
    assert str(caught.value).startswith(told)
    assert "\n" not in str(caught.value)


def test_a_long_value_is_shortened() -> None:
    with pytest.raises(ArgumentError) as caught:
        check_arguments({"layer": "x" * 1000})
    assert len(str(caught.value)) < 120


def test_arguments_of_their_kind_pass() -> None:
    given = {
        "layer": np.int64(3), "check": np.True_, "raw": 1, "path": Path("x"), "out": "y", "progress": SILENT,
        "on_measured": print, "layers": range(1, 3), "heads": (1, 2), "models": ["a"], "unknown": object(), "seed": 0,
    }  # fmt: skip
    check_arguments(given)
    check_arguments({"head": None, "out": None}, optional=("head", "out"))


def test_what_may_be_missing_is_said() -> None:
    with pytest.raises(ArgumentError, match="head is a whole number, 1 or more or None, not 'x'"):
        check_arguments({"head": "x"}, optional=("head",))


def test_a_keyword_that_a_function_does_not_take_is_an_error_of_python() -> None:
    with pytest.raises(TypeError, match=r"run\(\) got an unexpected keyword argument 'zz'"):
        refuse_unknown("run", {"zz": 1, "name": 2}, {"name": str})
