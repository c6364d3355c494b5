"""Operations on files that fail, one after the other: said in one line, and the next process ends in the same bytes."""

from __future__ import annotations

import errno
import os
import random
import sys
from pathlib import Path

import pytest

from support.chaos import cases
from support.forks import Forks, assert_nothing_half, finishing, outcome

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs fork and /proc"),
]
ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.ESTALE)


@pytest.fixture(scope="session")
def operations(forks: Forks, study: Path, tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many operations on files a run and its export take."""
    folder = tmp_path_factory.mktemp("counted")
    code = forks.run(
        *finishing(study, folder / "run"), fail_at=[-1, 0, str(folder / "run")], operations=str(folder / "operations")
    )
    assert code == 0
    return int((folder / "operations").read_text())


@pytest.mark.parametrize("seed", cases(fast=3, slow=24, long=600))
def test_an_operation_that_fails_costs_nothing(
    forks: Forks, study: Path, undisturbed: dict[str, bytes], operations: int, tmp_path: Path, seed: int
) -> None:
    """Seeds go through all operations and errors in a shuffled order."""
    every = [(number, error) for number in range(1, operations + 1) for error in ERRORS]
    number, error = random.Random(0).sample(every, len(every))[seed % len(every)]
    run = tmp_path / "run"
    process = forks.start(*finishing(study, run), fail_at=[number, error, str(run)])
    code, said = process.code(), process.lines()
    where = f"operation {number}: {os.strerror(error)}"
    assert code in (0, 1), (where, said)
    assert not any("Traceback" in line for line in said), (where, said)
    assert not code or said[-1].startswith("fillerscope: "), (where, said)
    assert not any("remove" in line for line in said), (where, said)
    assert_nothing_half(run)
    assert forks.run(*finishing(study, run)) == 0, where
    assert outcome(run) == undisturbed, where
