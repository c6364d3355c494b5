"""Starts the explorer on this machine alone, and opens the browser when it can answer."""

from __future__ import annotations

import socket
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread

from fillerscope.errors import FigureError

HOST, USUAL = "127.0.0.1", 8642


def serve(paths: Sequence[Path], port: int | None, browse: bool, say: Callable[[str], None]) -> None:
    """Until somebody presses Ctrl-C. Without a port the usual one, or any that is free."""
    import uvicorn

    from fillerscope.report.explorer.server import application

    app = application(paths)
    listening = _listen(port)
    address = f"http://{HOST}:{listening.getsockname()[1]}/"
    say(f"Looking at {', '.join(str(path) for path in paths)}: {address} (Ctrl-C ends it)")
    if browse:
        Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=1))
    with suppress(KeyboardInterrupt):  # the way to end it
        server.run(sockets=[listening])


def _listen(port: int | None) -> socket.socket:
    """Bound here, so that the address which is told is the one that answers."""
    for wanted in (USUAL, 0) if port is None else (port,):
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, wanted))
            listening.listen(128)  # two may be bound to a port, but not listen
        except OSError as error:
            listening.close()
            if port is not None:
                reason = error.strerror or error
                raise FigureError(f"cannot serve at port {port}: {reason}; leave --port out for a free one") from None
        else:
            return listening
    raise FigureError("no port is free on this machine")
