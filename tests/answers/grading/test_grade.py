"""Verdicts: every answer gets one, in time, and nothing in an answer runs."""

from __future__ import annotations

import array
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import pytest

from fillerscope.answers.grading.grade import JUDGED, Finish, Grade, Grader, Verdict
from fillerscope.answers.grading.normalise import tidy
from fillerscope.answers.grading.sandbox import OUTCOMES
from fillerscope.errors import FillerscopeError, ProblemError
from support.hostile_answers import hostile, programs
from support.watchdog import watched

MATH500 = Path(__file__).parents[4] / "shared/data/math500.jsonl"
needs_math500 = pytest.mark.skipif(not MATH500.exists(), reason="MATH-500 is not on this machine")
ORDINARY = (r"So it is \boxed{\frac{1}{2}}.", "0.5")


# A worker takes seconds to start: tests share these. Some kill the worker, which the next question replaces.


@contextmanager
def ending(grader: Grader) -> Iterator[Grader]:
    """No worker outlives its grader."""
    with grader:
        yield grader
        pid = grader.worker.pid
    if pid:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    """With a secret around, whenever its worker is started."""
    with pytest.MonkeyPatch.context() as patch, ending(Grader()) as grader:
        patch.setenv("HF_TOKEN", "hf_secret")
        yield grader


@pytest.fixture(scope="module")
def limited() -> Iterator[Grader]:
    with ending(Grader(limit=0.3)) as grader:
        grader.grade(*ORDINARY, "stop")
        yield grader


def math500() -> list[dict[str, Any]]:
    return [json.loads(line) for line in MATH500.read_text(encoding="utf-8").splitlines()]


def verdict(grader: Grader, answer: str, reference: str) -> str:
    return grader.grade(rf"\boxed{{{answer}}}", reference, "stop").verdict


SAME = [
    ("0.5", r"\frac12"),
    ("1,000", "1000"),
    ("12,000", r"12\!,\!000"),
    (r"\frac{3}{4}", "3/4"),
    (r"\dfrac{3}{4}", r"\frac{3}{4}"),
    (r"1\frac12", "1.5"),
    ("x+1", "1+x"),
    ("(x-1)(x+1)", "x^2-1"),
    ("x**2", "x^2"),
    ("(1,2)", "(1, 2)"),
    ("2, 1", "1,2"),
    (r"5 \text{ or } 6", "5,6"),
    (r"\sqrt{8}", r"2\sqrt2"),
    ("√2", r"\sqrt{2}"),
    ("2π", r"2\pi"),
    (r"50\%", "50"),
    ("50%", r"50\%"),
    (r"12\text{ apples}", "12"),
    ("12 marbles", "12"),
    (r"10\text{ cm}^2", "10"),
    (r"90^\circ", "90"),
    ("90°", "90"),
    (r"90\degree", "90"),
    ("15 cm^2", r"15\mbox{ cm}^2"),
    ("6 + 9 i", "6+9i"),
    (r"6 + 9\,i", "6+9i"),
    (r"2\,220", "2220"),
    ("2 220", "2220"),
    ("204_{5}", "204_5"),
    ("204", "204_5"),
    ("East", r"\text{east}"),
    (r"\$12", "12"),
    ("$12.00$", "12"),
    ("x = 5", "5"),
    ("5", "x=5"),
    ("3 + 4 = 7", "7"),
    ("Evelyn", r"\text{Evelyn}"),
    ("B", r"\text{(B)}"),
    ("\u22123", "-3"),
    ("5\u200b", "5"),
    ("7", r"$\boxed{7}$"),
    (r"\$5 \text{ per hour}", "5"),
    (r"\$5 per hour", "5 dollars per hour"),
    (r"\$5 \text{ each}", "5"),
    (r"\$5/hour", "5"),
    (r"\$18 \text{ dollars}", "18"),
    (r"\$18 USD", "18"),
    (r"€18 \text{ per day}", "18"),
    (r"\$1.5 \text{ million}", "1500000"),
    (r"1.5 \text{ million}", "1500000"),
    ("amy", "Amy"),
    (r"\text{Amy}", "Amy"),
    ("NO", "no"),
    ("5€", "5"),
    ("5 €", "€5"),
    ("5£", "5"),
    ("5 ₹", "5"),
    (r"5\$", "5 dollars"),
    ("Rs. 5", "5"),
    ("Rs 5", "5₹"),
    ("USD 5", r"\$5"),
    ("EUR 1,000", "1000"),
    (r"\$1,000", "1000"),
    ("1,000 dollars", "1000"),
    ("1,000 €, 2 €", "2, 1000"),
    ("42", "The answer is 42."),
    ("42", r"\boxed{42}"),
    ("Paris", "The correct answer is: Paris."),
    ("B", "Option B"),
    ("42 / / /", "42"),
    ("he he he", "he he he"),
]
DIFFERENT = [
    (r"\$5 \text{ per hour}", "5 dollars per day"),
    (r"\$5 \text{ euros}", "5"),
    (r"\$5 \text{ million}", "5"),
    ("May", "Amy"),
    (r"\text{Amy}", "May"),
    (r"\text{on}", "no"),
    ("on", "no"),
    ("ACB", "ABC"),
    ("BCA", r"\text{ABC}"),
    ("5", "6"),
    ("1 2", "12"),
    ("12 million", "12"),
    ("x+1", "x+2"),
    ("x+1", "y+1"),
    ("(2,1)", "(1,2)"),
    ("0.3", r"\frac13"),
    (r"\sqrt{3}", r"\sqrt{2}"),
    ("[1,2]", "(1,2)"),
    ("east", r"\text{west}"),
    ("204_8", "204_5"),
    ("12 i", "12"),
    ("1,2,3", "1,2"),
    ("5€", r"\$5"),
    ("USD 5", "5£"),
    ("USD 6", "5"),
    ("43", "The answer is 42."),
    ("42 1 1 1", "42"),
    (r"\$1,000", "1"),
    ("1, 200 cm", "1200"),
]


