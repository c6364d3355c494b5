"""Progress goes to stderr: a bar on a terminal, a line now and then elsewhere, nothing when quiet."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time

import pytest

from fillerscope import progress
from fillerscope.progress import TerminalProgress

STAGES = """
import time
from fillerscope.progress import TerminalProgress
with TerminalProgress({quiet}) as reporter:
    for done in range(4):
        reporter.stage("measuring Tiny [x]", done, 4)
        time.sleep(0.15)
    reporter.say("one [thing] to say")
    reporter.stage("drawing", 0, None)
    time.sleep(0.15)
print("result")
"""


def test_without_a_terminal_a_stage_is_a_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with TerminalProgress() as reporter:
        for done in range(4):
            reporter.stage("measuring", done, 4)
        reporter.stage("drawing", 0, None)
        reporter.say("a word")
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.splitlines() == ["measuring ...", "drawing ...", "a word"]


def test_a_long_stage_says_how_long_it_will_take(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([100.0, 110.0, 120.0, 126.0, 140.0, 160.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    reporter = TerminalProgress()
    for done in (0, 5, 10, 13, 20, 40):
        reporter.stage("measuring", done, 40)
    assert capsys.readouterr().err.splitlines() == [
        "measuring ...",
        "measuring: 25%, about 60 s left",  # 10 of 40 in 20 s; the word before was at 100 s
        "measuring: 50%, about 40 s left",  # 126 s is too soon after it, and 160 s is the end
    ]


def test_nothing_is_foretold_from_the_first_moments(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answers of a model wait for all prompts to be read."""
    now = iter([0.0, 60.0, 80.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    reporter = TerminalProgress()
    for done in (0, 1, 50):
        reporter.stage("answering", done, 100)
    assert capsys.readouterr().err.splitlines()[1:] == ["answering: 1%", "answering: 50%, about 80 s left"]


def test_quiet_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with TerminalProgress(quiet=True) as reporter:
        reporter.stage("measuring", 1, 4)
        reporter.say("a word")
    found = capsys.readouterr()
    assert (found.out, found.err) == ("", "")


def test_a_bar_on_a_terminal_leaves_stdout_alone() -> None:
    shown, out, code = on_a_terminal(STAGES.format(quiet=False))
    assert code == 0
    assert out == "result\n"
    assert "measuring Tiny [x]" in shown
    assert "75%" in shown
    assert "left" in shown
    assert "one [thing] to say" in shown
    assert "\x1b[?25h" in shown, "the cursor is given back"
    assert not shown.rstrip().endswith("drawing"), "the bar is wiped when it is done"


def test_quiet_on_a_terminal_prints_nothing() -> None:
    shown, out, _ = on_a_terminal(STAGES.format(quiet=True))
    assert (shown, out) == ("", "result\n")


def on_a_terminal(code: str) -> tuple[str, str, int]:
    """Run Python with stderr on a terminal; what the terminal shows, stdout, the exit code."""
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=slave, env=environment, text=True
    ) as process:
        os.close(slave)
        shown = b""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                part = os.read(master, 4096)
            except OSError:  # Linux says so when the other side has gone
                break
            if not part:
                break
            shown += part
        assert process.stdout is not None
        out = process.stdout.read()
    os.close(master)
    return shown.decode(), out, process.returncode
