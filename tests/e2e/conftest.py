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

from driving import PATIENCE, Served, serving
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect, sync_playwright

from fillerscope.analysis.runs import Run

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
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Six problems of SmolLM2, measured and answered. Whoever asks for it is marked `weights`."""
    import fillerscope
    from fillerscope.study import Study

    return fillerscope.run(Study.model_validate(STUDY), tmp_path_factory.mktemp("real") / "seen")


@pytest.fixture(scope="session")
def explorer(run: Run) -> Iterator[Served]:
    with serving(run.path) as served:
        yield served


@pytest.fixture(scope="session")
def report(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from fillerscope.report.document import write_report

    return write_report(run, tmp_path_factory.mktemp("report") / "report.html")


class Watch:
    """What a context was seen to do."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.faults: list[str] = []
        self.asked: list[str] = []
        context.on("console", self._heard)
        context.on("weberror", lambda error: self.faults.append(f"error: {error.error}"))
        context.on("request", lambda request: self.asked.append(request.url))
        context.on("requestfailed", self._failed)

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"{message.type}: {message.text} ({message.location.get('url')})")

    def _failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # what the page itself gave up, or what became a download
            self.faults.append(f"{request.url}: {request.failure}")

    def assert_quiet(self) -> None:
        inside = ("http://127.0.0.1:", "data:", "blob:", "file:", "about:")
        assert [url for url in self.asked if not url.startswith(inside)] == []
        assert self.faults == []


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Pages of any size and theme; after the test, what they did is looked through."""
    watches: list[Watch] = []

    def make(width: int = 1280, height: int = 900, offline: bool = False, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": height}, accept_downloads=True, **options)
        context.set_default_timeout(1000 * PATIENCE)
        context.set_offline(offline)
        watches.append(Watch(context))
        return context.new_page()

    yield make
    for watch in watches:
        watch.context.close()
        watch.assert_quiet()


@pytest.fixture
def page(opened: Callable[..., Page]) -> Page:
    return opened()