def test_other_spellings_of_the_reference_are_right(grader: Grader) -> None:
    assert [case for case in SAME if verdict(grader, *case) != "right"] == []


def test_something_else_is_wrong(grader: Grader) -> None:
    assert [case for case in DIFFERENT if verdict(grader, *case) != "wrong"] == []


@needs_math500
def test_every_reference_equals_itself(grader: Grader) -> None:
    answers = [row["answer"] for row in math500()]
    assert {verdict(grader, answer, answer) for answer in answers} == {"right"}
    texts = [tidy(answer) for answer in answers[::5]]
    assert {grader.worker.ask(text, text) for text in texts} == {"equal"}  # as mathematics, too


@needs_math500
def test_every_solution_holds_its_answer(grader: Grader) -> None:
    assert {grader.grade(row["solution"], row["answer"], "stop").verdict for row in math500()} == {"right"}


VERDICTS: list[tuple[str, str, Finish, Grade]] = [
    ("The answer is 5.", "5", "stop", Grade("right", "5")),
    ("The answer is 4.", "5", "stop", Grade("wrong", "4")),
    ("I do not know.", "5", "stop", Grade("no answer")),
    ("I do not know ye", "5", "length", Grade("cut off")),
    (r"It is \boxed{5}. Let me ch", "5", "length", Grade("right", "5")),
    (r"It is \boxed{4}. Let me ch", "5", "length", Grade("wrong", "4")),
    ("", "5", "failed", Grade("failed", None, "no text was generated")),
    ("The answer is 5.", " ", "stop", Grade("failed", None, "the problem has no reference answer")),
    ("Nothing.", "", "length", Grade("failed", None, "the problem has no reference answer")),
]


def test_verdicts(grader: Grader) -> None:
    for text, reference, finish, grade in VERDICTS:
        assert grader.grade(text, reference, finish) == grade, text


