"""Commands in processes of their own: files that never end, and terminals that know ASCII alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.answered import build, drawn_at_random
from support.synthetic import Synthetic

# Calls commands, each a list of arguments, in one process: starting one takes seconds.
SCRIPT = """
import json, sys
from fillerscope.cli import app
for number, arguments in enumerate(json.load(sys.stdin)):
    sys.argv = ["fillerscope", *arguments]
    try:
        app.main()
    except SystemExit as end:
        print(f"\\nended {number} {end.code}", file=sys.stderr)
"""


def called(commands: list[list[str]], folder: Path, limit: float = 120, **environment: str) -> tuple[bytes, bytes]:
    """What commands write to both streams. One that hangs fails the test."""
    own = {"FILLERSCOPE_CACHE": str(folder / "cache"), "COLUMNS": "100", **environment}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], input=json.dumps(commands).encode(), capture_output=True, check=True,
        cwd=folder, timeout=limit, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **own},
    )  # fmt: skip
    return done.stdout, done.stderr


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_pipes_and_devices_are_refused_and_not_waited_for(tmp_path: Path) -> None:
    names = ["a.jsonl", "a.json", "a.csv", "a.tsv", "a.parquet", "a.yaml", "a.txt"]
    for name in names:
        os.mkfifo(tmp_path / name)
        (tmp_path / f"zero-{name}").symlink_to("/dev/zero")
    every = [f"{kind}{name}" for name in names for kind in ("", "zero-")]
    commands = [["fields", name] for name in every[:10]]
    commands += [[command, name] for command in ("check", "run") for name in every[10:12]]
    commands += [["profile", name] for name in every[12:]] + [["profile", "/dev/zero"]]
    _, told = called(commands, tmp_path)
    refused = [line for line in told.decode().splitlines() if line.startswith("fillerscope: cannot read")]
    assert len(refused) == len(commands), told.decode()
    assert all("it is a pipe or a device, not a file" in line for line in refused)


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        pytest.param({"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0"}, marks=pytest.mark.slow),
    ],
)
def test_terminals_that_know_ascii_alone(tmp_path: Path, environment: dict[str, str]) -> None:
    build(tmp_path / "answers", drawn_at_random(3))
    Synthetic(problems=4).build(tmp_path / "attention")
    (tmp_path / "a.csv").write_text("question,answer\nWas ist \u221a4?,2\n", encoding="utf-8")
    commands = [
        *(["compare", "answers"], ["flips", "answers"], ["verify", "answers"], ["export", "answers"]),
        *(["heads", "attention"], ["findings", "attention", "--verbose"], ["figures", "attention", "depth"]),
        *(["report", "attention"], ["runs", "--out", "."], ["models"], ["study"], ["study", "--schema"]),
        *(["fields", "a.csv"], ["doctor"], ["--help"]),
    ]
    _, told = called(commands, tmp_path, **environment)
    assert b"UnicodeEncodeError" not in told
    ends = [line for line in told.decode(errors="replace").splitlines() if line.startswith("ended")]
    assert ends == [f"ended {number} 0" for number in range(len(commands))], told.decode(errors="replace")


def test_json_is_whole_where_the_terminal_knows_ascii_alone(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("question,answer\nWas ist \u221a4 \U0001f600?,2\n", encoding="utf-8")
    shown, _ = called([["fields", "a.csv", "--json"]], tmp_path, PYTHONIOENCODING="ascii")
    assert json.loads(shown)["first"][0]["question"] == "Was ist \u221a4 \U0001f600?"
