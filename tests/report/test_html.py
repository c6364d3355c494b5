"""The report: one file that asks for nothing, in which text is text, links lead somewhere, and tables are the run's."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fillerscope.analysis.accuracy import compare
from fillerscope.analysis.export import export
from fillerscope.analysis.findings.all import available_comparison, findings_of
from fillerscope.analysis.flips import flips
from fillerscope.analysis.run import Run, open_live_run, open_run
from fillerscope.errors import FigureError, StoreError
from fillerscope.figures.condition_text import name_of
from fillerscope.figures.registry import FIGURES, draw
from fillerscope.figures.request import Request
from fillerscope.figures.style import Drawn, write_csv
from fillerscope.report import html, page_parts, pictures
from fillerscope.report.attachments import LARGE
from fillerscope.report.html import POLICY, render, write_report
from fillerscope.store.schema import answers_name, merged_name
from fillerscope.study.conditions import Condition
from fillerscope.study.study import FigureSpec
from support.synthetic import MLESS, NONE, Synthetic

EVIL = "</script></pre></bdi><img src=//evil.example/x onerror=alert(1)>&amp;\"'\u202e\x1b[31m"
DEPTH = (FigureSpec(name="depth"),)
INSIDE: dict[str, Any] = {"affine": True, "activations": True, "answering": True}


SHORT, LONG = "verdict findings figures methods tables", "verdict findings figures comparison flips methods tables"


class Hostile(Synthetic):
    """Whatever is free text is an attack."""

    def _problem_table(self) -> dict[str, list[Any]]:
        table = super()._problem_table()
        more = {"id": [f"{EVIL} {n}" for n in range(self.problems)], "meta": [json.dumps({EVIL: EVIL})] * self.problems}
        return table | more | {key: [EVIL] * self.problems for key in ("question", "answer")}

    def _answers(self, model: str, number: int) -> Iterator[dict[str, Any]]:
        for row in super()._answers(model, number):
            yield row | {"id": f"{EVIL} {number}"} | dict.fromkeys(("extracted", "note", "text", "finish"), EVIL)

    def _record(self, number: int) -> dict[str, Any]:
        found = super()._record(number) | {"id": f"{EVIL} {number}"}
        return found | ({"error": EVIL} if "error" in found else {"tokens": [EVIL] * len(found["tokens"])})


HOSTILE = Hostile(
    labels={"tiny-a": EVIL, EVIL: "B"}, problems=4, failed=(1,), layers=2, heads=2, figures=DEPTH,
    conditions=(NONE, Condition(name="odd", kind="repeat", text=EVIL, count=4, label=EVIL), MLESS),
    right={"none": 0.25, "odd": 1.0}, unjudged=(3,),
)  # fmt: skip


class Page(HTMLParser):
    """What a browser makes of a page, as far as it matters here."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.scripts: dict[str, str] = {}
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = f"{tag} {dict(attrs).get('id', '')}" if tag in ("script", "style") else self._inside

    def handle_endtag(self, tag: str) -> None:
        self._inside = "" if tag in ("script", "style") else self._inside

    def handle_data(self, data: str) -> None:
        if self._inside:
            name = self._inside.partition(" ")[2]
            self.scripts[name] = self.scripts.get(name, "") + data
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)

    @property
    def ids(self) -> list[str]:
        return [found["id"] or "" for _, found in self.tags if "id" in found]

    @property
    def data(self) -> Any:
        return json.loads(self.scripts["report-data"], parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))

    def file(self, name: str) -> bytes:
        return gzip.decompress(base64.b64decode(self.scripts[f"file-{name}"]))


def check(page: Page) -> None:
    """What holds of every report."""
    for tag, found in page.tags:
        for key in ("src", "href", "action", "srcset", "data", "poster", "formaction", "xlink:href"):
            assert (found.get(key) or "#").startswith(("data:", "blob:", "#")), (tag, found)
        assert not [key for key in found if key.startswith("on")], (tag, found)
        assert tag not in ("iframe", "object", "embed", "base", "form")
    assert [name for name, count in Counter(page.ids).items() if count > 1] == []
    links = [found["href"] or "" for tag, found in page.tags if tag == "a"]
    assert {link.removeprefix("#") for link in links} <= set(page.ids)
    policies = [found["content"] for tag, found in page.tags if found.get("http-equiv") == "Content-Security-Policy"]
    assert policies == [POLICY]
    assert "default-src 'none'" in POLICY
    assert "http" not in POLICY
    files = [found["data-file"] or "" for tag, found in page.tags if "data-file" in found]
    assert files
    for file in files:
        assert page.file(file), "a button without its file"
    assert [words for words in page.words if re.search(r"\bnan\b|\binf\b|Traceback", words)] == []
    assert page.data.keys() == {"figures", "comparison", "noise", "flips"}


