"""A finding carries its numbers and its verdict as fields, and its record keeps the keys that programs read."""

from __future__ import annotations

import json

from fillerscope.analysis.estimate import Estimate
from fillerscope.analysis.findings.finding import Finding, Verdict

ESTIMATES = {"value": Estimate(0.5, 0.4, 0.6, 12), "beyond": Estimate(2.0, 1.0, 3.0)}


def test_numbers_are_flat_and_the_interval_of_the_main_estimate_has_short_names() -> None:
    finding = Finding("name", "text", "table", estimates=ESTIMATES, facts={"layer": 1})
    assert finding.numbers == {
        "value": 0.5, "low": 0.4, "high": 0.6, "beyond": 2.0, "beyond_low": 1.0, "beyond_high": 3.0, "layer": 1,
    }  # fmt: skip
    other = Finding("name", "text", "table", estimates=ESTIMATES, main="beyond")
    assert (other.numbers["low"], other.numbers["value_low"]) == (1.0, 0.4)


def test_a_record_is_json_with_all_fields() -> None:
    finding = Finding(
        "name", "text", "table", condition="mless", estimates=ESTIMATES, verdict=Verdict.LITTLE, reason="why"
    )
    record = json.loads(json.dumps(finding.record()))
    assert record == {
        "name": "name", "text": "text", "numbers": finding.numbers, "table": "table", "verdict": "holds by little",
        "reason": "why", "condition": "mless",
        "estimates": {
            "value": {"value": 0.5, "low": 0.4, "high": 0.6, "n": 12},
            "beyond": {"value": 2.0, "low": 1.0, "high": 3.0, "n": None},
        },
    }  # fmt: skip
    assert json.loads(json.dumps(Finding("name", "text", "table").record()))["verdict"] is None
