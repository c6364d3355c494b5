"""What a command needs of the process that it starts in: three open streams, and numbers where libraries read them."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime

from fillerscope.errors import ArgumentError

# Libraries read these when they are imported, and fail without their names.
NUMBERS = ("SOURCE_DATE_EPOCH", "HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT")


def open_closed_streams() -> None:
    """Open the null device for each of stdin, stdout and stderr that the caller has closed.

    It takes the stream's own descriptor, which a file of ours would have otherwise, and stays open to the end."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def refuse_odd_numbers() -> None:
    """Raise where a variable of the environment that libraries take for a whole number is none."""
    for name in NUMBERS:
        text = os.environ.get(name, "0")
        try:
            datetime.fromtimestamp(int(text), UTC)  # not every number is a time
        except (ValueError, OverflowError, OSError):
            raise ArgumentError(
                f"{name} in the environment is {text:.40}, no whole number that it can be; correct or unset it"
            ) from None
