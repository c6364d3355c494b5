"""A finding in one line: one claim, one number with its interval, and the verdict. The full text holds the rest."""

from __future__ import annotations

import re
from typing import NamedTuple

from fillerscope.analysis.findings.finding import Finding

_SENTENCE_END = re.compile(r"(?<=[.]) (?=[A-Z0-9])")


class Claim(NamedTuple):
    """Which estimate a line shows, and the words around it; `points` are percentage points, otherwise a ratio."""

    estimate: str
    words: str
    points: bool = False


# By the names of findings. Others begin with a sentence that is short enough.
CLAIMS = {
    "first_layer": Claim("value", "original tokens of layer {layer:.0f} receive {} of what they did without filler"),
    "depth": Claim(
        "value", "original tokens of the deeper half of the layers receive {} of what they did without filler"
    ),
    "collapse": Claim("to_before", "a filler token receives {} times what an original token before it does"),
    "scaling": Claim("first", "attention outputs of the first layer are scaled by {}"),
    "later": Claim("later", "attention outputs of deeper layers are scaled by {}"),
    "deeper": Claim("explained", "scale and bias explain {} of the outputs of deeper layers"),
    "direction": Claim("within", "shifts of a problem's tokens have {} of their length in common"),
    "near_zero": Claim("change", "activations of layer 1 near zero change by {} percentage points", points=True),
    "variance": Claim("variance", "the variance of layer 1's activations is {} times that without"),
}
SENTENCES = {"control": 2}  # of the text, that make the line; by the first word of the name


def brief(finding: Finding) -> str:
    """The finding in one line."""
    claim = CLAIMS.get(finding.name)
    estimate = finding.estimates.get(claim.estimate) if claim else None
    if claim is None or estimate is None or not estimate.is_known:
        return _opening(finding)
    words = claim.words.format(estimate.points(2) if claim.points else estimate.ratio, **finding.facts)
    title = finding.name.replace("_", " ").capitalize()
    if finding.verdict is None:
        return f"{title}: {words}."
    reason = f" ({finding.reason})" if finding.reason else ""
    return f"{title}, {finding.condition}: {words}; claim: {finding.verdict}{reason}."


def _opening(finding: Finding) -> str:
    """The first sentence, or as many as make the line."""
    sentences = _SENTENCE_END.split(finding.text)
    return " ".join(sentences[: SENTENCES.get(finding.name.partition("_")[0], 1)])
