"""The public names of the package: all of them can be loaded, and none is before it is used."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

import fillerscope

NAMES = {
    "FillerscopeError", "Run", "Study", "arm", "attention_matrix", "attention_profile", "load_model", "merge",
    "open_run", "plan", "run", "run_part", "try_question",
}  # fmt: skip


def test_every_public_name_can_be_loaded() -> None:
    assert set(fillerscope.__all__) == set(dir(fillerscope)) == NAMES
    for name in NAMES:
        assert getattr(fillerscope, name) is not None


def test_the_version_is_the_one_that_was_installed() -> None:
    assert fillerscope.__version__ == version("fillerscope")


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = fillerscope.nothing  # type: ignore[attr-defined]


def test_the_function_arm_is_not_hidden_by_the_package_of_the_same_name() -> None:
    from fillerscope.arm import rule
    from fillerscope.arm.hooks import arm

    assert rule.__name__ == "fillerscope.arm.rule"
    assert fillerscope.arm is fillerscope.arm is arm


def test_importing_the_package_loads_no_other_library() -> None:
    code = "import sys, fillerscope; print(*{'numpy', 'torch', 'pydantic', 'scipy'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
