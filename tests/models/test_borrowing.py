"""A model of the caller is given back as it came: after success, errors and interrupts, whichever thread used it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from transformers.utils import logging

import fillerscope
from fillerscope.arm.hooks import arm
from fillerscope.capture.attention import NAME, capturing
from fillerscope.errors import ModelError
from fillerscope.models.attention import using_attention
from fillerscope.models.borrowing import borrowed
from fillerscope.models.quiet import quiet_transformers
from support.tiny import tiny_model, tiny_tokenizer

TEXTS = ["Anna has 3 apples and buys 4 more.", "What is 12 + 30? The answer is 42."]


def used() -> Any:
    """A model in the middle of its training, as somebody might have it, with a hook of theirs."""
    model = tiny_model("gemma3").train().requires_grad_(True)
    model.model.language_model.layers[1].eval()
    model.model.language_model.layers[0].mlp.gate_proj.weight.requires_grad_(False)
    model.config.vision_config._attn_implementation = "eager"
    model.model.language_model.layers[2].register_forward_hook(lambda *_: None)
    model.lm_head.weight.grad = torch.ones_like(model.lm_head.weight)
    return model


def state(model: Any) -> dict[str, Any]:
    parts = {"": model.config, "text": model.config.text_config, "vision": model.config.vision_config}
    return {
        "modes": [module.training for module in model.modules()],
        "gradients": [(one.requires_grad, None if one.grad is None else float(one.grad.sum())) for one in
                      model.parameters()],
        "hooks": [(list(one._forward_hooks), list(one._forward_pre_hooks), "forward" in vars(one)) for one in
                  model.modules()],
        "attention": {name: config._attn_implementation for name, config in parts.items()},
        "weights": {name: float(value.double().sum()) for name, value in model.state_dict().items()},
    }  # fmt: skip


def test_a_model_is_given_back_as_it_came() -> None:
    model = used()
    before = state(model)
    assert len(set(before["attention"].values())) == 2
    fillerscope.attention_profile(model, tiny_tokenizer(), TEXTS, check=False)
    fillerscope.attention_matrix(model, tiny_tokenizer(), TEXTS[0], 1, 1)
    fillerscope.try_question(TEXTS[0], model, tokenizer=tiny_tokenizer(), max_tokens=2)
    assert state(model) == before


@pytest.mark.parametrize("at", [0, 2, 5])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_model_is_given_back_as_it_came_after_an_error(error: type[BaseException], at: int) -> None:
    model, calls = used(), list[int]()

    def failing(*_: object) -> None:
        calls.append(len(calls))
        if calls[-1] == at:
            raise error

    model.model.language_model.layers[3].register_forward_hook(failing)
    before = state(model)
    with suppress(error, fillerscope.FillerscopeError):
        fillerscope.try_question(TEXTS[0], model, tokenizer=tiny_tokenizer(), max_tokens=2)
    assert at in calls
    assert state(model) == before


def test_what_an_interrupt_leaves_behind_is_removed() -> None:
    model = used()
    before = state(model)

    def interrupted() -> None:
        with borrowed(model):
            assert not any(module.training for module in model.modules())
            capturing(model).__enter__()
            arm(model, layers=[1]).__enter__()
            model.requires_grad_(False)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert state(model) == before


def test_hooks_of_the_caller_stay_even_those_that_came_inside() -> None:
    model = used()
    with arm(model, layers=[1]):
        before = state(model)
        with borrowed(model):
            model.lm_head.register_forward_hook(lambda *_: None)
        after = state(model)
        assert len(after.pop("hooks")[-1][0]) == 1
        assert after == {name: value for name, value in before.items() if name != "hooks"}
        assert any(module._forward_hooks for module in model.model.language_model.layers[0].mlp.modules())


def test_an_interrupt_while_attention_is_set_leaves_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = used()
    before = state(model)
    set_whole = type(model).set_attn_implementation

    def interrupted(self: Any, name: str) -> None:
        set_whole(self, name)
        raise KeyboardInterrupt

    monkeypatch.setattr(type(model), "set_attn_implementation", interrupted)
    with pytest.raises(KeyboardInterrupt), using_attention(model, "eager"):
        pass
    assert state(model) == before


def test_threads_with_one_model_take_turns() -> None:
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    alone = [fillerscope.attention_profile(model, tokenizer, [text], check=False).mean for text in TEXTS]

    def measure(number: int) -> Any:
        given = model if number % 3 else model.model  # the decoder alone is the same model
        return fillerscope.attention_profile(given, tokenizer, [TEXTS[number % 2]], check=False).mean

    with ThreadPoolExecutor(4) as pool:
        means = list(pool.map(measure, range(12)))
    for number, mean in enumerate(means):
        np.testing.assert_array_equal(mean, alone[number % 2])
    assert model.config._attn_implementation not in (None, NAME)


def test_a_thread_waits_until_the_model_is_free() -> None:
    model, order, inside = tiny_model("llama"), list[str](), threading.Event()

    def second() -> None:
        inside.wait(30)
        with borrowed(model.model):
            order.append("second")

    thread = threading.Thread(target=second)
    thread.start()
    with borrowed(model), borrowed(model):  # the same thread may come again
        inside.set()
        thread.join(0.2)
        order.append("first")
    thread.join(30)
    assert order == ["first", "second"]


def test_transformers_is_as_loud_as_before_whoever_leaves_first() -> None:
    level = logging.get_verbosity()
    first, second = quiet_transformers(), quiet_transformers()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert logging.get_verbosity() == logging.ERROR
    second.__exit__(None, None, None)
    assert logging.get_verbosity() == level


@pytest.mark.parametrize("of_a_run", [True, False])
def test_nothing_is_measured_inside_autocast(of_a_run: bool) -> None:
    """It would compute in another dtype than the one that names the run."""
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()

    def measure() -> None:
        if of_a_run:
            fillerscope.run({"name": "x", "problems": {"limit": 1}}, model=model, tokenizer=tokenizer)
        else:
            fillerscope.attention_profile(model, tokenizer, TEXTS)

    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(ModelError, match=r"autocast is on, .*block first"):
        measure()
