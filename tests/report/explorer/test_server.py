"""The explorer's server, asked in this process: every question has its answer, and every mistake one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.applications import Starlette

from fillerscope.analysis.export import export, tables_of
from fillerscope.analysis.findings.all import available_comparison, findings_of
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.run import Run
from fillerscope.capture.head_matrix import HeadMatrix
from fillerscope.errors import FigureError
from fillerscope.prompts.prompt import FILLER
from fillerscope.report import answer_payload, payload
from fillerscope.report.explorer import server
from fillerscope.report.explorer.access import STATIC, Access
from fillerscope.report.explorer.remeasure import Remeasured, Remeasurer
from fillerscope.report.explorer.server import ANSWERS, application
from fillerscope.report.packed_arrays import unpack
from fillerscope.store.run_folder import RunStore
from support.asgi import Answer, sent
from support.synthetic import NONE, Synthetic

ACCESS = Access()
MODEL = "tiny-a"
RECIPE = Synthetic(
    right={"none": 0.5, "mless": 0.75}, affine=True, activations=True, answering=True, problems=4, layers=2, heads=3
)
AT = f"model={MODEL}&layer=2&head=3&queries=last&view=aligned"
SIZE = "Tiny-A has layers 1 to 2 and heads 1 to 3"
ASKED = {
    "map": f"model={MODEL}&condition=mless&queries=last", "head": AT, "layer": AT, "tokens": f"model={MODEL}",
    "depth": f"model={MODEL}&queries=all", "affine": f"model={MODEL}", "activations": f"model={MODEL}&cls=digits",
    "histogram": f"model={MODEL}&layer=2&cls=words", "comparison": "by=level",
    "flips": f"model={MODEL}&condition=mless&against=none", "answers": f"model={MODEL}&condition=mless&text=3&start=1",
    "findings": "", "methods": "",
}  # fmt: skip


def ask(app: Starlette, address: str, method: str = "GET", **headers: str) -> Answer:
    """One request with the token."""
    return sent(app, address, method, {"authorization": f"Bearer {ACCESS.token}"} | headers)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return RECIPE.build(tmp_path_factory.mktemp("served") / "run")


@pytest.fixture(scope="module")
def app(run: Run) -> Starlette:
    return application([run.path], ACCESS)


# What there is


def test_the_page(app: Starlette) -> None:
    page = ask(app, "/")
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/html")
    assert b'<script defer src="/static/page.js">' in page.content
    for name, kind in (("page.js", "text/javascript"), ("style.css", "text/css")):
        found = ask(app, f"/static/{name}")
        assert (found.status, found.headers["content-type"]) == (200, f"{kind}; charset=utf-8")
        assert found.content == (Path(server.__file__).parents[1] / "static" / name).read_bytes()


def test_every_question_is_asked_here() -> None:
    assert ASKED.keys() == ANSWERS.keys()


def test_every_answer_is_the_payload_s(app: Starlette, run: Run) -> None:
    at = payload.Place(2, 3, "last", "aligned")
    wanted: dict[str, Callable[[], Any]] = {
        "map": lambda: payload.head_maps(run[MODEL], "mless", "last"),
        "head": lambda: payload.head(run[MODEL], at),
        "layer": lambda: payload.whole_layer(run[MODEL], at),
        "tokens": lambda: payload.tokens(run[MODEL]),
        "depth": lambda: payload.depth(run[MODEL], "all"),
        "affine": lambda: payload.affine(run[MODEL]),
        "activations": lambda: payload.activations(run[MODEL], "digits"),
        "histogram": lambda: payload.histogram_of(run[MODEL], 2, "words"),
        "comparison": lambda: answer_payload.comparison(run, "level"),
        "flips": lambda: answer_payload.flipped(run[MODEL], "mless", "none", None),
        "answers": lambda: answer_payload.transcripts(run[MODEL], {"condition": "mless", "text": "3"}, 1),
    }
    for name, make in wanted.items():
        found = ask(app, f"/api/0/{name}?{ASKED[name]}")
        assert found.status == 200, found.content
        packed = found.headers["content-type"] == "application/octet-stream"
        assert (found.content if packed else found.json) == make(), name
        assert ask(app, f"/api/0/{name}?{ASKED[name]}") == found, "remembered"
    (told,) = ask(app, "/api/0/findings").json
    assert [one["text"] for one in told["findings"]] == [
        one.text for one in findings_of(run[None], available_comparison(run))
    ]
    assert told["headline"]["verdict"]
    found = ask(app, "/api/0/methods").json
    assert found["text"].startswith("## ")
    assert len(found["sections"]) > 5


def test_the_runs(run: Run, tmp_path: Path) -> None:
    other = Synthetic(conditions=(NONE,), problems=2).build(tmp_path / "other")
    twin = Synthetic(problems=2, right={"none": 0.5}, attention=False).build(tmp_path / "run")
    found = application([run.path, other.path, twin.path], ACCESS)
    told = ask(found, "/api/runs").json
    assert told["runs"] == [str(run.path), "other", str(twin.path)], "those of the same name by their paths"
    assert (told["numbers"], told["unreadable"]) == ([0, 1, 2], [])
    for number, one in enumerate(told["overviews"]):
        again = ask(found, f"/api/{number}/overview").json
        assert {**again, "checked": ""} == {**one, "checked": ""}
        assert one["progress"]["finished"]
    assert [one["has"]["attention"] for one in told["overviews"]] == [True, True, False]
    assert ask(found, "/api/3/overview").error == "there are 3 runs, counted from 0"


def test_a_damaged_run_does_not_hide_the_others(run: Run, tmp_path: Path) -> None:
    other = Synthetic(conditions=(NONE,), problems=2).build(tmp_path / "other")
    found, alone = application([other.path, run.path], ACCESS), application([other.path], ACCESS)
    assert len(ask(found, "/api/runs").json["runs"]) == 2
    (other.path / "study.json").write_text("{")
    told = ask(found, "/api/runs").json
    assert (told["runs"], told["numbers"]) == ([run.path.name], [1])
    assert {**ask(found, "/api/1/overview").json, "checked": ""} == {**told["overviews"][0], "checked": ""}
    assert told["unreadable"] == [f"{other.path}/study.json is damaged; run the study again to restore it"]
    refused = ask(alone, "/api/runs")
    assert (refused.status, refused.error) == (400, told["unreadable"][0])


def test_a_run_that_is_damaged_at_the_start_is_told_beside_the_others(run: Run, tmp_path: Path) -> None:
    told = ask(application([tmp_path, run.path], ACCESS), "/api/runs").json
    assert (told["runs"], told["numbers"]) == ([run.path.name], [0])
    assert told["unreadable"][0].startswith(f"{tmp_path} is left out: no run at")
    assert len(told["unreadable"]) == 1


def test_tables_are_those_that_are_exported(app: Starlette, run: Run, tmp_path: Path) -> None:
    written = {path.stem: path.read_bytes() for path in export(run, tmp_path, "csv")}
    assert written.keys() == tables_of(run).keys()
    for name, content in written.items():
        found = ask(app, f"/api/0/table/{name}.csv")
        assert (found.status, found.content) == (200, content)
        assert found.headers["content-disposition"] == f'attachment; filename="{name}.csv"'
        assert found.headers["content-type"].startswith("text/csv")


def test_a_table_leaves_nothing_behind(app: Starlette, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert ask(app, "/api/0/table/depth.csv").status == 200
    assert list(tmp_path.iterdir()) == []


def test_an_empty_table_is_said_to_be_empty(tmp_path: Path) -> None:
    path = Synthetic(conditions=(NONE,), problems=2).build(tmp_path / "run").path
    found = ask(application([path], ACCESS), "/api/0/table/heads.csv")
    assert (found.status, found.error) == (400, "the table 'heads' of this run is empty")


def test_a_problem_that_cannot_be_measured_again_says_why(app: Starlette) -> None:
    found = ask(app, f"/api/0/ready?model={MODEL}")
    assert found.status == 200
    assert found.json["reason"]
    found = ask(app, f"/api/0/problem?{AT}&problem=1", "POST")
    assert (found.status, found.error) == (400, "there is no folder or GGUF file tiny-a on this machine: put it there")


def test_a_problem_that_was_measured_again(app: Starlette, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def measure(_: Remeasurer, run: ModelRun, number: int) -> Remeasured:
        asked.append((run.name, number))
        return Remeasured(RECIPE._part(range(number, number + 1)), 3e-6 * number, "Other torch.")

    monkeypatch.setattr(Remeasurer, "measure", measure)
    header, found = unpack(ask(app, f"/api/0/problem?{AT}&problem=1", "POST").content)
    assert header["note"] == "Measured again here; it agrees with the stored run to 3e-06. Other torch."
    np.testing.assert_allclose(found["mless/mean"][:44], RECIPE.aligned(1, "mless")[2, 1, 2][:44], rtol=1e-5)
    header, _ = unpack(ask(app, f"/api/0/problem?{AT}&problem=0", "POST").content)
    assert "to the last digit" in header["note"]
    assert asked == [(MODEL, 1), (MODEL, 0)]


def test_the_matrix_of_one_head(app: Starlette, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.tril(np.full((40, 40), 0.25, np.float32))

    def matrix(_: Remeasurer, run: ModelRun, number: int, *asked: object) -> tuple[HeadMatrix, str]:
        assert (run.name, number, asked) == (MODEL, 1, ("mless", 2, 3))
        return HeadMatrix(weights, np.ones(40, np.float32), 2, 3, ("a",) * 40), "It agrees."

    monkeypatch.setattr(Remeasurer, "matrix", matrix)
    header, found = unpack(ask(app, f"/api/0/matrix?{AT}&problem=1&condition=mless", "POST").content)
    np.testing.assert_array_equal(found["weights"], weights)
    assert found["sinks"].sum() == 40
    record = next(one for one in RECIPE._part(range(1, 2)).records)
    spans = record["prompts"]["mless"]["spans"]
    assert header["filler"] == [spans.index(FILLER), spans.index(FILLER) + spans.count(FILLER)]
    assert (header["tokens"], header["note"], header["condition"]) == (["a"] * 40, "It agrees.", "mless")


# What there is not


REFUSED = [
    ("7/overview", "there are 1 runs, counted from 0"),
    ("0/map", "the page asked for nothing that there is: 'model'"),
    ("0/map?model=other&condition=mless&queries=all", "this run has no model 'other'; it has tiny-a"),
    (f"0/map?model={MODEL}&condition=none&queries=all", "heads are compared with `none`; name a condition"),
    (f"0/map?model={MODEL}&condition=mless&queries=some", "queries are all, original, last, answer, not 'some'"),
    (f"0/head?{AT.replace('layer=2', 'layer=3')}", f"there is no layer 3 head 3: {SIZE}"),
    (f"0/layer?{AT.replace('layer=2', 'layer=0')}", f"there is no layer 0 head 3: {SIZE}"),
    (f"0/head?{AT.replace('layer=2', 'layer=x')}", "invalid literal for int() with base 10: 'x'"),
    (f"0/head?{AT.replace('aligned', 'up')}", "views are whole, aligned, difference, logratio, not 'up'"),
    (f"0/histogram?model={MODEL}&layer=0&cls=all", "there is no layer 0: Tiny-A has layers 1 to 2"),
    (f"0/histogram?model={MODEL}&layer=3&cls=all", "there is no layer 3: Tiny-A has layers 1 to 2"),
    (f"0/histogram?model={MODEL}&layer=1&cls=verbs", "classes of tokens are all, digits, operators, words"),
    ("0/comparison?by=colour", "the problems have no field 'colour'; they have level"),
    (f"0/flips?model={MODEL}&condition=x&against=none", "this run has no condition 'x'; it has none"),
    (f"0/answers?model={MODEL}&start=-1", "answers are counted from 0, not from -1"),
    (f"0/answers?model={MODEL}&temperature=nan", "this run has no temperature nan; it has 0"),
    ("0/table/nothing.csv", "this run has no table 'nothing'; it has profiles, summaries, heads, depth, problems"),
    ("0/table/..%2fmanifest.csv", "this run has no table"),
    ("0/ready?model=other", "this run has no model 'other'; it has tiny-a"),
    (f"0/problem?{AT}", "the page asked for nothing that there is: 'problem'"),
    (f"0/matrix?{AT}", "the page asked for nothing that there is: 'problem'"),
    (f"0/matrix?{AT}&problem=1&condition=mless", "there is no folder or GGUF file tiny-a on this machine"),
]  # fmt: skip


def test_what_there_is_not_is_one_line(app: Starlette) -> None:
    for address, message in REFUSED:
        found = ask(app, f"/api/{address}", "POST" if address.startswith(("0/problem", "0/matrix")) else "GET")
        assert found.status == 400, address
        assert found.headers["content-type"] == "application/json", address
        assert found.error.startswith(message), address


def test_other_addresses_are_not_found(app: Starlette) -> None:
    for address in ("/nothing", "/api/-1/overview", "/api/x/overview", "/api/0/nothing", "/api", "/static/"):
        assert ask(app, address).status == 404, address


def test_only_the_page_s_own_files_are_served(app: Starlette) -> None:
    for name in ("built.json", "server.py", "..", "../server.py", "page.js/", "PAGE.JS", ""):
        found = ask(app, f"/static/{name}")
        assert found.status == 404, name
        assert b"import" not in found.content, name


def test_the_page_s_own_files_alone_need_no_token(app: Starlette) -> None:
    """They are those of the package, whatever the run is."""
    for name in STATIC:
        assert sent(app, f"/static/{name}").content == ask(app, f"/static/{name}").content
    data = ("/api/runs", "/api/0/overview", "/api/0/table/depth.csv")
    for address in ("/", *data, "/static/built.json", "/static/../api/runs", "/static/"):
        assert sent(app, address).status == 403, address


@pytest.mark.parametrize("name", ["\n", "a\r\nb", "\x1b[2Ja", "\u202ea"])
def test_what_was_asked_for_is_repeated_in_one_printable_line(app: Starlette, name: str) -> None:
    found = ask(app, f"/static/{name}")
    assert (found.status, found.error.isprintable()) == (404, True)


def test_nothing_can_be_changed(app: Starlette) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        for address in ("/", "/static/page.js", "/api/runs", "/api/0/overview", f"/api/0/tokens?model={MODEL}"):
            assert ask(app, address, method).status == 405, f"{method} {address}"


def test_only_a_post_measures(app: Starlette, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link, a picture or a script of any page is a GET."""
    monkeypatch.setattr(Remeasurer, "measure", lambda *_: pytest.fail("measured"))
    monkeypatch.setattr(Remeasurer, "matrix", lambda *_: pytest.fail("measured"))
    for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "BREW"):
        for name in ("problem", "matrix"):
            assert ask(app, f"/api/0/{name}?{AT}&problem=1&condition=mless", method).status == 405, method


