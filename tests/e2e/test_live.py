"""A run that is still measured: the explorer says how far it is, and fills without being loaded again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from driving import TABS, Growth, Served, after, look_at, saved_table, serving, until
from playwright.sync_api import Page, expect

from fillerscope.analysis.run import Run, open_run
from fillerscope.store.schema import merged_name
from support.studies import CONDITIONS, save_model, write_study
from support.synthetic import Synthetic

# A run that stops, as by Ctrl-Z, when its second shard has landed.
HELD = """
import os, signal
from fillerscope.cli.app import main
from fillerscope.store.run_folder import RunStore

put, landed = RunStore.put, []

def held(store, name, part):
    put(store, name, part)
    landed.append(name)
    if len(landed) == 2:
        os.kill(os.getpid(), signal.SIGSTOP)

RunStore.put = held
main()
"""
CHECKED = """token => fetch("/api/0/overview", { headers: { Authorization: `Bearer ${token}` } })
    .then(answer => answer.json()).then(told => told.checked)"""
PROCESS = 600  # seconds, for one that loads torch where many others do
pytestmark = pytest.mark.slow


@contextmanager
def growing(page: Page, run: Run, folder: Path, tab: str) -> Iterator[tuple[Growth, Served]]:
    growth = Growth(run, folder)
    with serving(folder) as served:
        look_at(page, f"{served.address}#tab={tab}")
        page.evaluate("() => { window.loadedOnce = true; }")
        yield growth, served
        assert page.evaluate("() => window.loadedOnce")  # nobody has loaded it again


@pytest.mark.weights
def test_the_attention_of_a_real_run_fills_as_shards_land(page: Page, run: Run, tmp_path: Path) -> None:
    with growing(page, run, tmp_path / "run", "attention") as (growth, _):
        bar = page.locator("div.live")
        expect(bar).to_contain_text("run is in progress.")
        expect(bar).to_contain_text("measuring smollm2-135m 0 of 6 problems")
        expect(page.locator("#main")).to_contain_text("No shard has landed yet.")
        growth.land("shards/smollm2-135m/00000")
        expect(bar).to_contain_text("measuring smollm2-135m 3 of 6 problems")
        expect(page.locator(".card.map .readout")).to_contain_text("n = 3")
        assert {row["n"] for row in saved_table(page.locator(".card.profile"))} <= {"2", "3"}
        growth.land("shards/smollm2-135m/00001", "merged")
        expect(bar).to_contain_text("measuring smollm2-135m 6 of 6 problems")
        expect(bar).to_contain_text("answering smollm2-135m 0 of 6 problems")
        expect(page.locator(".card.map .readout")).to_contain_text("n = 6")
        growth.land("answers")
        expect(bar).to_be_empty()
        expect(page.locator('select[name="problem"]')).to_be_enabled()  # now that it is finished
        expect(page.locator(".card.profile .note")).to_be_empty()
        tables = [saved_table(page.locator(card)) for card in (".card.map", ".card.profile")]
    with serving(run.path) as served:
        look_at(page, f"{served.address}#tab=attention")
        assert tables == [saved_table(page.locator(card)) for card in (".card.map", ".card.profile")]


@pytest.mark.weights
def test_every_tab_waits_for_the_first_numbers(opened: Callable[..., Page], run: Run, tmp_path: Path) -> None:
    """From nothing to the end, and it looks as if it had been opened then."""
    growth = Growth(run, tmp_path / "run")
    with serving(growth.folder) as served:
        pages = {tab: look_at(opened(), f"{served.address}#tab={tab}") for tab in TABS}
        for page in pages.values():
            expect(page.locator("div.live")).to_contain_text("measuring smollm2-135m 0 of 6 problems")
        growth.land("shards/smollm2-135m/00000")
        for page in pages.values():
            expect(page.locator("div.live")).to_contain_text("measuring smollm2-135m 3 of 6 problems")
        growth.land("shards", "merged", "answers")
        fresh = opened()
        for tab, page in pages.items():
            expect(page.locator("div.live")).to_be_empty()
            wanted = look_at(fresh, f"{served.address}#tab={tab}").locator("#main").inner_text()
            assert len(wanted) > 200
            until(lambda page=page, wanted=wanted: page.locator("#main").inner_text() == wanted)


def test_a_run_in_a_process_of_its_own(page: Page, tmp_path: Path) -> None:
    """It is held, looked at, and let go."""
    model = save_model(tmp_path / "tiny-llama")
    study = write_study(
        tmp_path / "study.yaml", model, problems={"limit": 12, "difficulty": [1]}, conditions=CONDITIONS[:2],
        batch={"shard": 1, "tokens": 512}, figures=[{"name": "depth"}],
    )  # fmt: skip
    folder = tmp_path / "run"
    command = [sys.executable, "-c", HELD, "run", str(study), "--out", str(folder), "--json"]
    environment = os.environ | {"FILLERSCOPE_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    try:
        ended = os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG
        until(lambda: os.waitid(os.P_PID, process.pid, ended), PROCESS)
        assert process.poll() is None
        with serving(folder) as served:
            look_at(page, f"{served.address}#tab=attention")
            told = page.locator("div.live").inner_text()
            done = int(re.search(r"measuring .* (\d+) of 12 problems", told).group(1))
            assert 1 <= done < 12
            expect(page.locator(".card.map .readout")).to_contain_text(f"n = {done}")
            process.send_signal(signal.SIGCONT)
            expect(page.locator("div.live")).to_be_empty(timeout=1000 * PROCESS)
            expect(page.locator(".card.map .readout")).to_contain_text("n = 12")
            after(page, lambda: page.locator('select[name="metric"]').select_option("mass"))
            rows = saved_table(page.locator(".card.map"))
            page.evaluate("location.hash = 'tab=methods'")  # it asks until the files of the finished run are checked
            expect(page.locator("p.checked")).to_contain_text("as they were written")
        assert process.wait(timeout=PROCESS) == 0
    finally:
        process.send_signal(signal.SIGCONT) if process.poll() is None else None
        process.kill()
        process.wait()
    mass = open_run(folder).summary("filler_mass", "mless").mean(axis=0)
    for row in rows:
        assert float(row["value"]) == pytest.approx(mass[int(row["layer"]) - 1, int(row["head"]) - 1], rel=1e-6)


def test_a_run_that_was_finished_and_sound_is_still_looked_at(page: Page, tmp_path: Path) -> None:
    """A file that changes later, with its size and name as they were, is told without a reload."""
    folder = Synthetic(problems=4, layers=2, heads=2).build(tmp_path / "run").path
    with serving(folder) as served:
        look_at(page, f"{served.address}#tab=attention")
        until(lambda: "All" in page.evaluate(CHECKED, served.token))
        page.wait_for_timeout(2000)  # the page has learnt of it as well
        file = folder / merged_name("tiny-a")
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        expect(page.locator("div.live .damaged")).to_contain_text("damaged")
