"""Starts the explorer, on this machine alone unless told otherwise, and opens the browser when it can answer."""

from __future__ import annotations

import errno
import html
import secrets
import socket
import tempfile
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

from fillerscope.errors import FigureError
from fillerscope.store.addresses import address_of

HOST = "127.0.0.1"
EVERYWHERE = ("0.0.0.0", "::")
PORTS = range(20_000, 65_536)
DRAWS = 16  # of ports, of which most must be free
TAKEN = (errno.EADDRINUSE, errno.EACCES)


def serve(paths: Sequence[Path], port: int | None, browse: bool, say: Callable[[str], None], host: str = HOST) -> None:
    """Until somebody presses Ctrl-C. Without a port one is drawn: what a browser has kept for an address that others
    could have had before, such as a service worker, would see the token."""
    import uvicorn

    from fillerscope.report.explorer.access import Access
    from fillerscope.report.explorer.connections import configured
    from fillerscope.report.explorer.server import Explorer, opened

    if not host.strip():
        raise FigureError(f"--host is empty: give an address of this machine, such as {HOST}, or leave it out")
    listening = _listen(port, host)
    bound = listening.getsockname()[0]  # a name may have more addresses, and others may listen there
    access = Access(hosts=names_of(host) | names_of(bound))
    runs, left_out = opened(paths)
    app = Explorer(runs, left_out).application(access)
    name = socket.gethostname() if bound in EVERYWHERE else _in_address(bound)
    address = f"http://{name}:{listening.getsockname()[1]}/?token={access.token}"
    for line in left_out:
        say(line)
    say(f"Looking at {', '.join(address_of(run.path) for run in runs)}: {address} (Ctrl-C ends it)")
    with _browsing(address, browse), suppress(KeyboardInterrupt):  # the way to end it
        uvicorn.Server(configured(app)).run(sockets=[listening])


def names_of(host: str) -> frozenset[str]:
    """The names that browsers may ask under a server that listens at this address."""
    import psutil

    from fillerscope.report.explorer.access import LOOPBACK

    if host not in EVERYWHERE:
        return LOOPBACK | {_in_address(host).lower()}
    known = [one.address.partition("%")[0] for cards in psutil.net_if_addrs().values() for one in cards]
    own = socket.gethostname().lower()
    return LOOPBACK | {own, f"{own}.local"} | {_in_address(address).lower() for address in known}


def _in_address(host: str) -> str:
    return f"[{host}]" if ":" in host else host


@contextmanager
def _browsing(address: str, browse: bool) -> Iterator[None]:
    """Opens the browser with a file that only this account can read: the arguments of a process, and so the token in
    an address, can be read by all."""
    if not browse:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="fillerscope-", ignore_cleanup_errors=True) as folder:
        page = Path(folder) / "open.html"
        page.touch(mode=0o600)
        page.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(address)}">')
        Thread(target=webbrowser.open, args=(page.as_uri(),), daemon=True).start()
        yield


def _listen(port: int | None, host: str = HOST) -> socket.socket:
    """Bound here, so that the address which is told is the one that answers."""
    try:
        return _bound(port, host) if port else _drawn(host)
    except OSError as error:
        raise FigureError(_cannot(error, host, port)) from None


def _drawn(host: str) -> socket.socket:
    """At a port that nobody else can choose. What the system calls free is decided by whoever holds all other ports."""
    free: list[socket.socket] = []
    try:
        for _ in range(DRAWS):
            try:
                free.append(_bound(secrets.choice(PORTS), host))
            except OSError as error:
                if error.errno not in TAKEN:
                    raise
        if len(free) <= DRAWS // 2:
            raise FigureError("another program holds most ports of this machine: end it, or choose one with --port")
        return free.pop()
    finally:
        for one in free:
            one.close()


def _bound(port: int, host: str) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)  # two may be bound to a port, but not listen
    except OSError:
        listening.close()
        raise
    return listening


def _cannot(error: OSError, host: str, port: int | None) -> str:
    place = "" if host == HOST else f" of {host}"
    of_port = host == HOST or error.errno in TAKEN
    what = "leave --port out for a free one" if of_port else "--host takes an address of this machine"
    where = f"port {port}" if port else "a free port"
    return f"cannot serve at {where}{place}: {error.strerror or error}; {what}"
