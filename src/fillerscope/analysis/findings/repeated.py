"""The finding on problems that repeat a question: statistics take all problems for independent."""

from __future__ import annotations

from fillerscope.analysis.findings.finding import Finding
from fillerscope.analysis.stored_run import StoredRun
from fillerscope.problems.problem import repeated_problems

REPEATED = "repeated_problems"


def repeated_findings(run: StoredRun) -> list[Finding]:
    """One finding on all problems of a run; none where no question is asked twice."""
    repeated = run.repeated()
    if not repeated:
        return []
    problems = run.store.manifest.get("problems") or len(run.problems())
    text = f"Repeated problems: {repeated_problems(repeated, problems)}."
    facts = {"repeated": repeated, "problems": problems}
    return [Finding(REPEATED, text, "accuracy" if run.has_answers else "summaries", facts=facts)]
