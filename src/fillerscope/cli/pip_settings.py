"""Where pip fetches packages from on this machine, as its settings and PIP_ variables say, without secrets."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys

PLACES = ("index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "proxy")


def pip_places() -> str:
    """The settings that decide where packages come from, and the names of other PIP_ variables, in one line."""
    found = [f"{key}: {shown(value)}" for key, value in _settings() if key.rpartition(".")[2] in PLACES]
    variables = sorted(name for name in os.environ if name.startswith("PIP_"))
    others = [name for name in variables if _option(name) not in PLACES]
    told = found or ["https://pypi.org"]
    return "; ".join(told + ([f"also set: {', '.join(others)}"] if others else []))


def shown(value: str) -> str:
    """A setting without what may be secret: of an address, only its scheme and host are left."""
    return " ".join(_address(word) for word in value.split())


def _address(word: str) -> str:
    scheme, mark, rest = word.rpartition("://")
    if scheme == "file" or not (mark or "@" in word):
        return word
    host, *path = re.split(r"[/?#]", rest.rpartition("@")[2], maxsplit=1)  # passwords hold any sign, a host does not
    return f"{scheme}{mark}{host}" + (
        "/..." if any(path) and path != ["simple"] else "".join(f"/{part}" for part in path)
    )


def _settings() -> list[tuple[str, str]]:
    """What `pip config list` prints, which holds PIP_ variables as `:env:`."""
    command = [sys.executable, "-P", "-m", "pip", "config", "list", "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
    if done.returncode:
        raise OSError(f"`pip config list` failed: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
    lines = [line.partition("=") for line in done.stdout.splitlines() if "=" in line]
    return [(key, str(ast.literal_eval(value))) for key, _, value in lines]


def _option(variable: str) -> str:
    return variable.removeprefix("PIP_").lower().replace("_", "-")
