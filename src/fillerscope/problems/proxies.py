"""The passwords of proxies that the environment names: a proxy may repeat its own in what it answers."""

from __future__ import annotations

from urllib.parse import unquote
from urllib.request import getproxies


def passwords() -> list[str]:
    """As they are written, and as they are sent."""
    found = [address.rpartition("@")[0].rpartition(":")[2] for address in getproxies().values() if "@" in address]
    return [*found, *map(unquote, found)]
