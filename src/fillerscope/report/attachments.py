"""Files that lie packed in the report: tables as CSV, and figures for print with their numbers."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from fillerscope.analysis.export import tables_of, write_table
from fillerscope.analysis.run import Run
from fillerscope.report.pictures import Picture

LARGE = ("profiles", "summaries")  # every head at every position, every head of every problem
KINDS = {"csv": "text/csv", "pdf": "application/pdf", "svg": "image/svg+xml"}
PRINTED = ("pdf", "svg", "csv")


@dataclass(frozen=True)
class Attachment:
    """A file with its name and bytes."""

    name: str
    content: bytes

    @property
    def stem(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def ending(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def kind(self) -> str:
        """The media type."""
        return KINDS[self.ending]

    @property
    def packed(self) -> str:
        """Compressed, in base64. The same bytes every time: without the time in the header."""
        return base64.b64encode(gzip.compress(self.content, 9, mtime=0)).decode()


def attached_tables(run: Run) -> list[Attachment]:
    """Every table of a run but the large ones."""
    attachments = []
    with TemporaryDirectory(prefix="fillerscope-") as folder:
        for name in tables_of(run):
            path = None if name in LARGE else write_table(run, name, Path(folder), "csv")
            attachments += [Attachment(path.name, path.read_bytes())] if path else []
    return attachments


def attached_prints(pictures: Sequence[Picture]) -> list[Attachment]:
    """The files of every figure."""
    return [attachment for picture in pictures for attachment in prints_of(picture)]


def prints_of(picture: Picture) -> list[Attachment]:
    """The files of a figure. Their names begin with `figure-`: a table may be called the same."""
    return [Attachment(f"figure-{picture.name}.{ending}", picture.files[ending]) for ending in PRINTED]
