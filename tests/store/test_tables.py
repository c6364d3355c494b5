"""Tables of run folders that are refused before pyarrow reads them; `test_run_folder.py` has the others."""

from __future__ import annotations

from pathlib import Path
from sys import getsizeof

import pyarrow
import pytest
from pyarrow import parquet

from fillerscope.errors import StoreError
from fillerscope.problems import parquet_footer
from fillerscope.store.tables import read_table


def test_a_footer_that_would_fill_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet.write_table(pyarrow.table({"text": ["x"]}), tmp_path / "a.parquet")
    assert read_table(tmp_path / "a.parquet", 1 << 30)[0] == {"text": ["x"]}
    monkeypatch.setattr(parquet_footer, "LARGEST_FOOTER", 1 << 8)
    with pytest.raises(ValueError, match="its footer has more than"):
        read_table(tmp_path / "a.parquet", 1 << 30)


@pytest.mark.parametrize("column", ["text", "meta"])
def test_one_character_makes_all_of_a_text_take_four_bytes(tmp_path: Path, column: str) -> None:
    text = "\U0001f600" + "x" * (1 << 20)
    table = pyarrow.table({column: pyarrow.array([text] * 10).dictionary_encode()})
    parquet.write_table(table.cast(pyarrow.schema([(column, pyarrow.string())])), tmp_path / "a.parquet")
    columns, size = read_table(tmp_path / "a.parquet", 1 << 31)
    assert size > sum(map(getsizeof, columns[column])) > 40 << 20
    with pytest.raises(StoreError, match="of memory"):
        read_table(tmp_path / "a.parquet", 20 << 20)
