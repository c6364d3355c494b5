"""Progress goes to stderr: a bar on a terminal, a line now and then elsewhere, nothing when quiet."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from itertools import pairwise

import pytest

from fillerscope import progress
from fillerscope.progress import PlannedStage, Silent, TerminalProgress, TimeLeft, announce, clock_text

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


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


def test_a_log_gets_a_line_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    reporter = TerminalProgress()
    for moment, done in ((100, 0), (110, 5), (120, 10), (126, 13), (140, 20), (180, 40)):
        clock.now = moment
        reporter.stage("measuring", done, 40)
    assert capsys.readouterr().err.splitlines() == [
        "measuring ...",
        "measuring: 25%  0:00:20 elapsed, 0:01:00 left",  # 10 of 40 in 20 s; the line before was at 100 s
        "measuring: 50%  0:00:40 elapsed, 0:00:40 left",  # 126 s is too soon after it, and 180 s is the end
    ]


def test_lines_of_a_log_become_rare(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    reporter = TerminalProgress()
    for second in range(7200):
        clock.now = 100 + second
        reporter.stage("measuring", second, 7200)
    assert 20 < len(capsys.readouterr().err.splitlines()) < 60


def test_nothing_is_foretold_from_the_first_moments(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answers of a model wait for all prompts to be read."""
    clock = Clock(monkeypatch)
    reporter = TerminalProgress()
    for moment, done in ((0, 0), (60, 1), (80, 50)):
        clock.now = moment
        reporter.stage("answering", done, 100)
    lines = capsys.readouterr().err.splitlines()
    assert lines[1].startswith("answering: 1%")
    assert "left" not in lines[1]
    assert lines[2].startswith("answering: 50%")
    assert lines[2].endswith("0:01:20 left")


