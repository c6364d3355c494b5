"""What the tests of the page share: a server of their own, what a page is asked, and the files that it hands out."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from playwright.sync_api import Locator, Page

TABS = ("attention", "answers", "activations", "affine", "findings", "methods")
PATIENCE = 60  # seconds, for a machine that has much else to do
Row = dict[str, str]


@dataclass(frozen=True)
class Served:
    """An explorer that answers."""

    address: str

    def json(self, path: str) -> Any:
        with urlopen(self.address + path, timeout=PATIENCE) as answer:
            return json.load(answer)


@contextmanager
def serving(*runs: Path, **changed: str) -> Iterator[Served]:
    """`fillerscope view` as a process of its own, its files checked already. `changed` goes into the environment."""
    command = [sys.executable, "-m", "fillerscope.cli", "view", *map(str, runs), "--no-browser", "--port", "0"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"} | changed
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    try:
        said = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/", said)
        assert found, said + process.stdout.read()
        served = Served(found.group())
        until(lambda: answers(served))
        for number in range(len(runs)):
            until(lambda number=number: served.json(f"api/{number}/overview")["checked"])
        yield served
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def answers(served: Served) -> bool:
    """Whether it does already. Asks for the runs, which begins the checking of their files."""
    try:
        return bool(served.json("api/runs"))
    except URLError:
        return False


def until(holds: Callable[[], Any]) -> Any:
    """What it gives when it is something at last."""
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < deadline, "this has not come about"
        time.sleep(0.02)
    return found


def look_at(page: Page, address: str) -> Page:
    """Even where only what stands behind the # is another."""
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("body[data-ready]", state="attached")
    return page


def after(page: Page, act: Callable[[], Any]) -> None:
    """Do something that changes the address, and wait until the page has followed."""
    before = page.locator("body").get_attribute("data-ready")
    act()
    page.wait_for_selector(f'body:not([data-ready="{before}"])', state="attached")


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


def colours(canvas: Locator) -> int:
    """How many colours a canvas shows."""
    return canvas.evaluate(
        """canvas => new Set(new Uint32Array(
            canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size"""
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


def assert_drawn(page: Page) -> None:
    """Every canvas that has a size shows something."""
    for canvas in page.locator("canvas:visible").all():
        assert colours(canvas) > 2, canvas.evaluate("canvas => canvas.parentElement.outerHTML.slice(0, 300)")
