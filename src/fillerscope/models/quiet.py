"""Silence progress bars and log lines of transformers and accelerate while we report progress ourselves."""

from __future__ import annotations

import logging as python_logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_guard = threading.Lock()
_accelerate = python_logging.getLogger("accelerate")
_inside = 0  # blocks that are open in all threads
_before = (0, True, 0)  # verbosity, bars and the level of accelerate's log, as they were before the first of them


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Inside the block both log errors only and draw no bars; exceptions still come through.

    The last of several threads to leave sets verbosity and bars as they were before the first came."""
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _inside, _before
    from transformers.utils import logging

    with _guard:
        if _inside == 0:
            _before = logging.get_verbosity(), logging.is_progress_bar_enabled(), _accelerate.level
            _accelerate.setLevel(python_logging.ERROR)
            logging.set_verbosity_error()
            logging.disable_progress_bar()
        _inside += 1


def _leave() -> None:
    global _inside
    from transformers.utils import logging

    with _guard:
        _inside -= 1
        if _inside == 0:
            logging.set_verbosity(_before[0])
            _accelerate.setLevel(_before[2])
            if _before[1]:
                logging.enable_progress_bar()
