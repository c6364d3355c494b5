"""Who may ask the explorer: nothing is served without the token, and nothing to pages of other sites."""

from __future__ import annotations

import re
from hmac import compare_digest

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from fillerscope.report.explorer import access as module
from fillerscope.report.explorer.access import COOKIE_BYTES, HEADER_BYTES, LONGEST, Access, Guard
from support.asgi import Answer, sent

ACCESS = Access()
BEARER = {"authorization": f"Bearer {ACCESS.token}"}
SECRET = "what the run shows"
OWN_FILE = "/static/page.js"  # of the package, which holds nothing of a run
CLOSED = ("/", "/api/runs", "/api/0/problem", "/nothing")
PATHS = (OWN_FILE, *CLOSED)
LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


def guarded(access: Access) -> Starlette:
    """An application of which every answer is worth protecting."""

    def page(request: Request) -> Response:
        return access.set_cookie(request, HTMLResponse(SECRET))

    def data(_: Request) -> Response:
        return JSONResponse(SECRET)

    routes = [Route("/", page), Route("/api/runs", data), Route("/static/{name:path}", data)]
    routes.append(Route("/api/0/problem", data, methods=["POST"]))
    return Starlette(routes=routes, middleware=[Middleware(Guard, access)])


APP = guarded(ACCESS)


def asked(path: str, method: str = "", **headers: str) -> Answer:
    """Underscores in names of headers stand for hyphens."""
    return sent(APP, path, method or ("POST" if "problem" in path else "GET"), headers)


def assert_refused(found: Answer, status: int = 403) -> None:
    assert found.status == status
    assert SECRET.encode() not in found.content
    assert "set-cookie" not in found.headers
    assert found.headers["connection"] == "close"


def cookie_of(found: Answer) -> str:
    return found.headers["set-cookie"].partition(";")[0]


@pytest.mark.parametrize("path", CLOSED)
def test_nothing_without_the_token(path: str) -> None:
    wrong = ACCESS.token[:-1] + ("a" if ACCESS.token[-1] != "a" else "b")
    for given in ("", "Bearer", "Bearer ", f"Bearer {wrong}", f"Bearer {ACCESS.token}x", f"Basic {ACCESS.token}", "é"):
        assert_refused(asked(path, authorization=given))
    assert_refused(asked(path))
    for query in ("token=", f"token={wrong}", "token=%C3%A9", f"token={ACCESS.token}&token={wrong}", "token"):
        assert_refused(asked(f"{path}?{query}"))


def test_the_page_s_own_files_need_no_token() -> None:
    """Pages at other ports replace the cookie, and a script has no token in its address."""
    for cookie in ("", "fillerscope-8642=x"):
        assert asked(OWN_FILE, cookie=cookie, sec_fetch_site="same-origin").status == 200
    assert asked(OWN_FILE).status == asked(OWN_FILE, "HEAD").status == 200
    for site in ("cross-site", "same-site"):
        assert_refused(asked(OWN_FILE, sec_fetch_site=site))
    assert_refused(asked(OWN_FILE, origin="http://127.0.0.1:9999"))
    assert_refused(asked(OWN_FILE, host="evil.example"), 400)


@pytest.mark.parametrize(
    "path", ["", "built.json", "page.js/", "page.js/..", "/page.js", "../api/runs", "PAGE.JS", "page.js\0"]
)
def test_no_other_file_is_open(path: str) -> None:
    assert_refused(asked(f"/static/{path}"))
    assert asked(f"/static/{path}", **BEARER).status == 200


def test_the_token_as_a_header_opens_everything() -> None:
    for path in PATHS[:4]:
        assert asked(path, **BEARER).status == 200
    assert asked("/nothing", **BEARER).status == 404


def test_the_address_opens_the_page_and_nothing_else() -> None:
    assert asked(f"/?token={ACCESS.token}").status == 200
    for path in CLOSED[1:]:
        assert_refused(asked(f"{path}?token={ACCESS.token}"))


def test_the_cookie_opens_what_holds_no_data() -> None:
    """Browsers send it to every port of the host, so whoever listens at another one can have it."""
    cookie = cookie_of(asked(f"/?token={ACCESS.token}"))
    assert asked("/", cookie=cookie).status == 200
    for path in ("/api/runs", "/api/0/problem"):
        assert_refused(asked(path, cookie=cookie))
        assert_refused(asked(path, cookie=cookie, authorization=f"Bearer {cookie.partition('=')[2]}"))
    assert ACCESS.token not in cookie


