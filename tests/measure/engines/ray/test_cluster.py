"""The cluster of a run: what is refused, how much fits, and that nobody else reaches one of our own."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from fillerscope.errors import StudyError
from fillerscope.measure.engines.ray import cluster as module
from fillerscope.measure.engines.ray.cluster import RayOptions, _fitting, require_ray
from support.ray_runs import needs_ray


def missing(_: str) -> str:
    raise PackageNotFoundError


@pytest.mark.parametrize(
    ("version", "told"),
    [
        (missing, "Ray is missing, which --engine ray needs: pip install 'fillerscope[ray]'"),
        (lambda _: "2.51.2", "--engine ray needs Ray 2.59 or later, not 2.51.2"),
        (lambda _: "1.99.0", "needs Ray 2.59 or later, not 1.99.0"),
    ],
)
def test_without_a_ray_that_is_closed_to_others_nothing_starts(
    version: Any, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "version", version)
    with pytest.raises(StudyError, match=re.escape(told)) as caught:
        require_ray()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("version", ["2.59.0", "2.60.0", "2.100.1", "3.0.0rc1"])
def test_newer_versions_of_ray_are_taken(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "version", lambda _: version)
    require_ray()


@pytest.mark.parametrize(
    ("given", "told"),
    [({"workers": 0}, "workers are 1 or more"), ({"cpus": -1.0}, "0 or more"), ({"gpus": -0.5}, "0 or more"),
     ({"address": "ray://head:10001"}, "ray job submit -- fillerscope run STUDY --engine ray")],
)  # fmt: skip
def test_options_that_cannot_be_are_refused(given: Any, told: str) -> None:
    with pytest.raises(StudyError, match=told):
        RayOptions(**given)


@pytest.mark.parametrize(
    ("given", "told"),
    [(3, "^ray is a mapping with some of workers, cpus, gpus, address, such as {'workers': 4}, not 3$"),
     ({"worker": 2}, "not {'worker': 2}$"), ({"workers": "x"}, "^ray: workers is a whole number, not 'x'$"),
     ({"workers": 1.5}, "whole number, not 1.5"), ({"workers": True}, "not True"), ({"address": 3}, "is a text, not 3"),
     ({"cpus": "2"}, "^ray: cpus is a number, not '2'$"), ({"gpus": float("nan")}, "gpus is a number, not nan")],
)  # fmt: skip
def test_choices_of_another_kind_are_refused_in_one_line(given: Any, told: str) -> None:
    with pytest.raises(StudyError, match=told):
        RayOptions.of(given)


def test_choices_of_their_kind_are_taken() -> None:
    assert RayOptions.of(None) is None
    assert RayOptions.of({"workers": 2, "cpus": 1, "gpus": 0.5}) == RayOptions(2, 1, 0.5)


@pytest.mark.parametrize(
    ("resources", "cpus", "gpus", "count"),
    [({"CPU": 8.0}, 2, 0, 4), ({"CPU": 7.0}, 2, 0, 3), ({"CPU": 64.0, "GPU": 4.0}, 1, 1, 4), ({"CPU": 1.0}, 2, 0, 1),
     ({"GPU": 2.0}, 0, 0.5, 4), ({}, 0, 0, 1)],
)  # fmt: skip
def test_as_many_workers_as_the_cluster_has_room_for(
    resources: dict[str, float], cpus: float, gpus: float, count: int
) -> None:
    assert _fitting(resources, cpus, gpus) == count


OPENED = """
import json, os, psutil
from fillerscope.measure.engines.ray.cluster import RayOptions, cluster
with cluster(RayOptions(workers=1), "cpu", 1, 1) as needs:
    import ray
    ours = [psutil.Process(), *psutil.Process().children(recursive=True)]
    listening = {c.laddr.ip for one in ours for c in one.net_connections("inet") if c.status == psutil.CONN_LISTEN}
    told = {"address": ray.get_runtime_context().gcs_address, "listening": sorted(listening),
            "mode": os.environ["RAY_AUTH_MODE"], "reports": os.environ["RAY_USAGE_STATS_ENABLED"],
            "token": os.environ["RAY_AUTH_TOKEN"], "names": [one.name() for one in ours]}
    print(json.dumps(told), flush=True)
    input()
