"""The notebooks of the documentation: stored without outputs, and every cell runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def test_they_are_where_they_are_looked_for() -> None:
    assert NOTEBOOKS == ["first-look.ipynb", "own-model.ipynb"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_valid_and_stored_without_outputs(name: str) -> None:
    nbformat = pytest.importorskip("nbformat")
    book = nbformat.read(FOLDER / name, as_version=4)
    nbformat.validate(book)
    assert not [cell.id for cell in book.cells if cell.cell_type == "code" and (cell.outputs or cell.execution_count)]


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_cell_runs(name: str, tmp_path: Path) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    book = nbformat.read(FOLDER / name, as_version=4)
    client = nbclient.NotebookClient(book, timeout=600, resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env=os.environ | {"MPLBACKEND": "agg"})
    for cell in book.cells:
        failed = [output for output in cell.get("outputs", []) if output.output_type == "error"]
        assert bool(failed) == ("raises-exception" in cell.metadata.get("tags", [])), cell.source
        assert all(len(output.traceback) == 1 for output in failed), "an error is one line"
