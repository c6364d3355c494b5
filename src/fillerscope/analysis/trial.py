"""One question without and with filler: what its tokens receive, both answers, and a sentence on what changed.

A single question has no interval, so the sentence describes it and claims nothing. Definitions are in docs/method.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.references import uniform_summary
from fillerscope.answers.request import Reply
from fillerscope.display import printable
from fillerscope.errors import FigureError
from fillerscope.files import Json
from fillerscope.prompts.prompt import SPANS
from fillerscope.store.schema import METRICS, Array, Quantity
from fillerscope.study.conditions import BASELINE, Condition
from fillerscope.study.study import QUERIES

if TYPE_CHECKING:
    from fillerscope.measure.one_question import QuestionResult

Floats = NDArray[np.float64]
QUERIES_PLACE = {str(name): place for place, name in enumerate(QUERIES)}


@dataclass(frozen=True)
class View:
    """Which attention is looked at: a layer, one of its heads or their mean (None), and the query rows."""

    layer: int = 1
    head: int | None = None
    queries: str = "original"

    @property
    def words(self) -> str:
        return f"layer {self.layer}" + ("" if self.head is None else f", head {self.head}")

    def refuse_missing(self, layers: int, heads: int, label: str) -> None:
        """Raise where the model has no such layer or head, or where the query rows are not known."""
        if not 1 <= self.layer <= layers:
            raise FigureError(f"there is no layer {self.layer}: {label} has layers 1 to {layers}")
        if self.head is not None and not 1 <= self.head <= heads:
            raise FigureError(f"there is no head {self.head}: {label} has heads 1 to {heads}")
        if self.queries not in QUERIES:
            raise FigureError(f"queries are {', '.join(QUERIES)}, not {self.queries!r}")

    def of(self, values: Floats) -> Floats:
        """The values of this view, of [layer, head, ...]."""
        layer = values[self.layer - 1]
        return np.asarray(layer.mean(axis=0) if self.head is None else layer[self.head - 1], dtype=np.float64)


@dataclass(frozen=True)
class Side:
    """A prompt under one condition: its tokens, what each receives, and the answer to it where there is one."""

    tokens: tuple[str, ...]
    spans: tuple[str, ...]  # of each token: system, filler, question or tail
    received: Floats  # [token]; NaN where no query row sees the token
    reply: Reply | None
    mass: float = math.nan  # share of their attention that later original rows give to the filler

    def record(self) -> Json:
        rows = zip(self.tokens, self.spans, self.received.tolist(), strict=True)
        answer = None
        if self.reply is not None:
            answer = {"text": self.reply.text, "tokens": self.reply.tokens, "finish": self.reply.finish}
        tokens = [{"token": token, "span": span, "received": value} for token, span, value in rows]
        return {"tokens": tokens, "answer": answer}


@dataclass(frozen=True)
class Change:
    """What original tokens receive on average, the first left out, and what length alone would leave of it."""

    without: float
    with_filler: float
    odds: float  # as a share of `without`, of rows that keep their odds; NaN where that is not known
    uniform: float  # the same of uniform attention
    mass_share: float  # what later original rows would give to the filler, of uniform attention
    unknown: str  # why `odds` is missing

    @property
    def kept(self) -> float:
        """The share of what they received that original tokens receive with filler."""
        return self.with_filler / self.without if self.without > 0 else math.nan


@dataclass(frozen=True)
class Trial:
    """A question tried without and with filler on one model."""

    model: str
    label: str
    view: View
    condition: Condition
    plain: Side
    filled: Side
    change: Change

    @classmethod
    def of(cls, result: QuestionResult, condition: Condition, view: View, names: tuple[str, str]) -> Trial:
        """The trial of a measured question; `names` are the model's name and its label."""
        plain, filled = (_side(result, name, view) for name in (BASELINE, condition.name))
        if not np.isfinite(plain.received).any():
            raise FigureError(f"layer {view.layer} of {names[1]} has no attention; choose another --layer")
        return cls(*names, view, condition, plain, filled, _change(result, condition, view))

    @property
    def filler(self) -> str:
        """The filler in words."""
        count, text = self.filled.spans.count("filler"), self.condition.text
        text = text if len(text) <= 30 else f"{text[:29]}\u2026"
        quoted = f'"{printable(text)}"'
        what = {"repeat": f"{quoted} repeated", "sentence": "random sentences", "characters": "random characters"}
        return f"{count} {'token' if count == 1 else 'tokens'} of filler ({what.get(self.condition.kind, quoted)})"

    @property
    def sentence(self) -> str:
        """What changed, and what length alone would have changed."""
        answers = f"; {_answers(self.plain.reply, self.filled.reply)}" if self.plain.reply and self.filled.reply else ""
        if not math.isfinite(self.change.kept):
            return f"With {self.filler}, {self.view.words} has nothing to compare: no token is attended to{answers}."
        return (
            f"With {self.filler}, the original tokens after the first receive {self.change.kept:.0%} of the attention "
            f"that they received in {self.view.words} ({_reference(self.change)}){answers}."
        )

    def record(self) -> Json:
        """Everything for programs."""
        change = self.change
        return {
            "model": self.model, "layer": self.view.layer, "head": self.view.head, "queries": self.view.queries,
            "filler": self.condition.model_dump(mode="json", include={"name", "kind", "text", "count", "position"}),
            "filler_tokens": self.filled.spans.count("filler"),
            "received_without": change.without, "received_with": change.with_filler, "kept": change.kept,
            "kept_same_odds": change.odds, "kept_uniform": change.uniform, "filler_mass": self.filled.mass,
            "filler_mass_uniform": change.mass_share, "same_odds_unknown": change.unknown or None,
            "sentence": self.sentence, "without": self.plain.record(), "with": self.filled.record(),
        }  # fmt: skip