def test_a_bug_is_one_line_and_a_traceback_on_request(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("first line\nsecond line")

    monkeypatch.setitem(ANSWERS, "tokens", broken)
    monkeypatch.delenv("FILLERSCOPE_DEBUG", raising=False)
    found = ask(application([run.path], ACCESS), "/api/0/tokens")
    assert found.status == 500
    assert found.error == "unexpected ZeroDivisionError: first line (set FILLERSCOPE_DEBUG=1 to see where)"
    monkeypatch.setenv("FILLERSCOPE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        ask(application([run.path], ACCESS), "/api/0/tokens")


def test_an_error_of_several_lines_is_told_in_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise FigureError("first\nsecond")

    monkeypatch.setitem(ANSWERS, "tokens", broken)
    assert ask(application([run.path], ACCESS), "/api/0/tokens").error == "first second"


# A run that has hardly begun


def test_an_empty_run_answers_every_question_in_one_line(tmp_path: Path) -> None:
    RunStore.create(tmp_path / "run", {"synthetic": True}, RECIPE.study.model_dump(mode="json"))
    app = application([tmp_path / "run"], ACCESS)
    overview = ask(app, "/api/0/overview")
    assert overview.status == 200
    assert not overview.json["progress"]["finished"]
    assert {stage["done"] for stage in overview.json["progress"]["stages"]} == {0}
    for name, query in ASKED.items():
        found = ask(app, f"/api/0/{name}?{query}")
        assert found.status == 200 or (found.status == 400 and found.error), name
    assert ask(app, "/api/0/findings").status == ask(app, "/api/0/methods").status == 200
