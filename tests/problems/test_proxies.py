"""Passwords of proxies as libraries take them out of an address."""

from __future__ import annotations

import pytest

from fillerscope.problems.proxies import passwords

httpx2 = pytest.importorskip("httpx2")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("http://user:secret@host:3128", {"secret"}),
        ("http://user:LongSecretPart:xyz@host:3128", {"LongSecretPart:xyz"}),
        ("user:LongSecretPart:@host:3128", {"LongSecretPart:"}),
        ("http://user:a%3Ab%40c@host", {"a%3Ab%40c", "a:b@c"}),
        ("http://user:a@b@host/", {"a@b"}),
        ("http://user:secret@host/path@more", {"secret", "secret@host/path"}),
        ("http://user:pa/ss@host", {"pa/ss"}),
        ("http://user@host:3128", set()),
        ("http://host:3128", set()),
    ],
)
def test_a_password_begins_behind_the_first_colon(
    address: str, expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fillerscope.problems.proxies.getproxies", lambda: {"http": address})
    assert set(passwords()) == expected
    if "pa/ss" not in address:  # which is no address to httpx
        sent = httpx2.URL(address if "://" in address else f"http://{address}").password
        assert sent in {*expected, ""}
