"""A command works with closed streams, and says which variable of the environment is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fillerscope.cli import process_setup
from fillerscope.errors import ArgumentError

PROGRAM = """
import os, sys
sys.path.insert(0, "")
from fillerscope.cli.process_setup import open_closed_streams
open_closed_streams()
numbers = [stream.fileno() for stream in (sys.stdin, sys.stdout, sys.stderr)]
assert sys.stdin.read() == "" and not sys.stderr.isatty()
print("lost", file=sys.stderr)
open("numbers", "w").write(repr((numbers, [os.get_inheritable(number) for number in numbers])))
"""


def test_closed_streams_are_the_null_device(tmp_path: Path) -> None:
    command = ["bash", "-c", '"$0" -c "$1" <&- >&- 2>&-', sys.executable, PROGRAM]
    done = subprocess.run(command, cwd=tmp_path, check=False, timeout=60)
    assert done.returncode == 0
    assert (tmp_path / "numbers").read_text() == "([0, 1, 2], [True, True, True])"


def test_a_command_with_closed_stderr_works(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    command = ["bash", "-c", '"$0" -m fillerscope.cli runs 2>&-', sys.executable]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout


def test_open_streams_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    before = (sys.stdin, sys.stdout, sys.stderr)
    process_setup.open_closed_streams()
    assert (sys.stdin, sys.stdout, sys.stderr) == before
    monkeypatch.setattr(sys, "stderr", None)
    process_setup.open_closed_streams()
    assert sys.stderr is not None
    assert sys.stderr.name == os.devnull
    sys.stderr.close()


@pytest.mark.parametrize("name", process_setup.NUMBERS)
def test_variables_that_are_no_numbers_are_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("abc", "9" * 20):
        monkeypatch.setenv(name, text)
        with pytest.raises(ArgumentError, match=f"^{name} in the environment is {text}, no whole number that it can"):
            process_setup.refuse_odd_numbers()
    monkeypatch.setenv(name, "-1")
    process_setup.refuse_odd_numbers()