assert (os.environ["RAY_AUTH_MODE"], os.environ.get("RAY_AUTH_TOKEN")) == ("disabled", None)
"""
STRANGER = "import ray, sys; ray.init(address=sys.argv[1], logging_level=50); print(ray.cluster_resources())"


@contextmanager
def python(code: str, *words: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A process that does not outlive the block."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | variables
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words], env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait(60)


@needs_ray
@pytest.mark.slow
def test_our_own_cluster_is_closed_to_everybody_else() -> None:
    """Though the user has turned tokens off for Ray at large."""
    with python(OPENED, RAY_AUTH_MODE="disabled") as owner:
        assert owner.stdout is not None
        line = owner.stdout.readline()
        assert line, owner.communicate(timeout=60)[1]
        told = json.loads(line)
        assert {"gcs_server", "raylet"} <= set(told["names"])
        assert told["listening"]
        assert all(ipaddress.ip_address(one.removeprefix("::ffff:")).is_loopback for one in told["listening"])
        assert (told["mode"], told["reports"]) == ("token", "0")
        assert len(told["token"]) == 64
        here = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # Ray looks for other addresses than loopback, in vain
        for token in ({"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}):
            with python(STRANGER, told["address"], **here, **token) as stranger:
                with pytest.raises(subprocess.TimeoutExpired):  # it knocks for ever
                    stranger.communicate(timeout=20)
                stranger.kill()
                out, error = stranger.communicate(timeout=60)
                assert out == ""
                assert "Unauthenticated: RPC error: InvalidAuthToken" in error, error[-2000:]
        with python(STRANGER, told["address"], **here, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=told["token"]) as friend:
            out, error = friend.communicate(timeout=120)
            assert friend.returncode == 0, error[-2000:]  # the address was right
        _, error = owner.communicate("\n", timeout=120)
        assert owner.returncode == 0, error


TWICE = """
import json, os, psutil, re, socket, threading, time
from importlib import import_module
from fillerscope.measure.engines.ray.cluster import RayOptions, cluster

sent = []

def listen(port):
    while True:
        server = socket.socket(socket.AF_INET6)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("::ffff:127.0.0.1", port))
            server.listen()
            break
        except OSError:  # the cluster has not ended yet
            server.close()
            time.sleep(0.001)
    while True:
        threading.Thread(target=read, args=server.accept()[:1], daemon=True).start()

def read(client):
    client.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0]))  # settings of HTTP/2
    while data := client.recv(65536):
        sent.extend(one.decode() for one in re.findall(rb"Bearer ([0-9a-f]{64})", data))

tokens = []
for _ in range(2):
    with cluster(RayOptions(workers=1), "cpu", 1, 1):
        import ray
        assert ray.get(ray.remote(lambda: 1).remote()) == 1
        tokens.append(os.environ["RAY_AUTH_TOKEN"])
        assert import_module("ray._raylet").AuthenticationTokenLoader.instance().get_raw_token() == tokens[-1]
        ours = [psutil.Process(), *psutil.Process().children(recursive=True)] if len(tokens) == 1 else []
        ports = {c.laddr.port for one in ours for c in one.net_connections("inet") if c.status == psutil.CONN_LISTEN}
        for port in ports:
            threading.Thread(target=listen, args=(port,), daemon=True).start()
    left = import_module("ray._raylet").AuthenticationTokenLoader.instance().get_raw_token(ignore_auth_mode=True)
    print(json.dumps({"token": tokens[-1], "sent": sent, "left": left, "variables": str(dict(os.environ))}), flush=True)
