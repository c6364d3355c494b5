"""The effect by layer: means over heads first, intervals over problems."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fillerscope.analysis.depth import depth_table
from fillerscope.analysis.run import Run
from fillerscope.study.study import QUERIES
from support.intervals import interval_of_mean
from support.synthetic import QUERY_SCALE, Effect, Synthetic

MEASURES = ("mass", "lambda", "drop")
REFERENCES = ("uniform", "odds", "beyond_uniform", "beyond", "mass_share", "beyond_mass")


@pytest.mark.parametrize("queries", QUERIES)
def test_a_layer_whose_heads_agree_has_their_drop(tmp_path: Path, queries: str) -> None:
    by_layer = np.array([[0.6], [0.9], [1.2]]) * np.ones((3, 4))
    recipe = Synthetic(effects={"mless": Effect(drop=by_layer)})
    drop, low, high = depth_table(recipe.build(tmp_path / "run")[None], "mless", queries).values["drop"]
    expected = np.array([0.6, 0.9, 1.2]) * QUERY_SCALE[QUERIES.index(queries)]
    np.testing.assert_allclose(drop, expected, rtol=1e-6)
    np.testing.assert_allclose(low, expected * np.exp(-recipe.reach()), rtol=1e-6)
    np.testing.assert_allclose(high, expected * np.exp(recipe.reach()), rtol=1e-6)


def test_problems_are_averaged_over_heads_before_the_interval(run: Run) -> None:
    mean, low, high = depth_table(run[None], "random").values["drop"]
    for layer in range(3):
        pair = [run.summary("received_original", name)[:, layer].mean(axis=1) for name in ("random", "none")]
        logs = np.log(pair[0] / pair[1])
        bounds = interval_of_mean(logs)
        assert (mean[layer], low[layer], high[layer]) == pytest.approx(np.exp([logs.mean(), *bounds]))


def test_mass_and_lambda_add_up_to_one(run: Run, recipe: Synthetic) -> None:
    values = depth_table(run[None], "mless").values
    np.testing.assert_allclose(values["mass"][0], recipe.mass("mless").mean(axis=1), rtol=1e-6)
    np.testing.assert_allclose(values["mass"][0] + values["lambda"][0], 1.0)
    np.testing.assert_allclose(values["mass"][2] - values["mass"][0], recipe.reach(), rtol=1e-4)
    np.testing.assert_allclose(values["lambda"][1], 1 - values["mass"][2])


def test_the_table_has_a_row_a_layer(run: Run) -> None:
    table = depth_table(run[None], "mless", "all")
    columns = table.columns()
    assert (table.layers, table.problems, table.condition, table.queries) == (3, 12, "mless", "all")
    assert columns["layer"].tolist() == [1, 2, 3]
    assert set(columns) == {"layer"} | {
        f"{m}{part}" for m in (*MEASURES, *REFERENCES) for part in ("", "_low", "_high")
    }
    np.testing.assert_array_equal(columns["drop_high"], table.values["drop"][2])
