"""Notes of plans that were timed on this machine: the time left that a run shows before it knows its own speed.

A note is a guess and nothing else: one that is missing or unreadable costs the guess.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from fillerscope.files import digest_of, others_can_write, parse_json, read_limited, replacing
from fillerscope.models.cache import is_own, make_own_folder, own_folder
from fillerscope.study.study import Study

KIND = "plans"
LARGEST = 1 << 20  # bytes
Seconds = Mapping[str, Mapping[str, float]]  # of whole stages, by model and stage


def note_plan(study: Study, seconds: Seconds) -> None:
    """Keep what the stages of a study will take."""
    with contextlib.suppress(OSError):
        make_own_folder(KIND)
        with replacing(_note_of(study), sync=False, mode=0o600) as draft:
            draft.write(json.dumps(seconds).encode())


def noted_plan(study: Study) -> Seconds:
    """What a plan said of a study, wherever it has been planned last; nothing where it has not."""
    note = _note_of(study)
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        if not is_own(note.parent) or others_can_write(note):
            return {}
        given = parse_json(read_limited(note, LARGEST))
        return {
            str(model): {str(stage): float(taken) for stage, taken in stages.items() if float(taken) >= 0}
            for model, stages in given.items()
        }
    return {}


def _note_of(study: Study) -> Path:
    return own_folder(KIND) / f"{digest_of(study.measured())[:32]}.json"
