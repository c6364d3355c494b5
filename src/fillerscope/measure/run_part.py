"""One part of a study measured, for several jobs that share it; a function of the library."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict, Unpack

from fillerscope.measure.run_study import RunChoices, run_study
from fillerscope.progress import SILENT, Progress
from fillerscope.store.job_part import JobPart
from fillerscope.study.study import Study, study_from


class PartOptions(TypedDict, total=False):
    """What `run_part` takes beside a study, a part and a folder."""

    progress: Progress  # what it reports to; nobody by default
    accept_licence: bool  # of models that ask for it; False
    retry_failed: bool  # measure shards again in which something failed; False


def run_part(
    study: Study | Mapping[str, object] | str | Path,
    part: str | JobPart,
    out: str | Path | None = None,
    **options: Unpack[PartOptions],
) -> Path:
    """Measure one part of a study, such as "3/16", or resume it, and return the folder of the part.

    For several jobs that share the work, on one machine or on many: each writes to a folder of its own in that of the
    run, `out` or one in `runs`. `merge` makes the run of all parts. Options: `progress` is what it reports to, nobody
    by default; `accept_licence=True` accepts that of models which ask for it; `retry_failed=True` measures shards again
    in which something failed.
    """
    wanted = JobPart.parse(part) if isinstance(part, str) else part
    retry = options.get("retry_failed", False)
    choices = RunChoices(options.get("accept_licence", False), part=wanted, retry_failed=retry)
    progress = options.get("progress", SILENT)
    return run_study(study_from(study), Path(out) if out else None, progress, choices).path
