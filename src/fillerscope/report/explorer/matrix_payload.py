"""The weights of one head on one prompt as packed numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fillerscope.prompts.prompt import FILLER
from fillerscope.report.packed_arrays import pack
from fillerscope.report.payload_types import MatrixHeader
from fillerscope.store.schema import ProblemRecord

if TYPE_CHECKING:
    from fillerscope.capture.head_matrix import HeadMatrix


def packed_matrix(record: ProblemRecord, condition: str, matrix: HeadMatrix, note: str) -> bytes:
    """Weights [query, key], and what a learned sink takes of each row where there is one."""
    spans = record["prompts"][condition]["spans"]
    start = spans.index(FILLER) if FILLER in spans else None
    header: MatrixHeader = {
        "id": record["id"], "condition": condition, "layer": matrix.layer, "head": matrix.head,
        "tokens": list(matrix.tokens), "filler": None if start is None else (start, start + spans.count(FILLER)),
        "note": note,
    }  # fmt: skip
    sinks = {} if matrix.sinks is None else {"sinks": matrix.sinks}
    return pack(header, {"weights": matrix.weights, **sinks})
