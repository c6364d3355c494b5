"""The explorer's server refuses what a page of its own would never ask."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from driving import Served, serving

from support.synthetic import Synthetic


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    synthetic = Synthetic(right={"none": 0.5, "mless": 0.75}, affine=True, activations=True)
    with serving(synthetic.build(tmp_path_factory.mktemp("synthetic") / "run").path) as found:
        yield found


def ask(served: Served, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """As it is written: no client tidies the path. With the token, unless another `Authorization` is given."""
    connection = http.client.HTTPConnection(urlsplit(served.address).netloc, timeout=60)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in (served.headers | headers).items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    connection.close()
    return found


def test_another_host_name_is_refused(served: Served) -> None:
    """So that a page from elsewhere cannot read a run by giving its own name this address."""
    port = urlsplit(served.address).port
    for host in ("evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", ""):
        for path in ("/", "/api/runs", "/static/page.js"):
            status, _, content = ask(served, path, Host=host)
            assert status == 400
            assert b"synthetic" not in content
    for host in (f"127.0.0.1:{port}", f"localhost:{port}"):
        assert ask(served, "/api/runs", Host=host)[0] == 200


def test_it_is_on_this_machine_alone(served: Served) -> None:
    port = urlsplit(served.address).port
    for address in {found[4][0] for found in socket.getaddrinfo(socket.gethostname(), port, socket.AF_INET)}:
        if address.startswith("127."):
            continue
        with socket.socket() as client:
            client.settimeout(5)
            assert client.connect_ex((address, port)) != 0


def test_nothing_can_be_written(served: Served) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        for path in ("/", "/api/runs", "/api/0/overview", "/static/page.js"):
            assert ask(served, path, method, **{"Content-Length": "0"})[0] == 405, f"{method} {path}"


def test_only_the_page_itself_is_served(served: Served) -> None:
    for name in (
        "../server.py", "..%2fserver.py", "%2e%2e/server.py", "..%5cserver.py", "....//server.py", "/etc/passwd",
        "%2fetc%2fpasswd", "page.js/../../server.py", "page.js%00.py", "", "nothing.js",
    ):  # fmt: skip
        status, _, content = ask(served, f"/static/{name}")
        assert status in (400, 404), name
        assert b"root:" not in content, name
        assert b"import" not in content, name


def test_only_the_run_s_tables_are_served(served: Served) -> None:
    for name in ("../../manifest.json", "..%2f..%2fmanifest", "heads%00", "nothing", "%2e%2e%2fheads"):
        status, _, content = ask(served, f"/api/0/table/{name}.csv")
        assert status in (400, 404), name
        assert b"sha256" not in content, name


def test_what_there_is_not_is_refused_in_one_line(served: Served) -> None:
    for path in (
        "7/overview", "7/head", "0/map", "0/map?model=other&condition=mless&queries=all",
        "0/map?model=tiny-a&condition=none&queries=all", "0/map?model=tiny-a&condition=mless&queries=nobody",
        "0/head?layer=1&head=1&queries=all", "0/head?layer=1&head=1&queries=all&view=sideways",
        "0/head?layer=0&head=1&queries=all&view=whole", "0/head?layer=99&head=1&queries=all&view=whole",
        "0/head?layer=1&head=-1&queries=all&view=whole", "0/head?layer=one&head=1&queries=all&view=whole",
        "0/layer?layer=4&queries=all&view=whole", "0/tokens?model=other", "0/tokens",
        "0/histogram?model=tiny-a&layer=4&cls=all", "0/histogram?model=tiny-a&layer=0&cls=all",
        "0/histogram?model=tiny-a&layer=1&cls=verbs", "0/activations?model=tiny-a&cls=verbs",
        "0/comparison?by=nothing", "0/flips?model=tiny-a&condition=nothing&against=none",
        "0/answers?model=tiny-a&temperature=hot", "0/answers?model=tiny-a&temperature=9",
        "0/answers?model=tiny-a&start=none", "0/ready?model=other",
    ):  # fmt: skip
        status, headers, content = ask(served, f"/api/{path}")
        assert status == 400, path
        assert headers["content-type"].startswith("application/json"), path
        said = json.loads(content)["error"]
        assert said, path
        assert "\n" not in said, path
        assert "Traceback" not in said, path


def test_every_answer_says_what_a_browser_may_do_with_it(served: Served) -> None:
    for path in ("/", "/static/page.js", "/static/style.css", "/api/runs", "/api/0/table/heads.csv"):
        status, headers, _ = ask(served, path)
        assert status == 200, path
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'", path
        assert policy["script-src"] == policy["connect-src"] == "'self'", path
        assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'", path
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["referrer-policy"] == "no-referrer", path
        assert "access-control-allow-origin" not in headers, path
