"""Figures in files: every format, the numbers beside the picture, the same bytes each time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
from pyarrow import csv

from fillerscope.analysis.depth import depth_table
from fillerscope.analysis.heads import head_table
from fillerscope.analysis.run import Run
from fillerscope.errors import FigureError
from fillerscope.figures.condition_text import name_of
from fillerscope.figures.registry import FIGURES, draw, draw_and_save
from fillerscope.figures.style import save, styled, write_csv
from fillerscope.study.conditions import Condition
from support.grid import some_fast
from support.swapping import swap_drafts
from support.synthetic import NONE, Synthetic

KINDS = ("pdf", "svg", "png", "csv", "txt")
STARTS = {"pdf": b"%PDF-1", "svg": b"<?xml", "png": b"\x89PNG"}


# Lines with bands and a region, an image with its scale, lines by layer, bars with their hatches.
QUICK = ("fillers", "headmap", "depth", "composite")


@pytest.fixture(scope="module")
def saved(
    run_for: Callable[[str], Run], shared: Callable[[str, Callable[[Path], None]], Path]
) -> Callable[[str], Path]:
    """Gives the files of a figure without their suffix. Each figure is saved once."""

    def save(name: str, folder: Path) -> None:
        paths = draw_and_save(run_for(name), name, folder=folder)
        assert sorted(path.name for path in paths) == sorted(f"{name}.{kind}" for kind in KINDS)

    return lambda name: shared(f"figure-{name}", partial(save, name)) / name


@pytest.mark.parametrize("name", some_fast(list(FIGURES), *QUICK))
def test_every_format_is_written(saved: Callable[[str], Path], name: str) -> None:
    for kind, start in STARTS.items():
        assert saved(name).with_suffix(f".{kind}").read_bytes().startswith(start)
    caption = saved(name).with_suffix(".txt").read_text()
    assert caption.startswith("Tiny-A; built-in problems, n = 12 problems.")
    assert max(len(line) for line in caption.splitlines()) <= 100


@pytest.mark.parametrize("name", some_fast(list(FIGURES), *QUICK))
def test_text_stays_text_in_vector_files(saved: Callable[[str], Path], name: str) -> None:
    """It can be searched for and set in another font."""
    text = saved(name).with_suffix(".svg").read_text()
    assert ">Tiny-A" in text
    assert b"/Type3" not in saved(name).with_suffix(".pdf").read_bytes()


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_a_caption_and_a_table_that_a_file_can_hold(
    run_for: Callable[[str], Run], tmp_path: Path, name: str
) -> None:
    """Without saving the picture, which takes longest."""
    drawn = draw(run_for(name), name)
    assert drawn.name == name
    assert drawn.caption.startswith("Tiny-A; built-in problems, n = 12 problems.")
    with (tmp_path / "table.csv").open("wb") as file:
        write_csv(drawn.table, file)
    assert_holds(tmp_path / "table.csv", drawn.table)


@pytest.mark.parametrize("name", some_fast(["layers", "heads", "fillers"], "fillers"))
def test_the_csv_of_a_profile_figure_holds_the_runs_numbers(saved: Callable[[str], Path], run: Run, name: str) -> None:
    found = csv.read_csv(saved(name).with_suffix(".csv")).to_pylist()
    assert len(found) > 300

    @cache
    def expected(condition: str, queries: str, view: str) -> np.ndarray:
        profile = run.profile(condition, queries, view)
        return np.stack([profile.mean, *profile.interval(), profile.count])

    for row in found:
        view = row.get("view") or ("aligned" if name == "layers" else "whole")
        cell = (row["layer"] - 1, row["head"] - 1, row["position"])
        values = expected(row["condition"], row["queries"], view)[:, *cell]
        assert [row["mean"], row["low"], row["high"], row["n"]] == values.tolist()
        assert row["model"] == "Tiny-A"


def test_the_csv_of_the_headmap_holds_the_table_of_heads(saved: Callable[[str], Path], run: Run) -> None:
    found = csv.read_csv(saved("headmap").with_suffix(".csv")).to_pylist()
    assert len(found) == 2 * 12
    for row in found:
        expected = head_table(run[None], row["condition"]).row(row["layer"], row["head"])
        known = {key: value for key, value in expected.items() if value == value}  # nothing else is written
        assert {key: value for key, value in row.items() if value is not None} == {
            "model": "Tiny-A", "condition": row["condition"],
        } | known  # fmt: skip


def test_the_csv_of_depth_holds_the_table_of_layers(saved: Callable[[str], Path], run: Run) -> None:
    found = csv.read_csv(saved("depth").with_suffix(".csv")).to_pydict()
    assert found["condition"] == ["mless"] * 3 + ["random"] * 3
    for start, condition in ((0, "mless"), (3, "random")):
        for key, column in depth_table(run[None], condition).columns().items():
            np.testing.assert_array_equal(np.array(found[key][start : start + 3], dtype=float), column)


TABLED = ["composite", "length", "position", "affine", "activations", "tokenclasses", "layermap", "lookback", "arm"]


@pytest.mark.parametrize("name", some_fast(TABLED, "composite"))
def test_the_csv_of_a_figure_holds_its_table(
    saved: Callable[[str], Path], run_for: Callable[[str], Run], name: str
) -> None:
    assert_holds(saved(name).with_suffix(".csv"), draw(run_for(name), name).table)


def assert_holds(path: Path, table: Mapping[str, np.ndarray]) -> None:
    found = csv.read_csv(path).to_pydict()
    assert list(found) == list(table)
    for key, column in table.items():
        assert len(found[key]) == len(column)
        for read, drawn in zip(found[key], column.tolist(), strict=True):
            if drawn is None or drawn == "" or drawn != drawn:
                assert read is None or read == "" or read != read, key
            else:
                assert read == drawn or str(read) == drawn, key


@pytest.mark.parametrize("names", some_fast([("composite",), ("fillers", "headmap")], ("composite",)))
def test_drawn_again_in_another_process_the_bytes_are_the_same(
    saved: Callable[[str], Path], run_for: Callable[[str], Run], tmp_path: Path, names: tuple[str, ...]
) -> None:
    code = (
        "import sys; from fillerscope.figures.registry import draw_and_save; "
        "from fillerscope.analysis.run import open_run; from pathlib import Path; "
        "[draw_and_save(open_run(sys.argv[1]), name, folder=Path(sys.argv[2])) for name in sys.argv[3:]]"
    )
    command = [sys.executable, "-c", code, str(run_for(names[0]).path), str(tmp_path), *names]
    subprocess.run(command, check=True, timeout=300)
    for name in names:
        for kind in KINDS:
            again, before = tmp_path / f"{name}.{kind}", saved(name).with_suffix(f".{kind}")
            assert again.read_bytes() == before.read_bytes(), again.name


def test_a_label_may_hold_any_characters(tmp_path: Path) -> None:
    odd = Condition(name="odd", kind="repeat", text="$", count=8, label="$\\frac$ & <b> _x^")
    run = Synthetic(conditions=(NONE, odd), labels={"m": "a_b$c$"}, problems=4).build(tmp_path / "run")
    drawn = draw(run, "heads")
    drawn.figure.draw_without_rendering()
    assert drawn.figure.axes[0].get_title() == "a_b$c$ Layer 1 Head 1"
    assert [text.get_text() for text in drawn.figure.legends[0].get_texts()][1] == name_of(run, "odd")


def test_drawing_leaves_the_callers_matplotlib_alone(run: Run) -> None:
    import matplotlib

    backend, size = matplotlib.get_backend(), matplotlib.rcParams["font.size"]
    matplotlib.use("svg")
    try:
        draw(run, "depth")
        assert matplotlib.get_backend() == "svg"
        assert matplotlib.rcParams["font.size"] == size
    finally:
        matplotlib.use(backend)


def test_a_full_disk_leaves_the_files_that_were_there(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fillerscope.figures import style

    def full(_: object, file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    (tmp_path / "depth.pdf").write_text("as before")
    monkeypatch.setattr(style, "write_csv", full)
    with pytest.raises(FigureError, match="No space left on device; choose another folder"):
        style.save(draw(run, "depth"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["depth.pdf"]
    assert (tmp_path / "depth.pdf").read_text() == "as before"


def test_drafts_that_are_replaced_by_links_are_not_followed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn, folder, victim = draw(run, "depth"), tmp_path / "shared", tmp_path / "victim"
    folder.mkdir()
    swap_drafts(monkeypatch, victim)
    with pytest.raises(FigureError, match="removed or replaced while it was written; choose another folder"):
        save(drawn, folder)
    assert victim.read_text() == "mine"
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FigureError, match=r"^cannot write figures to .*file: File exists; choose another folder with"):
        draw_and_save(run, "depth", folder=tmp_path / "file")


@pytest.mark.parametrize("kind", ["settings", "no settings", "environment", "pipe"])
def test_settings_of_matplotlib_in_the_current_folder_are_not_read(tmp_path: Path, kind: str) -> None:
    """It may be a folder from somebody else: what matplotlib does not like in the file stands on the terminal."""
    file = tmp_path / "matplotlibrc"
    if kind == "environment":
        file.symlink_to("/proc/self/environ")
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.write_text("axes.facecolor: black\ntext.usetex: True\n" if kind == "settings" else "secret\n")
    code = (
        "from fillerscope.figures.style import styled, text_width\nimport os\ntext_width('a', 8)\nwith styled():\n"
        "    import matplotlib\n    print(matplotlib.rcParams['axes.facecolor'], matplotlib.rcParams['text.usetex'])\n"
        "print(os.getcwd())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == (f"white False\n{tmp_path}\n", "")


@pytest.mark.parametrize(("chosen", "kept"), [("nosuch", "agg"), ("svg", "svg")])
def test_an_unknown_backend_is_left_out_and_others_are_kept(chosen: str, kept: str) -> None:
    code = (
        "import os\nfrom fillerscope.figures.style import styled\nwith styled():\n"
        "    from matplotlib.figure import Figure\n    Figure().savefig(os.devnull, format='png')\n"
        "import matplotlib\nprint(matplotlib.get_backend(), os.environ['MPLBACKEND'])"
    )
    environment = {**os.environ, "MPLBACKEND": chosen}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.stderr) == (f"{kept} {chosen}\n", "")


def test_figures_have_no_settings_of_the_user() -> None:
    import matplotlib

    with matplotlib.rc_context({"axes.facecolor": "black", "lines.linestyle": ":"}):
        with styled():
            assert matplotlib.rcParams["axes.facecolor"] == "white"
            assert matplotlib.rcParams["lines.linewidth"] == 1.1
        assert matplotlib.rcParams["axes.facecolor"] == "black"
