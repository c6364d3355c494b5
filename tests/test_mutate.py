"""The lists of faults that are planted to see tests fail are kept up with the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutate import Mutation, mutations

HERE = Path(__file__).parent
FAULTS = [one for name in ("mutations.toml", "protections.toml") for one in mutations(HERE / name)]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: one.name)
def test_a_fault_can_be_planted(fault: Mutation) -> None:
    fault.applied_to((HERE.parent / fault.file).read_text(encoding="utf-8"))
    assert fault.paths(HERE.parent), "no test concerns it"