os._exit(0)
"""


@needs_ray
@pytest.mark.slow
def test_a_token_opens_one_cluster(tmp_path: Path) -> None:
    """Processes of Ray's send it to whoever listens at the cluster's ports when it ends."""
    with python(TWICE, HOME=str(tmp_path)) as process:
        out, error = process.communicate(timeout=300)
    ended = [json.loads(line) for line in out.splitlines()]
    assert len(ended) == 2, error
    tokens = [one["token"] for one in ended]
    assert len(set(tokens)) == 2
    assert set(ended[1]["sent"]) <= {tokens[0]}, "the second token was sent to a port of the first cluster"
    for one in ended:
        assert one["token"] not in one["variables"]
        assert not one["left"], "Ray still has it"


CONNECTING = """
import sys
{}
from fillerscope.measure.engines.ray.cluster import RayOptions, cluster
with cluster(RayOptions(address=sys.argv[1] or None), "cpu", 1, 1):
    pass
"""


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "address", "told"),
    [
        ("", "127.0.0.1:9", "the Ray cluster at 127.0.0.1:9 was not reached: .*refused"),
        ("import ray", "", "Ray was imported before, and a cluster of ours would be open to others"),
    ],
)
def test_what_does_not_start_is_one_line(first: str, address: str, told: str) -> None:
    with python(CONNECTING.format(first), address) as process:
        _, error = process.communicate(timeout=300)
    assert re.search(f"StudyError: {told}", error.splitlines()[-1]), error


def test_a_cluster_of_another_account_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would take the address from whoever wrote the file, or has a process of that name."""
    file = tmp_path / "ray_current_cluster"
    monkeypatch.setattr(module, "CURRENT", file)
    with pytest.raises(StudyError, match="no Ray cluster was found on this machine"):
        module._current()
    file.write_text("10.0.0.1:6379\n")
    assert module._current() == "10.0.0.1:6379"
    if os.getuid() == 0:  # whose clusters everybody may take
        os.chown(file, 54321, -1)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(StudyError, match="is another user's"):
        module._current()


@needs_ray
@pytest.mark.parametrize("address", [None, "auto"])
def test_ray_is_never_left_to_look_for_a_cluster(address: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    asked: list[str] = []
    monkeypatch.setattr(module, "_current", lambda: "10.0.0.1:6379")
    monkeypatch.setattr(module, "_knock", asked.append)
    monkeypatch.setattr(ray, "init", lambda address, **_: asked.append(address))
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with module._connected(address):
        assert asked == ["10.0.0.1:6379"] * 2


def test_a_link_to_a_file_of_roots_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody can choose the text of some files of root's, such as /proc/PID/comm of a program that runs as root."""
    (tmp_path / "comm").write_text("10.6.6.6:6379\n")
    file = tmp_path / "ray_current_cluster"
    file.symlink_to(tmp_path / "comm")
    monkeypatch.setattr(module, "CURRENT", file)
    with pytest.raises(StudyError, match="no Ray cluster was found on this machine"):
        module._current()
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(StudyError, match="is another user's"):
        module._current()
    (tmp_path / "folder").symlink_to(tmp_path)
    file.unlink()
    file.write_text("10.6.6.6:6379\n")
    monkeypatch.setattr(module, "CURRENT", tmp_path / "folder" / file.name)
    with pytest.raises(StudyError, match="is another user's"):
        module._current()


@needs_ray
@pytest.mark.parametrize("given", ["option", "environment"])
def test_what_ray_calls_local_is_a_closed_cluster_of_our_own(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[float] = []

    @contextmanager
    def own(cpus: float, gpus: float) -> Iterator[None]:
        started.append(cpus + gpus)
        yield

    monkeypatch.setattr(module, "_own", own)
    monkeypatch.setattr(module, "_is_connected", lambda: False)
    if given == "environment":
        monkeypatch.setenv("RAY_ADDRESS", "local")
    options = RayOptions(workers=1, address="local" if given == "option" else None)
    with module.cluster(options, "cpu", 1, 1):
        assert started


@needs_ray
def test_an_address_without_a_port_is_refused() -> None:
    with pytest.raises(StudyError, match="an address is a host and a port"), module._connected("somewhere"):
        pass
