"""Figures that are there already: known by their stamp, and drawn again when the run, the request or a file changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from matplotlib.figure import Figure

from fillerscope.analysis.run import Run, open_run
from fillerscope.errors import FigureError
from fillerscope.figures import saved, style
from fillerscope.figures.registry import asked, draw_and_save, draw_stamped, drawn_before
from fillerscope.figures.saved import DRAWN, refuse_others, save_stamped, stamp_of
from fillerscope.figures.style import KINDS, Drawn
from fillerscope.files import file_sha256
from fillerscope.store.lock import RESULTS_LOCK
from support.synthetic import Synthetic


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Synthetic(problems=4).build(tmp_path / "run")


def test_a_figure_is_known_by_its_stamp(run: Run) -> None:
    assert drawn_before(run, "depth") is None
    drawn = draw_stamped(run, "depth")
    assert drawn.drawn is not None
    before = drawn_before(open_run(run.path), "depth")
    assert before is not None
    assert (sorted(before.paths), before.drawn) == (sorted(drawn.paths), None)
    assert drawn_before(run, "heads") is None


def test_a_figure_of_another_request_is_not_the_study_s(run: Run) -> None:
    draw_and_save(run, "heads")
    assert drawn_before(run, "heads") is not None
    draw_and_save(run, "heads", asked(run, "heads").but(heads=(2,)))
    assert drawn_before(run, "heads") is None


@pytest.mark.parametrize("change", ["removed", "edited"])
def test_a_file_that_was_changed_is_drawn_again(run: Run, change: str) -> None:
    path = next(path for path in draw_and_save(run, "depth") if path.suffix == ".csv")
    path.unlink() if change == "removed" else path.write_text("other numbers")
    assert drawn_before(run, "depth") is None


@pytest.mark.parametrize("text", ["", "[]", '{"depth": 3}', '{"depth": {"stamp": "x"}}', "\x00"])
def test_a_damaged_list_of_figures_is_no_error(run: Run, text: str) -> None:
    draw_and_save(run, "depth")
    (run.path / "figures" / DRAWN).write_text(text)
    assert drawn_before(run, "depth") is None
    draw_and_save(run, "depth")
    assert list(json.loads((run.path / "figures" / DRAWN).read_text())) == ["depth"]
    assert drawn_before(run, "depth") is not None


def test_the_stamp_changes_with_the_run(run: Run) -> None:
    before = stamp_of(run)
    run.store.note("environment", {"torch": "another"})
    assert stamp_of(run) != before
    assert stamp_of(run, "heads") != stamp_of(run, "depth")


def test_a_list_of_figures_names_no_files_elsewhere(run: Run, tmp_path: Path) -> None:
    draw_and_save(run, "depth")
    path, secret = run.path / "figures" / DRAWN, tmp_path / "secret.png"
    secret.write_bytes(b"mine")
    entries = json.loads(path.read_text())
    entries["depth"]["files"] = {str(secret): file_sha256(secret)}
    path.write_text(json.dumps(entries))
    assert drawn_before(run, "depth") is None


def test_a_figure_that_somebody_sent_is_drawn_again(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved, "user_config_path", lambda _: tmp_path / "theirs")
    draw_and_save(run, "depth")
    assert drawn_before(run, "depth") is not None
    monkeypatch.setattr(saved, "user_config_path", lambda _: tmp_path / "ours")
    assert drawn_before(run, "depth") is None
    draw_and_save(run, "depth")
    assert drawn_before(run, "depth") is not None


def test_sums_of_other_files_do_not_go_with_a_seal(run: Run) -> None:
    path = next(path for path in draw_and_save(run, "depth") if path.suffix == ".csv")
    path.write_text("other numbers")
    listing = run.path / "figures" / DRAWN
    entries = json.loads(listing.read_text())
    entries["depth"]["files"][path.name] = file_sha256(path)
    listing.write_text(json.dumps(entries))
    assert drawn_before(run, "depth") is None


def test_the_secret_is_the_user_s_alone_and_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "new" / saved.SECRET
    made = saved._secret(path)
    assert path.read_bytes() == made
    assert path.stat().st_mode & 0o777 == 0o600
    saved._secret.cache_clear()
    assert saved._secret(path) == made
    path.write_bytes(b"")
    saved._secret.cache_clear()
    assert len(saved._secret(path)) == saved.SECRET_BYTES  # for this process alone


@pytest.mark.parametrize("name", ["depth.txt", "depth.pdf", DRAWN])
def test_files_of_others_are_replaced_only_by_force(run: Run, tmp_path: Path, name: str) -> None:
    own = tmp_path / "out" / name
    own.parent.mkdir()
    own.write_text("mine")
    with pytest.raises(FigureError, match=f"{name} is there already, and nothing shows that .*--force"):
        draw_and_save(run, "depth", folder=own.parent)
    assert [path.name for path in own.parent.iterdir()] == [name]
    assert own.read_text() == "mine"
    draw_and_save(run, "depth", folder=own.parent, force=True)
    draw_and_save(run, "depth", folder=own.parent)  # they are ours now
    assert own.read_bytes() != b"mine"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of figures hold their captions."""

    def write(drawn: Drawn, files: Mapping[str, BinaryIO]) -> None:
        for file in files.values():
            file.write(drawn.caption.encode())

    monkeypatch.setattr(style, "_write", write)


def save(folder: Path, caption: str) -> list[Path]:
    """Write a figure as commands do."""
    refuse_others(folder, ["depth"])
    return save_stamped(Drawn("depth", Figure(), {}, caption), folder, "stamp").paths


@pytest.mark.usefixtures("quick")
def test_a_file_that_a_user_put_in_the_place_of_ours_stays(tmp_path: Path) -> None:
    for caption in ("one", "two"):
        save(tmp_path, caption)
    (tmp_path / "depth.csv").write_text("mine")
    with pytest.raises(FigureError, match=r"depth\.csv is there already, and nothing shows that .*--force"):
        save(tmp_path, "three")
    assert (tmp_path / "depth.csv").read_text() == "mine"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("replaced", range(6))
def test_figures_of_a_kill_are_replaced_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: int) -> None:
    """After any number of its files took their places."""
    replace = Path.replace
    targets: list[Path] = []

    def killed(made: Path, target: Path) -> Path:
        if target.parent.samefile(tmp_path) and target.name != DRAWN:
            if len(targets) == replaced:
                raise KeyboardInterrupt
            targets.append(target)
        return replace(made, target)

    save(tmp_path, "one")
    for caption in ("two", "three"):
        targets.clear()
        with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
            patched.setattr(Path, "replace", killed)
            save(tmp_path, caption)
        assert len(targets) == min(replaced, len(KINDS))
    paths = save(tmp_path, "four")
    assert {path.read_text() for path in paths} == {"four"}
    assert list(json.loads((tmp_path / DRAWN).read_text())["depth"]) == ["files", "seal"]


@pytest.mark.usefixtures("quick")
def test_one_process_at_a_time_notes_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list is read, changed and written: of two at once one would be lost."""
    held: list[bool] = []

    def note(folder: Path, *rest: Any) -> None:
        held.append((folder / RESULTS_LOCK).exists())
        noted(folder, *rest)

    noted = saved._note
    monkeypatch.setattr(saved, "_note", note)
    paths = save(tmp_path, "one")
    assert held == [True, True]
    assert {path.name for path in tmp_path.iterdir()} == {DRAWN, *(path.name for path in paths)}
