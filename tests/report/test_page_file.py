"""Pages as files."""

from __future__ import annotations

from pathlib import Path

import pytest

from fillerscope.errors import FigureError
from fillerscope.report.page_file import page_target, write_page
from support.swapping import swap_drafts


def test_a_draft_that_is_replaced_by_a_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, victim = tmp_path / "a.html", tmp_path / "victim"
    target = page_target(page)
    swap_drafts(monkeypatch, victim)
    with pytest.raises(FigureError, match="removed or replaced while it was written; choose another file"):
        write_page("<html>", page, target)
    assert victim.read_text() == "mine"
    assert not page.exists()
