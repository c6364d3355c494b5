"""Notes of the SHA-256 of files that were read, so that large weights are not read twice within some hours.

A note is believed for twelve hours, by the user who wrote it, and for a file with the same name, inode, size and times.
Damage that leaves all of these as they were is found when the note has expired, or by `fillerscope models verify`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from pathlib import Path

from fillerscope.files import others_can_write, replacing
from fillerscope.models.cache import is_own, make_own_folder, own_folder

KIND = "digests"
LIFETIME = 12 * 3600.0  # seconds


def note_of(path: Path, status: os.stat_result | None = None) -> Path:
    """Where the note of a file as it is now would be: a file that changes has another one. `status` is that of a file
    which is open: another one may be at its path by now."""
    stat = path.stat() if status is None else status
    # Copying tools may set the time of change back; nobody sets the time of status change (ctime).
    key = json.dumps([path.resolve().name, stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns])
    return own_folder(KIND) / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def recall(note: Path) -> str:
    """The SHA-256 in a note; empty where there is none that can be believed."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        if not is_own(note.parent) or others_can_write(note):
            return ""
        record = json.loads(note.read_text(encoding="utf-8"))
        return str(record["sha256"]) if 0 <= time.time() - float(record["read"]) < LIFETIME else ""
    return ""


def remember(note: Path, sha256: str) -> None:
    """Write a note, and remove those that have expired. A cache that cannot be written to costs time, nothing else."""
    with contextlib.suppress(OSError):
        _remove_expired(make_own_folder(KIND))
        with replacing(note, sync=False, mode=0o600) as draft:
            draft.write(json.dumps({"sha256": sha256, "read": time.time()}).encode())


def _remove_expired(folder: Path) -> None:
    oldest = time.time() - LIFETIME
    for note in filter(_is_note, folder.iterdir()):
        with contextlib.suppress(OSError):  # another process was faster
            if note.stat().st_mtime < oldest:
                note.unlink()


def _is_note(path: Path) -> bool:
    return re.fullmatch(r"[0-9a-f]{32}\.json", path.name) is not None
