"""What is said where a figure shows other heads than the published one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fillerscope.analysis.run import Run
from fillerscope.figures.departure import departure
from fillerscope.figures.registry import draw
from fillerscope.figures.request import Request
from fillerscope.study.overrides import ready_study
from support.synthetic import Synthetic

SEVEN, THREE = (
    "Qwen/Qwen2.5-Math-7B",
    ("Qwen/Qwen2.5-Math-7B", "meta-llama/Llama-3.1-8B-Instruct", "google/gemma-3-4b-it"),
)


@pytest.fixture
def seven(built: Callable[[Synthetic], Run]) -> Run:
    return built(Synthetic(labels={"mirror/Qwen2.5-Math-7B": "Q7"}, heads=28, problems=3))


def test_the_published_heads_need_no_words(seven: Run) -> None:
    for name in ("heads", "layers"):
        ready = ready_study(name)
        assert departure(seven, draw(seven, name, Request.of(ready.figures[0])), ready) == ""


def test_other_heads_of_the_published_model(seven: Run) -> None:
    ready = ready_study("heads")
    asked = replace(Request.of(ready.figures[0]), heads=(12, 13, 15))
    assert departure(seven, draw(seven, "heads", asked), ready) == (
        "not the published heads: layer 1, heads 12, 13, 15 of Qwen2.5-Math-7B; published: layer 1, heads 12, 13, 14 "
        "of Qwen2.5-Math-7B"
    )


def test_another_model_has_other_heads_even_of_the_same_number(built: Callable[[Synthetic], Run]) -> None:
    run, ready = built(Synthetic(heads=28, problems=3)), ready_study("heads")
    assert departure(run, draw(run, "heads", Request.of(ready.figures[0])), ready) == (
        "not the published heads: layer 1, heads 12, 13, 14 of Tiny-A; published: layer 1, heads 12, 13, 14 of "
        "Qwen2.5-Math-7B"
    )


def test_a_head_a_model(built: Callable[[Synthetic], Run]) -> None:
    run, ready = (
        built(Synthetic(labels={name: name[:4] for name in THREE}, heads=28, problems=3)),
        ready_study("fillers"),
    )
    asked = Request.of(ready.figures[0])
    assert departure(run, draw(run, "fillers", asked), ready) == ""
    note = departure(run, draw(run, "fillers", replace(asked, heads=(1, 2, 8))), ready)
    assert "head 2 of Llama-3.1-8B-Instruct; " in note
    assert note.endswith("head 27 of Llama-3.1-8B-Instruct; layer 1, head 8 of gemma-3-4b-it")


def test_figures_beyond_the_published_ones_have_no_published_heads(seven: Run) -> None:
    assert departure(seven, draw(seven, "depth"), ready_study("depth")) == ""
