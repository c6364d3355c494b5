"""Tables of run folders that are refused before pyarrow reads them; `test_run_folder.py` has the others."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from fillerscope.problems import parquet_footer
from fillerscope.store.tables import read_table


def test_a_footer_that_would_fill_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet.write_table(pyarrow.table({"text": ["x"]}), tmp_path / "a.parquet")
    assert read_table(tmp_path / "a.parquet", 1 << 30)[0] == {"text": ["x"]}
    monkeypatch.setattr(parquet_footer, "LARGEST_FOOTER", 1 << 8)
    with pytest.raises(ValueError, match="its footer has more than"):
        read_table(tmp_path / "a.parquet", 1 << 30)