@pytest.fixture(scope="module")
def made(shared: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """A run and its report, made once for all workers. Nobody changes them."""
    return shared("a home of somebody", make_run_and_report)


def make_run_and_report(folder: Path) -> None:
    recipe = Synthetic(
        labels={"tiny-a": "A", "tiny-b": "B"}, problems=4, layers=2, heads=2, figures=DEPTH, **INSIDE,
        right={"none": 0.25, "mless": 0.75, "random": 0.0}, generation={"temperature": [0, 0.7], "samples": [1, 2]},
    )  # fmt: skip
    text = render(recipe.build(folder / "run"))
    (folder / "rendered.html").write_text(text, encoding="utf-8", newline="")


@pytest.fixture(scope="module")
def run(made: Path) -> Run:
    return open_run(made / "run")


@pytest.fixture(scope="module")
def text(made: Path) -> str:
    with (made / "rendered.html").open(encoding="utf-8", newline="") as file:
        return file.read()


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are not what these tests are about."""
    monkeypatch.setattr(html, "pictures", lambda *_: ([], {}))


@pytest.fixture
def sketched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor their files."""

    def save(drawn: Drawn, folder: Path) -> list[Path]:
        paths = [folder / f"{drawn.name}.{kind}" for kind in ("pdf", "svg", "csv")]
        for path in paths:
            path.write_text("x")
        return paths

    monkeypatch.setattr(pictures, "save", save)
    monkeypatch.setattr(pictures, "_preview", lambda _: b"x")


# One file


def test_the_whole_report(run: Run, page: Page, text: str) -> None:
    check(page)
    assert text.startswith("<!doctype html>\n")
    assert f'content="{POLICY}"' in text, "as it is, for people who look for it"
    assert text.endswith("</html>\n")
    sections = [found["id"] for tag, found in page.tags if tag == "section"]
    assert sections == ["verdict", "findings", "figures", "comparison", "flips", "methods", "tables"]
    contents = [found["href"] for tag, found in page.tags if tag == "a"][:7]
    assert contents == [f"#{name}" for name in sections]
    for model in run.models:
        for finding in findings_of(run[model], available_comparison(run)):
            assert finding.text in page.text
            assert f"table-{finding.table}" in page.ids
    assert list(page.data["figures"]) == ["depth-1", "depth-2"]
    assert all(page.data["figures"].values())


@pytest.mark.slow
def test_the_same_run_gives_the_same_bytes(run: Run, text: str, tmp_path: Path) -> None:
    path = write_report(open_run(run.path), tmp_path / "new" / "report.html")
    assert path.read_text(encoding="utf-8") == text
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.usefixtures("undrawn")
def test_without_figures_the_same_run_gives_the_same_bytes(run: Run, tmp_path: Path) -> None:
    path = write_report(open_run(run.path), tmp_path / "new" / "report.html")
    assert path.read_text(encoding="utf-8") == render(run)
    assert list(path.parent.iterdir()) == [path]


def test_no_path_of_this_machine_stands_in_it(run: Run, text: str, page: Page) -> None:
    inside = text + "".join(
        page.file(name.removeprefix("file-")).decode("latin-1") for name in page.scripts if name.startswith("file-")
    )
    for place in (str(run.path), str(run.path.parent), "a home of somebody", str(Path.home()), os.getcwd(), "/tmp/"):
        if len(place) > 1:
            assert place not in inside, place


def test_tables_are_those_that_are_exported(run: Run, page: Page, tmp_path: Path) -> None:
    written = {path.name: path.read_bytes() for path in export(run, tmp_path, "csv")}
    inside = {name.removeprefix("file-") for name in page.scripts if re.fullmatch(r"file-(?!figure-).*\.csv", name)}
    assert inside == written.keys() - {f"{name}.csv" for name in LARGE}
    for name in inside:
        assert page.file(name) == written[name]
    for name in LARGE:
        assert f"table-{name}" in page.ids
    assert page.text.count("fillerscope export run --format csv") == 2


def test_figures_are_those_that_are_drawn(run: Run, page: Page) -> None:
    for number, model in enumerate(run.models, 1):
        table = draw(run, "depth", Request(models=(model,))).table
        write_csv(table, csv := io.BytesIO())
        assert page.file(f"figure-depth-{number}.csv") == csv.getvalue()
        assert page.file(f"figure-depth-{number}.pdf").startswith(b"%PDF")
        assert b"<svg" in page.file(f"figure-depth-{number}.svg")
    images = [found for tag, found in page.tags if tag == "img"]
    assert len(images) == 2
    assert all((found["src"] or "").startswith("data:image/png;base64,iVBOR") for found in images)


def test_the_comparison_and_the_flips_are_those_of_the_run(run: Run, page: Page) -> None:
    rows = compare(run)
    told = page.data["comparison"]
    assert [(row["model"], row["condition"], row["accuracy"]) for row in told] == [
        (row.model, row.condition, row.accuracy) for row in rows
    ]
    for row in rows:
        assert f"{100 * row.accuracy:.1f}" in page.text
    found = {(one["model"], one["after"]): one for one in page.data["flips"]}
    names = [name_of(run, name) for name in ("mless", "random")]
    assert list(found) == [(label, name) for label in "AB" for name in names]
    wanted = flips(run["tiny-b"], "mless", "none")
    assert [one["id"] for one in found["B", names[0]]["flips"]] == [one.id for one in wanted]
    assert found["B", names[0]]["total"] == len(wanted) == 2


@pytest.mark.usefixtures("undrawn")
def test_of_many_flips_the_first_are_shown_and_all_are_counted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_parts, "MOST_FLIPS", 1)
    page = Page(render(run))
    (one, *_) = page.data["flips"]
    assert (len(one["flips"]), one["total"]) == (1, 2)
    assert "The first 1 of 2." in page.text


