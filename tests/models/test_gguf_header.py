"""Forged and damaged GGUF files: each is refused in one line, or is the model that was written."""

from __future__ import annotations

import faulthandler
import random
import resource
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fillerscope.errors import FillerscopeError, ModelError
from fillerscope.models import gguf_header
from fillerscope.models.gguf_header import SCALARS, check_header
from fillerscope.models.loading import load_model
from support.chaos import is_long
from support.watchdog import watched as time_limit

WriteGguf = Callable[..., Path]
CASES = 10_000 if is_long() else 300
PARTS = 20 if is_long() else 1  # tests that share them
SECONDS, KIBIBYTES = 120, 3_000_000  # of one case: it takes a second and little memory
NUMBERS = (0, 1, 2, 7, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**60, 2**63 - 1, 2**63, 2**64 - 1)


class Fields:
    """Where the fields of a header are: (what it is, place, how struct calls it)."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.places = data, 4, list[tuple[str, int, str]]()
        self.take("version", "I")
        tensors, values = self.take("tensor count", "Q"), self.take("value count", "Q")
        for _ in range(values):
            key = self.text("key")
            self.value(self.take("value type", "I"), key)
        for _ in range(tensors):
            self.text("tensor name")
            for _ in range(self.take("dimensions", "I")):
                self.take("dimension", "Q")
            self.take("tensor type", "I")
            self.take("offset", "Q")

    def take(self, what: str, kind: str) -> int:
        self.places.append((what, self.at, kind))
        self.at += struct.calcsize(f"<{kind}")
        return struct.unpack_from(f"<{kind}", self.data, self.places[-1][1])[0]

    def text(self, what: str) -> str:
        size = self.take(f"length of {what}", "Q")
        self.at += size
        return self.data[self.at - size : self.at].decode()

    def value(self, kind: int, key: str) -> None:
        if kind == 8:
            self.text(f"text of {key}")
        elif kind != 9:
            self.take(f"value of {key}", SCALARS[kind])
        else:
            inner, count = self.take(f"type of {key}", "I"), self.take(f"count of {key}", "Q")
            for _ in range(count):
                self.value(inner, key)

    def find(self, what: str) -> tuple[int, str]:
        return next((place, kind) for name, place, kind in self.places if name == what)


def forged(data: bytes, place: int, kind: str, number: int) -> bytes:
    packed = struct.pack("<Q", number % 2**64)[: struct.calcsize(f"<{kind}")]
    return data[:place] + packed + data[place + len(packed) :]


def with_value(data: bytes, key: str, value: bytes) -> bytes:
    """The file with another value of a key, which begins with its type; tensors follow where they are looked for."""
    fields = Fields(data)
    at = next(n for n, (what, _, _) in enumerate(fields.places) if what == f"value of {key}")
    (_, start, _), (_, last, kind) = fields.places[at - 1 : at + 1]
    header = data[:start] + value + data[last + struct.calcsize(f"<{kind}") : fields.at]
    return header + bytes(-len(header) % 32) + data[fields.at + -fields.at % 32 :]


def array(kind: int, form: str, *numbers: float) -> bytes:
    return struct.pack(f"<IIQ{len(numbers)}{form}", 9, kind, len(numbers), *numbers)


# What a reader may take for a number, though it is written otherwise.
NUMBERS_OTHERWISE = {
    "an array of one": array(10, "Q", 10**8),
    "an array of floats": array(12, "d", 1.0, 1e8),
    "arrays in an array": struct.pack("<IIQ", 9, 9, 1) + array(10, "Q", 10**8)[4:],
    "an empty array": array(10, "Q"),
    "a float": struct.pack("<If", 6, 1e8),
    "no number": struct.pack("<If", 6, float("nan")),
    "a text": struct.pack("<IQ9s", 8, 9, b"100000000"),
}
KEYS = ("llama.block_count", "llama.embedding_length", "llama.rope.dimension_count", "llama.attention.head_count")


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("how", NUMBERS_OTHERWISE)
def test_a_number_that_is_written_otherwise_is_checked(
    write_gguf: WriteGguf, tmp_path: Path, how: str, key: str
) -> None:
    path = tmp_path / "forged.gguf"
    path.write_bytes(with_value(write_gguf().read_bytes(), key, NUMBERS_OTHERWISE[how]))
    with pytest.raises(ModelError, match=f"no sound GGUF file: {key} is "):
        check_header(path)


def test_numbers_for_each_layer_are_taken(write_gguf: WriteGguf, tmp_path: Path) -> None:
    path = tmp_path / "listed.gguf"
    path.write_bytes(with_value(write_gguf().read_bytes(), "llama.attention.head_count", array(4, "I", 2, 4)))
    assert check_header(path) == check_header(write_gguf())


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("key", KEYS)
def test_what_transformers_reads_of_a_header_is_checked_as_well(
    write_gguf: WriteGguf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """Whatever way round the first check there is, no model is built that is larger than the file."""
    path = tmp_path / "forged.gguf"
    path.write_bytes(with_value(write_gguf().read_bytes(), key, struct.pack("<II", 4, 4_000_000)))
    monkeypatch.setattr(gguf_header, "_check_sizes", lambda *_: None)
    with time_limit(60), pytest.raises(ModelError, match=r"the config of .* (says|describes)|cannot be read as a"):
        load_model(str(path))


FORGERIES: dict[str, Callable[[bytes, Fields], bytes]] = {
    "version": lambda data, fields: forged(data, *fields.find("version"), 99),
    "byte order": lambda data, fields: forged(data, *fields.find("version"), 3 << 24),
    "tensor count": lambda data, fields: forged(data, *fields.find("tensor count"), 2**64 - 1),
    "value count": lambda data, fields: forged(data, *fields.find("value count"), 2**63),
    "length of a key": lambda data, fields: forged(data, *fields.find("length of key"), 2**63),
    "length of an array": lambda data, fields: forged(data, *fields.find("count of tokenizer.ggml.tokens"), 2**60),
    "type of a value": lambda data, fields: forged(data, *fields.find("value type"), 77),
    "dimensions": lambda data, fields: forged(data, *fields.find("dimensions"), 2**31),
    "a dimension": lambda data, fields: forged(data, *fields.find("dimension"), 2**62),
    "an empty dimension": lambda data, fields: forged(data, *fields.find("dimension"), 0),
    "type of a tensor": lambda data, fields: forged(data, *fields.find("tensor type"), 999),
    "offset": lambda data, fields: forged(data, *fields.find("offset"), 2**63),
    "layers": lambda data, fields: forged(data, *fields.find("value of llama.block_count"), 10_000_000),
    "width": lambda data, fields: forged(data, *fields.find("value of llama.embedding_length"), 2**31),
    "rotary width": lambda data, fields: forged(data, *fields.find("value of llama.rope.dimension_count"), 2**31),
    "heads": lambda data, fields: forged(data, *fields.find("value of llama.attention.head_count"), 2**31),
    "truncated": lambda data, _: data[: len(data) // 2],
    "the magic alone": lambda data, _: data[:4],
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_header_is_refused_before_it_is_believed(write_gguf: WriteGguf, tmp_path: Path, name: str) -> None:
    data = write_gguf().read_bytes()
    path = tmp_path / "forged.gguf"
    path.write_bytes(FORGERIES[name](data, Fields(data)))
    with pytest.raises(ModelError, match="no sound GGUF file") as caught:
        check_header(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["tensor count", "layers", "truncated"])
@pytest.mark.usefixtures("cache")
def test_a_forged_header_is_refused_before_a_file_is_converted(
    write_gguf: WriteGguf, tmp_path: Path, name: str
) -> None:
    data = write_gguf().read_bytes()
    path = tmp_path / "forged.gguf"
    path.write_bytes(FORGERIES[name](data, Fields(data)))
    with time_limit(20), pytest.raises(ModelError, match="no sound GGUF file"):
        load_model(str(path))


def test_an_array_that_ends_the_header_ends_in_the_file(tmp_path: Path) -> None:
    """Nothing comes after it that could be found missing."""
    path = tmp_path / "forged.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"a", 9, 0, 2**20))
    with pytest.raises(ModelError, match="something of 1048576 bytes is said to be at byte"):
        check_header(path)


@pytest.mark.parametrize(
    ("tensors", "values", "body", "told"),
    [
        (0, 1, struct.pack("<Q1sIIQ", 1, b"a", 9, 0, 5_000_000) + bytes(5_000_000), "its arrays have 5000000 elements"),
        (0, 1, struct.pack("<Q1sIIQ", 1, b"a", 9, 9, 9) + struct.pack("<IQ", 0, 600_000).ljust(600_012, b"\0") * 9,
         "its arrays have 4200009 elements"),
        (70_000, 0, bytes(70_000), "it says that it has 70000 tensors and 0 values"),
        (0, 20_000, bytes(20_000), "it says that it has 0 tensors and 20000 values"),
    ],
)  # fmt: skip
def test_more_than_readers_should_make_objects_of_is_refused(
    tmp_path: Path, tensors: int, values: int, body: bytes, told: str
) -> None:
    """A reader takes some hundred bytes of memory for each byte of such a file."""
    path = tmp_path / "large.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, tensors, values) + body)
    with pytest.raises(ModelError, match=told):
        check_header(path)


def test_a_sound_header_is_believed(write_gguf: WriteGguf) -> None:
    check_header(write_gguf())


def test_tensors_at_one_place_are_refused(write_gguf: WriteGguf, tmp_path: Path) -> None:
    data = write_gguf().read_bytes()
    path = tmp_path / "forged.gguf"
    for what, place, kind in Fields(data).places:
        data = forged(data, place, kind, 0) if what == "offset" else data
    path.write_bytes(data)
    with pytest.raises(ModelError, match="lies in another one"):
        check_header(path)


def mutated(data: bytes, fields: Fields, chance: random.Random) -> tuple[str, bytes]:
    """A file with one or two changes: a number of the header, a cut, a flipped byte, bytes put in or taken out."""
    kind = chance.choice(["number"] * 6 + ["cut", "flip", "insert", "remove"])
    at = chance.randrange(fields.at) if chance.random() < 0.8 else chance.randrange(len(data))
    if kind == "number":
        headed = [place for place in fields.places if "tokenizer" not in place[0] or chance.random() < 0.02]
        what, place, form = chance.choice(headed)
        near = int.from_bytes(data[place : place + struct.calcsize(f"<{form}")], "little")
        return what, forged(data, place, form, chance.choice([*NUMBERS, near + 1, near - 1, near * 2, near // 2]))
    if kind == "cut":
        return kind, data[: max(4, at)]
    if kind == "flip":
        return kind, data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
    piece = chance.randbytes(chance.choice([1, 4, 8, 32]))
    return kind, data[:at] + (piece + data[at:] if kind == "insert" else data[at + len(piece) :])


@pytest.fixture
def watched() -> Iterator[Callable[[], None]]:
    """Ends the whole process, with a traceback, where a case hangs."""
    yield lambda: faulthandler.dump_traceback_later(SECONDS, exit=True)
    faulthandler.cancel_dump_traceback_later()


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.slow
def test_no_mutation_hangs_or_ends_in_a_raw_error(
    part: int, write_gguf: WriteGguf, cache: Path, tmp_path: Path, watched: Callable[[], None]
) -> None:
    data = write_gguf().read_bytes()
    fields, raw, refused = Fields(data), list[Any](), 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seed in range(part, CASES, PARTS):
        what, changed = mutated(data, fields, random.Random(seed))
        path = tmp_path / "mutated.gguf"
        path.write_bytes(changed)
        watched()
        try:
            assert load_model(str(path)).layers
        except FillerscopeError as error:
            refused += 1
            if "\n" in str(error):
                raw.append((seed, what, error))
        except BaseException as error:
            raw.append((seed, what, error))
        for folder in (cache / "models").glob("*"):
            shutil.rmtree(folder, ignore_errors=True)
    assert raw == []
    assert CASES // 10 < refused * PARTS < CASES
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < KIBIBYTES