CHOICES = [
    ("The answer is: Option B) 42", "B", "right"),
    ("The answer is: Option B) 42", "42", "right"),
    ("The answer is: Option B) 42", "(B) 42", "right"),
    ("The answer is: Option B) 42", "A", "wrong"),
    ("The answer is: Option B) 42", "(A) 42", "wrong"),
    ("The answer is: Option B) 42", "43", "wrong"),
    ("The answer is (B) Paris.", "B", "right"),
    ("The answer is (B) Paris.", "Paris", "right"),
    ("The answer is (B) Paris.", "Rome", "wrong"),
    ("The correct answer is option B.", "Option B", "right"),
    ("The correct option is B.", "(B)", "right"),
    ("The correct option is B.", "C", "wrong"),
    ("The answer is (A) 5 or (B) 6 apples", "A", "wrong"),
]


def test_a_choice_is_right_by_its_letter_or_its_value(grader: Grader) -> None:
    assert [case for case in CHOICES if grader.grade(*case[:2], "stop").verdict != case[2]] == []


def test_another_finish_is_refused(grader: Grader) -> None:
    wanted = "expected a finish of stop, length, failed, found 'eos'; say how the text ended"
    with pytest.raises(ProblemError, match=wanted):
        grader.grade("5", "5", "eos")  # type: ignore[arg-type]


def test_a_reference_that_is_no_mathematics_is_compared_as_text(grader: Grader) -> None:
    assert grader.worker.ask("salt & pepper", "5") == "no reference"
    other = grader.grade(r"\boxed{5}", "salt & pepper", "stop")
    assert other == Grade("wrong", "5", "compared as text: the reference cannot be read as mathematics")
    assert verdict(grader, r"\text{salt  & pepper}", "salt & pepper") == "right"


def test_only_a_reference_that_takes_too_long_makes_a_comparison_fail(limited: Grader) -> None:
    grade = limited.grade(r"\boxed{5}", "1E999999999", "stop")
    assert (grade.verdict, grade.note) == ("failed", "the reference cannot be evaluated")
    assert limited.grade(r"\boxed{(10^{10})!}", "1E999999999", "stop").verdict == "failed"
    assert verdict(limited, "1E999999999", "1E999999999") == "right"


def test_every_outcome_has_a_verdict() -> None:
    assert set(JUDGED) == {*OUTCOMES.values(), "time", "hung", "died", "broken", "bad reference"}
    assert {verdict for verdict, _ in JUDGED.values()} <= set(get_args(Verdict))


# Neither forms of a program nor depths of a text repeat after seven.
every = pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"])


