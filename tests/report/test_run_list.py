"""The list of runs: every folder has a row, whatever it holds, and verdicts are worked out once."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

from fillerscope.errors import StoreError
from fillerscope.report import run_list
from fillerscope.report.headline import headline, tones
from fillerscope.report.run_list import RunEntry, list_runs
from fillerscope.store.schema import MANIFEST, STUDY, merged_name
from support.answered import build, drawn_at_random
from support.synthetic import Effect, Synthetic


@pytest.fixture
def runs(tmp_path: Path, shared: Callable[[str, Callable[[Path], Any]], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs, one of attention and one of answers, with an empty cache."""
    monkeypatch.setenv("FILLERSCOPE_CACHE", str(tmp_path / "cache"))
    shutil.copytree(shared("listed", Synthetic(problems=6).build), tmp_path / "runs" / "attention")
    shutil.copytree(shared("answered", answered), tmp_path / "runs" / "answers")
    return tmp_path / "runs"


def answered(folder: Path) -> None:
    build(folder, drawn_at_random(3))


def by_name(folder: Path, patience: float = 60) -> dict[str, RunEntry]:
    return {entry.name: entry for entry in list_runs(folder, patience)}


def test_a_run_has_a_row_with_what_it_holds(runs: Path) -> None:
    from fillerscope.analysis.run import open_run

    entry, run = by_name(runs)["attention"], open_run(runs / "attention")
    assert (entry.state, entry.problems, entry.note) == ("finished", 6, "")
    assert entry.models == [run.label(model) for model in run.models]
    assert entry.conditions == run.conditions
    assert entry.bytes == sum(file.stat().st_size for file in (runs / "attention").rglob("*") if file.is_file())
    assert entry.verdict == f"attention: {headline(run).tone} ({run.main})"
    assert entry.record()["state"] == "finished"


def test_a_verdict_says_what_it_is_about(runs: Path) -> None:
    """Attention is where its references are; of accuracy nothing can be told over twelve problems."""
    twins = tuple(Effect(drop=np.full((3, 4), drop), filler=0.9) for drop in (0.59, 0.6, 0.61))
    effects = {"mless": Effect(drop=np.full((3, 4), 0.6))}
    right = {"none": 0.5, "mless": 0.5}
    run = Synthetic(effects=effects, right=right, diluted=0.6, twins=twins).build(runs / "both")
    assert tones(run) == {"attention": "no change", "accuracy": "cannot be told"}
    assert by_name(runs)["both"].verdict == "accuracy: cannot be told; attention: no change (mless)"


