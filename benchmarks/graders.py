"""How often graders agree with tests/answers/grading/pairs.toml: `python benchmarks/graders.py [NAME ...]`.

Runs those of GRADERS that are installed and says which are not. The others need environments of their own:

    pip install 'math-verify[antlr4_13_2]' inspect-ai lm-eval            math-verify, inspect, hendrycks
    pip install 'lm-eval[math]'                                          minerva (another ANTLR)

None of them needs torch. Every pair is judged in a process of its own, which is killed after LIMIT seconds and then
counts as not right: some graders do not end on hostile answers.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import multiprocessing
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAIRS = Path(__file__).parents[1] / "tests/answers/grading/pairs.toml"
LIMIT = 10.0


@dataclass(frozen=True)
class Pair:
    """`text` is what a model wrote, `answer` what stands in its box, or all of the text."""

    group: str
    reference: str
    answer: str
    text: str
    right: bool


Judge = Callable[[Pair], bool]
WARM_UP = Pair("", "x+1", "x+2", r"\boxed{x+2}", right=False)


def pairs() -> Iterator[Pair]:
    for group, content in tomllib.loads(PAIRS.read_text(encoding="utf-8")).items():
        for reference, answer, verdict, _ in content["pairs"]:
            text = answer if content.get("whole") else rf"\boxed{{{answer}}}"
            yield Pair(group, reference, answer, text, verdict == "right")


def fillerscope() -> Judge:
    from fillerscope.answers.grading.grade import Grader

    grader = Grader(limit=1.0)
    return lambda pair: grader.grade(pair.text, pair.reference, "stop").verdict == "right"


def math_verify() -> Judge:
    from math_verify import parse, verify

    return lambda pair: verify(parse(rf"\boxed{{{pair.reference}}}"), parse(pair.text))


def hendrycks() -> Judge:
    from lm_eval.tasks.hendrycks_math.utils import is_equiv

    return lambda pair: is_equiv(pair.answer, pair.reference)


def minerva() -> Judge:
    from lm_eval.tasks.minerva_math.utils import is_equiv, normalize_final_answer

    return lambda pair: is_equiv(normalize_final_answer(pair.answer), normalize_final_answer(pair.reference))


def inspect() -> Judge:
    from inspect_ai.model import ModelOutput
    from inspect_ai.scorer import Target, math
    from inspect_ai.solver import TaskState

    scorer: Any = math()

    def judge(pair: Pair) -> bool:
        output = ModelOutput.from_content("none", pair.text)
        state = TaskState(model="none", sample_id=0, epoch=0, input="", messages=[], output=output)  # type: ignore[arg-type]
        return bool(asyncio.run(scorer(state, Target(pair.reference))).value == "C")

    return judge


# Name, function, and the packages whose versions are told.
GRADERS: dict[str, tuple[Callable[[], Judge], tuple[str, ...]]] = {
    "fillerscope": (fillerscope, ("fillerscope",)),
    "math-verify": (math_verify, ("math-verify",)),
    "hendrycks": (hendrycks, ("lm-eval",)),
    "minerva": (minerva, ("lm-eval", "sympy")),
    "inspect": (inspect, ("inspect-ai",)),
}


def judged(judge: Judge, pair: Pair) -> str:
    """right, not right, or overran."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_tell, args=(judge, pair, sender))
    process.start()
    verdict = receiver.recv() if receiver.poll(LIMIT) else "overran"
    process.kill()
    process.join()
    return str(verdict)


def _tell(judge: Judge, pair: Pair, sender: Any) -> None:
    try:
        sender.send("right" if judge(pair) else "not right")
    except Exception:
        sender.send("not right")


def row(name: str) -> str:
    make, packages = GRADERS[name]
    try:
        judge = make()
        judge(WARM_UP)  # what it loads is shared by all pairs
        versions = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages)
    except (ImportError, AssertionError) as error:
        return f"{name}: not run ({type(error).__name__}: {str(error)[:80]})"
    counts: Counter[str] = Counter()
    for pair in pairs():
        verdict = judged(judge, pair)
        agrees = (verdict == "right") == pair.right
        counts.update(agree=agrees, strict=pair.right and not agrees, lenient=not pair.right and not agrees)
        counts.update(overran=verdict == "overran", all=1)
    share = 100 * counts["agree"] / counts["all"]
    numbers = " | ".join(str(counts[key]) for key in ("agree", "strict", "lenient", "overran"))
    return f"| {name} ({versions}) | {numbers} | {share:.1f}% |"


def main(names: list[str]) -> None:
    print(f"{sum(1 for _ in pairs())} pairs\n")
    print("| grader | agree | too strict | too lenient | overran | agreement |\n|---|---|---|---|---|---|")
    for name in names or GRADERS:
        print(row(name), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
