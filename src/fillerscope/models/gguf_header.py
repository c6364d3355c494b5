"""Check the header of a GGUF file against the file, before any library reads it.

A forged count, length or offset makes readers loop without end, or take more memory than there is. Reads no weights.
"""

from __future__ import annotations

import mmap
import re
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from fillerscope.errors import ModelError
from fillerscope.files import open_file

VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
MOST_DIMENSIONS, DEEPEST_ARRAY, LONGEST_NAME = 4, 4, 1 << 16
# Readers make objects of some hundred bytes for each: the arrays of a vocabulary have about a million elements.
MOST_ELEMENTS, MOST_VALUES, MOST_TENSORS = 1 << 22, 1 << 14, 1 << 16
_LAYERS = re.compile(r"\.block_count$")
_BLOCK = re.compile(r"blk\.(\d+)\.")
_SIZES = re.compile(
    r"\.(embedding_length|(expert_)?(shared_)?feed_forward_length|vocab_size|expert_\w*count|dimension_count|"
    r"(key|value)_length\w*|head_count\w*|\w+_(rank|size|dim))$"
)


@dataclass(frozen=True)
class _Tensor:
    name: str
    shape: tuple[int, ...]
    size: int  # in bytes
    offset: int


def check_header(path: Path) -> list[list[int]]:
    """Refuse a file whose header does not fit it. Returns the shapes of its tensors."""
    try:
        with open_file(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return [list(tensor.shape) for tensor in _checked(_Cursor(data))]
    except (ValueError, LookupError, struct.error) as error:
        advice = "it is incomplete or damaged: download or convert it again"
        raise ModelError(f"{path} is no sound GGUF file: {error}; {advice}") from None


class _Cursor:
    """A place in the file that moves on with what is read, and never beyond the end."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0
        self.elements = 0  # of arrays

    def number(self, kind: str) -> int:
        start = self.at
        self.skip(struct.calcsize(f"<{kind}"))
        return int(struct.unpack_from(f"<{kind}", self.data, start)[0])

    def largest(self, kind: str, count: int) -> float | None:
        """Move over numbers, and return the largest of them."""
        start, dtype = self.at, np.dtype(f"<{kind}")
        self.skip(count * dtype.itemsize)
        if not count:
            return None
        largest: float = np.frombuffer(self.data, dtype, count, start).max().item()  # without a copy of the file
        return largest

    def skip(self, size: int) -> None:
        if size > len(self.data) - self.at:
            raise ValueError(f"something of {size} bytes is said to be at byte {self.at} of {len(self.data)}")
        self.at += size

    def name(self) -> str:
        size = self.number("Q")
        if size > LONGEST_NAME:
            raise ValueError(f"a name of {size} bytes")
        self.skip(size)
        return self.data[self.at - size : self.at].decode()

    def value(self, kind: int, depth: int = 0) -> float | None:
        """Move over a value. What it is, where it is a number; of an array, which readers may take for the number in
        it, the largest; None where there is no number."""
        if kind in SCALARS:
            return self.largest(SCALARS[kind], 1)
        if kind == STRING:
            self.skip(self.number("Q"))
            return None
        if kind == ARRAY and depth < DEEPEST_ARRAY:
            return self._largest_of_array(depth)
        raise ValueError(f"a value of the unknown type {kind}, or arrays in arrays without end")

    def _largest_of_array(self, depth: int) -> float | None:
        inner, count = self.number("I"), self.number("Q")
        self.elements += count
        if self.elements > MOST_ELEMENTS:
            raise ValueError(f"its arrays have {self.elements} elements, and {MOST_ELEMENTS} is the most")
        if inner in SCALARS:
            return self.largest(SCALARS[inner], count)
        largest = None
        for _ in range(count):  # each takes eight bytes at least, so that the end of the file ends it
            value = self.value(inner, depth + 1)
            largest = value if largest is None or value is None else max(largest, value)
        return largest


def _checked(cursor: _Cursor) -> list[_Tensor]:
    cursor.skip(4)  # the magic, which is checked before
    version = cursor.number("I")
    if version & 0xFFFF == 0:
        raise ValueError("its numbers are big-endian, which readers take for little-endian ones")
    if version not in VERSIONS:
        raise ValueError(f"it is of version {version}, not {' or '.join(map(str, VERSIONS))}")
    tensor_count, value_count = cursor.number("Q"), cursor.number("Q")
    if tensor_count > MOST_TENSORS or value_count > MOST_VALUES:
        raise ValueError(f"it says that it has {tensor_count} tensors and {value_count} values")
    values = _values(cursor, value_count)
    tensors = [_tensor(cursor) for _ in range(tensor_count)]
    _check_places(cursor, tensors, values.get("general.alignment", 32))
    _check_sizes(values, tensors)
    return tensors


def _values(cursor: _Cursor, count: int) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    for _ in range(count):
        name = cursor.name()
        if name in values:
            raise ValueError(f"{name!r} is given twice")
        values[name] = cursor.value(cursor.number("I"))
    return values


def _tensor(cursor: _Cursor) -> _Tensor:
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    name, dimensions = cursor.name(), cursor.number("I")
    if dimensions > MOST_DIMENSIONS:
        raise ValueError(f"tensor {name!r} has {dimensions} dimensions, and {MOST_DIMENSIONS} is the most")
    shape = tuple(cursor.number("Q") for _ in range(dimensions))
    block, size = GGML_QUANT_SIZES[GGMLQuantizationType(cursor.number("I"))]
    if prod(shape[:1]) % block or not all(shape):
        raise ValueError(f"tensor {name!r} has the shape {shape}, and its blocks have {block} numbers")
    return _Tensor(name, shape, prod(shape) // block * size, cursor.number("Q"))


def _check_places(cursor: _Cursor, tensors: list[_Tensor], alignment: float | None) -> None:
    """All tensors lie in the file, and none in another: many at one place would unpack to more than any disk holds."""
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"general.alignment is {alignment}, not a power of two")
    start, at = -(-cursor.at // alignment) * alignment, 0
    if len({tensor.name for tensor in tensors}) < len(tensors):
        raise ValueError("two tensors have the same name")
    for tensor in sorted(tensors, key=lambda each: each.offset):
        if tensor.offset < at or start + tensor.offset + tensor.size > len(cursor.data):
            raise ValueError(f"tensor {tensor.name!r} lies in another one, or beyond the end of the file")
        at = tensor.offset + tensor.size


def _check_sizes(values: dict[str, float | None], tensors: list[_Tensor]) -> None:
    """Layers and sizes are those of the tensors: a model of more would be built first, and missed afterwards, and of
    more tensors than a model has layers for, transformers would leave the others out."""
    last = max((int(found[1]) for tensor in tensors if (found := _BLOCK.match(tensor.name))), default=-1)
    largest = max((size for tensor in tensors for size in tensor.shape), default=0)
    for key, value in values.items():
        most = len(tensors) if _LAYERS.search(key) else largest if _SIZES.search(key) else None
        if most is None:
            continue
        if value is None:
            raise ValueError(f"{key} is no number")
        if not value <= most:
            raise ValueError(f"{key} is {value}, and its {len(tensors)} tensors have at most {largest} rows or columns")
        if _LAYERS.search(key) and last >= value:
            raise ValueError(f"{key} is {value}, and it has tensors of {last + 1} blocks")
