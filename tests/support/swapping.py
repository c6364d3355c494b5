"""Another user who can write to a folder, and puts a link in the place of every new file there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def swap_drafts(monkeypatch: pytest.MonkeyPatch, victim: Path) -> None:
    """Replace drafts by links to a file, as soon as they are made."""
    victim.write_text("mine")
    real = os.open

    def swapped(path: str | Path, flags: int, mode: int = 0o777, **options: int) -> int:
        descriptor = real(path, flags, mode, **options)
        if flags & os.O_CREAT and str(path).endswith(".tmp"):
            os.unlink(path)
            os.symlink(victim, path)
        return descriptor

    monkeypatch.setattr(os, "open", swapped)
