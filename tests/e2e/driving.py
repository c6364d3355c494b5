"""What the tests of the page share: a server of their own, what a page is asked, and the files that it hands out."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any
from unittest.mock import patch
from urllib.error import URLError
from urllib.request import Request, urlopen

import uvicorn
from playwright.sync_api import Browser, Locator, Page
from playwright.sync_api import Request as Asked

from fillerscope.analysis.run import Run
from fillerscope.report.explorer.start import serve
from fillerscope.store.manifest import sealed
from fillerscope.store.schema import MANIFEST

TABS = ("findings", "attention", "text", "answers", "activations", "affine", "methods")
NAMES = ("Verdict", "Attention", "One text", "Answers", "Activations", "Affine", "Methods")  # of the tabs
MLESS, RANDOM = '20 \u00d7 " /" (mless)', "20-token sentence (random)"  # of the study in conftest.py
PATIENCE = 60  # seconds, for a machine that has much else to do
Row = dict[str, str]


@dataclass(frozen=True)
class Served:
    """An explorer that answers, by the address that it told."""

    address: str

    @property
    def base(self) -> str:
        return self.address.partition("?")[0]

    @property
    def token(self) -> str:
        return self.address.partition("?token=")[2]

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def json(self, path: str) -> Any:
        with urlopen(Request(self.base + path, headers=self.headers), timeout=PATIENCE) as answer:
            return json.load(answer)


@contextmanager
def serving(*runs: Path) -> Iterator[Served]:
    """What `fillerscope view` does, in a thread of this process; the files of the runs are checked already."""
    said: Queue[str] = Queue()
    started: list[uvicorn.Server] = []

    class Server(uvicorn.Server):
        def __init__(self, config: uvicorn.Config) -> None:
            super().__init__(config)
            started.append(self)

    thread = Thread(target=serve, args=(runs, 0, False, said.put), daemon=True)
    try:
        with patch.object(uvicorn, "Server", Server):
            thread.start()
            served = _served(said.get(timeout=PATIENCE), len(runs))
        yield served
    finally:
        for server in started:
            server.should_exit = True
        thread.join(PATIENCE)


@contextmanager
def viewing(*runs: Path, **changed: str) -> Iterator[Served]:
    """The command as a process of its own. `changed` goes into the environment."""
    command = [sys.executable, "-m", "fillerscope.cli.app", "view", *map(str, runs), "--no-browser", "--port", "0"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"} | changed
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    try:
        yield _served(process.stdout.readline() or process.stdout.read(), len(runs))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _served(said: str, runs: int) -> Served:
    found = re.search(r"http://127\.0\.0\.1:\d+/\?token=[\w-]+", said)
    assert found, said
    served = Served(found.group())
    until(lambda: answers(served))
    for number in range(runs):
        until(lambda number=number: served.json(f"api/{number}/overview")["checked"])
    return served


def answers(served: Served) -> bool:
    """Whether it does already. Asks for the runs, which begins the checking of their files."""
    try:
        return bool(served.json("api/runs"))
    except URLError:
        return False


def until(holds: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """What it gives when it is something at last."""
    deadline = time.monotonic() + patience
    while not (found := holds()):
        assert time.monotonic() < deadline, "this has not come about"
        time.sleep(0.02)
    return found


def _is_look_after_the_end(url: str, failure: str) -> bool:
    """Whether a page asked how its run is when its server had ended: it looks for as long as it is open."""
    return url.endswith("/overview") and "net::ERR_CONNECTION_REFUSED" in failure


class Watch:
    """A page of any size and theme, and what it was seen to do."""

    def __init__(
        self, browser: Browser, width: int = 1280, height: int = 900, offline: bool = False, **options: Any
    ) -> None:
        context = browser.new_context(viewport={"width": width, "height": height}, accept_downloads=True, **options)
        context.set_default_timeout(1000 * PATIENCE)
        context.set_offline(offline)
        self.context = context
        self.faults: list[str] = []
        self.asked: list[str] = []
        context.on("console", self._heard)
        context.on("weberror", lambda error: self.faults.append(f"error: {error.error}"))
        context.on("request", lambda request: self.asked.append(request.url))
        context.on("requestfailed", self._failed)
        self.page = context.new_page()

    def _heard(self, message: Any) -> None:
        url = message.location.get("url", "")
        if message.type in ("error", "warning") and not _is_look_after_the_end(url, message.text):
            self.faults.append(f"{message.type}: {message.text} ({url})")

    def _failed(self, request: Asked) -> None:
        is_given_up = request.failure == "net::ERR_ABORTED"  # by the page itself, or it became a download
        if not is_given_up and not _is_look_after_the_end(request.url, request.failure or ""):
            self.faults.append(f"{request.url}: {request.failure}")

    def assert_quiet(self) -> None:
        inside = ("http://127.0.0.1:", "data:", "blob:", "file:", "about:")
        assert [url for url in self.asked if not url.startswith(inside)] == []
        assert self.faults == []


def look_at(page: Page, address: str) -> Page:
    """Even where only what stands behind the # is another."""
    if page.url != "about:blank":
        page.goto("about:blank")
    page.goto(address)
    return ready(page)


