"""The files of a run that a process makes for another one: kept in memory until they are taken, never written."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

from fillerscope.files import Pieces
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import FORMAT, Columns, ModelFacts, upgraded


class MemoryStore(RunStore):
    """A run folder without a folder. The same code writes to it, so that its files have the same bytes."""

    def __init__(self) -> None:
        super().__init__(Path("in memory"), {"format": FORMAT, "identity": {}, "files": {}})
        self.contents: dict[str, bytes] = {}

    def begin(self, models: Mapping[str, ModelFacts], files: Mapping[str, bytes]) -> None:
        """Start anew, with the facts of models that are noted so far and the files that are read."""
        self.manifest["models"] = dict(models)
        self.contents = dict(files)

    def has(self, name: str) -> bool:
        return name in self.contents

    def is_sound(self, name: str) -> bool:
        return name in self.contents

    def get_table(self, name: str) -> Columns:
        from pyarrow import parquet

        columns: Columns = parquet.read_table(io.BytesIO(self.contents[name])).to_pydict()
        return upgraded(columns)

    def _write(self, name: str, pieces: Pieces) -> None:
        self.contents[name] = b"".join(pieces)

    def _save_manifest(self) -> None:
        """Whoever takes the files takes the facts as well."""