def _side(result: QuestionResult, condition: str, view: View) -> Side:
    values = view.of(result.received[condition][QUERIES_PLACE[view.queries]])
    spans = tuple(SPANS[span] for span in result.item.prompts[condition].spans)
    mass = _metric(result.arrays, "filler_mass", condition, view)
    return Side(result.tokens[condition], spans, values, result.replies.get(condition), mass)


def _change(result: QuestionResult, condition: Condition, view: View) -> Change:
    window, prompt = result.check.windows[view.layer - 1], result.item.prompts[condition.name]
    without, with_filler = (_metric(result.arrays, "received_original", n, view) for n in (BASELINE, condition.name))
    unknown = _unknown(window, result.check.sinks, len(prompt), view.queries)
    odds = math.nan
    if not unknown:
        odds = float(view.of(np.asarray(result.arrays[Quantity.SAME_ODDS_HEADS.key(BASELINE)], np.float64)[0, 0]))
    marks = (result.item.prompts[BASELINE].original, prompt.original)
    even = [(math.nan, math.nan)] * 2
    if window != 0:
        even = [uniform_summary(one, window, False, view.queries, False, True) for one in marks]
    return Change(without, with_filler, _ratio(odds, without), _ratio(even[1][0], even[0][0]), even[1][1], unknown)


def _metric(arrays: Mapping[str, Array], metric: str, condition: str, view: View) -> float:
    stored = arrays[Quantity.HEADS.key(condition)]
    values = np.asarray(stored, np.float64)[0, METRICS.index(metric), QUERIES_PLACE[view.queries]]
    return float(view.of(values))


def _unknown(window: int | None, sinks: bool, tokens: int, queries: str) -> str:
    """Why the reference of equal odds does not apply; empty where it does."""
    if queries != "original":
        return "it is known for original query rows alone"
    if sinks:
        return "a learned sink takes a part of every row that is not known row by row"
    if window == 0:
        return "the layer's mask is neither causal nor a window"
    if window is not None and window < tokens:
        return f"the layer sees {window} tokens, and the prompt has {tokens}"
    return ""


def _ratio(above: float, below: float) -> float:
    return above / below if below > 0 else math.nan


def _reference(change: Change) -> str:
    if math.isfinite(change.odds):
        return f"length alone would leave {change.odds:.0%}"
    if math.isfinite(change.uniform):
        return f"uniform attention would leave {change.uniform:.0%}; for rows that keep their odds: {change.unknown}"
    return f"what length alone would leave is not known: {change.unknown}"


def _answers(plain: Reply, filled: Reply) -> str:
    """Whether the answer changed."""
    failed = next((reply for reply in (plain, filled) if reply.finish == "failed"), None)
    if failed is not None:
        return f"an answer failed ({failed.error})"
    truncated = [name for name, one in (("without", plain), ("with", filled)) if one.finish == "length"]
    same = plain.text == filled.text
    if len(truncated) == 2:
        return f"both answers were truncated and {'are the same so far' if same else 'differ'}"
    note = f" (truncated {truncated[0]} filler)" if truncated else ""
    return f"the answer {'did not change' if same else 'changed'}{note}"
