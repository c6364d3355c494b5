"""How the end of a run names the next commands."""

from __future__ import annotations

import shlex
import shutil
import sys

import pytest

from fillerscope.cli.verdict import _command


@pytest.mark.parametrize(
    ("called", "named"),
    [
        ("/opt/my tools/fillerscope", shlex.quote("/opt/my tools/fillerscope")),
        ("/opt/fillerscope/cli/__main__.py", f"{shlex.quote(sys.executable)} -m fillerscope.cli"),
    ],
)
def test_a_command_that_is_not_on_the_path_is_named_as_it_was_called(
    monkeypatch: pytest.MonkeyPatch, called: str, named: str
) -> None:
    monkeypatch.setattr(sys, "argv", [called, "run"])
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert _command() == named
