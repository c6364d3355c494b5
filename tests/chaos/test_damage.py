"""Bytes of a run folder that are flipped or cut: every one is found by whatever reads the folder."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fillerscope.analysis.export import export
from fillerscope.analysis.findings.all import available_comparison
from fillerscope.analysis.integrity import faults
from fillerscope.analysis.run import Run, open_run
from fillerscope.errors import FillerscopeError
from fillerscope.report.explorer.live_run import Watched
from fillerscope.report.html import write_report
from fillerscope.store.schema import MANIFEST
from support.chaos import cases
from support.synthetic import Synthetic

Finds = Callable[[Path, Path], bool]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with attention, affine numbers, activations and answers."""
    folder = tmp_path_factory.mktemp("sound") / "run"
    right = {"none": 0.5, "mless": 0.6, "random": 0.5}
    Synthetic(problems=4, affine=True, activations=True, right=right).build(folder)
    return folder


def by_verify(folder: Path, _: Path) -> bool:
    run = open_run(folder)
    return bool(run.store.verify() or faults(run))


def by_export(folder: Path, out: Path) -> bool:
    export(open_run(folder), out / "tables", "csv")
    return False


def by_report(folder: Path, out: Path) -> bool:
    write_report(open_run(folder), out / "report.html")
    return False


def by_view(folder: Path, _: Path) -> bool:
    """The page says it in an alert."""
    watched = Watched(folder)
    watched.check()
    while not (shown := watched.overview())["checked"]:
        time.sleep(0.001)
    return bool(shown["damaged"])


FINDERS: dict[str, Finds] = {"verify": by_verify, "export": by_export, "report": by_report, "view": by_view}


def damaged(sound: Path, folder: Path, seed: int) -> str:
    """A copy of a run with one bit flipped, a digit changed, or bytes cut off or added; returns what was done.

    Every third one is in the manifest, of which a changed digit leaves valid JSON."""
    draw = random.Random(seed)
    shutil.copytree(sound, folder)
    others = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in ("lock", MANIFEST)]
    path = draw.choice(others) if seed % 3 else folder / MANIFEST
    data = bytearray(path.read_bytes())
    digits = [place for place, byte in enumerate(data) if chr(byte).isdigit()]
    place = draw.randrange(len(data))
    match draw.choice(["bit", "bit", "digit", "cut", "add"]):
        case "digit" if digits:
            place = draw.choice(digits)
            data[place] = ord(draw.choice([digit for digit in "123456789" if ord(digit) != data[place]]))
        case "cut":
            del data[place:]
        case "add":
            data += draw.randbytes(1 + place % 7)
        case _:
            data[place] ^= 1 << draw.randrange(8)
    if path.suffix == ".json" and is_same_json(path.read_bytes(), data):
        data[0] ^= 3  # 1E-05 says what 1e-05 says, and the 17th digit of a number may say nothing: that is no damage
    path.write_bytes(data)
    return f"{path.relative_to(folder)} at {place}"


def is_same_json(one: bytes, other: bytes) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


def found(finder: Finds, folder: Path, out: Path) -> bool:
    try:
        return finder(folder, out)
    except FillerscopeError:
        return True


@pytest.mark.parametrize("finder", FINDERS)
def test_a_sound_run_is_not_called_damaged(sound: Path, tmp_path: Path, finder: str) -> None:
    run: Run = open_run(sound)
    assert available_comparison(run)
    assert not found(FINDERS[finder], sound, tmp_path)


@pytest.mark.parametrize("seed", cases(fast=6, slow=60, long=1000))
def test_damage_is_found_by_all_that_read_a_run(sound: Path, tmp_path: Path, seed: int) -> None:
    done = damaged(sound, tmp_path / "run", seed)
    missed = [name for name, finder in FINDERS.items() if not found(finder, tmp_path / "run", tmp_path / name)]
    assert not missed, done
