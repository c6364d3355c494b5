"""The process that reads answers as mathematics: `python -m fillerscope.answers.grading.sandbox CPU_SECONDS BYTES`.

It loads sympy once and then forks for every answer, so that each one is judged from the same state, alone: no
answer can slow, change or end another's judgement. The fork says what it found with its exit status and
nothing else; its input and output are closed. It dies of SIGPROF when it has used up its CPU time, which
(unlike a handler) also ends a single long operation, and (unlike wall time) does not depend on what else
the machine is doing.

Answers are data. Reading them leads to `eval` in two places of sympy: `parse_expr`, which reads numbers and here
takes nothing that could call anything, and `lambdify`, which is refused. Whatever would still start a program,
write a file or open a connection ends the fork on the spot, by an audit hook; on Linux the kernel refuses it as well,
also to code that is not Python.

One JSON object a line comes in, one goes out. `expressions.py` compares, and is imported only after the
parser is restricted. Knows nothing of texts and of verdicts.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import json
import math
import os
import re
import signal
import sys
from collections.abc import Callable
from typing import Any

from fillerscope.answers.grading.seccomp import deny_effects

EQUAL, DIFFERENT, UNREADABLE, NO_REFERENCE, REFUSED, MEMORY, BROKEN = range(70, 77)
OUTCOMES = {
    EQUAL: "equal",
    DIFFERENT: "different",
    UNREADABLE: "unreadable",
    NO_REFERENCE: "no reference",
    REFUSED: "refused",
    MEMORY: "memory",
}
# RLIMIT_AS counts addresses, of which a process has more than it uses: the limit that matters is this part.
RESIDENT_SHARE = 4
# Answers of many shapes: what reading them loads and learns is shared by all forks.
WARM_UP = (
    *("7", "-12", "3.5", "1,000", r"\frac{3}{4}", "3/4", r"50\%", r"90^\circ", r"\pi", r"11\sqrt{2}"),
    *(r"\frac{\sqrt{3}}{2}", "x^2 - 1", "(x-1)(x+1)", r"\frac{1}{x}", "2^{10}", "10!", "6 - 5i", r"4210_{5}"),
    *(r"\sin x", r"\log_2 3", "e^{2x}", "(1, 2)", r"\left( 3, \frac{\pi}{2} \right)", r"[1, 3) \cup (4, \infty)"),
    *("1, 2", r"\{1, 2\}", r"3 \pm 2 \sqrt{2}", "x = 5", "y = 2x + 3", r"x \le 2", "1 < x < 3", r"x \in [-2,7]"),
    *(r"\text{east}", "west", "3:4", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
)
# Numbers, and bare names, which modules of sympy use while they load: evaluating these has no effect.
_HARMLESS = re.compile(r"[0-9.eE+\-*/() ]{0,4000}|[A-Za-z][A-Za-z0-9]{0,40}")
# Read by the import system; every other event of these families is refused.
_READING = {"os.listdir", "os.scandir", "os.putenv", "os.unsetenv"}
_FAMILIES = ("os.", "subprocess.", "socket.", "shutil.", "ctypes.", "pty.", "tempfile.", "urllib.", "webbrowser.")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_sealed = False


def main(cpu_seconds: float, memory: int) -> None:
    replies = sys.stdout
    try:
        _limit_process(memory)
        compare = _load()
    except Exception as error:
        print(json.dumps({"broken": f"{type(error).__name__}: {error}"[:300]}), file=replies, flush=True)
        return
    sys.addaudithook(_audit)
    gc.freeze()  # the forks share what is loaded
    print(json.dumps({"ready": True}), file=replies, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        outcome = _judge(lambda: compare(request["reference"], request["answer"]), cpu_seconds, memory)  # noqa: B023
        print(json.dumps({"outcome": outcome}), file=replies, flush=True)


def _load() -> Callable[[str, str], int]:
    """The comparison, with everything imported that ordinary answers need."""
    _restrict_parser()
    from fillerscope.answers.grading import expressions

    def compare(reference: str, answer: str) -> int:
        try:
            return EQUAL if expressions.same(reference, answer) else DIFFERENT
        except expressions.UnreadableReference:
            return NO_REFERENCE
        except expressions.UnreadableAnswer:
            return UNREADABLE

    for first, second in zip(WARM_UP, (*WARM_UP[1:], *WARM_UP[:1]), strict=True):
        with contextlib.suppress(ValueError):  # some are no expressions
            expressions.same_expression(first, second)
    return compare


def _restrict_parser() -> None:
    """Replace sympy's parser by a restricted one, before math-verify imports it."""
    import sympy.parsing
    from sympy.parsing import sympy_parser

    original = sympy_parser.parse_expr

    def parse_harmless(text: str, *arguments: object, **options: object) -> object:
        if not _HARMLESS.fullmatch(text):
            raise ValueError("neither a number nor a name")
        return original(text, *arguments, **options)

    sympy_parser.parse_expr = sympy.parsing.parse_expr = parse_harmless


def _judge(compare: Callable[[], int], cpu_seconds: float, memory: int) -> str:
    if not hasattr(os, "fork"):  # only the parent's limit of wall time holds here
        return OUTCOMES.get(_guarded(compare), "broken")
    child = os.fork()
    if child == 0:
        try:
            _seal(cpu_seconds)
            status = _guarded(compare)
        finally:
            os._exit(status if "status" in locals() else BROKEN)
    _, state, usage = os.wait4(child, 0)
    return _outcome(state, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024), memory)


def _guarded(compare: Callable[[], int]) -> int:
    try:
        return compare()
    except MemoryError:
        return MEMORY
    except BaseException:  # SystemExit too
        return BROKEN


def _outcome(state: int, peak: int, memory: int) -> str:
    if os.WIFSIGNALED(state):
        return "time" if os.WTERMSIG(state) in (signal.SIGPROF, signal.SIGXCPU) else "broken"
    outcome = OUTCOMES.get(os.WEXITSTATUS(state), "broken")
    # math-verify takes a MemoryError for a difference.
    return "memory" if outcome != "equal" and peak > memory // RESIDENT_SHARE else outcome


def _seal(cpu_seconds: float) -> None:
    """Close input and output and limit CPU time: from here on a fork only computes."""
    global _sealed
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    for name in ("open", "input", "breakpoint", "exit", "quit", "help"):
        if hasattr(builtins, name):
            delattr(builtins, name)
    _lower("RLIMIT_CPU", math.ceil(cpu_seconds) + 1)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    deny_effects()  # where the system can; the audit hook is there in any case
    _sealed = True


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if _sealed and _is_forbidden(event, arguments):
        os._exit(REFUSED)


def _is_forbidden(event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "open":
        return bool((arguments[2] or 0) & _WRITING)
    if event == "exec":
        return str(arguments[0].co_filename).startswith("<lambdify")
    return event.startswith(_FAMILIES) and event not in _READING


def _limit_process(memory: int) -> None:
    _lower("RLIMIT_AS", memory)
    _lower("RLIMIT_FSIZE", 0)
    _lower("RLIMIT_NOFILE", 64)
    _lower("RLIMIT_CORE", 0)


def _lower(name: str, value: int) -> None:
    """Lower a resource limit, where the system has it and allows that."""
    with contextlib.suppress(ImportError, AttributeError, ValueError, OSError):
        import resource

        resource.setrlimit(getattr(resource, name), (value, value))


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