@pytest.mark.parametrize("headers", [{}, {"authorization": f"Bearer {ACCESS.token}"}], ids=["refused", "answered"])
@pytest.mark.parametrize("path", ["/", "/api/runs"])
def test_other_sites_can_embed_nothing(path: str, headers: dict[str, str]) -> None:
    found = asked(path, **headers).headers
    assert found["cross-origin-resource-policy"] == found["cross-origin-opener-policy"] == "same-origin"
    assert {"frame-ancestors 'none'", "default-src 'none'"} <= set(found["content-security-policy"].split("; "))
    assert (found["x-content-type-options"], found["referrer-policy"]) == ("nosniff", "no-referrer")


def test_the_cookie_is_hidden_from_scripts_and_other_sites() -> None:
    set_cookie = asked(f"/?token={ACCESS.token}").headers["set-cookie"].lower()
    assert {"httponly", "samesite=strict", "path=/"} <= set(re.split("; *", set_cookie))
    assert "domain" not in set_cookie


def test_two_explorers_of_one_host_have_a_cookie_each() -> None:
    one, other = (asked("/", host=host, **BEARER) for host in ("localhost:8642", "localhost:9000"))
    assert cookie_of(one).partition("=")[0] == "fillerscope-8642"
    assert cookie_of(other).partition("=")[0] == "fillerscope-9000"
    both = f"{cookie_of(one)}; fillerscope-9000=of-another-explorer; theme=dark"
    assert asked("/", host="localhost:8642", cookie=both).status == 200
    assert_refused(asked("/", host="localhost:9000", cookie=both))


@pytest.mark.parametrize("more", ["{name}=0", "\xa0{name}=0", 'a="{quotes}"', '{name}="{cookie}"', "x{name}=0"])
def test_cookies_of_other_ports_lock_nobody_out(more: str) -> None:
    """Whoever listens at one may set as many as he likes. Python before 3.11.10 reads quotes in the square of time."""
    name, _, cookie = cookie_of(asked("/", **BEARER)).partition("=")
    given = more.format(name=name, cookie=cookie, quotes='\\"' * 300_000)
    for cookies in (f"{given}; {name}={cookie}", f"{name}={cookie}; {given}", f"{name}={cookie};{given}"):
        assert asked("/", cookie=cookies).status == 200
    assert_refused(asked("/", cookie=given.replace(cookie, "0" * 64)))
    assert_refused(asked("/", cookie=f"{name}={cookie}0"))


def test_a_wrong_token_in_the_address_is_refused_in_spite_of_the_cookie() -> None:
    """The page would keep it."""
    assert_refused(asked("/?token=wrong", cookie=cookie_of(asked("/", **BEARER))))


def test_every_explorer_has_a_token_of_its_own() -> None:
    assert len({Access().token for _ in range(100)}) == 100
    assert len(Access().token) >= 40
    assert ACCESS.token not in repr(ACCESS)
    with pytest.raises(ValueError, match="an explorer needs a token"):
        Access("")


def test_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(given: bytes, wanted: bytes) -> bool:
        compared.append((given, wanted))
        return compare_digest(given, wanted)

    monkeypatch.setattr(module.hmac, "compare_digest", compare)
    assert_refused(asked("/api/runs", authorization="Bearer wrong"))
    assert_refused(asked("/?token=wrong"))
    assert_refused(asked("/", cookie=f"fillerscope-8642={'0' * 64}"))
    assert [given for given, _ in compared] == [b"wrong", b"wrong", b"0" * 64]


@pytest.mark.parametrize("path", PATHS)
def test_pages_of_other_sites_are_refused(path: str) -> None:
    """Even with the token: who knows how they came by it."""
    for site in ("cross-site", "same-site", "", "odd"):
        assert_refused(asked(path, sec_fetch_site=site, **BEARER))
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9999", "https://127.0.0.1:8642", "", "file://"):
        assert_refused(asked(path, origin=origin, sec_fetch_site="same-origin", **BEARER))


