"""`headmap`: every head by its drop, on a scale that a reader can see."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fillerscope.figures.condition_text import name_of
from fillerscope.figures.registry import draw
from support.synthetic import MLESS, NONE, Effect, Synthetic


def test_headmap_colours_every_head_by_its_drop(tmp_path: Path) -> None:
    drop = np.array([[0.5, 1.0, 2.0, 0.9], [0.7, 1.3, 1.0, 1.1], [1.0, 1.0, 0.8, 1.2]])
    run = Synthetic(effects={"mless": Effect(drop=drop), "random": Effect(drop=1 / drop)}).build(tmp_path / "run")
    drawn = draw(run, "headmap")
    mless, random, bar = drawn.figure.axes
    assert [mless.get_title(), random.get_title()] == [name_of(run, name) for name in ("mless", "random")]
    assert drawn.figure.get_suptitle() == "Tiny-A"
    image = mless.get_images()[0]
    np.testing.assert_allclose(image.get_array(), np.log2(drop), atol=1e-5)
    np.testing.assert_allclose(random.get_images()[0].get_array(), -np.log2(drop), atol=1e-5)
    assert image.norm(0.0) == 0.5, "no change is the middle of the colours"
    assert image.norm(-1.0) == pytest.approx(0.0, abs=1e-6)
    assert image.norm(1.0) == pytest.approx(1.0, abs=1e-6)
    dots = {tuple(map(int, place)) for place in mless.collections[0].get_offsets()}
    assert dots == {(head + 1, layer + 1) for layer, head in np.argwhere(drop == 1.0)}
    assert mless.get_xticks().tolist() == [1, 2, 3, 4]
    assert mless.get_yticks().tolist() == [1, 2, 3]
    assert mless.get_ylim() == (3.5, 0.5), "layer 1 on top"
    ticks = dict(zip([tick.get_text() for tick in bar.get_yticklabels()], bar.get_yticks(), strict=True))
    assert {"0.5", "1", "2"} <= set(ticks)
    for text, place in ticks.items():
        assert place == pytest.approx(np.log2(float(text)))


def test_small_changes_stay_pale_and_the_scale_is_shown(tmp_path: Path) -> None:
    run = Synthetic(effects={"mless": Effect(drop=np.full((3, 4), 0.99))}, conditions=(NONE, MLESS)).build(
        tmp_path / "r"
    )
    axes, bar = draw(run, "headmap").figure.axes
    assert 0.4 < axes.get_images()[0].norm(np.log2(0.99)) < 0.5
    assert [tick.get_text() for tick in bar.get_yticklabels()] == ["0.95", "1", "1.05"]
