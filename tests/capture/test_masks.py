"""Rules about who may attend to whom, against every pair of row and key tried one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.masking_utils import (
    and_masks,
    bidirectional_mask_function,
    causal_mask_function,
    chunked_causal_mask_function,
    sliding_window_causal_mask_function,
)

from fillerscope.capture.masks import PLAIN_CAUSAL, MaskRule, mask_rule
from fillerscope.errors import CaptureError

LENGTH = 24


def sliding(window: int) -> MaskRule:
    """As transformers asks for it."""
    return mask_rule(mask_function=sliding_window_causal_mask_function(window), local_size=window)


def chunked(size: int) -> MaskRule:
    return mask_rule(
        mask_function=chunked_causal_mask_function(size, torch.zeros(1, dtype=torch.long)), local_size=size
    )


def both_ways() -> MaskRule:
    return mask_rule(mask_function=bidirectional_mask_function, allow_is_causal_skip=False)


Allowed = Callable[[int, int], bool]
RULES: dict[str, tuple[MaskRule, Allowed]] = {
    "causal": (mask_rule(mask_function=causal_mask_function), lambda row, key: key <= row),
    **{f"window of {n}": (sliding(n), lambda row, key, n=n: row - n < key <= row) for n in (1, 2, 7, LENGTH, 99)},
    **{f"chunks of {n}": (chunked(n), lambda row, key, n=n: key <= row and key // n == row // n) for n in (5, 8)},
    "both ways": (both_ways(), lambda *_: True),
}


@settings(deadline=None)
@given(st.sampled_from(sorted(RULES)), st.data())
def test_keys_and_what_is_hidden_agree_with_every_pair(name: str, data: st.DataObject) -> None:
    rule, allowed = RULES[name]
    start = data.draw(st.integers(0, LENGTH - 1))
    rows = range(start, data.draw(st.integers(start + 1, LENGTH)))
    keys = rule.keys_for(rows, LENGTH)
    seen = [key for key in range(LENGTH) if any(allowed(row, key) for row in rows)]
    assert set(seen) <= set(keys)  # nothing that a row sees is left out
    hidden = rule.hidden(rows, keys).numpy()
    hidden = np.broadcast_to(hidden, (len(rows), len(keys)))
    np.testing.assert_array_equal(hidden, [[not allowed(row, key) for key in keys] for row in rows])
    if not name.startswith("chunks"):  # and nothing that none of them sees is worked on
        assert seen == list(keys)


@pytest.mark.parametrize("name", RULES)
def test_what_is_a_window_and_what_only_looks_like_one(name: str) -> None:
    """Some mask is a window if every row sees the keys from some distance on up to itself."""
    rule, allowed = RULES[name]
    for length in (1, 4, LENGTH):
        reach = length if rule.reach is None else rule.reach
        wanted = all(
            allowed(row, key) == (row - reach < key <= row) for row in range(length) for key in range(length + 1)
        )
        assert rule.is_window(length) == wanted, length


def test_causal_and_sliding_are_windows_and_others_are_not() -> None:
    assert PLAIN_CAUSAL.is_window(LENGTH)
    assert sliding(7).is_window(LENGTH)
    assert sliding(LENGTH).is_window(LENGTH)
    assert not chunked(5).is_window(LENGTH)
    assert chunked(5).is_window(5)  # the first chunk is plain causal, and nobody sees more of it
    assert not both_ways().is_window(LENGTH)
    holes = and_masks(causal_mask_function, lambda *places: (places[2] + places[3]) % 2 == 0)
    assert not MaskRule(holes, causal=True, reach=None).is_window(LENGTH)
    too_far = MaskRule(causal_mask_function, causal=True, reach=7)
    assert not too_far.is_window(LENGTH)  # sees further back than it says
    assert not MaskRule(sliding_window_causal_mask_function(6), causal=True, reach=7).is_window(LENGTH)
    assert not MaskRule(causal_mask_function, causal=False, reach=None).is_window(LENGTH)
    assert not MaskRule(bidirectional_mask_function, causal=True, reach=None).is_window(LENGTH)  # whatever it says


@pytest.mark.parametrize(("rule", "window"), [(PLAIN_CAUSAL, None), (sliding(7), 7), (sliding(LENGTH), None)])
def test_a_window_is_given_where_it_is_shorter_than_the_text(rule: MaskRule, window: int | None) -> None:
    assert rule.window(LENGTH) == window


def test_transformers_own_causal_rule_is_the_plain_one() -> None:
    assert mask_rule(mask_function=causal_mask_function, batch_size=2, device="cpu") == PLAIN_CAUSAL
    assert mask_rule(mask_function=causal_mask_function, local_size=9).reach == 9


def test_a_rule_that_cannot_be_evaluated_in_blocks_is_refused() -> None:
    with pytest.raises(CaptureError, match="adds a rule of its own to the mask; it cannot be evaluated in blocks"):
        mask_rule(mask_function=causal_mask_function, use_vmap=True)


def test_rules_of_both_directions_see_every_key() -> None:
    given: Any = both_ways()
    assert (given.causal, given.reach) == (False, None)
    assert given.keys_for(range(3, 5), LENGTH) == range(LENGTH)


@pytest.mark.gpu
def test_a_rule_that_holds_tensors_of_a_device_is_tried_there() -> None:
    rule = MaskRule(chunked_causal_mask_function(5, torch.zeros(1, dtype=torch.long, device="cuda")), True, None)
    assert rule.is_window(5, torch.device("cuda"))
    assert not rule.is_window(LENGTH, torch.device("cuda"))
