"""A real run of SmolLM2, the browser of this machine, and pages that are watched: no error, no request to elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from driving import PATIENCE, Served, Watch, viewing
from playwright.sync_api import Browser, Page, expect, sync_playwright

from fillerscope.analysis.run import Run, open_run

expect.set_options(timeout=1000 * PATIENCE)
QUIET = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
# Two examples, so that a small model answers at once and in a box.
SHOTS = (
    "Ben has 3 hats and buys 2 more. How many hats does Ben have now?\nIt is \\boxed{5}.\n\n"
    "Ada had 7 pens and lost 4 of them. How many pens are left?\nIt is \\boxed{3}."
)
STUDY: dict[str, Any] = {
    "name": "seen",
    "models": ["smollm2-135m"],
    "problems": {"limit": 6, "difficulty": [0]},
    "prompt": {"template": "raw", "system": SHOTS, "raw": "{system}\n\n{question}\n"},
    "conditions": [
        "none",
        {"name": "mless", "kind": "repeat", "text": " /", "count": 20, "label": "Meaningless tokens"},
        {"name": "random", "kind": "sentence", "count": 20, "label": "Random sentence"},
    ],
    "probes": {"affine": True, "activations": True},
    "generation": {"max_tokens": 10, "recheck": 1},
    "batch": {"shard": 3},
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before tests are chosen by their markers."""
    for item in items:
        if item.path.parent == Path(__file__).parent and "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For one file at a time: while it is open an event loop runs in this thread, and others could not start theirs."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        missing = "the page is driven in Chromium, and there is none here: apt-get install chromium"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def run(shared: Callable[..., Path]) -> Run:
    """Six problems of SmolLM2, measured and answered. Whoever asks for it is marked `weights`."""
    import fillerscope
    from fillerscope.study.study import Study

    def make(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        fillerscope.run(Study.model_validate(STUDY), folder / "seen")

    return open_run(shared("e2e-run", make) / "seen")


@pytest.fixture(scope="session")
def explorer(run: Run) -> Iterator[Served]:
    with viewing(run.path) as served:
        yield served


@pytest.fixture(scope="session")
def report(run: Run, shared: Callable[..., Path]) -> Path:
    from fillerscope.report.html import write_report

    return shared("e2e-report", lambda folder: write_report(run, folder / "report.html")) / "report.html"


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Pages of any size and theme; after the test, what they did is looked through."""
    watches: list[Watch] = []

    def make(**options: Any) -> Page:
        watches.append(Watch(browser, **options))
        return watches[-1].page

    yield make
    for watch in watches:
        watch.context.close()
        watch.assert_quiet()


@pytest.fixture
def page(opened: Callable[..., Page]) -> Page:
    return opened()