@every
def test_hostile_answers_neither_run_nor_stop_the_run(
    limited: Grader, every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = hostile(str(tmp_path / "marker"), every)
    assert len(texts) >= 200 / every
    grades: list[Grade] = []
    limited.grade(*ORDINARY, "stop")
    pid = limited.worker.pid
    for text in texts:
        grades.append(limited.grade(text, "12345.5", "stop"))
        assert not list(tmp_path.iterdir()), text[:80]
    assert limited.grade(*ORDINARY, "stop").verdict == "right"
    assert limited.worker.pid == pid  # none of them ended it
    counts = Counter(grade.verdict for grade in grades)
    assert set(counts) == {"wrong", "no answer"}  # none is taken out of the rate
    assert counts.total() == len(texts)


@every
def test_programs_do_not_run_even_where_no_rule_stops_them(limited: Grader, every: int, tmp_path: Path) -> None:
    outcomes = {limited.worker.ask("12345.5", program) for program in programs(str(tmp_path / "marker"), every)}
    assert not list(tmp_path.iterdir())
    assert outcomes <= {"different", "unreadable", "refused", "time"}


# Attempts in place of answers, in the process that judges answers.
SEALED = """
import os, socket, subprocess, sys, sympy
from fillerscope.answers.grading import sandbox
marker = sys.argv[1]
def load():
    sandbox._restrict_parser()
    return lambda _, attempt: eval(attempt) and sandbox.EQUAL
sandbox._load = load
sandbox.main(5.0, 2**33)
"""
ATTEMPTS = {
    "1": "equal",
    "os.mkdir(marker)": "refused",
    "os.open(marker, os.O_CREAT)": "refused",
    "os.system('mkdir ' + marker)": "refused",
    "os.fork()": "refused",
    "subprocess.run(['mkdir', marker])": "refused",
    "socket.socket()": "refused",
    "sympy.lambdify(sympy.Symbol('x'), sympy.Symbol('x') ** 2, 'math')": "refused",
    "sympy.sympify('1.5')": "equal",
    "sympy.sympify('__import__(\"os\").mkdir(\"' + marker + '\")')": "broken",
    "exit(70)": "broken",
    "open(marker)": "broken",
    "sys.exit(70)": "broken",
    "print('{}')": "broken",
    "os.read(0, 9)": "broken",
}


def test_a_fork_only_computes(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SEALED, str(tmp_path / "marker")]
    asked = "".join(json.dumps({"reference": "", "answer": attempt}) + "\n" for attempt in ATTEMPTS)
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, input=asked)
    ready, *outcomes = map(json.loads, done.stdout.splitlines())
    assert ready == {"ready": True}
    assert dict(zip(ATTEMPTS, (one["outcome"] for one in outcomes), strict=True)) == ATTEMPTS
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("answer", ["1E999999999", r"(10^{10})!"])
def test_an_answer_that_cannot_be_evaluated_is_wrong_and_the_next_is_not(limited: Grader, answer: str) -> None:
    grade = limited.grade(rf"\boxed{{{answer}}}", "5", "stop")
    assert (grade.verdict, grade.note) == ("wrong", "the answer cannot be evaluated in time")
    assert limited.grade(*ORDINARY, "stop") == Grade("right", r"\frac{1}{2}")


def test_memory_is_limited() -> None:
    with Grader(limit=20, memory=1024**3) as grader:
        grade = grader.grade(r"\boxed{\operatorname{zeros}(9999, 9999)}", "5", "stop")
        assert (grade.verdict, grade.note) == ("wrong", "the answer cannot be evaluated in memory")
        assert grader.grade(*ORDINARY, "stop").verdict == "right"


def test_too_long_an_answer_is_wrong_by_rule(grader: Grader) -> None:
    grade = grader.grade(r"\boxed{" + "1+" * 2000 + "1}", "2001", "stop")
    assert (grade.verdict, grade.note) == ("wrong", "not read as mathematics: longer than 2000 characters")


def test_a_long_reference_is_not_read(grader: Grader) -> None:
    """Marks take Python the square of their number to sort."""
    with watched(20):
        grade = grader.grade(*ORDINARY[:1], "a" + "\u0301" * 200_000 + "\u0316" * 200_000, "stop")
    assert (grade.verdict, grade.note) == JUDGED["no reference"]


def test_a_worker_killed_between_answers_is_replaced(grader: Grader) -> None:
    grader.grade(*ORDINARY, "stop")
    before = grader.worker.pid
    assert before
    os.kill(before, signal.SIGKILL)
    assert grader.grade(*ORDINARY, "stop").verdict == "right"
    assert grader.worker.pid != before


