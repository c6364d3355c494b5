"""The arguments of one attention call: what both implementations, `blocks` and `fused`, take.

Holds tensors as they are: nothing is copied or converted here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from fillerscope.capture.masks import MaskRule


@dataclass(frozen=True)
class ScoreRule:
    """How a layer turns products of queries and keys into attention weights."""

    mask: MaskRule
    scaling: float
    softcap: float | None = None
    sinks: Tensor | None = None  # [head]: a logit that takes its share of every row and stands for no token


@dataclass(frozen=True)
class AttentionInputs:
    """Queries, keys and values of one layer. A batch of texts of one length has an axis `text` before the others."""

    query: Tensor  # [head, token, dim]
    key: Tensor  # [kv_head, token, dim]; in a batch [text, kv_head, key, dim], those of the queries last
    value: Tensor  # [kv_head, token, value_dim]
    rule: ScoreRule
    prefixes: tuple[Tensor, Tensor] | None = None  # keys and values of all prefixes of the pass, not in a batch


class LayerSums(NamedTuple):
    """Where an attention call writes what it adds up."""

    received: Tensor  # [head, group, key]: weighted sums of rows strictly below the diagonal
    diagonal: Tensor  # [head, token]: what each token receives from itself
