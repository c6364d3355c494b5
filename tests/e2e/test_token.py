"""The explorer is for whoever has its token: in the browser of its user, and not in the pages of others."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pytest
from driving import PATIENCE, Served, look_at, ready, saved, serving, until
from playwright.sync_api import Browser, BrowserContext, Page, expect

from fillerscope.analysis.run import Run
from fillerscope.report.explorer import remeasure
from fillerscope.report.explorer.remeasure import Remeasured
from support.synthetic import Synthetic

RECIPE = Synthetic(right={"none": 0.5, "mless": 0.75}, problems=4, layers=2, heads=3)
# All that a page of another origin can do to an address, with and without the token.
ATTACK = """async ([base, token]) => {
    const measure = base + "api/0/problem?model=tiny-a&layer=1&head=1&queries=all&view=whole&problem=1";
    const tried = [], seen = [];
    const load = (tag, address) => new Promise(done => {
        const one = document.createElement(tag);
        one.onload = () => { if (tag !== "iframe") seen.push(`${tag} ${address}`); done(); };
        one.onerror = done;
        one[tag === "link" ? "href" : "src"] = address;
        if (tag === "link") one.rel = "stylesheet";
        document.body.append(one);
        setTimeout(done, 5000);
    });
    for (const address of [base, `${base}?token=${token}`, measure, base + "api/runs", base + "static/page.js"]) {
        for (const tag of ["img", "script", "link", "iframe"]) tried.push(load(tag, address));
        for (const mode of ["no-cors", "cors"]) for (const method of ["GET", "POST"])
            for (const headers of mode === "cors" ? [{}, { Authorization: `Bearer ${token}` }] : [{}])
                tried.push(fetch(address, { mode, method, headers, credentials: "include" }).then(
                    answer => answer.text(), () => "").then(text => { if (text) seen.push(`${mode} ${text}`); }));
        navigator.sendBeacon(address, "x");
    }
    await Promise.all(tried);
    const frame = document.body.appendChild(document.createElement("iframe"));
    frame.name = "posted";
    const form = document.body.appendChild(document.createElement("form"));
    Object.assign(form, { method: "post", action: measure, target: "posted" });
    form.submit();
    await new Promise(done => setTimeout(done, 1000));
    return seen;
}"""

# As a page does that has opened this one, or a person in the address bar.
CHANGE = """problem => new Promise(done => {
    addEventListener("hashchange", done, { once: true });
    location.hash = `tab=attention&view=whole&problem=${problem}`;
})"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return RECIPE.build(tmp_path_factory.mktemp("guarded") / "run")


