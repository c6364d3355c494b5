"""Prints where the time of a test run went, by folder and by file, from pytest's JUnit file.

    make test ARGS=--junitxml=times.xml
    python tests/support/times.py times.xml

Seconds are added up over all workers: on two cores a run takes about half of the total.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree


def main(path: Path, most: int = 40) -> None:
    cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    files: Counter[str] = Counter()
    folders: Counter[str] = Counter()
    for case in cases:
        parts = case.get("classname", "").split(".")
        seconds = float(case.get("time", 0))
        files["/".join(parts)] += seconds
        folders["/".join(parts[:-1])] += seconds
    print(f"{len(cases)} tests, {sum(files.values()):.0f} s")
    for counted in (folders, files):
        print()
        for name, seconds in counted.most_common(most):
            print(f"{seconds:8.1f}  {name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
