"""The commands that README and docs show: each can be parsed, and those of the tutorial run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import typer.main

from fillerscope.cli.app import app
from fillerscope.errors import StoreError

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands(page: Path) -> list[str]:
    """What a page's console blocks show of the command line; of the README its tables too."""
    text = page.read_text(encoding="utf-8")
    lines = [line.removeprefix("$ ") for line in "\n".join(CONSOLE.findall(text)).splitlines()]
    cells = re.findall(r"`(fillerscope [^`]+)`", "\n".join(re.findall(r"^\|.*", text, re.MULTILINE)))
    shown = (*lines, *cells) if page.name == "README.md" else lines
    return [line for line in shown if line.startswith("fillerscope ")]


def parse(words: list[str]) -> None:
    """Let the command line parse these words as it would, without calling anything."""
    command = typer.main.get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    assert not words or not hasattr(command, "commands"), f"no such command: {words[0]}"
    with suppress(StoreError):  # the run that a page names is not here: the words were understood
        command.make_context("fillerscope", words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_that_is_shown_can_be_parsed(page: Path) -> None:
    for line in commands(page):
        words = [word for word in shlex.split(line, comments=True)[1:] if word not in ("[RUN", "...]")]
        parse(words)


@pytest.mark.parametrize("words", [["heads", "RUN", "--no-such-option"], ["no-such-command"], ["heads"]])
def test_a_command_that_cannot_be_parsed_is_noticed(words: list[str]) -> None:
    with pytest.raises(Exception, match=r"(?i)no such|missing|unexpected"):
        parse(words)


@pytest.mark.slow
@pytest.mark.weights
def test_the_commands_of_the_tutorial_run(tmp_path: Path) -> None:
    blocks = CONSOLE.findall((ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8"))
    script = "\n".join(re.sub(r"^\$ ", "", block, flags=re.MULTILINE) for block in blocks if block.startswith("$ "))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euxc", script], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "<html" in (tmp_path / "my-report.html").read_text(encoding="utf-8")[:500]