def test_the_page_itself_is_not_another_site() -> None:
    own = {"origin": "http://127.0.0.1:8642", "sec_fetch_site": "same-origin"}
    for path in PATHS[:4]:
        assert asked(path, **own, **BEARER).status == 200
        assert asked(path, sec_fetch_site="none", **BEARER).status == 200
    forwarded = {"host": "localhost:9000", "origin": "http://localhost:9000"}
    assert asked("/api/0/problem", **forwarded, **BEARER).status == 200


def test_a_link_to_the_page_may_stand_anywhere() -> None:
    """In a notebook, or in the file that opens the browser. It needs the token, and brings no other answer."""
    assert asked(f"/?token={ACCESS.token}", **LINK).status == 200
    assert_refused(asked("/", **LINK))
    cookie = cookie_of(asked("/", **BEARER))
    assert asked("/", cookie=cookie, **LINK | {"sec-fetch-site": "same-origin"}).status == 200
    for site in ("same-site", "cross-site"):  # another port of this machine is the same site
        assert_refused(asked("/", cookie=cookie, **LINK | {"sec-fetch-site": site}))
        assert asked(f"/?token={ACCESS.token}", cookie=cookie, **LINK | {"sec-fetch-site": site}).status == 200
    assert_refused(asked("/", origin="http://evil.example", **LINK, **BEARER))
    for path in (OWN_FILE, *CLOSED[1:]):
        assert_refused(asked(path, **LINK, **BEARER))
    for name, value in (("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "iframe"), ("sec-fetch-dest", "script")):
        assert_refused(asked(f"/?token={ACCESS.token}", **LINK | {name: value}))
    assert_refused(asked(f"/?token={ACCESS.token}", "POST", **LINK))


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8642", "", "127.0.0.2", "[::1", "127.0.0.1:",
             "127.0.0.1:99999999", "user@127.0.0.1", "127.0.0.1/", "127.0.0.1\x00", "[::ffff:127.0.0.1]", "é", "0"],
)  # fmt: skip
def test_another_host_is_refused(host: str) -> None:
    """So that a page from elsewhere cannot ask by giving its own name this address."""
    for path in PATHS:
        assert_refused(asked(path, host=host, **BEARER), 400)


def test_this_machine_may_ask() -> None:
    for host in ("127.0.0.1", "127.0.0.1:1", "localhost:8642", "LOCALHOST", "[::1]:8642"):
        assert asked("/api/runs", host=host, **BEARER).status == 200


def test_hosts_that_were_asked_for() -> None:
    access = Access(hosts=frozenset({"10.1.2.3"}))
    bearer = {"authorization": f"Bearer {access.token}"}
    assert sent(guarded(access), "/api/runs", headers={"host": "10.1.2.3:8642"} | bearer).status == 200
    assert_refused(sent(guarded(access), "/api/runs", headers={"host": "10.1.2.3:8642"}))
    assert_refused(sent(guarded(access), "/api/runs", headers={"host": "10.1.2.4:8642"} | bearer), 400)


def test_bodies_long_headers_and_long_addresses_are_refused() -> None:
    for headers in ({"content_length": "1"}, {"content_length": "10000000000"}, {"transfer_encoding": "chunked"}):
        assert_refused(asked("/api/0/problem", **headers, **BEARER), 413)
    assert asked("/api/0/problem", content_length="0", **BEARER).status == 200
    assert asked("/api/runs?" + "a" * (LONGEST - 9), **BEARER).status == 200
    assert_refused(asked("/api/runs?" + "a" * (LONGEST - 8), **BEARER), 414)
    assert_refused(asked("/api/runs", accept="a" * HEADER_BYTES, **BEARER), 431)
    assert asked("/api/runs", cookie="a" * (180 * 4096), **BEARER).status == 200  # of other programs on this host
    assert_refused(asked("/api/runs", cookie="a" * (HEADER_BYTES + COOKIE_BYTES), **BEARER), 431)
    assert_refused(asked("/api/" + "9" * LONGEST + "/overview", **BEARER), 414)


def test_a_refusal_says_what_to_do() -> None:
    assert "open the address that `fillerscope view` printed" in asked("/api/runs").error
    told = asked("/")
    assert told.headers["content-type"].startswith("text/plain")
    assert b"open the address that `fillerscope view` printed" in told.content
