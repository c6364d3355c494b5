"""The names of what is measured about the mechanism, for whoever writes it and whoever reads it.

Definitions are in docs/method.md.
"""

from __future__ import annotations

# Of every problem, layer and head: the attention output o' under a condition as lambda * o + b of that without.
AFFINE = (
    "lambda_fit",
    "explained",  # share of the variation of o' that lambda * o + b has
    "direction",  # |b| over the mean of |o' - lambda * o|: 1 where the shift points one way for every token
    "bias",  # |b|
    "output",  # mean of |o|
    "lambda_centred",  # the slope where an intercept is fitted with it
)
# Of every problem, class of tokens and layer: the output of the MLP's nonlinearity.
ACTIVATION = (
    "tokens",
    "near_zero",  # share below the threshold that was frozen without filler
    "below_median",  # share below the median that was frozen without filler: relative sparsity
    "mean",
    "variance",
    "l1",  # per token
    "l2",
    "gini",  # of sizes
)
