"""What the kernel refuses to a process that grades, with no audit hook there."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from fillerscope.answers.grading.seccomp import MACHINES

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in MACHINES, reason="no seccomp here, or another machine"
)
ALONE = """
import ctypes, os, socket, sys
from fillerscope.answers.grading.seccomp import deny_effects
libc, marker, kept = ctypes.CDLL(None, use_errno=True), sys.argv[1].encode(), os.getpid()
if sys.argv[3] == "denied":
    assert deny_effects()
attempts = {
    "mkdir": lambda: os.mkdir(marker), "create": lambda: os.open(marker, os.O_CREAT | os.O_WRONLY),
    "append": lambda: os.open(sys.argv[2], os.O_APPEND | os.O_WRONLY), "truncate": lambda: os.truncate(sys.argv[2], 0),
    "unlink": lambda: os.unlink(sys.argv[2]), "rename": lambda: os.rename(sys.argv[2], marker),
    "link": lambda: os.symlink(sys.argv[2], marker), "chmod": lambda: os.chmod(sys.argv[2], 0o777),
    "socket": socket.socket, "pair": socket.socketpair, "local": lambda: socket.socket(socket.AF_UNIX),
    "fork": lambda: os.fork() or os._exit(0), "exec": lambda: os.execv("/bin/true", ["true"]),
    "kill": lambda: os.kill(kept, 0), "libc": lambda: libc.mkdir(marker, 0o777) and 1 / 0,
}
name = sys.argv[4]
try:
    attempts[name]()
    print("done")
except (PermissionError, ZeroDivisionError) as error:
    print("refused")
"""
ATTEMPTS = (
    *("mkdir", "create", "append", "truncate", "unlink", "rename", "link", "chmod", "socket", "pair", "local", "fork"),
    *("kill", "libc"),
)


def attempt(folder: Path, name: str, mode: str) -> str:
    victim = folder / "victim"
    victim.write_text("mine")
    command = [sys.executable, "-c", ALONE, str(folder / "marker"), str(victim), mode, name]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.strip()


@pytest.mark.parametrize("name", ATTEMPTS)
def test_the_kernel_refuses_what_has_an_effect(tmp_path: Path, name: str) -> None:
    assert attempt(tmp_path, name, "denied") == "refused"
    assert [path.name for path in tmp_path.iterdir()] == ["victim"]
    assert (tmp_path / "victim").read_text() == "mine"


def test_without_it_the_same_is_done(tmp_path: Path) -> None:
    assert attempt(tmp_path, "mkdir", "free").startswith("done")
    assert (tmp_path / "marker").is_dir()


def test_a_fork_that_judges_is_under_it() -> None:
    """The hook is not there: what stops the attempt is the kernel."""
    program = (
        "import socket\nfrom fillerscope.answers.grading import sandbox\n"
        "print(sandbox._judge(lambda: bool(socket.socket()) and sandbox.EQUAL, 5.0, 2**33))\n"
        "print(sandbox._judge(lambda: sandbox.EQUAL, 5.0, 2**33))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["broken", "equal"]
