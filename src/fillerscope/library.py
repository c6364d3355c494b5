"""`fillerscope.run`: a study in, an opened run out."""

from __future__ import annotations

from pathlib import Path

from fillerscope.analysis.run import Run
from fillerscope.measure.run_study import Progress, carry_out
from fillerscope.study.study import Study


def run(
    study: Study | str | Path, out: str | Path | None = None, progress: Progress | None = None,
    accept_licence: bool = False,
) -> Run:  # fmt: skip
    """Measure a study (or the rest of it, if it was begun) and open the result."""
    if not isinstance(study, Study):
        study = Study.load(study)
    return Run(carry_out(study, Path(out) if out else None, progress, accept_licence))
