"""Which environment variable may be sent to which server: a study file comes from anybody.

A key goes to this machine where its variable has the name of an API key. For every other host, and every other name,
the user confirms the pair once (`--allow-key`), which is remembered in their settings. Over plain http no key leaves
this machine.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from platformdirs import user_config_path
from pydantic import SecretStr

from fillerscope.errors import GenerationError
from fillerscope.files import disk_errors, json_bytes, parse_json, read_limited, replacing
from fillerscope.study.generation import EndpointSpec

_LIKE_A_KEY = re.compile(r"(?i)(^|_)(api_?)?(key|token)$")
_OTHER_SECRETS = re.compile(
    r"(?i)secret|private|passw|access_key|session|credential|ssh|gpg|sign|encrypt|cookie|csrf|"
    r"^(aws|azure|gcp|google|github|gh|gitlab|npm|pypi|twine|docker|ci|kube|vault|database|db)_"
)


def read_key(spec: EndpointSpec) -> SecretStr:
    """The key for an endpoint, wrapped so that tracebacks do not show it; empty where its variable is not set."""
    key = SecretStr(os.environ.get(spec.key, "").strip())
    if not key.get_secret_value():
        return key
    if not (key.get_secret_value().isascii() and key.get_secret_value().isprintable()):
        raise GenerationError(f"the key in the environment variable {spec.key} has characters that no key has")
    require_allowed(spec)
    return key


def require_allowed(spec: EndpointSpec) -> None:
    """Refuse to send a variable to a host that it was not meant for."""
    parts = urlsplit(spec.url)
    host = parts.hostname or ""
    if is_loopback(host) and looks_like_a_key(spec.key):
        return
    if not is_loopback(host) and parts.scheme != "https":
        raise GenerationError(
            f"the key in {spec.key} would go to {host} over plain http, where others can read it; "
            f"give an https URL, or name a variable in endpoint.key that is not set if the server needs no key"
        )
    if [spec.key, host] not in _confirmed():
        raise GenerationError(
            f"the study asks to send the environment variable {spec.key} to {host}; "
            f"if that is meant, confirm it once with --allow-key {spec.key}"
        )


def looks_like_a_key(name: str) -> bool:
    return bool(_LIKE_A_KEY.search(name)) and not _OTHER_SECRETS.search(name)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine. Other names that end in localhost may be resolved to any address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def allow_keys(names: Iterable[str], specs: Iterable[EndpointSpec]) -> None:
    """Remember that these variables may go to the hosts of a study's endpoints that name them."""
    specs = list(specs)
    confirmed = _confirmed()
    for name in names:
        hosts = {urlsplit(spec.url).hostname or "" for spec in specs if spec.key == name}
        if not hosts:
            raise GenerationError(f"--allow-key {name}: no endpoint of the study names this variable")
        confirmed += [pair for host in sorted(hosts) if (pair := [name, host]) not in confirmed]
    file = _settings()
    with disk_errors(GenerationError, str(file), "make it writable"):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replacing(file) as draft:
            draft.write_bytes(json_bytes({"allowed": confirmed}))


def _confirmed() -> list[list[str]]:
    """Pairs of variable and host that the user has confirmed. A settings file that cannot be read confirms nothing."""
    try:
        pairs = parse_json(read_limited(_settings()))["allowed"]
        return [[str(name), str(host)] for name, host in pairs]
    except (OSError, ValueError, LookupError, TypeError):
        return []


def _settings() -> Path:
    return user_config_path("fillerscope") / "keys.json"
