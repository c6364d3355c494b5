"""Findings on the first layer that has attention: what original tokens receive, and what filler tokens receive.

More keys take weight from the others whatever they mean: a change is called an effect where `attention_claims` decides
so, and otherwise its number stands beside what length alone and untrained twins show.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fillerscope.analysis.depth import DepthTable
from fillerscope.analysis.estimate import Estimate
from fillerscope.analysis.findings.attention_claims import COLLAPSE, decide_collapse, decide_first_layer, on_filler
from fillerscope.analysis.findings.finding import Finding
from fillerscope.analysis.findings.view import View
from fillerscope.analysis.findings.wording import compared_with, first_layer, span
from fillerscope.analysis.heads import HeadTable
from fillerscope.study.conditions import BASELINE


def first_layer_finding(view: View, heads: HeadTable, depth: DepthTable) -> Finding:
    """How much less original tokens receive, and whether that is more than length alone takes."""
    drop, length = depth.at("drop", view.first), LengthAlone.of(depth, view.first)
    counts, decision = HeadCounts.of(heads, view.first), decide_first_layer(view)
    text = (
        f"{first_layer(view.first)}, {view.condition}, {view.queries} queries: {decision.text}. Claim: "
        f"{_claim(view, length)}. Original tokens receive {drop.ratio} of what they receive "
        f"{compared_with(view.run, view.condition)} (n = {drop.n}).{length.text} {counts.text}."
    )
    return Finding(
        "first_layer", text, "depth", condition=view.condition, verdict=decision.verdict, reason=decision.reason,
        estimates={"value": drop} | ({"beyond": length.beyond} if length.beyond.is_known else {}),
        facts={"layer": view.first + 1, "heads_below": counts.below, "heads_above": counts.above} | length.facts,
    )  # fmt: skip


def _claim(view: View, length: LengthAlone) -> str:
    if not view.run.condition(view.condition).has_filler:
        return f"{view.condition} changes what original tokens receive"
    way = {-1: "more", 1: "less"}.get(length.beyond.side(1.0), "more or less")
    return f"filler draws {way} attention than as many average tokens"


@dataclass(frozen=True)
class LengthAlone:
    """What length alone would give in one layer, beside a drop; NaN where it is missing."""

    uniform: float
    odds: float
    beyond: Estimate  # drop / odds
    twins: tuple[float, float]  # the least and the largest drop of untrained twins

    @classmethod
    def of(cls, table: DepthTable, layer: int) -> LengthAlone:
        """`layer` is counted from 0."""
        beyond, twin = table.at("beyond", layer), table.at("twin", layer)
        uniform, odds = (table.at(name, layer).value for name in ("uniform", "odds"))
        return cls(
            uniform, odds, beyond if beyond.is_known else table.at("beyond_uniform", layer), (twin.low, twin.high)
        )

    @property
    def text(self) -> str:
        """Sentences, each after a space; nothing where nothing is known."""
        parts = [
            f"uniform attention over the longer prompt gives {self.uniform:.3f}" * bool(np.isfinite(self.uniform)),
            f"rows that keep their odds give {self.odds:.3f}" * bool(np.isfinite(self.odds)),
            f"untrained twins give {span(self.twins)}" * bool(np.isfinite(self.twins[0])),
        ]
        references = ", ".join(filter(None, parts))
        beyond = f" Beyond length the ratio is {self.beyond.ratio}." * self.beyond.is_known
        return f" For comparison, {references}.{beyond}" if references else ""

    @property
    def facts(self) -> dict[str, float]:
        values = dict(
            zip(("uniform", "odds", "twin_low", "twin_high"), (self.uniform, self.odds, *self.twins), strict=True)
        )
        return {name: value for name, value in values.items() if np.isfinite(value)}


@dataclass(frozen=True)
class HeadCounts:
    """How many heads of a layer lie below and above the range of untrained ones, what length alone gives, or 1."""

    below: int
    above: int
    text: str

    @classmethod
    def of(cls, table: HeadTable, layer: int) -> HeadCounts:
        """`layer` is counted from 0."""
        drop, count = table.columns["drop"], table.shape[1]
        if _knows(table, "twin", layer):
            twin = table.columns["twin"]
            below, above = drop.value[layer] < twin.low[layer], drop.value[layer] > twin.high[layer]
            words = "{} of {} heads lie below and {} above all heads of the twins"
        elif _knows(table, "beyond", layer):
            beyond = table.columns["beyond"]
            below, above = beyond.high[layer] < 1, beyond.low[layer] > 1
            words = "{} of {} heads lie below and {} above what length alone gives"
        else:
            below, above = drop.high[layer] < 1, drop.low[layer] > 1
            words = "{} of {} heads fall and {} rise"
        return cls(int(below.sum()), int(above.sum()), words.format(below.sum(), count, above.sum()))


def _knows(table: HeadTable, column: str, layer: int) -> bool:
    return table.knows(column) and bool(np.isfinite(table.columns[column].value[layer]).any())


def collapse_finding(view: View) -> Finding | None:
    """Whether attention collapses on the filler. All queries count, as published. Tokens after a place differ from
    those before it without any filler too, so that ratio stands beside."""
    view = replace(view, queries="all")
    plain = view.under(BASELINE)
    estimates = {
        "to_before": _received(view, "filler", "before"),
        "to_after": _received(view, "filler", "after"),
        "control": _received(plain, "after", "before"),
    }
    if not (estimates["to_before"].has_interval and estimates["to_after"].has_interval):
        return None
    decision = decide_collapse(view)
    beside = view.twins_text(lambda twin: float(np.exp(np.nanmean(on_filler(twin)[:, view.first]))))
    text = (
        f"{first_layer(view.first)}, {view.condition}, all queries: {decision.text}. Claim: attention collapses on the "
        f"filler, to less than {COLLAPSE:g} of what stands before it. A filler token receives "
        f"{estimates['to_before'].ratio} times what an original token before it receives{beside}, and "
        f"{estimates['to_after'].ratio} times what one after it receives. Without filler, tokens after the place "
        f"receive {estimates['control'].ratio} times those before."
    )
    return Finding(
        "collapse",
        text,
        "summaries",
        condition=view.condition,
        estimates=estimates,
        verdict=decision.verdict,
        reason=decision.reason,
    )


def _received(view: View, above: str, below: str) -> Estimate:
    """What tokens of one place receive over what those of another do, in the first layer."""
    return Estimate.ratio_of(*(view.summary(f"received_{where}")[:, view.first].mean(-1) for where in (above, below)))
