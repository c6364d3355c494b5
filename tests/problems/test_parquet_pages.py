"""Headers of pages; tests of readers have whole files that are hostile."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from fillerscope.problems.parquet_pages import PageHeaders


def test_columns_at_one_place_are_read_no_more_often_than_a_file_is_long(tmp_path: Path) -> None:
    """Nothing keeps a file from naming one page for ten thousand columns."""
    path = tmp_path / "problems.parquet"
    parquet.write_table(pyarrow.table({"question": ["What is 1 + 1?"] * 50, "answer": ["2"] * 50}), path)
    with parquet.ParquetFile(path) as file, path.open("rb") as source:
        group, headers = file.metadata.row_group(0), PageHeaders(source)
        pages = [page for column in range(2) for page in headers.of(group.column(column))]
        assert sum(page.values for page in pages) == 100
        with pytest.raises(ValueError, match="its columns lie at the same place"):
            [page for _ in range(1000) for page in headers.of(group.column(0))]
