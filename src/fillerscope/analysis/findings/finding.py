"""A finding: a text with the estimates that it rests on, its verdict, and the table that it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from fillerscope.analysis.estimate import Estimate
from fillerscope.files import Json


class Verdict(StrEnum):
    """What was decided of a claim."""

    HOLDS = "holds"
    LITTLE = "holds by little"  # beyond its reference, by less than the size in docs/method.md
    UNTESTED = "not tested against its control"
    FAILS = "does not hold"
    UNKNOWN = "cannot be told"


@dataclass(frozen=True)
class Finding:
    """`text` is for people. Programs read the other fields, which hold every number and verdict of it."""

    name: str
    text: str
    table: str  # where the numbers can be read in full
    condition: str = field(default="", kw_only=True)
    estimates: Mapping[str, Estimate] = field(default_factory=dict, kw_only=True)
    facts: Mapping[str, float] = field(default_factory=dict, kw_only=True)  # numbers without an interval
    verdict: Verdict | None = field(default=None, kw_only=True)  # of findings that decide a claim
    reason: str = field(default="", kw_only=True)  # of the verdict, where that does not say it all
    main: str = field(default="value", kw_only=True)  # the estimate whose interval `numbers` calls `low` and `high`

    @property
    def numbers(self) -> dict[str, float]:
        """All estimates and facts, flat: `name`, `name_low` and `name_high`."""
        numbers: dict[str, float] = {}
        for name, estimate in self.estimates.items():
            numbers |= self._flat(name, estimate)
        return numbers | dict(self.facts)

    def _flat(self, name: str, estimate: Estimate) -> dict[str, float]:
        if name == self.main:
            return {name: estimate.value, "low": estimate.low, "high": estimate.high}
        return estimate.numbers(name)

    def record(self) -> Json:
        """For programs, as JSON and exports hold it."""
        return {
            "name": self.name, "text": self.text, "numbers": self.numbers, "table": self.table,
            "verdict": self.verdict, "reason": self.reason, "condition": self.condition,
            "estimates": {name: asdict(estimate) for name, estimate in self.estimates.items()},
        }  # fmt: skip
