"""One row a head: ratios, intervals, order, and whether the order can be trusted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fillerscope.analysis.depth import depth_table
from fillerscope.analysis.heads import Column, HeadTable, head_table
from fillerscope.analysis.run import Run
from fillerscope.errors import FigureError
from fillerscope.study.study import QUERIES
from support.intervals import interval_of_mean
from support.synthetic import ENTROPY_GAIN, PEAK_RATIO, QUERY_SCALE, Effect, Synthetic


@pytest.mark.parametrize("condition", ["mless", "random"])
@pytest.mark.parametrize("queries", QUERIES)
def test_the_drop_is_the_geometric_mean_of_paired_ratios(
    run: Run, recipe: Synthetic, condition: str, queries: str
) -> None:
    drop = head_table(run[None], condition, queries).columns["drop"]
    expected = np.log(recipe.drop(condition) * QUERY_SCALE[QUERIES.index(queries)])
    np.testing.assert_allclose(drop.value, np.exp(expected), rtol=1e-6)
    np.testing.assert_allclose(drop.low, np.exp(expected - recipe.reach()), rtol=1e-6)
    np.testing.assert_allclose(drop.high, np.exp(expected + recipe.reach()), rtol=1e-6)


def test_the_other_columns(run: Run, recipe: Synthetic) -> None:
    columns = head_table(run[None], "random").columns
    np.testing.assert_allclose(columns["mass"].value, recipe.mass("random"), rtol=1e-6)
    np.testing.assert_allclose(columns["mass"].high - columns["mass"].value, recipe.reach(), rtol=1e-4)
    np.testing.assert_allclose(columns["peak"].value, recipe.drop("random") * PEAK_RATIO, rtol=1e-6)
    np.testing.assert_allclose(columns["entropy"].value, ENTROPY_GAIN, rtol=1e-6)
    np.testing.assert_allclose(columns["entropy"].value - columns["entropy"].low, recipe.reach(), rtol=1e-4)


def test_the_interval_is_that_of_the_mean_of_the_logarithms(run: Run) -> None:
    after, before = (run.summary("received_original", name)[:, 2, 1] for name in ("mless", "none"))
    logs = np.log(after / before)
    low, high = interval_of_mean(logs)
    row = head_table(run[None], "mless").row(3, 2)
    assert (row["layer"], row["head"]) == (3, 2)
    assert (row["drop"], row["drop_low"], row["drop_high"]) == pytest.approx(np.exp([logs.mean(), low, high]))


def test_a_ratio_is_averaged_like_halving_and_doubling() -> None:
    """Where half of the problems double and half halve, nothing changes on average."""
    ratios = np.array([2.0, 0.5, 2.0, 0.5]).reshape(-1, 1, 1)
    estimate = Column.ratio(ratios, np.ones_like(ratios))
    assert float(estimate.value[0, 0]) == pytest.approx(1.0)
    assert float(estimate.low[0, 0]) < 1 < float(estimate.high[0, 0])


def test_problems_without_a_value_are_left_out() -> None:
    after, before = np.array([0.5, 0.5, np.nan, 0.0]), np.array([1.0, 1.0, 1.0, 1.0])
    estimate = Column.ratio(after[:, None, None], before[:, None, None])
    assert float(estimate.value[0, 0]) == pytest.approx(0.5)


def test_heads_are_ranked_by_the_lowest_drop(run: Run, recipe: Synthetic) -> None:
    table = head_table(run[None], "mless")
    places = table.ranked("drop")
    values = [recipe.drop("mless")[layer - 1, head - 1] for layer, head in places]
    assert values == sorted(values)
    assert places[0] == (1, 1)
    assert places[-1] == (3, 4)
    assert len(set(places)) == 12


def test_heads_are_ranked_by_the_highest_mass(run: Run, recipe: Synthetic) -> None:
    places = head_table(run[None], "mless").ranked("mass")
    values = [recipe.mass("mless")[layer - 1, head - 1] for layer, head in places]
    assert values == sorted(values, reverse=True)


def test_heads_are_ranked_by_the_change_of_the_peak_either_way(tmp_path: Path) -> None:
    drop = np.array([[0.8, 0.4, 2.0, 1.2]]) / PEAK_RATIO  # peaks: 0.8, 0.4, 2, 1.2
    run = Synthetic(layers=1, effects={"mless": Effect(drop=drop)}).build(tmp_path / "run")
    assert head_table(run[None], "mless").ranked("peak") == [(1, 2), (1, 3), (1, 1), (1, 4)]


def test_a_layer_alone_keeps_its_order(run: Run) -> None:
    table = head_table(run[None], "mless")
    assert table.ranked("drop", layer=2) == [(2, 1), (2, 2), (2, 3), (2, 4)]


def test_heads_without_a_value_come_last() -> None:
    table = _of_columns(drop=[0.9, np.nan, 0.5], received=[1.0, 1.0, 1.0])
    assert table.ranked("drop") == [(1, 3), (1, 1), (1, 2)]


def test_ratios_of_next_to_nothing_come_behind_all_others() -> None:
    table = _of_columns(drop=[0.9, 0.1, np.nan, 0.5], mass=[0.1, 0.9, 0.2, 0.3], received=[1.0, 1e-6, 1.0, 0.02])
    assert table.ranked("drop") == [(1, 4), (1, 1), (1, 2), (1, 3)]
    assert table.ranked("mass") == [(1, 2), (1, 4), (1, 3), (1, 1)]


def _of_columns(**values: list[float]) -> HeadTable:
    """Of one layer."""
    arrays = {name: np.array([row]) for name, row in values.items()}
    return HeadTable("m", "M", "mless", "all", 1, {name: Column(a, a, a, a[None]) for name, a in arrays.items()})


def test_a_ranking_that_repeats_is_reliable_and_noise_is_not(run: Run) -> None:
    assert head_table(run[None], "mless").reliability("drop") == pytest.approx(1.0)
    assert head_table(run[None], "mless").reliability("mass") == pytest.approx(1.0)
    noise = np.random.default_rng(0).normal(size=(40, 6, 10))
    table = HeadTable("m", "M", "mless", "all", 40, {"drop": Column.mean(noise)})
    assert abs(table.reliability("drop")) < 0.2


def test_too_few_problems_have_no_reliability(tmp_path: Path) -> None:
    run = Synthetic(problems=3).build(tmp_path / "run")
    assert np.isnan(head_table(run[None], "mless").reliability())


def test_the_table_says_what_it_is_of(run: Run) -> None:
    table = head_table(run[None], "random", "last")
    assert (table.model, table.label, table.condition, table.queries) == ("tiny-a", "Tiny-A", "random", "last")
    assert (table.problems, table.shape) == (12, (3, 4))


def test_failed_problems_do_not_count(tmp_path: Path) -> None:
    recipe = Synthetic(failed=(0, 7))
    table = head_table(recipe.build(tmp_path / "run")[None], "mless")
    assert table.problems == 10
    drop = table.columns["drop"]
    np.testing.assert_allclose(drop.value, recipe.drop("mless"), rtol=1e-6)
    np.testing.assert_allclose(np.log(drop.high / drop.value), recipe.reach(), rtol=1e-4)


def test_what_cannot_be_ranked_is_refused(run: Run) -> None:
    with pytest.raises(FigureError, match=r"ranked by drop, mass, peak, beyond, not by 'size'"):
        head_table(run[None], "mless").ranked("size")
    with pytest.raises(FigureError, match=r"compared with `none`; name a condition with filler"):
        head_table(run[None], "none")
    with pytest.raises(FigureError, match=r"no condition 'mles'; it has none, mless, random"):
        head_table(run[None], "mles")
    with pytest.raises(FigureError, match=r"queries are all, original, last, not 'some'"):
        head_table(run[None], "mless", "some")
    with pytest.raises(FigureError, match=r"no model 'other'; it has tiny-a"):
        head_table(run["other"], "mless")


def test_the_count_is_of_the_problems_whose_queries_vote(tmp_path: Path) -> None:
    """An answer that could not be looked at is missing from the answer's queries alone."""
    run = Synthetic(problems=6, answering=True, right={"none": 0.5}, unanswered=(2,)).build(tmp_path / "run")
    assert [head_table(run[None], "mless", queries).problems for queries in ("original", "answer")] == [6, 5]
    assert [depth_table(run[None], "mless", queries).problems for queries in ("original", "answer")] == [6, 5]
