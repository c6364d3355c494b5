"""Profiles against the raw samples they were made of."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from fillerscope.analysis.run import Run
from fillerscope.errors import FigureError, FillerscopeError
from fillerscope.study.study import QUERIES
from support.intervals import interval_of_mean
from support.synthetic import QUERY_SCALE, Floats, Synthetic

PAIRED = [("mless", "difference"), ("mless", "logratio"), ("random", "difference"), ("random", "logratio")]
PLAIN = [(condition, view) for condition in ("none", "mless", "random") for view in ("whole", "aligned")]


def raw(recipe: Synthetic, condition: str, view: str, queries: str) -> Floats:
    """[problem, layer, head, position]."""
    return recipe.samples(condition, view)[:, QUERIES.index(queries)]


@pytest.mark.parametrize("queries", QUERIES)
@pytest.mark.parametrize(("condition", "view"), PLAIN + PAIRED)
def test_a_profile_is_the_mean_over_problems(
    run: Run, recipe: Synthetic, condition: str, view: str, queries: str
) -> None:
    samples = raw(recipe, condition, view, queries)
    profile = run.profile(condition, queries, view)
    count = np.isfinite(samples).sum(axis=0)
    assert profile.problems == recipe.problems
    assert (profile.layers, profile.heads, profile.positions) == samples.shape[1:]
    np.testing.assert_array_equal(profile.count, count)
    some = count > 0
    np.testing.assert_allclose(profile.mean[some], np.nanmean(samples[:, some], axis=0), rtol=1e-12)
    assert np.isnan(profile.mean[~some]).all()
    assert not some.all(), "the last position of the longest prompt has no value"


@pytest.mark.parametrize(("condition", "view"), [("none", "aligned"), ("mless", "whole"), ("random", "difference")])
def test_spread_and_interval_are_those_of_the_samples(run: Run, recipe: Synthetic, condition: str, view: str) -> None:
    samples = raw(recipe, condition, view, "original")
    profile = run.profile(condition, "original", view)
    low, high = profile.interval()
    wide_low, wide_high = profile.interval(0.99)
    for cell in ((0, 0, 3), (2, 1, 17), (1, 3, 40), (0, 2, profile.positions - 4)):
        values = samples[:, cell[0], cell[1], cell[2]]
        values = values[np.isfinite(values)]
        assert profile.sd[cell] == pytest.approx(values.std(ddof=1), rel=1e-10)
        assert (low[cell], high[cell]) == pytest.approx(interval_of_mean(values), rel=1e-9)
        assert (wide_low[cell], wide_high[cell]) == pytest.approx(interval_of_mean(values, 0.99), rel=1e-9)


def test_below_two_problems_there_is_no_interval(run: Run, recipe: Synthetic) -> None:
    profile = run.profile("none")
    only_the_longest = recipe.length(recipe.problems - 1) - 2
    assert (profile.count[..., only_the_longest] == 1).all()
    assert np.isnan(profile.sd[..., only_the_longest]).all()
    assert np.isnan(profile.interval()[0][..., only_the_longest]).all()
    assert np.isfinite(profile.mean[..., only_the_longest]).all()


@pytest.mark.parametrize("queries", QUERIES)
def test_the_log_ratio_is_the_effect_that_was_put_in(run: Run, recipe: Synthetic, queries: str) -> None:
    profile = run.profile("mless", queries, "logratio")
    effect = np.log(recipe.drop("mless") * QUERY_SCALE[QUERIES.index(queries)])
    everywhere = profile.count[0, 0] == recipe.problems
    np.testing.assert_allclose(profile.mean[..., everywhere], effect[..., None] + np.zeros(everywhere.sum()), rtol=1e-9)
    np.testing.assert_allclose(profile.sd[..., everywhere], recipe.noise, rtol=1e-9)


def test_filler_stands_at_its_place_in_the_whole_view(run: Run, recipe: Synthetic) -> None:
    whole, aligned = run.profile("mless", view="whole"), run.profile("mless", view="aligned")
    stop = recipe.system + 30
    np.testing.assert_allclose(whole.mean[..., : recipe.system], aligned.mean[..., : recipe.system])
    np.testing.assert_allclose(whole.mean[..., stop : stop + 20], aligned.mean[..., recipe.system : recipe.system + 20])
    spread = np.mean([np.exp(recipe.jitter(number)) for number in recipe.measured])
    np.testing.assert_allclose(
        whole.mean[1, 2, recipe.system : stop], 0.03 * 0.3 * spread * np.linspace(1.1, 0.9, 30), rtol=1e-12
    )


def test_reach_counts_the_positions_that_enough_problems_have(run: Run, recipe: Synthetic) -> None:
    profile = run.profile("none")
    ends = sorted(recipe.length(number) - 1 for number in recipe.measured)  # the last token has no value
    assert profile.reach(1.0) == ends[0] == 44
    assert profile.reach(0.5) == ends[6] == 56
    assert profile.reach(0.51) == ends[5] == 54
    assert profile.reach(0.0) == ends[-1] == 66
    assert run.profile("mless", view="whole").reach(0.5) == 56 + 30


def test_head_takes_one_head_by_its_number(run: Run) -> None:
    profile = run.profile("mless")
    one = profile.head(2, 3)
    np.testing.assert_array_equal(one.mean[0, 0], profile.mean[1, 2])
    np.testing.assert_array_equal(one.count[0, 0], profile.count[1, 2])
    np.testing.assert_array_equal(one.interval()[1][0, 0], profile.interval()[1][1, 2])
    assert (one.layers, one.heads, one.problems) == (1, 1, profile.problems)
    assert one.name == "Tiny-A mless aligned original L2H3"


@pytest.mark.parametrize(("layer", "head"), [(0, 1), (1, 0), (4, 1), (1, 5), (1, 99)])
def test_a_head_that_is_not_there_is_refused(run: Run, layer: int, head: int) -> None:
    with pytest.raises(FigureError, match=f"no layer {layer} head {head}.*layers 1 to 3 and heads 1 to 4"):
        run.profile("none").head(layer, head)


def test_columns_have_a_row_for_every_sample(run: Run) -> None:
    profile = run.profile("mless", view="whole")
    columns = profile.columns()
    assert {len(column) for column in columns.values()} == {int((profile.count > 0).sum())}
    row = np.flatnonzero((columns["layer"] == 3) & (columns["head"] == 2) & (columns["position"] == 31))
    assert len(row) == 1
    assert columns["mean"][row[0]] == profile.mean[2, 1, 31]
    assert columns["low"][row[0]] == profile.interval()[0][2, 1, 31]
    assert columns["n"].min() == 1


def test_pandas_and_xarray_hold_the_same_numbers(run: Run) -> None:
    profile = run.profile("random", "last", "difference")
    frame, dataset = profile.to_pandas(), profile.to_xarray()
    assert list(frame.columns) == ["layer", "head", "position", "n", "mean", "sd", "low", "high"]
    cell = frame.query("layer == 2 and head == 4 and position == 10").iloc[0]
    assert cell["mean"] == profile.mean[1, 3, 10]
    assert float(dataset["mean"].sel(layer=2, head=4, position=10)) == profile.mean[1, 3, 10]
    assert float(dataset["high"].sel(layer=2, head=4, position=10)) == cell["high"]
    assert dict(dataset.sizes) == {"layer": 3, "head": 4, "position": profile.positions}
    assert np.isnan(dataset["mean"].values).sum() == (profile.count == 0).sum()


@pytest.mark.parametrize("library", ["pandas", "xarray"])
def test_without_the_library_one_line_says_what_to_install(
    run: Run, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(FillerscopeError, match=rf"needs {library}: pip install 'fillerscope\[tables\]'"):
        getattr(run.profile("none"), f"to_{library}")()
