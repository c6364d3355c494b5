"""Where a model's positions depend on more than the token's own place in its text.

Some rotary embeddings take their frequencies from the longest position of the call, and dynamic ones remember it from
call to call; some attention grows sharper with the place in the row. Knows configurations and modules, not what is
measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from fillerscope.files import Json
from fillerscope.models.structure import decoder_of, text_config

BY_LENGTH = ("longrope", "dynamic")  # kinds of rotary embedding that change with the longest position of a call


def length_limit(model: nn.Module) -> int | None:
    """Beyond how many tokens a text changes the positions of all texts in its call; None where none does."""
    config = text_config(model)
    limits = [getattr(config, "floor_scale", 0) - 1] if getattr(config, "attn_temperature_tuning", False) else []
    limits += [
        given.get("original_max_position_embeddings")
        or getattr(config, "original_max_position_embeddings", None)
        or getattr(config, "max_position_embeddings", None)
        for given in _rope_settings(config)
        if any(kind in str(given.get("rope_type", "")) for kind in BY_LENGTH)
    ]
    return min((int(limit) for limit in limits if limit and limit > 0), default=None)


def _rope_settings(config: Any) -> Iterator[Json]:
    """One for all layers, or one for each kind of layer."""
    given = getattr(config, "rope_parameters", None) or {}
    yield from [given] if "rope_type" in given else [one for one in given.values() if isinstance(one, dict)]


def reset_positions(model: nn.Module) -> None:
    """Make dynamic rotary embeddings forget the lengths that they have seen: a text must not depend on those before
    it."""
    for module in decoder_of(model).modules():
        longest = getattr(module, "original_max_seq_len", None)
        if longest is None:
            continue
        for name in [name for name in vars(module) if name.endswith("max_seq_len_cached")]:
            prefix = name.removesuffix("max_seq_len_cached")
            start = getattr(module, f"{prefix}original_inv_freq", None)
            if start is not None and getattr(module, name) > longest:
                current = getattr(module, f"{prefix}inv_freq")
                module.register_buffer(f"{prefix}inv_freq", start.to(current.device), persistent=False)
                setattr(module, name, longest)
