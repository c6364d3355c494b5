"""A real model measured in parts: the merged run has the bytes of a single run."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import fillerscope
from fillerscope.analysis.export import export
from fillerscope.errors import StoreError
from support.studies import save_model, settings

STUDY = {
    "name": "parts", "models": ["smollm2-135m"], "problems": {"limit": 4}, "conditions": ["none", "mless"],
    "batch": {"shard": 1}, "probes": {"affine": True, "activations": {}},
    "generation": {"max_tokens": 8, "recheck": 1}, "device": "cpu",
}  # fmt: skip


def sums(run: fillerscope.Run, folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in export(run, folder)}


@pytest.mark.slow
@pytest.mark.weights
def test_three_jobs_give_the_export_of_one(tmp_path: Path) -> None:
    for part in ("3/3", "1/3", "2/3"):
        folder = fillerscope.run_part(STUDY, part, tmp_path / "run")
        assert folder == tmp_path / "run/parts" / part.replace("/", "-of-")
    merged, single = fillerscope.merge(tmp_path / "run"), fillerscope.run(STUDY, tmp_path / "single")
    assert sums(merged, tmp_path / "merged tables") == sums(single, tmp_path / "single tables")
    files = [(path / "manifest.json").read_bytes() for path in (merged.path, single.path)]
    assert files[0] == files[1]


@pytest.mark.parametrize("link", ["parts", "parts/1-of-2"])
def test_a_part_is_not_written_through_a_link_out_of_the_run(tmp_path: Path, link: str) -> None:
    """A run folder may come from anybody."""
    study = settings(save_model(tmp_path / "tiny"), problems={"limit": 2}, batch={"shard": 1})
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    (run / link).parent.mkdir(parents=True)
    elsewhere.mkdir()
    (run / link).symlink_to(elsewhere)
    with pytest.raises(StoreError, match="would be written outside the run: a link leads there; remove it"):
        fillerscope.run_part(study, "1/2", run)
    assert not list(elsewhere.iterdir())
