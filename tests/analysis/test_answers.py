"""Stored rows as arrays: every answer in its place, and counts that add up."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from fillerscope.analysis.answers import FIELDS, answers
from fillerscope.analysis.integrity import faults
from fillerscope.analysis.run import Run
from fillerscope.errors import FigureError, StoreError
from fillerscope.store.schema import answers_name
from fillerscope.study.generation import GenerationSpec
from support.answered import CONDITIONS, VERDICTS, build, drawn_at_random
from support.synthetic import Synthetic
from support.watchdog import watched

DRAW = drawn_at_random(3)


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("answers") / "run"
    return build(folder, DRAW, models=("a", "b"), temperature=[0, 0.7], samples=[2, 5])


@pytest.mark.parametrize(("model", "temperature", "samples"), [(None, None, 1), ("b", 0.7, 5)])
def test_every_answer_stands_in_its_place(
    several: Run, model: str | None, temperature: float | None, samples: int
) -> None:
    found = answers(several[model], temperature)
    assert found.conditions == CONDITIONS
    for name in FIELDS[1:]:
        expected = [
            [[DRAW((model or "a", n, temperature or 0.0, c, s))[name] for s in range(samples)] for c in CONDITIONS]
            for n in range(11)
        ]
        assert found.fields[name].tolist() == expected
    assert found.fields["id"][:, 1, 0].tolist() == [f"p{n}" for n in range(11)]
    part = found.of("mful", 2, [8, 3])
    assert part.fields["text"].tolist() == [found.fields["text"][n, 2, :2].tolist() for n in (8, 3)]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_counts_add_up_and_shares_are_of_what_did_not_fail(several: Run, condition: str) -> None:
    sheet = answers(several["b"], 0.7).of(condition)
    rows = [[DRAW(("b", n, 0.7, condition, s)) for s in range(5)] for n in range(11)]
    every = [row for problem in rows for row in problem]
    counts = {verdict: int((sheet.fields["verdict"] == verdict).sum()) for verdict in VERDICTS}
    assert sum(counts.values()) == 55
    assert counts == {verdict: sum(row["verdict"] == verdict for row in every) for verdict in VERDICTS}
    given = [row for row in every if row["verdict"] != "failed"]
    assert (sheet.given.sum(), sheet.right.sum()) == (len(given), counts["right"])
    assert sheet.tokens == pytest.approx(sum(row["tokens"] for row in given) / len(given))
    assert sheet.share("finish", "length") == pytest.approx(
        sum(row["finish"] == "length" for row in given) / len(given)
    )
    assert sheet.share("verdict", "no answer", "cut off") == pytest.approx(
        (counts["no answer"] + counts["cut off"]) / len(given)
    )
    for mean, problem in zip(sheet.means, rows, strict=True):
        judged = [row["verdict"] == "right" for row in problem if row["verdict"] != "failed"]
        assert mean == pytest.approx(sum(judged) / len(judged)) if judged else np.isnan(mean)


def test_diversity_is_distinct_pairs_of_words_within_a_problem(several: Run) -> None:
    shares = []
    for n in range(11):
        rows = [DRAW(("a", n, 0.7, "mless", s)) for s in range(5)]
        texts = [row["text"].split() for row in rows if row["verdict"] != "failed"]
        pairs = [pair for words in texts for pair in pairwise(words)]  # never from one sample into the next
        shares += [len(set(pairs)) / len(pairs)] if pairs else []
    assert answers(several["a"], 0.7).of("mless").diversity == pytest.approx(np.mean(shares))


def test_where_all_failed_there_are_no_numbers(tmp_path: Path) -> None:
    run = build(tmp_path / "run", drawn_at_random(0, (0, 0, 0, 0, 1)), problems=3, temperature=1, samples=2)
    sheet = answers(run[None]).of("mless")
    assert np.isnan(sheet.means).all()
    assert np.isnan([sheet.tokens, sheet.diversity, sheet.share("finish", "length")]).all()


def test_what_is_not_there_is_one_line(several: Run, tmp_path: Path) -> None:
    with pytest.raises(FigureError, match=r"^this run has no temperature 0\.5; it has 0, 0\.7$"):
        answers(several[None], temperature=0.5)
    with pytest.raises(FigureError, match=r"^this run has no model 'c'; it has a, b$"):
        answers(several["c"])
    with pytest.raises(FigureError, match=r"^this run has no answers; give `generation` in its study and run it again"):
        answers(Synthetic(problems=2).build(tmp_path / "attention")[None])
    unfinished = build(tmp_path / "unfinished", DRAW)
    (unfinished.path / answers_name("a", 1)).unlink()
    with pytest.raises(StoreError, match="is not finished for a; run the study again, it resumes from there"):
        answers(unfinished[None])


def test_rows_that_are_missing_or_doubled_are_seen(tmp_path: Path) -> None:
    """Also where the file is as it was written: the writer may have been wrong."""
    for change in (lambda rows: rows[:-1], lambda rows: [*rows, rows[0]], lambda rows: [rows[1], rows[0], *rows[2:]]):
        run = build(tmp_path / f"run{len(list(tmp_path.iterdir()))}", DRAW)
        assert faults(run) == []
        name = answers_name("a", 2)
        table = run.store.get_table(name)
        kept = change([dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)])
        run.store.put_table(name, {key: [row[key] for row in kept] for key in table})
        (fault,) = faults(Run(run.store))
        assert fault == f"a: {24 + len(kept)} answers, 33 were asked for, or out of order"


def test_answers_to_more_or_fewer_problems_than_there_are_are_refused(tmp_path: Path) -> None:
    run = build(tmp_path / "run", DRAW)
    table = run.store.get_table(answers_name("a", 2))
    run.store.put_table(answers_name("a", 2), {key: values[:-3] for key, values in table.items()})
    with pytest.raises(StoreError, match="holds 30 answers, not 33; run the study again"):
        answers(Run(run.store)[None])


def test_answers_that_a_study_asks_for_are_counted_before_they_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short study can ask for more of them than memory holds."""
    run = build(tmp_path / "run", DRAW)
    monkeypatch.setattr(GenerationSpec, "drawn", lambda *_: 10**10)
    with watched(30):
        assert faults(run) == [f"a: 33 answers, {33 * 10**10} were asked for, or out of order"]
