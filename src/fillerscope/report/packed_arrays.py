"""The format in which numbers travel to the page: a header of JSON, then arrays of 32-bit floats one after another.

    "FSB1"   header's length (uint32, little-endian)   header, padded with spaces to a multiple of four   floats

The header's `arrays` names each array with its shape, in their order. What is not a number travels as NaN.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

MAGIC = b"FSB1"
T = TypeVar("T")


def pack(header: Mapping[str, object], arrays: Mapping[str, NDArray[np.generic]]) -> bytes:
    """Header and arrays as bytes."""
    shapes = {name: list(array.shape) for name, array in arrays.items()}
    text = json.dumps({**header, "arrays": shapes}, allow_nan=False).encode()
    text += b" " * (-len(text) % 4)
    floats = [np.ascontiguousarray(array, dtype="<f4").tobytes() for array in arrays.values()]
    return b"".join([MAGIC, struct.pack("<I", len(text)), text, *floats])


def unpack(data: bytes) -> tuple[dict[str, object], dict[str, NDArray[np.float32]]]:
    """Header and arrays from bytes, for programs in Python that ask a running explorer."""
    if data[:4] != MAGIC:
        raise ValueError("not packed numbers of fillerscope")
    (length,) = struct.unpack("<I", data[4:8])
    header = json.loads(data[8 : 8 + length])
    values = np.frombuffer(data, dtype="<f4", offset=8 + length)
    arrays, start = {}, 0
    for name, shape in header.pop("arrays").items():
        size = int(np.prod(shape))
        arrays[name] = values[start : start + size].reshape(shape)
        start += size
    return header, arrays


def clean(value: T) -> T:
    """The value as JSON takes it: numpy's numbers as Python's, and null for what is not finite."""
    return cast("T", _clean(value))


def _clean(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    if hasattr(value, "tolist"):
        return _clean(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