@pytest.fixture
def served(run: Run) -> Iterator[Served]:
    with serving(run.path) as found:
        yield found


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A person's browser: all its tabs share cookies and storage. Refusals may be told in the console."""
    found = browser.new_context()
    found.set_default_timeout(1000 * PATIENCE)
    yield found
    found.close()


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Which problems were measured, one at a time; a model is not loaded for it."""
    asked: list[int] = []

    def measure(_: object, __: object, number: int) -> Remeasured:
        asked.append(number)
        return Remeasured(RECIPE._part(range(number, number + 1)), 0.0, "")

    monkeypatch.setattr(remeasure.Remeasurer, "measure", measure)
    monkeypatch.setattr(remeasure.Remeasurer, "at_hand", lambda *_: "")
    return asked


def test_the_token_is_taken_from_the_address_once(context: BrowserContext, served: Served) -> None:
    page = look_at(context.new_page(), f"{served.address}#tab=findings")
    assert page.url == f"{served.base}#tab=findings"
    page.reload()
    assert ready(page).url == f"{served.base}#tab=findings"
    other = look_at(context.new_page(), f"{served.base}#tab=methods")
    expect(other.locator("#main")).to_contain_text("Attention")
    page.locator(".findings li summary").first.click()
    name, content = saved(page.locator(".findings li a").first)
    assert name.endswith(".csv")
    assert content.count(b"\n") > 1
    assert served.token not in page.content()
    assert page.evaluate("() => document.cookie") == ""


def test_without_it_nothing_is_shown(context: BrowserContext, served: Served) -> None:
    page = context.new_page()
    for address in (served.base, f"{served.base}?token=wrong", f"{served.base}api/runs"):
        assert page.goto(address).status == 403
        expect(page.locator("body")).to_contain_text("open the address that `fillerscope view` printed")
    look_at(page, served.address)  # and the right one is as good as ever


def test_two_explorers_beside_each_other(context: BrowserContext, served: Served, run: Run) -> None:
    with serving(run.path) as other:
        pages = [look_at(context.new_page(), one.address) for one in (served, other)]
        for page in pages:
            page.reload()
            expect(ready(page).locator(".run-name")).to_have_text("run")


def test_an_explorer_that_was_started_again_says_what_to_do(context: BrowserContext, served: Served) -> None:
    page = look_at(context.new_page(), served.address)
    page.evaluate("() => localStorage.setItem('fillerscope-token', 'of-the-one-before')")
    page.reload()
    expect(page.locator("#page")).to_contain_text("open the address that `fillerscope view` printed")


def test_a_link_with_it_may_stand_elsewhere(context: BrowserContext, served: Served, tmp_path: Path) -> None:
    """As in the file that opens the browser."""
    (tmp_path / "open.html").write_text(f'<meta http-equiv="refresh" content="0; url={served.address}">')
    page = context.new_page()
    page.goto((tmp_path / "open.html").as_uri())
    ready(page)
    assert page.url.startswith(served.base)
    page.reload()
    ready(page)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_a_page_of_another_site_sees_nothing_and_measures_nothing(
    context: BrowserContext, served: Served, measured: list[int], tmp_path: Path, name: str
) -> None:
    """While its user looks at the explorer in another tab. Pages of other ports are of the same site."""
    look_at(context.new_page(), served.address)
    (tmp_path / "index.html").write_text("<!doctype html><title>evil</title><body></body>")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as elsewhere:
        Thread(target=elsewhere.serve_forever, daemon=True).start()
        page = context.new_page()
        page.goto(f"http://{name}:{elsewhere.server_port}/index.html")
        assert page.evaluate(ATTACK, [served.base, served.token]) == []
        elsewhere.shutdown()
    assert measured == []
    port = urlsplit(served.base).port
    cookies = {one["name"]: one for one in context.cookies() if one["name"] == f"fillerscope-{port}"}
    assert [(one["httpOnly"], one["sameSite"]) for one in cookies.values()] == [(True, "Strict")]


class Replacing(BaseHTTPRequestHandler):
    """A page that replaces the cookie of an explorer, at the port in its address, again and again."""

    page = b"<!doctype html><script>(async () => { for (;;) await fetch('/set' + location.pathname); })()</script>"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(self.page)))
        self.send_header("Set-Cookie", f"fillerscope-{self.path.rpartition('/')[2]}=x; Path=/")
        self.end_headers()
        self.wfile.write(self.page)

    def log_message(self, *_: object) -> None:
        pass


def test_a_page_that_replaces_the_cookie_locks_nobody_out(context: BrowserContext, served: Served) -> None:
    """Cookies are shared by all ports of a host: the address with the token opens the page in spite of them."""
    port, page = urlsplit(served.base).port, context.new_page()
    with ThreadingHTTPServer(("127.0.0.1", 0), Replacing) as elsewhere:
        Thread(target=elsewhere.serve_forever, daemon=True).start()
        other = context.new_page()
        other.goto(f"http://127.0.0.1:{elsewhere.server_port}/{port}")
        for _ in range(5):
            look_at(page, f"{served.address}#tab=attention")
            expect(page.locator("svg, canvas").first).to_be_visible()
        other.close()
        elsewhere.shutdown()


class Redirecting(BaseHTTPRequestHandler):
    """A site that sends whoever comes to an address of its choice: the path."""

    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("Location", unquote(self.path[1:]))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_another_site_that_redirects_here_runs_no_model(
    context: BrowserContext, served: Served, measured: list[int]
) -> None:
    """A browser says of an address that a person has typed that nobody led here, whichever site redirects."""
    look_at(context.new_page(), served.address)
    page = context.new_page()
    with ThreadingHTTPServer(("127.0.0.1", 0), Redirecting) as elsewhere:
        Thread(target=elsewhere.serve_forever, daemon=True).start()
        wanted = quote(f"{served.base}#tab=attention&view=whole&problem=1", safe="")
        page.goto(f"http://127.0.0.1:{elsewhere.server_port}/{wanted}")
        notice = page.locator(".permission")
        expect(notice).to_contain_text("This address asks for numbers that a model is run for")
        assert page.url.startswith(served.base)
        notice.locator("button").dispatch_event("click")  # which no person has done
        page.mouse.click(5, 5)
        page.keyboard.press("Enter")
        page.wait_for_timeout(500)
        assert measured == []
        notice.locator("button").click()
        expect(notice).to_have_count(0)
        ready(page)
        elsewhere.shutdown()
    assert measured == [1]


def test_the_button_cannot_be_pressed_as_soon_as_the_page_comes_to_the_front(
    context: BrowserContext, served: Served, measured: list[int]
) -> None:
    """Another window may have lain above it, which the first click of a double click has closed."""
    look_at(context.new_page(), served.address)
    page = context.new_page()
    page.goto(f"{served.base}#tab=attention&view=whole&problem=1")
    button = page.locator(".permission button")
    expect(button).to_be_enabled()
    pressed = (
        "(() => { dispatchEvent(new Event('focus')); return document.querySelector('.permission button').disabled })()"
    )
    assert page.evaluate(pressed)
    assert measured == []
    button.click()  # waits until it may be pressed
    expect(page.locator(".permission")).to_have_count(0)


# However long a test takes, the button of the notice is a new one.
NO_WAIT_ENDS = "{ const real = setTimeout; window.setTimeout = (act, wait) => wait > 500 ? 0 : real(act, wait); }"
# A key or the mouse, pressed on one page and let go on the one that it led to, and a second click that comes at once.
BEGUN_ELSEWHERE = {
    "a key": (lambda page: page.keyboard.down("F5"), lambda page: page.keyboard.up("F5")),
    "Enter that is held": (
        lambda page: page.keyboard.down("Enter"),
        lambda page: [page.keyboard.down("Enter"), page.keyboard.up("Enter")],
    ),
    "the mouse": (lambda page: page.mouse.down(), lambda page: page.mouse.up()),
    "a double click": (lambda page: page.mouse.click(5, 5), lambda page: page.mouse.click(*centre_of_button(page))),
}


def centre_of_button(page: Page) -> tuple[float, float]:
    page.wait_for_selector(".permission button", state="attached")
    box = page.locator(".permission button").bounding_box()
    assert box
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


@pytest.mark.parametrize("what", BEGUN_ELSEWHERE)
def test_what_was_begun_on_another_page_runs_no_model(
    context: BrowserContext, served: Served, measured: list[int], what: str
) -> None:
    begin, end = BEGUN_ELSEWHERE[what]
    look_at(context.new_page(), served.address)
    page = context.new_page()
    page.add_init_script(NO_WAIT_ENDS)
    with ThreadingHTTPServer(("127.0.0.1", 0), Redirecting) as elsewhere:
        Thread(target=elsewhere.serve_forever, daemon=True).start()
        wanted = quote(f"{served.base}#tab=attention&view=whole&problem=1", safe="")
        page.goto("data:text/html,Press F5")
        begin(page)
        page.goto(f"http://127.0.0.1:{elsewhere.server_port}/{wanted}")
        expect(page.locator(".permission")).to_be_visible()
        end(page)
        page.wait_for_timeout(300)
        assert measured == []
        expect(page.locator(".permission")).to_be_visible()
        elsewhere.shutdown()


def test_a_model_is_run_from_the_keyboard(context: BrowserContext, served: Served, measured: list[int]) -> None:
    page = look_at(context.new_page(), f"{served.address}#tab=attention")
    page.evaluate(CHANGE, 1)
    expect(page.locator(".permission button")).to_be_enabled()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    until(lambda: measured == [1])


def test_whoever_opens_the_page_with_its_token_is_asked_nothing(
    context: BrowserContext, served: Served, measured: list[int]
) -> None:
    page = look_at(context.new_page(), f"{served.address}#tab=attention&view=whole&problem=1")
    until(lambda: measured == [1])
    page.locator(".brand").click()
    page.locator("[data-tab=attention]").click()
    page.locator("select[name=problem]").select_option("2")
    until(lambda: measured == [1, 2])
    expect(page.locator(".permission")).to_have_count(0)


@pytest.mark.parametrize("with_token", [True, False])
def test_each_change_of_the_address_is_confirmed(
    context: BrowserContext, served: Served, measured: list[int], with_token: bool
) -> None:
    """Browsers let a page that has opened this one change it at any time, on plain http beyond this machine."""
    page = look_at(context.new_page(), f"{served.address}#tab=attention")
    if not with_token:
        page.reload()
        ready(page)
    notice, known = page.locator(".permission"), list[int]()
    for problem in (1, 2):
        page.mouse.click(5, 5)  # which says nothing about what comes later
        page.evaluate(CHANGE, problem)
        expect(notice).to_contain_text("This address asks for numbers that a model is run for")
        page.wait_for_timeout(300)
        assert measured == known
        notice.locator("button").click()
        expect(notice).to_have_count(0)
        known.append(problem)
        until(lambda: measured == known)
    ready(page)
    page.locator("select[name=problem]").select_option("3")  # a control of the page
    until(lambda: measured == [1, 2, 3])
    expect(notice).to_have_count(0)


def hold(monkeypatch: pytest.MonkeyPatch, measured: list[int]) -> Event:
    """Measurements wait until they are let go."""
    free, measure = Event(), remeasure.Remeasurer.measure

    def held(*asked: Any) -> Remeasured:
        result = measure(*asked)
        assert free.wait(PATIENCE)
        return result

    monkeypatch.setattr(remeasure.Remeasurer, "measure", held)
    assert measured == []
    return free


def note_of(page: Page) -> Any:
    return page.locator(".card.profile .note")


def asked_for(page: Page, problem: int) -> None:
    """By somebody who has opened the page with its token."""
    page.locator("select[name=problem]").select_option(str(problem))
    expect(note_of(page)).to_have_text("Measuring this problem again with the model \u2026")


def test_the_page_stays_quick_and_is_told_of_a_full_queue(
    context: BrowserContext, served: Served, measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    free = hold(monkeypatch, measured)
    pages = [look_at(context.new_page(), f"{served.address}#tab=attention&view=whole") for _ in range(6)]
    try:
        asked_for(pages[0], 0)
        until(lambda: measured == [0])
        for page in pages[1:5]:
            asked_for(page, 1)
        late = pages[5]
        late.locator("select[name=problem]").select_option("2")
        expect(note_of(late)).to_contain_text("measures one thing at a time, and 4 requests wait already: try again")
        look_at(late, f"{served.address}#tab=findings")
        late.locator(".findings li summary").first.click()
        assert saved(late.locator(".findings li a").first)[1]
        assert measured == [0]
    finally:
        free.set()
    for page in pages[:5]:
        expect(note_of(page)).to_contain_text("Measured again here")
    assert sorted(measured) == [0, 1, 1, 1, 1]


def test_what_nobody_waits_for_is_not_measured(
    context: BrowserContext, served: Served, measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who steps on gives up what they asked for before."""
    free = hold(monkeypatch, measured)
    page, other = (look_at(context.new_page(), f"{served.address}#tab=attention&view=whole") for _ in range(2))
    try:
        asked_for(other, 0)
        until(lambda: measured == [0])
        for problem in (1, 2, 3) * 4:
            with page.expect_request(lambda request, wanted=problem: f"problem={wanted}" in request.url):
                asked_for(page, problem)
    finally:
        page.wait_for_timeout(500)  # the server learns of those who hang up in a moment
        free.set()
    expect(note_of(page)).to_contain_text("Measured again here")
    assert measured == [0, 3]
