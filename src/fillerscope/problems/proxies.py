"""The passwords of proxies that the environment names: a proxy may repeat its own in what it answers."""

from __future__ import annotations

import re
from urllib.parse import unquote
from urllib.request import getproxies


def passwords() -> list[str]:
    """As they are written, and as they are sent."""
    written = [password for address in getproxies().values() for password in _written(address)]
    return [*written, *map(unquote, written)]


def _written(address: str) -> set[str]:
    """What follows the first colon of `user:password@`: in what comes before a path, and, as a password may hold a
    slash by mistake, in all of the address."""
    whole = address.partition("://")[2] or address
    users = {text.rpartition("@")[0] for text in (whole, re.split("[/?#]", whole, maxsplit=1)[0])}
    return {user.partition(":")[2] for user in users} - {""}
