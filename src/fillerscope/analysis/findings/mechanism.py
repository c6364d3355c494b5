"""Findings on the published mechanism of one condition: each claim is decided by numbers, either way."""

from __future__ import annotations

from fillerscope.analysis.findings.activations import activation_findings
from fillerscope.analysis.findings.affine import affine_findings
from fillerscope.analysis.findings.attention_claims import sentences_like
from fillerscope.analysis.findings.finding import Finding
from fillerscope.analysis.findings.mechanism_claims import Measured
from fillerscope.analysis.model_run import ModelRun


def mechanism_findings(run: ModelRun, condition: str | None = None) -> list[Finding]:
    """The claims for one condition, the main one unless another is named, and the same for a sentence beside it."""
    if not run.fillers:
        return []
    main = condition or run.main
    measured, others = Measured(run, main), sentences_like(run, main)
    affine = affine_findings(measured, others) if run.study.probes.affine else []
    return affine + (activation_findings(measured, others) if run.study.probes.activations else [])
