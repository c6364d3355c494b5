"""The finding on filler at the end of a prompt: tokens before it cannot see it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fillerscope.analysis.findings.finding import Finding
from fillerscope.analysis.model_run import ModelRun
from fillerscope.prompts.prompt import FILLER


def placement_findings(run: ModelRun) -> list[Finding]:
    """One finding on all conditions with filler at the end; none where there are none."""
    conditions = [run.condition(name) for name in run.fillers]
    late = [one for one in conditions if one.has_filler and one.position == "end"]
    counts = _counts(run, late[0].name) if late else np.empty((0, 2))
    if not len(counts):
        return []
    behind, tokens = (float(mean) for mean in counts.mean(0))
    names = ", ".join(dict.fromkeys(one.sweep or one.name for one in late))
    text = (
        f"Place, {names}: of {tokens:.1f} original tokens {_number(behind)} behind filler at the end (means over "
        f"{len(counts)} problems). Those before it cannot see it: their rows of attention, outputs and activations are "
        f"those without filler. Numbers over all original tokens hardly move there, whatever the filler does; its "
        f"effect is in the answers."
    )
    facts = {"behind": behind, "tokens": tokens}
    return [Finding("filler_at_end", text, "summaries", condition=late[0].name, facts=facts)]


def _number(behind: float) -> str:
    return f"{behind:.1f} stand" if behind else "none stands"


def _counts(run: ModelRun, condition: str) -> NDArray[np.int64]:
    """For every problem that was measured, the number of original tokens behind the filler, and of all of them."""
    layouts = run.layouts()
    kinds, of = layouts.used(condition)
    fillers = [layouts.spans(kind) == FILLER for kind in kinds]
    return np.array([(filler[::-1].argmax(), np.count_nonzero(~filler)) for filler in fillers])[of]
