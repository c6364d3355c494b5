"""Listings of the hub whose names would fill memory: one character beyond the first 65,536 makes all of a name take
four bytes each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fillerscope.errors import ProblemError
from fillerscope.problems import hub, hub_listing
from fillerscope.problems.hub import choose_files
from fillerscope.problems.hub_http import HubError

WIDE = "\U0001f600"


def pages(letter: str, seen: list[int]) -> Iterator[object]:
    """Pages of a hundred names of 900 characters; notes those that are asked for."""
    for page in range(100):
        seen.append(page)
        names = [f"{letter * 890}{page:05d}{number:05d}" for number in range(100)]
        yield [{"type": "file", "path": name, "size": 1, "oid": "a" * 40} for name in names]


@pytest.mark.parametrize(("letter", "most"), [("a", 12), (WIDE, 3)])
def test_the_names_of_a_listing_are_limited_in_memory(letter: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_listing, "MOST_NAMES", 1 << 20)
    seen: list[int] = []
    with pytest.raises(HubError, match="the names of its files take more than 1 MiB of memory"):
        hub_listing._entries(pages(letter, seen))
    assert len(seen) == most


def test_the_names_of_a_large_repository_are_few_enough() -> None:
    names = (f"data/{'name' * 30}-{number:08d}.parquet" for number in range(hub_listing.MOST_FILES))
    page = [{"type": "file", "path": name, "size": 1, "oid": "a" * 40} for name in names]
    assert len(hub_listing._entries([page])) == hub_listing.MOST_FILES


@pytest.mark.parametrize("split", ["train", WIDE])  # of which no file is, and every file
def test_an_error_is_made_of_few_names(split: str, monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[int] = []
    monkeypatch.setattr(hub, "one_line", lambda text: joined.append(len(text)) or "...")
    names = [f"{WIDE}/{'a' * 900}{number:05d}.jsonl" for number in range(5000)]
    with pytest.raises(ProblemError, match=r"set problems\.split to one of: \.\.\.$"):
        choose_files("owner/name", names, split)
    assert max(joined) < 1000 * hub.MOST_NAMED


@pytest.mark.parametrize("many", [100, 10_000])
def test_an_error_names_the_first_of_many_splits(many: int) -> None:
    names = [f"{number:05d}.jsonl" for number in range(many)]
    told = ", ".join(f"{number:05d}" for number in range(28))
    with pytest.raises(ProblemError, match=rf"set problems\.split to one of: {told}, \.\.\.$"):
        choose_files("owner/name", names, "test")
    with pytest.raises(ProblemError, match=r"each once: test/00001\.csv, .*, \.\.\.; download those"):
        choose_files("owner/name", [f"test/{number:05d}.csv" for number in range(1, many)], "test")
