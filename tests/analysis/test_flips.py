"""The problems that changed: all of them, none that failed, with both answers."""

from __future__ import annotations

import pytest

from fillerscope.analysis.accuracy import compare
from fillerscope.analysis.flips import flips
from fillerscope.analysis.run import Run
from fillerscope.errors import FigureError
from support.answered import build, drawn_at_random

DRAW = drawn_at_random(9, (0.4, 0.2, 0.1, 0.1, 0.2))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("flips") / "run"
    return build(folder, DRAW, problems=15, models=("a", "b"), temperature=[0, 0.7], samples=[1, 3])


def expected(model: str, temperature: float, before: str, after: str) -> list[tuple[str, int, str]]:
    found = []
    for n in range(15):
        for sample in range(3 if temperature else 1):
            one, other = (DRAW((model, n, temperature, name, sample))["verdict"] for name in (before, after))
            if "failed" not in (one, other) and (one == "right") != (other == "right"):
                found.append((f"p{n}", sample + 1, "gained" if other == "right" else "lost"))
    return sorted(found, key=lambda flip: flip[2])


@pytest.mark.parametrize(
    ("model", "temperature", "before", "after"),
    [
        (None, None, "none", "mless"),
        ("b", 0.7, "none", "mful"),
        ("b", 0.7, "mful", "none"),
        ("a", 0.7, "mless", "mful"),
    ],
)
def test_every_change_is_there_once(
    run: Run, model: str | None, temperature: float | None, before: str, after: str
) -> None:
    found = flips(run[model], after, before, temperature)
    wanted = expected(model or "a", temperature or 0.0, before, after)
    assert [(flip.id, flip.sample, flip.direction) for flip in found] == wanted
    assert {flip.direction for flip in found} == {"gained", "lost"}
    for flip in found:
        n = int(flip.id.removeprefix("p"))
        assert (flip.question, flip.reference) == (f"What is {n}?", str(n))
        for name, side in ((before, flip.before), (after, flip.after)):
            stored = DRAW((model or "a", n, temperature or 0.0, name, flip.sample - 1))
            assert {key: side[key] for key in stored} == stored
            assert side["id"] == flip.id


def test_as_many_are_shown_as_the_table_counts(run: Run) -> None:
    for row in compare(run):
        if row.against and row.temperature == 0:
            directions = [flip.direction for flip in flips(run[row.model], row.condition)]
            assert directions == ["gained"] * row.against.gained + ["lost"] * row.against.lost


def test_nothing_differs_from_itself(run: Run) -> None:
    assert flips(run[None], "mless", "mless") == []


def test_a_condition_that_the_run_does_not_have_is_named(run: Run) -> None:
    for names in (("pause", "none"), ("mless", "pause")):
        with pytest.raises(FigureError, match=r"^this run has no condition 'pause'; it has none, mless, mful$"):
            flips(run[None], *names)
    with pytest.raises(FigureError, match=r"^this run has no temperature 1; it has 0, 0\.7$"):
        flips(run[None], "mless", temperature=1)
