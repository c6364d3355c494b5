"""Which shards are a job's own, and how a part is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from fillerscope.errors import StudyError
from fillerscope.store.job_part import JobPart


@pytest.mark.parametrize("count", [1, 2, 3, 16])
def test_every_shard_belongs_to_one_part(count: int) -> None:
    parts = [JobPart(number, count) for number in range(1, count + 1)]
    for shard in range(40):
        assert sum(part.has(shard) for part in parts) == 1
    for part in parts:
        assert list(part.shards(40)) == [shard for shard in range(40) if part.has(shard)]


def test_parts_differ_by_one_shard_at_most() -> None:
    sizes = [sum(JobPart(number, 7).has(shard) for shard in range(40)) for number in range(1, 8)]
    assert max(sizes) - min(sizes) == 1


def test_a_part_is_written_as_it_is_read() -> None:
    assert JobPart.parse(" 3 / 16 ") == JobPart(3, 16)
    assert str(JobPart.parse("3/16")) == "3/16"
    assert JobPart(3, 16).folder(Path("run")) == Path("run/parts/3-of-16")


@pytest.mark.parametrize(
    "text", ["3", "3/", "/16", "3:16", "-1/4", "1/-4", "1.5/4", "", "a/b", "1/4/4", "\u0661/\u0664"]
)
def test_another_spelling_is_refused(text: str) -> None:
    with pytest.raises(StudyError, match="a part is written as 3/16, the third of sixteen"):
        JobPart.parse(text)


@pytest.mark.parametrize("text", ["0/4", "5/4"])
def test_a_part_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(StudyError, match=f"a part is from 1/4 to 4/4, not {text}"):
        JobPart.parse(text)


def test_no_parts_are_refused() -> None:
    with pytest.raises(StudyError, match="a part is written as 3/16"):
        JobPart.parse("0/0")
