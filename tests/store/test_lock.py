"""The lock of a run folder."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from filelock import FileLock

from fillerscope.errors import StoreError
from fillerscope.store.lock import is_being_written, locked


def test_one_who_only_looks_does_not_stop_a_writer(tmp_path: Path) -> None:
    """Whoever looks has the lock for a moment."""
    looking = FileLock(tmp_path / "lock", thread_local=False)
    looking.acquire()
    timer = threading.Timer(0.2, looking.release)
    timer.start()
    with locked(tmp_path):
        assert is_being_written(tmp_path)
    timer.join()
    assert not is_being_written(tmp_path)


def test_another_writer_is_told(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(StoreError, match=f"another process is writing {tmp_path}"), locked(tmp_path):
        pass
