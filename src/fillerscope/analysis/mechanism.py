"""The mechanism by layer: the affine picture of attention outputs, and the change of MLP activations.

Each problem is compared with itself without filler; intervals and tests are over problems.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.estimate import Estimates
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.stats import holm, permutation_tests
from fillerscope.errors import FigureError
from fillerscope.files import Json
from fillerscope.store.schema import ACTIVATION_METRICS, AFFINE_METRICS
from fillerscope.study.conditions import BASELINE
from fillerscope.study.token_classes import ALL

Floats = NDArray[np.float64]
Columns = dict[str, NDArray[np.generic]]
SEED = 0  # of flipped signs: the same run gives the same numbers
RATIOS = ("variance", "l1", "l2")  # sizes, compared as with / without
TESTED = ("near_zero", "variance")


@dataclass(frozen=True)
class AffineTable:
    """`values[measure]` is mean, low and high, each [layer], of each problem's mean over the layer's heads; in
    `heads` the same of every head, [layer, head]. `samples[measure]` is [problem, layer].

    `consistency` is |mean of b| over mean of |b|, over problems: 1 where the bias is the same vector in all of them.
    It comes from sums over problems and has no interval; biases without a common direction give about `chance`."""

    condition: str
    problems: int
    values: dict[str, Estimates]
    heads: dict[str, Estimates]
    samples: dict[str, Floats]
    consistency: Floats  # [layer]: mean over heads
    head_consistency: Floats
    chance: float

    @property
    def layers(self) -> int:
        return len(self.consistency)

    @property
    def attending(self) -> list[int]:
        """Layers with numbers, counted from 0: hybrid models have layers without attention."""
        known = np.isfinite(self.values["lambda_fit"].value)
        return np.flatnonzero(known if known.any() else ~known).tolist()

    def columns(self) -> Columns:
        table: Columns = {"layer": np.arange(1, self.layers + 1), "n": np.full(self.layers, self.problems)}
        return table | _flat(self.values) | self._shared(self.consistency)

    def head_columns(self) -> Columns:
        layer, head = (axis.ravel() + 1 for axis in np.indices(self.head_consistency.shape))
        table: Columns = {"layer": layer, "head": head, "n": np.full(layer.size, self.problems)}
        return table | _flat(self.heads) | self._shared(self.head_consistency.ravel())

    def _shared(self, consistency: Floats) -> Columns:
        return {"consistency": consistency, "consistency_chance": np.full(len(consistency), self.chance)}


def affine_table(run: ModelRun, condition: str) -> AffineTable:
    """`lambda_mass` is what the share of attention on the filler says lambda should be; NaN without filler."""
    names = ("lambda_fit", "lambda_centred", "explained", "direction")
    by_head = {name: run.affine(name, condition) for name in names}
    bias, output = (run.affine(name, condition) for name in ("bias", "output"))
    with np.errstate(divide="ignore", invalid="ignore"):
        by_head["relative_bias"] = np.where(output > 0, bias / output, np.nan)
    by_head["lambda_mass"] = 1.0 - run.summary("filler_mass", condition, "original")
    by_head["gap"] = by_head["lambda_fit"] - by_head["lambda_mass"]
    samples = {name: mean_over(values) for name, values in by_head.items()}
    shared = _head_consistency(run, condition)
    problems = int(run.bias(condition).count.max(initial=0))
    return AffineTable(
        condition, problems,
        {name: Estimates.of(values) for name, values in samples.items()},
        {name: Estimates.of(values) for name, values in by_head.items()},
        samples, mean_over(shared), shared, problems**-0.5 if problems else float("nan"),
    )  # fmt: skip


def consistency(run: ModelRun, condition: str) -> Floats:
    """[layer]: how far biases of different problems are the same vector, mean over heads."""
    return mean_over(_head_consistency(run, condition))


def _head_consistency(run: ModelRun, condition: str) -> Floats:
    together = np.linalg.norm(run.bias(condition).value(), axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(together / mean_over(run.affine("bias", condition), axis=0))


@dataclass(frozen=True)
class ActivationTable:
    """Arrays [layer], over the problems that have a token of the class under both conditions: `n` of them.

    `difference[metric]` is with - without, `ratio[metric]` with / without, the geometric mean over problems; `p` are
    two-sided, from flipped signs of the paired differences (of logarithms for the variance), `adjusted` by Holm over
    the layers. `samples[metric]` is [problem, layer]: the differences, and the logarithms of the ratios as
    `log_variance` and so on."""

    condition: str
    cls: str
    n: NDArray[np.int64]
    without: dict[str, Floats]
    under: dict[str, Floats]
    difference: dict[str, Estimates]
    ratio: dict[str, Estimates]
    p: dict[str, Floats]
    adjusted: dict[str, Floats]
    samples: dict[str, Floats]

    @property
    def layers(self) -> int:
        return len(self.n)

    def columns(self) -> Columns:
        table: Columns = {"layer": np.arange(1, self.layers + 1), "n": self.n}
        for metric in ACTIVATION_METRICS:
            table |= {f"{metric}_without": self.without[metric], f"{metric}_with": self.under[metric]}
        table |= _flat({f"{metric}_difference": estimates for metric, estimates in self.difference.items()})
        table |= _flat({f"{metric}_ratio": estimates for metric, estimates in self.ratio.items()})
        for name in TESTED:
            table |= {f"{name}_p": self.p[name], f"{name}_adjusted": self.adjusted[name]}
        return table


def activation_table(run: ModelRun, condition: str, cls: str = ALL) -> ActivationTable:
    """Activations of one class of tokens under a condition against none."""
    before, after, kept = _pairs(run, condition, cls)
    samples = {name: after[name] - before[name] for name in ACTIVATION_METRICS if name != "tokens"}
    samples |= {f"log_{name}": _logs(after[name], before[name]) for name in RATIOS}
    tests = flipped(np.hstack([samples[f"log_{name}" if name in RATIOS else name] for name in TESTED]))
    p = dict(zip(TESTED, np.split(tests, len(TESTED)), strict=True))
    return ActivationTable(
        condition, cls, kept.sum(axis=0),
        {name: mean_over(values, axis=0) for name, values in before.items()},
        {name: mean_over(values, axis=0) for name, values in after.items()},
        {name: Estimates.of(samples[name]) for name in ACTIVATION_METRICS if name != "tokens"},
        {name: Estimates.ratios(after[name], before[name]) for name in RATIOS},
        p, {name: holm(values) for name, values in p.items()}, samples,
    )  # fmt: skip


def near_zero_change(run: ModelRun, condition: str, cls: str) -> tuple[Estimates, NDArray[np.int64]]:
    """The change of `near_zero` by layer and the number of problems, without the tests of `activation_table`."""
    before, after, kept = _pairs(run, condition, cls, ("tokens", "near_zero"))
    return Estimates.of(after["near_zero"] - before["near_zero"]), kept.sum(axis=0)


def _pairs(
    run: ModelRun, condition: str, cls: str, metrics: tuple[str, ...] = ACTIVATION_METRICS
) -> tuple[dict[str, Floats], dict[str, Floats], NDArray[np.bool_]]:
    """[problem, layer] of each metric without and with, NaN but where the class has a token under both."""
    before, after = (
        {metric: run.activations(metric, name, cls) for metric in metrics} for name in (BASELINE, condition)
    )
    kept = _in_both(before["tokens"], after["tokens"])
    before, after = ({name: np.where(kept, values, np.nan) for name, values in one.items()} for one in (before, after))
    return before, after, kept


def layer_samples(run: ModelRun, measure: str, condition: str) -> Floats:
    """[problem, layer] of one measure of either table, as in its `samples`, without the rest of the table."""
    if measure in AFFINE_METRICS:
        return mean_over(run.affine(measure, condition))
    name = measure.removeprefix("log_")
    before, after, _ = _pairs(run, condition, ALL, ("tokens", name))
    return _logs(after[name], before[name]) if measure.startswith("log_") else after[name] - before[name]


def mechanism_rows(run: ModelRun, condition: str) -> list[Json]:
    """A row for each layer with all that was measured of the mechanism."""
    columns: Columns = {}
    if run.study.probes.affine:
        columns |= affine_table(run, condition).columns()
    if run.study.probes.activations:
        columns |= activation_table(run, condition).columns()
    if not (columns or run.study.probes.answering):
        raise FigureError(
            "this run did not look inside: its study needs `probes: {affine: true, activations: true}`, or one of them"
        )
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def flipped(samples: Floats) -> Floats:
    """[layer]: p of [problem, layer], NaN samples left out."""
    p = np.full(samples.shape[1], np.nan)
    for layers, rows in _alike(samples):
        p[layers] = permutation_tests(rows.T, np.random.default_rng(SEED))
    return p


def _alike(samples: Floats) -> Iterator[tuple[NDArray[np.bool_], Floats]]:
    """The layers whose values are missing in the same problems, with the others: as a rule all at once."""
    known = np.isfinite(samples)
    for pattern in np.unique(known, axis=1).T:
        layers = (known == pattern[:, None]).all(axis=0)
        yield layers, samples[np.ix_(pattern, layers)]


def mean_over(values: Floats, axis: int = -1) -> Floats:
    """The mean of all finite values; NaN where there are none."""
    known = np.isfinite(values)
    count = known.sum(axis=axis)
    total = np.where(known, values, 0.0).sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _logs(after: Floats, before: Floats) -> Floats:
    """Logarithms of ratios; NaN where there is none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(after) - np.log(before)
    return np.where(np.isfinite(logs), logs, np.nan)


def _in_both(before: Floats, after: Floats) -> NDArray[np.bool_]:
    """[problem, layer]: whether the class has a token under both conditions."""
    return np.isfinite(before) & np.isfinite(after) & (before > 0) & (after > 0)


def _flat(values: dict[str, Estimates]) -> Columns:
    table: Columns = {}
    for name, estimates in values.items():
        table |= estimates.columns(name)
    return table