# Text


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.usefixtures("sketched")
def test_markup_is_text_everywhere(tmp_path: Path) -> None:
    text = render(HOSTILE.build(tmp_path / "run"))
    page = Page(text)
    check(page)
    assert "evil.example" in page.text
    assert [found for tag, found in page.tags if tag == "img" and "evil" in (found["src"] or "")] == []
    assert "\u202e" not in text, "nothing turns the line round"
    assert "\x1b" not in text
    (flip, *_) = page.data["flips"]
    assert flip["flips"][0]["before"]["text"] == EVIL
    assert page.file("answers.csv").count(b"evil.example")
    ends = len(re.findall("</script", text, re.IGNORECASE))
    assert ends == len(re.findall("<script", text, re.IGNORECASE))
    assert "<!--" not in text.partition("<script")[2].replace("\\u003c", ""), "which would hide the end of a script"


# Runs of every kind


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("recipe", "parts"),
    [
        (Synthetic(conditions=(NONE,), problems=2), SHORT),
        (Synthetic(conditions=(NONE,), problems=2, right={"none": 0.5}), LONG.replace("flips ", "")),
        (Synthetic(problems=2), SHORT),
        (Synthetic(problems=1, **INSIDE, right={"none": 1.0}), LONG),
        (Synthetic(problems=5, failed=(0, 4)), SHORT),
        (Synthetic(problems=6, attention=False, right={"none": 0.5, "mless": 1.0}), LONG),
        (Synthetic(problems=3, attention=False, right={"none": 0.5}, unjudged=(0, 1, 2)), LONG),
    ],
    ids=["none", "none answered", "attention", "one problem", "failed problems", "answers", "failed answers"],
)  # fmt: skip
def test_every_kind_of_run_has_a_report_whose_links_lead_somewhere(
    recipe: Synthetic, parts: str, tmp_path: Path
) -> None:
    run = recipe.build(tmp_path / "run")
    page = Page(render(run))
    check(page)
    assert [found["id"] for tag, found in page.tags if tag == "section"] == parts.split()
    for one in findings_of(run[None], available_comparison(run)):
        assert f"table-{one.table}" in page.ids
    if recipe.failed:
        assert "2: 9000 tokens, and the model takes 1024" in page.text
    if not run.fillers:
        assert "Nothing to compare" in page.text


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", [merged_name("tiny-a"), answers_name("tiny-a", 0)])
def test_a_run_that_is_not_finished_is_one_clear_line(tmp_path: Path, name: str) -> None:
    run = Synthetic(problems=3, right={"none": 0.5}).build(tmp_path / "run")
    (run.path / name).unlink()
    with pytest.raises(
        StoreError, match=r"run is not finished for tiny-a; run the study again, it resumes from there$"
    ):
        write_report(open_run(run.path), tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


@pytest.mark.usefixtures("undrawn")
def test_a_run_opened_while_it_grows_is_told_as_far_as_it_is(tmp_path: Path) -> None:
    run = Synthetic(problems=6, shard=3, right={"none": 0.5, "mless": 1.0}).build(tmp_path / "run")
    (run.path / merged_name("tiny-a")).unlink()
    (run.path / answers_name("tiny-a", 1)).unlink()
    page = Page(render(open_live_run(run.path)))
    check(page)
    assert {row["n"] for row in page.data["comparison"]} == {3}


def test_a_figure_that_fails_is_named_with_its_reason(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError(EVIL)

    monkeypatch.setattr(pictures, "_picture", broken)
    page = Page(render(run))
    check(page)
    assert "Not drawn" in page.text
    assert page.text.count("evil.example") >= 4, "below the figures and in the methods, of each model"


@pytest.mark.usefixtures("sketched")
def test_a_figure_without_panels_is_open_in_print(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FIGURES, "depth", replace(FIGURES["depth"], panels=None))
    page = Page(render(run))
    prints = [found for tag, found in page.tags if tag == "details" and found.get("class") == "print"]
    assert len(prints) == 2
    assert all("open" in found for found in prints)


def test_the_name_of_a_run_that_is_opened_from_inside(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "pictures", lambda *_: ([], {}))
    monkeypatch.chdir(run.path)
    assert "fillerscope export run --format csv" in Page(render(open_run("."))).text


# The file


@pytest.mark.usefixtures("undrawn")
def test_what_cannot_be_written_is_one_line_and_leaves_what_was_there(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    path.write_text("as before")

    real = os.replace

    def full(source: Path, target: Path) -> None:
        if Path(target).name == path.name:
            raise OSError(28, "No space left on device")
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(
            FigureError, match=r"^cannot write .*report.html: No space left on device; choose another file"
        ):
            write_report(run, path)
    assert path.read_text() == "as before"
    assert list(tmp_path.iterdir()) == [path]
    before = path.stat().st_ino
    write_report(run, path)
    assert path.stat().st_ino != before, "another file in its place: who reads it sees one of them whole"
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("file/report.html", "File exists|Not a directory"), (".", "it is a folder; choose another file"),
        ("x" * 300, "File name too long"),
        ("folder", "it is a folder; choose another file"), ("file", "it is there already, and no HTML file"),
    ],
)  # fmt: skip
def test_a_place_that_is_none_is_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, message: str
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FigureError, match=message) as caught:
        write_report(run, Path(place))
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", ["manifest.json", "study.json", merged_name("tiny-a")])
def test_a_run_is_not_overwritten_by_its_report(tmp_path: Path, name: str) -> None:
    own = Synthetic(problems=2).build(tmp_path / "run")
    before = (own.path / name).read_bytes()
    with pytest.raises(FigureError, match="it is there already, and no HTML file"):
        write_report(own, own.path / name)
    assert (own.path / name).read_bytes() == before


@pytest.mark.usefixtures("undrawn")
def test_a_link_is_replaced_and_a_device_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "real.html").write_text("somebody's")
    (tmp_path / "link.html").symlink_to(tmp_path / "real.html")
    assert write_report(run, tmp_path / "link.html") == tmp_path / "link.html"
    assert not (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "real.html").read_text() == "somebody's"
    os.mkfifo(tmp_path / "pipe.html")
    with pytest.raises(FigureError, match="it is there already, and no HTML file"):
        write_report(run, tmp_path / "pipe.html")


def test_progress_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, int, int | None]] = []
    monkeypatch.setattr(pictures, "_picture", lambda *_: (_ for _ in ()).throw(ValueError("no")))
    render(run, lambda *words: told.append(words))
    figures = "putting figures into the report"
    assert told == [(figures, 0, 2), (figures, 1, 2), ("writing the report", 0, None)]
