"""Plants the faults of `mutations.toml` one by one and reports which tests catch them.

    python tests/mutate.py                      all faults, fast tests first, slow ones for what these miss
    python tests/mutate.py --only NAME ...      some of them
    python tests/mutate.py --list tests/protections.toml      those of another list: protections that are taken out
    python tests/mutate.py --checkout DIR       with the tests (and the code) of another checkout

Each fault is planted in a copy of the checkout, so nothing here changes. The result is a line a fault and, with
`--out`, a JSON file.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LIMIT = 1800  # seconds for the tests of one fault: a fault that makes them hang is caught as well


@dataclass(frozen=True)
class Mutation:
    name: str
    file: str
    kind: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied_to(self, source: str) -> str:
        count = source.count(self.old)
        if count != 1:
            raise ValueError(f"{self.name}: expected its text once in {self.file}, found it {count} times")
        changed = source.replace(self.old, self.new)
        ast.parse(changed)
        return changed

    def paths(self, checkout: Path) -> list[str]:
        """The tests that concern it, those of the module itself first."""
        own = f"test_{Path(self.file).stem}.py"
        given = [checkout / path for path in self.tests if (checkout / path).exists()]
        files = [file for path in given for file in ([path] if path.is_file() else sorted(path.rglob("test_*.py")))]
        return [str(file.relative_to(checkout)) for file in sorted(files, key=lambda file: file.name != own)]


@dataclass(frozen=True)
class Outcome:
    name: str
    caught: str  # "fast", "slow" or "" for a fault that no test saw
    by: str


def mutations(path: Path) -> list[Mutation]:
    listed = tomllib.loads(path.read_text(encoding="utf-8"))["mutation"]
    return [Mutation(**one | {"tests": tuple(one["tests"])}) for one in listed]


def try_out(mutation: Mutation, checkout: Path, halves: Sequence[tuple[str, str]]) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="fillerscope-mutation-") as folder:
        copy = Path(folder) / "checkout"
        _copy(checkout, copy)
        target = copy / mutation.file
        target.write_text(mutation.applied_to(target.read_text(encoding="utf-8")), encoding="utf-8")
        for half, marks in halves:
            if failed := _first_failure(copy, mutation.paths(copy), marks):
                return Outcome(mutation.name, half, failed)
    return Outcome(mutation.name, "", "")


def _copy(checkout: Path, target: Path) -> None:
    """What git knows of, as it stands; data shared between checkouts stays where it is."""
    command = ["git", "-C", str(checkout), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        source = checkout / name
        if source.is_symlink() or not source.exists():
            continue
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target / name)
    (target / "studies").symlink_to("src/fillerscope/study/ready")
    if (beside := checkout.parent / "shared").exists():
        (target.parent / "shared").symlink_to(beside.resolve())


def _first_failure(copy: Path, paths: Sequence[str], marks: str) -> str:
    """The test that failed first, or nothing."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:randomly"]
    environment = os.environ | {"PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [*command, *(["-m", marks] if marks else []), *paths], cwd=copy, env=environment, capture_output=True,
            text=True, check=False, timeout=LIMIT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"(did not end within {LIMIT} s)"
    if done.returncode in (0, 5):  # 5: no test with these marks
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return failed.group(1) if failed else f"(pytest ended with {done.returncode}) {done.stdout[-300:]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", type=Path, default=HERE / "mutations.toml", metavar="FILE")
    parser.add_argument("--only", nargs="+", default=(), metavar="NAME")
    parser.add_argument("--checkout", type=Path, default=HERE.parent)
    parser.add_argument("--whole", action="store_true", help="do not tell fast tests from slow ones")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, help="a JSON file for the result; faults that it holds are not tried again")
    given = parser.parse_args()
    halves = [("fast", "")] if given.whole else [("fast", "not slow"), ("slow", "slow")]
    known: dict[str, Any] = json.loads(given.out.read_text()) if given.out and given.out.exists() else {}
    wanted = [
        one for one in mutations(given.list) if (not given.only or one.name in given.only) and one.name not in known
    ]
    with ThreadPoolExecutor(given.jobs) as pool:
        for outcome in pool.map(lambda one: try_out(one, given.checkout.resolve(), halves), wanted):
            print(f"{outcome.caught or 'MISSED':7}{outcome.name}  {outcome.by}", flush=True)
            known[outcome.name] = asdict(outcome)
            if given.out:
                given.out.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
