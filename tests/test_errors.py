"""What a notebook shows of an error: one line, or all of it where somebody asks for it."""

from __future__ import annotations

import re

import pytest

from fillerscope.errors import FillerscopeError, StudyError


def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], debug: str) -> str:
    from IPython.core.interactiveshell import InteractiveShell

    monkeypatch.setenv("FILLERSCOPE_DEBUG", debug)
    shell = InteractiveShell()
    shell.run_cell("from fillerscope.errors import StudyError\ndef wrong():\n    raise StudyError('no such key')\n")
    shell.run_cell("wrong()")
    return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).strip()


def test_a_notebook_shows_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(monkeypatch, capsys, "") == "StudyError: no such key"


def test_a_notebook_shows_where_on_request(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(monkeypatch, capsys, "1")
    assert "wrong()" in text
    assert "no such key" in text


def test_names_of_others_cannot_move_the_cursor_or_fill_the_screen() -> None:
    text = str(StudyError(f"no condition \x1b[2J{'x' * 5000}\nfillerscope: all is well"))
    assert "\x1b" not in text
    assert "\n" not in text
    assert len(text) < 500


def test_the_errors_are_one_tree() -> None:
    assert issubclass(StudyError, FillerscopeError)


def test_halves_of_characters_are_shown_as_escapes() -> None:
    error = StudyError("no file \ud800.yaml")
    assert str(error) == "no file \\ud800.yaml"
    str(error).encode()