def test_a_stage_that_comes_back_is_not_announced_again(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = TerminalProgress()
    for text in ("answering", "rechecking", "answering"):
        reporter.stage(text, 0, None)
    assert capsys.readouterr().err.splitlines() == ["answering ...", "rechecking ..."]


def test_only_who_plans_is_told_of_a_plan() -> None:
    plan = {"measuring": PlannedStage("measuring", 4, before=1), "drawing": PlannedStage("drawing", 4)}
    announce(Silent(), plan)
    reporter = TerminalProgress(quiet=True, later={"drawing": PlannedStage("drawing", 4)})
    announce(reporter, {"measuring": plan["measuring"]})
    reporter.stage("measuring", 1, 3)
    assert reporter.summary.startswith(" 25%  0:00:00 elapsed")  # two of eight


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
    assert " elapsed" in shown
    assert "one [thing] to say" in shown
    assert "\x1b[?25h" in shown, "the cursor is given back"
    assert not shown.rstrip().endswith("drawing"), "the bar is wiped when it is done"


HOSTILE = "a \x1b]0;title\x07\x1b[2J\u202e name\nof others\r"
SHOWN = "a \ufffd]0;title\ufffd\ufffd[2J\ufffd name of others"


def test_texts_of_others_move_no_terminal() -> None:
    code = STAGES.format(quiet=False).replace('"measuring Tiny [x]"', repr(HOSTILE))
    shown, _, _ = on_a_terminal(code.replace('"one [thing] to say"', repr(f"say {HOSTILE}")))
    assert f" {SHOWN} " in shown
    assert f"say {SHOWN}" in shown
    assert not any(text in shown for text in ("\x1b]0;", "\x07", "\x1b[2J", "\u202e"))


def test_texts_of_others_are_one_printable_line_of_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    with TerminalProgress() as reporter:
        reporter.stage(HOSTILE, 0, 4)
        reporter.say(f"say {HOSTILE}")
    assert capsys.readouterr().err == f"{SHOWN}  ...\nsay {SHOWN}\n"


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


# The time left: learned from what this process did, by kind of stage, and steady when stages change


class Work:
    """Work that takes known times, and what is said about the time left."""

    def __init__(self, **plan: PlannedStage) -> None:
        self.now = 0.0
        self.time = TimeLeft(lambda: self.now)
        if plan:
            self.time.plan(plan)

    def do(self, stage: str, units: int, seconds: float, start: int = 0) -> list[float | None]:
        """Do so many units, each in so many seconds; what was foretold after each of them."""
        self.time.report(stage, start, None)
        said = []
        for done in range(start + 1, start + units + 1):
            self.now += seconds
            self.time.report(stage, done, None)
            said.append(self.time.left())
        return said


def test_a_stage_without_a_plan_is_timed_by_itself() -> None:
    work = Work()
    for now, done in ((0, 0), (10, 10), (20, 20)):
        work.now = now
        work.time.report("downloading", done, 40)
    assert work.time.share == 0.5
    assert work.time.left() == pytest.approx(20)


def test_what_was_there_before_a_download_is_no_speed() -> None:
    work = Work()
    for now, done in ((0, 80), (10, 85), (20, 90)):
        work.now = now
        work.time.report("downloading", done, 100)
    assert work.time.share == 0.9
    assert work.time.left() == pytest.approx(20)  # ten in twenty seconds, not ninety


def test_what_another_process_did_counts_as_done_and_not_as_speed() -> None:
    work = Work(measuring=PlannedStage("measuring", 100, before=60))
    said = work.do("measuring", 20, 1.0)
    assert work.time.share == 0.8
    assert said[-1] == pytest.approx(20)


def test_stages_of_one_kind_have_one_speed() -> None:
    work = Work(one=PlannedStage("measuring", 20), two=PlannedStage("measuring", 20))
    assert work.do("one", 20, 2.0)[-1] == pytest.approx(40)


def test_a_stage_to_come_is_weighed_by_its_cost() -> None:
    work = Work(measuring=PlannedStage("measuring", 20), answering=PlannedStage("answering", 20, cost=4))
    assert work.do("measuring", 20, 1.0)[-1] == pytest.approx(80)
    assert work.time.share == pytest.approx(0.2)


def test_the_time_left_never_jumps_when_a_stage_is_slower_than_was_thought() -> None:
    work = Work(measuring=PlannedStage("measuring", 40), answering=PlannedStage("answering", 40))
    said = work.do("measuring", 40, 1.0) + work.do("answering", 40, 3.0)
    known = [left for left in said if left is not None]
    rises = [after - before for before, after in pairwise(known)]
    assert max(rises) < 30, "forty seconds were foretold and two minutes are true"
    assert known[-1] == 0


def test_a_recheck_in_the_middle_changes_nothing() -> None:
    work = Work(answering=PlannedStage("answering", 40))
    before = work.do("answering", 20, 1.0)[-1]
    work.time.report("rechecking", 0, None)
    work.now += 100
    assert (work.time.share, work.time.left()) == (0.5, pytest.approx(before, abs=1))
    after = work.do("answering", 10, 1.0, start=20)[-1]
    assert after == pytest.approx(10, abs=1)


def test_nothing_is_known_before_anything_is_done() -> None:
    work = Work(measuring=PlannedStage("measuring", 100))
    assert (work.time.share, work.time.left()) == (0, None)
    assert work.do("measuring", 4, 1.0)[-1] is None, "too early to tell"
    assert Work().time.share is None


def test_long_silence_does_not_count_down_to_nothing() -> None:
    work = Work(answering=PlannedStage("answering", 100))
    work.do("answering", 20, 1.0)
    work.now += 1000
    left = work.time.left()
    assert left is not None
    assert left >= 30


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00:00"), (59.6, "0:01:00"), (3725, "1:02:05"), (-3, "0:00:00"), (90000, "25:00:00")]
)
def test_a_time_is_written_like_a_clock(seconds: float, text: str) -> None:
    assert clock_text(seconds) == text


def test_a_plan_is_the_first_guess_and_gives_way_to_what_is_seen() -> None:
    plan = {
        "measuring": PlannedStage("measuring", 100, seconds=2.0),
        "answering": PlannedStage("answering", 10, seconds=5.0),
    }
    assert Work(**plan).time.left() == pytest.approx(250)
    said = Work(**plan).do("measuring", 100, 1.0)
    assert said[0] == pytest.approx(248, abs=3), "as planned, until a twentieth is done"
    assert said[-1] == pytest.approx(50, abs=1), "the stage to come takes what was planned"
