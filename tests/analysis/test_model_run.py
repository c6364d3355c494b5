"""A run through one of its models: layers and heads that it lacks, and notes of a manifest that cannot be true."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fillerscope.analysis.references import uniform
from fillerscope.analysis.run import Run, open_run
from fillerscope.errors import FigureError, StoreError
from fillerscope.store.run_folder import RunStore
from support.synthetic import Synthetic


@pytest.fixture(scope="module", params=[(1, 4), (3, 1), (3, 4)], ids=str)
def sized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, int, int]:
    """A run with the same odds collected, with its numbers of layers and heads."""
    layers, heads = request.param
    recipe = Synthetic(problems=6, layers=layers, heads=heads, diluted=0.5)
    return recipe.build(tmp_path_factory.mktemp("sized") / "run"), layers, heads


def test_a_head_is_that_of_the_whole_profile(sized: tuple[Run, int, int]) -> None:
    run, layers, heads = sized
    whole = run[None].profile("mless").mean
    np.testing.assert_array_equal(run[None].head_profile("mless", layers, heads).mean, whole[-1:, -1:])
    np.testing.assert_array_equal(run[None].head_profile("mless", layers, None).mean, whole[-1:])


@pytest.mark.parametrize("beyond", [-5, 0, 9])
def test_a_layer_or_head_that_the_model_lacks_is_refused(sized: tuple[Run, int, int], beyond: int) -> None:
    run, layers, heads = sized
    one = run[None]
    assert one.odds_profile(1, 1) is not None
    for head in (1, None):
        no_layer = f"^there is no layer {beyond}: Tiny-A has layers 1 to {layers}$"
        with pytest.raises(FigureError, match=no_layer):
            one.head_profile("mless", beyond, head)
        with pytest.raises(FigureError, match=no_layer):
            one.odds_profile(beyond, head)
    no_head = f"^there is no head {beyond}: Tiny-A has heads 1 to {heads}$"
    with pytest.raises(FigureError, match=no_head):
        one.head_profile("mless", 1, beyond)
    with pytest.raises(FigureError, match=no_head):
        one.odds_profile(1, beyond)


@pytest.mark.parametrize("windows", [[0] * 5, [], [0]])
def test_windows_of_other_layers_are_damage(tmp_path: Path, windows: list[int]) -> None:
    Synthetic(problems=3, layers=3).build(tmp_path / "run")
    store = RunStore.open(tmp_path / "run")
    record = {"difference": 0.0, "tolerance": 1.0, "windows": windows}
    store.note("models", {name: {**facts, "rowcheck": record} for name, facts in store.manifest["models"].items()})
    reason = r"its `windows` of tiny-a are not one for each of 3 layers"
    with pytest.raises(StoreError, match=rf"run/manifest\.json is damaged \({reason}\); restore it from a copy"):
        uniform(open_run(tmp_path / "run")[None], "mless")


@pytest.mark.parametrize(
    "change", [{"eps": [0.1]}, {"edges": [0.0, 1.0]}, {"edges": None}, {"eps": None}, {"edges": "falling"}]
)
def test_a_calibration_of_another_model_is_damage(tmp_path: Path, change: dict[str, object]) -> None:
    Synthetic(problems=3, layers=3, activations=True).build(tmp_path / "run")
    store = RunStore.open(tmp_path / "run")
    ((name, facts),) = store.manifest["models"].items()
    record = facts["calibration"] | change
    if change.get("edges") == "falling":
        record["edges"] = facts["calibration"]["edges"][::-1]
    kept = {key: value for key, value in record.items() if value is not None}
    store.note("models", {name: {**facts, "calibration": kept}})
    with pytest.raises(StoreError, match=r"its `calibration` of tiny-a is not that of 3 layers and \d+ bins"):
        open_run(tmp_path / "run")[None].calibration()
