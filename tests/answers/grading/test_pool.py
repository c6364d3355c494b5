"""Many answers graded at once: the verdicts of one grader, in order, and no process that is left."""

from __future__ import annotations

import os

import pytest

from fillerscope.answers.grading.grade import Finish, Grader
from fillerscope.answers.grading.pool import GraderPool
from fillerscope.errors import FillerscopeError

ANSWERS: list[tuple[str, str, Finish]] = [
    (rf"So it is \boxed{{\frac{{{number}}}{{2}}}}.", reference, finish)
    for number in range(1, 7)
    for reference, finish in (("1.5", "stop"), (rf"\frac{{{number}}}{{2}}", "length"), ("x^2", "stop"))
] + [("nothing at all", "5", "stop"), ("nothing at all", "5", "length"), ("", "5", "failed")]  # fmt: skip


@pytest.mark.parametrize("size", [1, 3])
def test_the_grades_are_those_of_one_grader_in_order(size: int) -> None:
    with Grader() as grader, GraderPool(size) as pool:
        assert pool.grade_all(ANSWERS) == [grader.grade(*answer) for answer in ANSWERS]
        pids = [one.worker.pid for one in pool.graders]
    assert all(pids)
    assert len(set(pids)) == size
    for pid in filter(None, pids):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_process_is_started_when_it_is_needed() -> None:
    with GraderPool(4) as pool:
        for _ in range(3):
            pool.grade_all(ANSWERS[:1])
        assert sum(one.worker.pid is not None for one in pool.graders) <= 1
        assert pool.grade_all([]) == []


def test_processes_that_are_started_beforehand_grade() -> None:
    with GraderPool(2) as pool:
        pool.start()
        grades = pool.grade_all(ANSWERS)  # at once: a process that is still starting is waited for
        assert all(one.worker.pid is not None for one in pool.graders)
    with GraderPool(1) as alone:
        assert alone.grade_all(ANSWERS) == grades


def test_half_of_the_cores_grade(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, size in ((None, 1), (1, 1), (2, 1), (6, 3), (64, 8)):
        monkeypatch.delattr(os, "sched_getaffinity", raising=False)  # as elsewhere than on Linux
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        with GraderPool() as pool:
            assert len(pool.graders) == size


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="asks Linux")
def test_cores_of_others_do_not_grade(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 6, 7})
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    with GraderPool() as pool:
        assert len(pool.graders) == 2


def test_a_grader_that_cannot_start_ends_the_grading(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> str:
        raise FillerscopeError("answers cannot be graded")

    with GraderPool(2) as pool:
        for one in pool.graders:
            monkeypatch.setattr(one.worker, "ask", broken)
        with pytest.raises(FillerscopeError, match="cannot be graded"):
            pool.grade_all(ANSWERS)
