"""A finding in one line: one claim, one number with its interval, and the verdict. The full text holds the rest."""

from __future__ import annotations

import re
from typing import NamedTuple

from fillerscope.analysis.findings.finding import Finding

_SENTENCE_END = re.compile(r"(?<=[.]) (?=[A-Z0-9])")


class Line(NamedTuple):
    """Which estimate a line shows, the words around it, and what is claimed of it where something is; `points` are
    percentage points, otherwise a ratio."""

    estimate: str
    words: str
    claim: str = ""
    points: bool = False


BEYOND = ", beyond controls"
# By the names of findings. Others begin with a sentence that is short enough.
LINES = {
    "first_layer": Line(
        "value", "original tokens of layer {layer:.0f} receive {} of what they did without filler",
        "more or less than length alone leaves",
    ),
    "depth": Line("value", "original tokens of the deeper half of layers receive {} of what they did without filler"),
    "collapse": Line("to_before", "a filler token receives {} times what an original one before it does", "below 0.5"),
    "scaling": Line("first", "attention outputs of the first layer are scaled by {}", f"below 1{BEYOND}"),
    "later": Line("later", "attention outputs of deeper layers are scaled by {}", "within 0.05 of 1"),
    "deeper": Line("explained", "scale and bias give the outputs of deeper layers with an R\u00b2 of {}", "below 0.5"),
    "direction": Line("within", "shifts of a problem's tokens have {} of their length in common", f"above 0.5{BEYOND}"),
    "near_zero": Line(
        "change", "activations of layer 1 near zero change by {} percentage points", f"below 0{BEYOND}", points=True
    ),
    "variance": Line("variance", "the variance of layer 1's activations is {} times that without", f"above 1{BEYOND}"),
}  # fmt: skip
SENTENCES = {"control": 2}  # of the text, that make the line; by the first word of the name


def brief(finding: Finding) -> str:
    """The finding in one line."""
    line = LINES.get(finding.name)
    estimate = finding.estimates.get(line.estimate) if line else None
    if line is None or estimate is None or not estimate.is_known:
        return _opening(finding)
    words = line.words.format(estimate.points(2) if line.points else estimate.ratio, **finding.facts)
    title = finding.name.replace("_", " ").capitalize()
    if finding.verdict is None:
        return f"{title}: {words}."
    reason = f" ({finding.reason})" if finding.reason else ""
    return f"{title}, {finding.condition}: {words}; the claim '{line.claim}': {finding.verdict}{reason}."


def _opening(finding: Finding) -> str:
    """The first sentence, or as many as make the line."""
    sentences = _SENTENCE_END.split(finding.text)
    return " ".join(sentences[: SENTENCES.get(finding.name.partition("_")[0], 1)])
