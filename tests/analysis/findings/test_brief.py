"""A finding in one line: its claim, one number with an interval, its verdict."""

from __future__ import annotations

import re
from pathlib import Path

from fillerscope.analysis.estimate import Estimate
from fillerscope.analysis.findings.all import available_comparison, findings_of
from fillerscope.analysis.findings.brief import LINES, brief
from fillerscope.analysis.findings.finding import Finding, Verdict
from support.synthetic import Effect, Synthetic


def test_a_claim_has_its_number_interval_and_verdict() -> None:
    estimates = {"value": Estimate(0.5, 0.4, 0.6, 12), "beyond": Estimate(0.9, 0.8, 1.0, 12)}
    finding = Finding(
        "first_layer", "A long text. With more.", "depth", condition="mless", estimates=estimates,
        facts={"layer": 1, "odds": 0.6}, verdict=Verdict.FAILS, reason="the other way",
    )  # fmt: skip
    assert brief(finding) == (
        "First layer, mless: original tokens of layer 1 receive 0.500 [0.400, 0.600] of what they did without filler; "
        "the claim 'more or less than length alone leaves': does not hold (the other way)."
    )


def test_what_was_not_measured_is_no_number() -> None:
    finding = Finding("scaling", "Scaling, mless: cannot be told. Claim: x.", "affine", estimates={"first": Estimate()})
    assert brief(finding) == "Scaling, mless: cannot be told."
    assert brief(Finding("scaling", "Nothing moves.", "affine")) == "Nothing moves."


def test_other_findings_give_their_first_sentence_and_controls_two() -> None:
    text = "One, 0.5 [0.4, 0.6] of it. Two. Three."
    assert brief(Finding("accuracy_mless", text, "accuracy")) == "One, 0.5 [0.4, 0.6] of it."
    assert brief(Finding("control_positions", text, "affine")) == "One, 0.5 [0.4, 0.6] of it. Two."


def test_every_finding_of_a_run_is_short(tmp_path: Path) -> None:
    twins = tuple(Effect(drop=0.6, filler=0.9) for _ in range(3))
    run = Synthetic(right={"none": 0.5, "mless": 0.6}, twins=twins, diluted=0.6).build(tmp_path / "run")
    findings = findings_of(run[None], available_comparison(run))
    assert {finding.name for finding in findings} & set(LINES)
    for finding in findings:
        line = brief(finding)
        assert len(line.split()) <= 40, line
        assert line.endswith(".")
        if finding.name in LINES:
            assert len(re.findall(r"\[", line)) == 1, line
