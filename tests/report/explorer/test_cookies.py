"""Of the cookies of a request none are left but those of explorers, wherever its bytes are divided."""

from __future__ import annotations

import random

import pytest

from fillerscope.report.explorer.cookies import CookieFilter

OWN = b"fillerscope-8000=" + b"a1" * 32
OTHER = b"fillerscope-65535=" + b"0f" * 32
HEAD = b"GET / HTTP/1.1\r\nHost: here\r\n"


def filtered(*pieces: bytes) -> bytes:
    one = CookieFilter()
    return b"".join(one.filtered(piece) for piece in pieces)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (b"", b""),
        (b" a=b", b""),
        (b" " + OWN, b" " + OWN + b";"),
        (OWN, b" " + OWN + b";"),
        (b" a=b; " + OWN + b"; c=d; " + OTHER, b" " + OWN + b"; " + OTHER + b";"),
        (b" " + OWN + b"0", b""),
        (b" x" + OWN, b""),
        (b" " + OWN[:-1], b""),
        (b" a=" + b" \t" * 5000 + b"; " + OWN, b" " + OWN + b";"),
        (b" a=\x00\x01\xff\r;" + OWN + b"; b=cookie:", b" " + OWN + b";"),
        (b" cookie: " + OWN, b""),
        (b" " + b"; ".join(b"n%d=%s" % (n, b"x" * 4000) for n in range(180)) + b"; " + OWN, b" " + OWN + b";"),
    ],
)
@pytest.mark.parametrize("name", [b"Cookie:", b"cookie:", b"COOKIE:"])
def test_only_our_own_are_left(name: bytes, sent: bytes, kept: bytes) -> None:
    request = HEAD + name + sent + b"\r\nAccept: x\r\n\r\n"
    wanted = HEAD + name + kept + b"\r\nAccept: x\r\n\r\n"
    assert filtered(request) == wanted
    assert filtered(request + request) == wanted + wanted  # one after the other
    chosen = random.Random(len(sent))
    for _ in range(20):
        cuts = sorted(chosen.sample(range(len(request)), 9))
        assert filtered(*(request[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True))) == wanted
    if len(request) < 1000:
        assert filtered(*(request[n : n + 1] for n in range(len(request)))) == wanted


@pytest.mark.parametrize(
    "sent", [HEAD + b"\r\n", b"Co", b"X-Cookie: a\r\n", b"Cookies: a\r\n", b"\x16\x03\x01", b"X: cookie:\n\n"]
)
def test_everything_else_is_passed_on(sent: bytes) -> None:
    assert filtered(sent, b"k: b\r\n") == sent + b"k: b\r\n"


def test_a_line_without_an_end_is_not_kept() -> None:
    one = CookieFilter()
    one.filtered(HEAD + b"Cookie: ")
    for _ in range(100):
        assert one.filtered(b"x" * 100_000) == b""
    assert len(one._held) < 1000
    assert one.filtered(b"; " + OWN + b"\r\n") == b" " + OWN + b";\r\n"
