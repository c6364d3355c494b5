"""What may be sent to which server: a study file comes from anybody.

Questions go to this machine, and to other hosts that the user has confirmed once (`--allow-host`). A key goes to this
machine where its variable has the name of an API key; for every other host, and every other name, the user confirms
the pair once (`--allow-key`), which allows the questions too. Both are remembered in the user's settings. Over plain
http no key leaves this machine.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
    """The key for an endpoint, wrapped so that tracebacks do not show it; empty where its variable is not set.

    Refuses a server that may not have it, or may not have the questions, whichever of the replicas it is.
    """
    key = SecretStr(os.environ.get(spec.key, "").strip())
    value = key.get_secret_value()
    if not (value.isascii() and value.isprintable()):
        raise GenerationError(f"the key in the environment variable {spec.key} has characters that no key has")
    for url in spec.urls:
        _require_key(spec.key, url) if value else _require_host(url)
    return key


def _require_host(url: str) -> None:
    """Refuse to send questions to a host that the user has not confirmed."""
    host = host_of(url)
    if not is_loopback(host) and host not in _Confirmed.load().all_hosts():
        raise GenerationError(
            f"the study asks to send its questions to {host}; "
            f"if that is meant, confirm it once with --allow-host {host}"
        )


def _require_key(variable: str, url: str) -> None:
    """Refuse to send a variable to a host that it was not meant for."""
    host = host_of(url)
    if is_loopback(host) and looks_like_a_key(variable):
        return
    if not is_loopback(host) and urlsplit(url).scheme != "https":
        raise GenerationError(
            f"the key in {variable} would go to {host} over plain http, where others can read it; "
            f"give an https URL, or name a variable in endpoint.key that is not set if the server needs no key"
        )
    if (variable, host) not in _Confirmed.load().keys:
        raise GenerationError(
            f"the study asks to send the environment variable {variable} to {host}; "
            f"if that is meant, confirm it once with --allow-key {variable}={host}"
        )


def host_of(url: str) -> str:
    return urlsplit(url).hostname or ""


def _hosts_of(specs: Iterable[EndpointSpec]) -> list[str]:
    """The hosts of all servers of some endpoints."""
    return sorted({host_of(url) for spec in specs for url in spec.urls})


def looks_like_a_key(name: str) -> bool:
    return bool(_LIKE_A_KEY.search(name)) and not _OTHER_SECRETS.search(name)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine. Other names that end in localhost may be resolved to any address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def allow(keys: Iterable[str], hosts: Iterable[str], specs: Sequence[EndpointSpec]) -> None:
    """Remember what a study's endpoints may have: hosts its questions, and hosts a variable (`VARIABLE=HOST`)."""
    before = _Confirmed.load()
    pairs = [_pair(text, specs) for text in keys]
    named = [_named(host, specs) for host in hosts]
    _Confirmed([*dict.fromkeys([*before.keys, *pairs])], [*dict.fromkeys([*before.hosts, *named])]).save()


def _pair(text: str, specs: Sequence[EndpointSpec]) -> tuple[str, str]:
    """The variable and the host of `VARIABLE=HOST`; the host may be left out where the study has one for it."""
    name, _, wanted = text.partition("=")
    hosts = _hosts_of(spec for spec in specs if spec.key == name)
    if not hosts:
        raise GenerationError(f"--allow-key {name}: no endpoint of the study names this variable")
    if not wanted and len(hosts) > 1:
        listed = " or ".join(f"--allow-key {name}={host}" for host in hosts)
        raise GenerationError(f"--allow-key {name}: the study would send it to {len(hosts)} hosts; give {listed}")
    host = wanted.lower() or hosts[0]
    if host not in hosts:
        raise GenerationError(f"--allow-key {text}: no endpoint of the study with this variable is on {host}")
    return name, host


def _named(host: str, specs: Sequence[EndpointSpec]) -> str:
    if host.lower() not in _hosts_of(specs):
        raise GenerationError(f"--allow-host {host}: no endpoint of the study is on this host")
    return host.lower()


@dataclass(frozen=True)
class _Confirmed:
    """What the user has confirmed: pairs of variable and host, and hosts."""

    keys: list[tuple[str, str]]
    hosts: list[str]

    @classmethod
    def load(cls) -> _Confirmed:
        """Read the settings. A file that cannot be read confirms nothing."""
        try:
            record = parse_json(read_limited(_settings()))
            pairs = [(str(name), str(host)) for name, host in record["allowed"]]
            return cls(pairs, [str(host) for host in record.get("hosts", [])])
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return cls([], [])

    def save(self) -> None:
        file = _settings()
        with disk_errors(GenerationError, str(file), "make it writable"):
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with replacing(file) as draft:
                draft.write(json_bytes({"allowed": self.keys, "hosts": self.hosts}))

    def all_hosts(self) -> set[str]:
        return {*self.hosts, *(host for _, host in self.keys)}


def _settings() -> Path:
    return user_config_path("fillerscope") / "keys.json"
