"""No network beyond this machine, for tests and for the processes that they start: servers that stand in for others are
on it."""

from __future__ import annotations

import socket
import sys
from typing import Any

import psutil

OWN = {one.address for cards in psutil.net_if_addrs().values() for one in cards} | {socket.gethostname()}
HERE = ("localhost", "127.", "::1", "0.0.0.0")


def refuse_network() -> None:
    """Refuse every connection of this process to another machine, and every look-up of one, from now on."""
    sys.addaudithook(_refuse)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg") and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        host = arguments[0]
    else:
        return
    text = host.decode() if isinstance(host, bytes) else str(host or "localhost")
    if not text.startswith(HERE) and text not in OWN:
        raise ConnectionRefusedError(f"a test reaches for {text}")
