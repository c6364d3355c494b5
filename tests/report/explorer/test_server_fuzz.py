"""The explorer asked by its schema and around it: every answer is one that it is meant to give, and none is a bug.

`FILLERSCOPE_FUZZ=20000` asks that often.
"""

from __future__ import annotations

from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from starlette.applications import Starlette

from fillerscope.analysis.export import tables_of
from fillerscope.analysis.run import Run
from fillerscope.report.explorer.access import Access
from fillerscope.report.explorer.server import ANSWERS, application
from support.asgi import Answer, sent
from support.chaos import is_long
from support.synthetic import Synthetic

ACCESS = Access()
TIMES = 20_000 if is_long() else 400
RECIPE = Synthetic(
    right={"none": 0.5, "mless": 0.75}, affine=True, activations=True, answering=True, problems=4, layers=2, heads=3
)
MEASURED = ("problem", "matrix")
NUMBERS = (
    "0",
    "1",
    "2",
    "3",
    "-1",
    "1e3",
    "nan",
    "inf",
    "1e999",
    "9" * 30,
    "-" + "9" * 30,
    "٣",
    "1_0",
    "0x1",
    " 1 ",
    "",
)
ODD = (
    "9" * 4500,
    "\x00",
    "../..",
    "%2e%2e%2f",
    "<script>",
    "'\"",
    "{{7*7}}",
    "\u202e",
    "\ud800",
    "a" * 3000,
    "none",
    "{}",
    "%",
)
VALUES = {
    "model": ("tiny-a", "tiny-b"), "condition": ("none", "mless", "random"), "queries": ("all", "original", "last"),
    "view": ("whole", "aligned", "difference", "logratio"), "layer": NUMBERS, "head": NUMBERS, "problem": NUMBERS,
    "cls": ("all", "digits", "words"), "by": ("level",), "against": ("none", "mless"), "temperature": NUMBERS,
    "start": NUMBERS, "text": ("3",), "sample": NUMBERS, "verdict": ("right", "wrong", "odd"), "token": ("x",),
}  # fmt: skip
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW", "get")
FIELDS = ("host", "origin", "cookie", "authorization", "sec-fetch-site", "range", "content-length", "accept", "te")
pytestmark = pytest.mark.slow


def often(*common: SearchStrategy[str]) -> SearchStrategy[str]:
    return st.one_of(*common, *common, st.sampled_from(ODD), st.text(max_size=20))


@st.composite
def queries(draw: st.DrawFn) -> str:
    """Most of what an answer needs, most of it with values that there are."""
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=8, unique=True))
    pairs = [(name, draw(often(st.sampled_from(VALUES[name])))) for name in names]
    return urlencode([(name, value.encode("utf-8", "surrogatepass")) for name, value in pairs])


@st.composite
def paths(draw: st.DrawFn, tables: tuple[str, ...]) -> str:
    named = st.sampled_from([*ANSWERS, *MEASURED, "overview", "ready"])
    table = often(st.sampled_from(tables)).map(lambda name: f"table/{name}.csv")
    number = often(st.just("0"), st.just("0"), st.sampled_from(("9" * 4500, *NUMBERS[1:5])))
    inside = st.tuples(number, often(named, named, table)).map(lambda pair: f"/api/{pair[0]}/{pair[1]}")
    static = often(st.sampled_from(["page.js", "style.css", "built.json"])).map(lambda name: f"/static/{name}")
    return draw(st.one_of(inside, inside, inside, static, st.sampled_from(["/", "/api/runs"]), st.text(max_size=40)))


@st.composite
def headers(draw: st.DrawFn) -> dict[str, str]:
    """With the token mostly, and with anything at all at times."""
    good = {"authorization": f"Bearer {ACCESS.token}"}
    values = st.sampled_from(["127.0.0.1:1", "[::1", "null", "none", "cross-site", "bytes=5-1", "Bearer x", "a=b;=;;"])
    odd = st.dictionaries(st.sampled_from(FIELDS), st.one_of(values, st.text(max_size=20)), max_size=3)
    return good | draw(st.one_of(st.just({}), st.just({}), odd))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return RECIPE.build(tmp_path_factory.mktemp("fuzzed") / "run")


@pytest.fixture(scope="module")
def app(run: Run) -> Starlette:
    return application([run.path], ACCESS)


def assert_meant(found: Answer, asked: str) -> None:
    assert found.status in (200, 206, 400, 403, 404, 405, 413, 414, 416, 431), f"{found.status} {found.content} {asked}"
    assert b"Traceback" not in found.content, asked
    if found.headers.get("content-type") == "application/json" and found.status >= 400 and found.content:
        assert found.error


@given(data=st.data())
@settings(
    max_examples=TIMES, deadline=None, derandomize=not is_long(), database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_no_request_is_answered_with_a_bug(app: Starlette, run: Run, data: st.DataObject) -> None:
    path = data.draw(paths(tuple(tables_of(run))))
    method = data.draw(st.sampled_from(["GET", "GET", "POST", *METHODS]))
    if any(f"/{name}" in path for name in MEASURED):
        method = data.draw(st.sampled_from(["POST", "POST", method]))
    given_headers = {name: value.encode("utf-8", "replace").decode() for name, value in data.draw(headers()).items()}
    path = clean(path)
    address = f"{quote(path, safe='/') if data.draw(st.booleans()) else path}?{data.draw(queries())}"
    assert_meant(sent(app, address, method, given_headers), f"{method} {address} {given_headers}")


def clean(path: str) -> str:
    """As a server hands a path on: decoded, with a sign for what is no text, and without a query."""
    return path.encode("utf-8", "replace").decode().replace("?", "")