def ready(page: Page) -> Page:
    page.wait_for_selector("body[data-ready]", state="attached")
    return settled(page)


def settled(page: Page) -> Page:
    """Charts take their size when the next frame is laid out."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done())))")
    return page


def after(page: Page, act: Callable[[], Any]) -> None:
    """Do something that changes the address, and wait until the page has followed."""
    before = page.locator("body").get_attribute("data-ready")
    act()
    page.wait_for_selector(f'body:not([data-ready="{before}"])', state="attached")
    settled(page)


def choose(page: Page, name: str, value: str) -> None:
    after(page, lambda: page.locator(f'select[name="{name}"]').first.select_option(value))


def saved(button: Locator) -> tuple[str, bytes]:
    """Name and content of what a button saves."""
    with button.page.expect_download() as waited:
        button.click()
    return waited.value.suggested_filename, Path(waited.value.path()).read_bytes()


def table_of(content: bytes) -> list[Row]:
    return list(csv.DictReader(io.StringIO(content.decode("utf-8"), newline="")))


def saved_table(ground: Locator) -> list[Row]:
    """The CSV file of the card."""
    return table_of(saved(ground.locator('button[data-kind="csv"]').first)[1])


# Clicks, and takes what the page would give to the browser to be saved: a page may save only so many files at once.
HANDED = """async (button, patience) => {
    const make = URL.createObjectURL, click = HTMLAnchorElement.prototype.click;
    let file = null;
    try {
        const name = await new Promise((done, fail) => {
            URL.createObjectURL = one => { file = one; return make.call(URL, one); };
            HTMLAnchorElement.prototype.click = function () { done(this.download); };
            setTimeout(() => fail(new Error("no file was handed out")), 1000 * patience);
            button.click();
        });
        return [name, await file.text()];
    } finally {
        URL.createObjectURL = make;
        HTMLAnchorElement.prototype.click = click;
    }
}"""


def handed(button: Locator) -> tuple[str, bytes]:
    """As `saved`, for a text, without a file: quicker, and as often as one likes."""
    name, text = button.evaluate(HANDED, PATIENCE)
    return name, text.encode()


def handed_table(ground: Locator) -> list[Row]:
    """The CSV file of the card."""
    return table_of(handed(ground.locator('button[data-kind="csv"]').first)[1])


def tip_of(ground: Locator) -> Locator:
    return ground.locator(".tip.on")


def agrees(words: str, *values: float) -> bool:
    """Whether numbers as people read them, `0.930 [0.926, 0.935]`, are these, to the digits that are shown."""
    found = re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", words.replace("\u2212", "-"))
    return len(found) == len(values) and all(map(_is_rounded, found, values))


def _is_rounded(shown: str, value: float) -> bool:
    digits, _, power = shown.partition("e")
    places = len(digits.partition(".")[2]) - int(power or 0)
    return abs(float(shown) - value) <= 0.5000001 * 10**-places


def colours(ground: Locator) -> int:
    """How many colours the cells of a map have."""
    return ground.evaluate(
        "one => new Set([...one.querySelectorAll('rect')].map(cell => cell.getAttribute('fill'))).size"
    )


# What sticks out of its box where nobody can scroll to it, with its text. Tips that are not shown have no size.
CUT_OFF = """() => [...document.querySelectorAll(
        "button, h1, h2, h3, label, summary, select, p, li, td, th, dd, dt, bdi"
    )].filter(one => {
        const box = one.getBoundingClientRect();
        if (!box.width || one.closest(".scroll, .tabs")) return false;
        const hidden = getComputedStyle(one).overflowX === "hidden" && one.scrollWidth > one.clientWidth + 1;
        return hidden || box.right > document.documentElement.clientWidth + 1 || box.left < -1;
    }).map(one => `${one.tagName} ${one.className}: ${one.textContent.slice(0, 60)}`)"""


def unfold(page: Page) -> None:
    page.evaluate("() => document.querySelectorAll('details').forEach(one => { one.open = true; })")


def assert_fits(page: Page) -> None:
    """Nothing is wider than the window, and no text is cut off."""
    wide, window = page.evaluate("() => [document.documentElement.scrollWidth, window.innerWidth]")
    assert wide <= window, f"{wide} pixels in a window of {window}"
    assert page.evaluate(CUT_OFF) == []


# Texts of charts that reach beyond the picture.
BEYOND = """() => [...document.querySelectorAll("svg.chart text")].filter(text => {
    if (!text.checkVisibility()) return false;
    const [own, all] = [text.getBoundingClientRect(), text.ownerSVGElement.getBoundingClientRect()];
    return own.top < all.top - 1 || own.bottom > all.bottom + 1 || own.left < all.left - 1;
}).map(text => text.textContent)"""


def assert_words_fit(page: Page) -> None:
    """No text of a chart reaches beyond its picture."""
    assert page.evaluate(BEYOND) == []


# Places of charts that are seen and hold no cell, no bar and no line that goes anywhere.
EMPTY = """() => [...document.querySelectorAll(
        ".line-ground, .map-ground, .bars-ground, .multiples .small"
    )].filter(place => place.checkVisibility()
    && ![...place.querySelectorAll("svg.chart rect, svg.chart circle, svg.chart path")].some(mark => {
        const box = mark.getBBox();
        return box.width > 0 && box.height > 0;
    })
).map(place => place.outerHTML.slice(0, 300))"""


def assert_drawn(page: Page) -> None:
    """Every chart that has a place shows something. Some are drawn a few at a time, after all else is ready."""
    deadline = time.monotonic() + PATIENCE
    while empty := page.evaluate(EMPTY):
        assert time.monotonic() < deadline, empty
        page.wait_for_timeout(20)


class Growth:
    """A finished run that comes into being once more, file by file in the order in which it was measured."""

    def __init__(self, run: Run, folder: Path) -> None:
        self.whole, self.folder = run.path, folder
        self.manifest = json.loads((run.path / MANIFEST).read_text())
        folder.mkdir()
        self.there: list[str] = []
        self.land("study.json", "problems.parquet")

    def land(self, *beginnings: str) -> None:
        names = sorted(name for name in self.manifest["files"] if name.startswith(beginnings))
        assert names
        for name in names:
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.whole / name, self.folder / f"{name}.tmp")
            os.replace(self.folder / f"{name}.tmp", self.folder / name)
            self.there.append(name)
        files = {name: self.manifest["files"][name] for name in self.there}
        temporary = self.folder / f"{MANIFEST}.tmp"
        temporary.write_text(json.dumps(sealed(self.manifest | {"files": files})))
        os.replace(temporary, self.folder / MANIFEST)