@contextmanager
def killed_once(pid: int, when: Callable[[], bool]) -> Iterator[None]:
    """Kills the process as soon as this is so, in whatever the body does meanwhile."""
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            if when():
                os.kill(pid, signal.SIGKILL)
                return
            over.wait(0.005)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def unread(pipe: Any) -> int:
    """Bytes that were written to a pipe and not read from it."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def children(pid: int) -> list[int]:
    stats = (file.read_text().rpartition(")")[2].split() for file in Path("/proc").glob("[0-9]*/stat"))
    return [parent for _, parent, *_ in stats if int(parent) == pid]


def test_a_worker_killed_with_a_question_before_it_is_asked_again(grader: Grader) -> None:
    """It is stopped, so that the question is there and not answered when it is killed."""
    grader.grade(*ORDINARY, "stop")
    before, process = grader.worker.pid, grader.worker._process
    assert before
    assert process
    os.kill(before, signal.SIGSTOP)
    os.waitid(os.P_PID, before, os.WSTOPPED)  # or it might still read the question
    with killed_once(before, lambda: unread(process.stdin) > 0):
        assert grader.grade(*ORDINARY, "stop") == Grade("right", r"\frac{1}{2}")
    assert grader.worker.pid != before


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for the children of another process")
def test_a_worker_killed_while_it_works_is_asked_again() -> None:
    with Grader(limit=3) as grader:
        grader.grade(*ORDINARY, "stop")
        before = grader.worker.pid
        assert before
        with killed_once(before, lambda: bool(children(before))):
            grade = grader.grade(r"\boxed{1E999999999}", "5", "stop")
        assert grader.worker.pid != before
        assert grade.note == "the answer cannot be evaluated in time"
        assert grader.grade(*ORDINARY, "stop").verdict == "right"


def test_a_worker_that_hangs_is_ended(grader: Grader) -> None:
    grader.grade(*ORDINARY, "stop")
    pid = grader.worker.pid
    assert pid
    os.kill(pid, signal.SIGSTOP)
    grader.worker._wall_seconds, usual = 0.5, grader.worker._wall_seconds
    try:
        with watched():
            ended = grader.grade(*ORDINARY, "stop")
        assert ended == Grade("failed", r"\frac{1}{2}", "the comparison hung and was ended")
    finally:
        grader.worker._wall_seconds = usual
    assert grader.grade(*ORDINARY, "stop").verdict == "right"


ANSWERS = (r"\frac12", "(1,2)", "x=5", "{1,2", "[1,2]", "2,1", r"\sqrt8", "x^2-1", "50%")


@pytest.mark.parametrize("answers", [ANSWERS[:5], pytest.param(ANSWERS, marks=pytest.mark.slow)], ids=["some", "all"])
def test_grades_depend_on_neither_order_nor_worker(grader: Grader, limited: Grader, answers: tuple[str, ...]) -> None:
    items: list[tuple[str, str, Finish]] = [(rf"\boxed{{{a}}}", b, "stop") for a in answers for b in answers]
    forwards = [grader.grade(*item) for item in items]
    assert len({grade.verdict for grade in forwards}) > 1
    assert [limited.grade(*item) for item in reversed(items)] == forwards[::-1]


@pytest.mark.slow  # the shared ones are looked at when they end
def test_no_worker_outlives_its_grader() -> None:
    with Grader() as grader:
        grader.grade(*ORDINARY, "stop")
        pid = grader.worker.pid
        assert pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_worker_starts_only_when_it_is_needed() -> None:
    with Grader() as grader:
        assert grader.grade(r"\boxed{5}", "5", "stop").verdict == "right"
        assert grader.worker.pid is None


@pytest.mark.skipif(not Path("/proc").exists(), reason="reads the environment of another process")
def test_the_worker_knows_no_secrets(grader: Grader) -> None:
    assert os.environ["HF_TOKEN"] == "hf_secret"
    grader.grade(*ORDINARY, "stop")
    environment = Path(f"/proc/{grader.worker.pid}/environ").read_text()
    assert "hf_secret" not in environment
    assert {line.split("=")[0] for line in environment.split("\0") if line} <= {
        "PYTHONPATH",
        "PYTHONHASHSEED",
        "PYTHONUTF8",
        "TZ",
    }


def test_a_worker_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [path for path in sys.path if "site-packages" not in path] + ["/nowhere"])
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with Grader() as grader, pytest.raises(FillerscopeError, match="answers cannot be graded: it ended before"):
        grader.grade(*ORDINARY, "stop")
