"""Run folders of every format that was ever written and is still read: they open, verify and export."""

from __future__ import annotations

import csv
import json
import tarfile
from pathlib import Path

import pytest

from fillerscope.analysis.export import export
from fillerscope.analysis.findings.all import available_comparison, findings_of
from fillerscope.analysis.integrity import faults
from fillerscope.analysis.run import open_run
from fillerscope.errors import StoreError
from fillerscope.report.html import render
from fillerscope.store.schema import FORMAT, READABLE, STUDY

FORMATS = Path(__file__).parent / "formats"


def test_there_is_a_run_of_every_format_before_this_one() -> None:
    assert {f"format-{number}.tar.xz" for number in READABLE if number != FORMAT} == {
        path.name for path in FORMATS.iterdir()
    }


@pytest.fixture(params=sorted(FORMATS.iterdir()), ids=lambda path: path.name.partition(".")[0])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    (run,) = tmp_path.iterdir()
    return run


def test_a_run_of_an_older_format_is_read(folder: Path, tmp_path: Path) -> None:
    """The study: three problems of a tiny model under none and mless, measured by every probe and answered."""
    run = open_run(folder)
    assert run.store.verify() == faults(run) == []
    assert run.store.manifest["format"] == int(folder.name.rpartition("-")[2])
    findings = findings_of(run[None], available_comparison(run))
    assert {finding.name for finding in findings} >= {"first_layer", "scaling", "near_zero", "accuracy_mless"}
    tables = {path.stem: list(csv.DictReader(path.open())) for path in export(run, tmp_path / "tables", "csv")}
    assert len(tables["answers"]) == 3 * 2
    assert all(0 < float(row["received_original"]) < 1 for row in tables["summaries"])
    assert "First layer" in render(run)


def test_runs_of_older_formats_hold_the_same_numbers(tmp_path: Path) -> None:
    """They were made of one study."""
    exported = []
    for archive in sorted(FORMATS.iterdir()):
        with tarfile.open(archive) as file:
            file.extractall(tmp_path, filter="data")
        name = archive.name.partition(".")[0]
        files = export(open_run(tmp_path / name), tmp_path / f"tables-{name}", "csv")
        exported.append({path.name: path.read_bytes() for path in files if path.stem != "answers"})
    assert all(one == exported[0] for one in exported)


def test_a_study_that_was_not_measured_is_refused(folder: Path, tmp_path: Path) -> None:
    """The manifests of formats 2 and 3 have no checksum of it."""
    study = json.loads((folder / STUDY).read_text())
    (folder / STUDY).write_text(json.dumps(study | {"seed": study["seed"] + 1}))
    with pytest.raises(StoreError, match=r"study\.json is (missing|damaged|not the study that was measured)"):
        export(open_run(folder), tmp_path / "tables")
    assert not (tmp_path / "tables").exists()