def test_verdicts_are_worked_out_once(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = by_name(runs)
    monkeypatch.setattr(run_list, "_verdict", lambda _: pytest.fail("worked out again"))
    assert by_name(runs) == before
    assert all(entry.verdict for entry in before.values())


@pytest.mark.parametrize("open_to_others", ["folder", "file"])
def test_a_verdict_that_others_can_write_is_not_believed(runs: Path, open_to_others: str) -> None:
    before = by_name(runs)
    note = run_list._note(runs / "attention")
    note.write_text(json.dumps({"verdict": "forged"}))
    assert by_name(runs)["attention"].verdict == "forged"  # as ours
    (note if open_to_others == "file" else note.parent).chmod(0o777)
    assert by_name(runs) == before


def test_a_run_that_was_written_to_is_looked_at_again(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_name(runs)
    os.utime(runs / "attention" / MANIFEST, (1, 1))
    monkeypatch.setattr(run_list, "_verdict", lambda _: "another")
    entries = by_name(runs)
    assert entries["attention"].verdict == "another"
    assert entries["answers"].verdict != "another"


def test_a_file_that_was_changed_is_looked_at_again(runs: Path) -> None:
    """With its size as it was, and the manifest too."""
    assert by_name(runs)["attention"].verdict
    file = runs / "attention" / merged_name("tiny-a")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert [entry.verdict for entry in list_runs(runs, patience=0) if entry.name == "attention"] == [""]
    entry = by_name(runs)["attention"]
    assert (entry.state, entry.verdict) == ("damaged", "")
    assert "sha256" in entry.note


def test_without_patience_only_what_is_known_is_shown(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_list, "_verdict", lambda _: pytest.fail("worked out"))
    assert [entry.verdict for entry in list_runs(runs, patience=0)] == ["", ""]


def test_the_newest_comes_first(runs: Path) -> None:
    os.utime(runs / "answers" / MANIFEST, (1, 1))
    assert [entry.name for entry in list_runs(runs)] == ["attention", "answers"]


def test_a_run_that_lacks_something_is_interrupted_or_in_progress(runs: Path) -> None:
    model = next(iter((runs / "attention" / "merged").iterdir()))
    assert model.name in merged_name("tiny-a")
    model.unlink()
    assert by_name(runs)["attention"].state == "interrupted"
    with FileLock(runs / "attention" / "lock"):
        entry = by_name(runs)["attention"]
    assert (entry.state, entry.verdict) == ("in progress", "")


def test_what_is_no_run_says_so(runs: Path) -> None:
    (runs / "notes").mkdir()
    (runs / "notes" / "read me.txt").write_text("about")
    (runs / ".hidden").mkdir()
    (runs / "file").write_text("")
    entries = by_name(runs)
    assert set(entries) == {"attention", "answers", "notes"}
    assert (entries["notes"].state, entries["notes"].note, entries["notes"].bytes) == (
        "not a run", "it has no manifest.json", 5,
    )  # fmt: skip


def test_what_is_no_run_is_not_walked(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = runs / "disk" / "below" / "deeper"
    deep.mkdir(parents=True)
    (deep / "large").write_text("text")
    seen: list[str] = []
    walk = os.walk

    def watched(path: Path) -> Iterator[tuple[str, list[str], list[str]]]:
        for part in walk(path):
            seen.append(part[0])
            yield part

    monkeypatch.setattr("os.walk", watched)
    assert by_name(runs)["disk"].bytes == 0
    assert str(runs / "disk") in seen
    assert str(runs / "disk" / "below") not in seen


DAMAGES: dict[str, Callable[[Path], object]] = {
    "manifest": lambda run: (run / MANIFEST).write_text("{"),
    "another program's manifest": lambda run: (run / MANIFEST).write_text("[]"),
    "manifest of a strange shape": lambda run: (run / MANIFEST).write_text('{"format": 3, "identity": 1, "files": 2}'),
    "no study": lambda run: (run / STUDY).unlink(),
    "study": lambda run: (run / STUDY).write_text("{}"),
    "study that is a list": lambda run: (run / STUDY).write_text("[1]"),
    "numbers": lambda run: next((run / "merged").iterdir()).write_bytes(
        bytes(next((run / "merged").iterdir()).stat().st_size)
    ),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_run_says_so_and_the_others_are_listed(runs: Path, what: str) -> None:
    DAMAGES[what](runs / "attention")
    entries = by_name(runs)
    assert (entries["attention"].state, entries["attention"].verdict) == ("damaged", "")
    assert entries["attention"].note
    assert entries["answers"].state == "finished"


@pytest.mark.parametrize("name", ["manifest.json", "study.json"])
def test_a_run_that_cannot_be_read_now_is_not_called_damaged(
    runs: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fillerscope.store import manifest

    real = manifest.read_steadily

    def failing(path: Path) -> str:
        if path == runs / "attention" / name:
            raise OSError(errno.EIO, "Input/output error")
        return real(path)

    monkeypatch.setattr(manifest, "read_steadily", failing)
    entries = by_name(runs)
    assert entries["attention"].state == "unreadable"
    assert "cannot read" in entries["attention"].note
    assert entries["answers"].state == "finished"


def test_an_empty_folder_has_no_runs(tmp_path: Path) -> None:
    assert list_runs(tmp_path) == []


def test_a_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no runs: there is no folder .*nowhere; `fillerscope demo` makes"):
        list_runs(tmp_path / "nowhere")
