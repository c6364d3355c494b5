"""The built page in the package is the one that web/ gives: whoever changes a source must build it. Needs no Node."""

from __future__ import annotations

import hashlib
import json
import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES, STATIC = ROOT / "web", ROOT / "src" / "fillerscope" / "report" / "static"
HOW = "build it with `make page`"


def record() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads((STATIC / "built.json").read_text(encoding="utf-8"))
    return found


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_page_was_built_from_these_sources() -> None:
    names = [path.relative_to(SOURCES).as_posix() for path in (SOURCES / "src").rglob("*") if path.is_file()]
    names += ["build.mjs", "package.json", "package-lock.json", "tsconfig.json"]
    now = {name: digest(SOURCES / name) for name in names}
    then = record()["sources"]
    stale = sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))
    assert not stale, f"the built page is older than {stale}: {HOW}"


def test_the_page_is_as_it_was_built() -> None:
    built = record()["built"]
    edited = sorted(name for name, expected in built.items() if digest(STATIC / name) != expected)
    assert not edited, f"{edited} were edited by hand: {HOW}"


def test_the_types_of_the_page_are_those_of_the_payloads() -> None:
    now = runpy.run_path(str(SOURCES / "page_types.py"))["typescript"]()
    then = (SOURCES / "src" / "data" / "types.ts").read_text(encoding="utf-8")
    assert then == now, "web/src/data/types.ts is stale: write it with `make page-types`"


def test_the_page_asks_for_nothing_from_outside() -> None:
    """The one address in it is the name of a namespace. A script that holds its own end could not stand in a report."""
    text = "".join((STATIC / name).read_text(encoding="ascii") for name in ("page.js", "style.css"))
    assert set(re.findall(r"https?://[^\"'` )]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "</script" not in text.lower()
    assert "innerHTML" not in text
