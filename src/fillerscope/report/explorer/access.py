"""Who may ask the explorer: its own page, and programs that know its token.

The token is part of the address that `fillerscope view` prints. The page keeps it and sends it with every request for
data, in a header that pages of other origins cannot send. Browsers send cookies to every port of a host, so the cookie
opens only the page itself, which holds no data. Pages at other ports can replace it, so the package's own static files
need neither: the printed address opens the page whatever became of the cookie.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fillerscope.display import message as printable_line
from fillerscope.report.explorer.cookies import NAME
from fillerscope.report.payload_types import Refusal

LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
LONGEST = 4000  # bytes of path and query: int() refuses more digits than that with an error of its own
HEADER_BYTES = 16 * 1024  # of all headers but cookies; h11 limits only those that do not arrive at once
COOKIE_BYTES = 1 << 20  # of those that are named like ours; others are not looked at
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}  # fmt: skip
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?")
_DATA = "/api/"
STATIC = {"page.js": "text/javascript", "style.css": "text/css"}  # of the package: they hold nothing of a run
_OPEN = frozenset(f"/static/{name}" for name in STATIC)


@dataclass(frozen=True)
class Access:
    """What opens an explorer: its token, and the names that it may be asked under."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    hosts: frozenset[str] = LOOPBACK

    def __post_init__(self) -> None:
        if not self.token:
            raise ValueError("an explorer needs a token: leave it out for a random one")

    def set_cookie(self, request: Request, response: Response) -> Response:
        """The response with the cookie that opens the page when it is loaded again."""
        response.set_cookie(_cookie_name(request), self._cookie, path="/", httponly=True, samesite="strict")
        return response

    def refusal(self, request: Request) -> Response | None:
        """Why a request is not answered; None where it is."""
        found = _host(request)
        if found is None or found["name"] not in self.hosts:
            return _refused(request, 400, "this explorer is not asked under that host name: use the address it printed")
        if len(request.scope["path"].encode(errors="replace")) + len(request.scope["query_string"]) > LONGEST:
            return _refused(request, 414, f"the address is longer than {LONGEST} bytes")
        sizes = [(name, len(name) + len(value)) for name, value in request.scope["headers"]]
        if sum(size for name, size in sizes if name != b"cookie") > HEADER_BYTES:
            return _refused(request, 431, f"the headers are longer than {HEADER_BYTES} bytes")
        if sum(size for _, size in sizes) > HEADER_BYTES + COOKIE_BYTES:
            return _refused(request, 431, f"the cookies of this host are longer than {COOKIE_BYTES} bytes")
        if _has_body(request):
            return _refused(request, 413, "no request to this explorer has a body: leave it out")
        if _is_foreign(request):
            return _refused(request, 403, "requests from pages of other sites are refused")
        if not self._is_open_to(request):
            told = "open the address that `fillerscope view` printed, with its token (programs send it as a header, "
            return _refused(request, 403, f"this explorer needs its token: {told}`Authorization: Bearer TOKEN`)")
        return None

    @property
    def _cookie(self) -> str:
        return hmac.new(self.token.encode(), b"page", hashlib.sha256).hexdigest()

    def _is_open_to(self, request: Request) -> bool:
        path, scheme = request.scope["path"], "bearer "
        if path in _OPEN:
            return True
        for given in request.headers.getlist("authorization"):
            if given[: len(scheme)].lower() == scheme and _same(given[len(scheme) :], self.token):
                return True
        if path.startswith(_DATA):
            return False
        if path == "/" and "token" in request.query_params:  # which the page keeps: it must be the right one
            return _same(request.query_params["token"], self.token)
        return not _is_led(request) and any(_same(given, self._cookie) for given in _cookies(request))


class Guard:
    """Refuses requests without access. Every answer has the headers, refusals too."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        if scope["type"] != "http":  # of the rest none is routed anywhere
            return await self.app(scope, receive, send)
        refusal = self.access.refusal(Request(scope))
        return await (refusal or self.app)(scope, receive, headed)


def one_line(text: str, status: int) -> Response:
    """A refusal as the page expects it."""
    refusal: Refusal = {"error": printable_line(text)}
    return JSONResponse(refusal, status)


def _refused(request: Request, status: int, text: str) -> Response:
    """JSON where data was asked for, and text for a person elsewhere. Ends the connection: a body may follow."""
    data = request.scope["path"].startswith(_DATA)
    response = one_line(text, status) if data else PlainTextResponse(text, status)
    response.headers["Connection"] = "close"
    return response


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), wanted.encode())


def _host(request: Request) -> re.Match[str] | None:
    """Name and port as the browser knows them: another port than ours where one is forwarded."""
    given = request.headers.getlist("host")
    return _HOST.fullmatch(given[0].lower()) if len(given) == 1 else None


def _cookie_name(request: Request) -> str:
    """Cookies are shared by all ports of a host, and there may be an explorer at each."""
    found = _host(request)
    return f"{NAME}{found['port'] or 80}" if found else ""


def _cookies(request: Request) -> list[str]:
    """The values of our own cookie, of which pages at other ports may have set several. Nothing is decoded: that takes
    the square of a cookie's length in Python before 3.11.10, and makes our name of others."""
    wanted = re.compile(rf"(?:\A|;) *{re.escape(_cookie_name(request))}=([0-9a-f]{{64}})(?![^;])")
    return [value for given in request.headers.getlist("cookie") for value in wanted.findall(given)]


def _has_body(request: Request) -> bool:
    return "transfer-encoding" in request.headers or bool(request.headers.get("content-length", "").strip("0 "))


def _is_foreign(request: Request) -> bool:
    """Whether a page of another origin sent it. Links to the page itself may stand anywhere: they need the token."""
    own = f"http://{request.headers['host']}".lower()
    if any(origin.lower() != own for origin in request.headers.getlist("origin")):
        return True
    return _is_led(request) and not _opens_page(request)


def _is_led(request: Request) -> bool:
    """Whether another page sent the browser, which may be one at another port of this machine: cookies are sent along,
    and what stands behind the # of an address asks for a measurement."""
    return not set(request.headers.getlist("sec-fetch-site")) <= {"same-origin", "none"}


def _opens_page(request: Request) -> bool:
    wanted = ("navigate", "document")
    sent = tuple(request.headers.get(name) for name in ("sec-fetch-mode", "sec-fetch-dest"))
    return request.scope["path"] == "/" and request.method in ("GET", "HEAD") and sent == wanted
