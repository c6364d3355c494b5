"""No test reaches beyond this machine, whatever it asks for."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

ELSEWHERE = "192.0.2.1"  # of a net that is kept for documents
ASKED: dict[str, Callable[[], Any]] = {
    "connect": lambda: socket.create_connection((ELSEWHERE, 80), timeout=1),
    "name": lambda: socket.getaddrinfo("example.org", 80),
    "old name": lambda: socket.gethostbyname("example.org"),
    "send": lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", (ELSEWHERE, 53)),
    "url": lambda: urlopen(f"http://{ELSEWHERE}", timeout=1),
}


@pytest.mark.parametrize("way", ASKED)
def test_another_machine_is_out_of_reach(way: str) -> None:
    with pytest.raises(OSError, match="a test reaches for"):
        ASKED[way]()


def test_this_machine_is_not() -> None:
    with socket.create_server(("localhost", 0)) as server:
        socket.create_connection(server.getsockname()).close()


@pytest.mark.slow
def test_nor_can_processes_that_are_killed_and_starved(tmp_path: Path) -> None:
    """They are forks of one that refuses it as well."""
    program = f"""
import socket, sys
sys.path[:0] = [{str(Path(__file__).parent / "chaos")!r}]
import forkserver
forkserver.BEFOREHAND = ()
forkserver.serve()
socket.create_connection(({ELSEWHERE!r}, 80), timeout=1)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert done.stderr.splitlines()[-1] == f"ConnectionRefusedError: a test reaches for {ELSEWHERE}"
