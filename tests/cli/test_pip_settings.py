"""The settings of pip are named without their secrets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fillerscope.cli.pip_settings import pip_places, shown


@pytest.mark.parametrize(
    ("value", "safe"),
    [
        ("https://pypi.org/simple", "https://pypi.org/simple"),
        ("https://jane:s3cret@host.example/simple/", "https://host.example/..."),
        ("https://jane:s3/c#r?e@t@host.example:8443/simple", "https://host.example:8443/simple"),
        ("https://host.example/s3cret/pypi/simple", "https://host.example/..."),
        ("https://host.example/simple?token=s3cret", "https://host.example/..."),
        ("jane:s3cret@proxy.example:3128", "proxy.example:3128"),
        ("file:///srv/wheels https://s3cret@a.example", "file:///srv/wheels https://a.example"),
        ("/srv/wheels", "/srv/wheels"),
        ("1", "1"),
    ],
)
def test_only_the_host_of_an_address_is_shown(value: str, safe: str) -> None:
    assert shown(value) == safe


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(variable)
    path = tmp_path / "pip.conf"
    path.write_text(
        "[global]\nextra-index-url =\n    https://jane:s3cret@a.example/simple\n    https://b.example/simple\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(path))
    return path


@pytest.mark.usefixtures("settings")
def test_settings_and_variables_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://tom:s3cret@c.example/simple")
    monkeypatch.setenv("PIP_SOMETHING", "s3cret")
    told = pip_places()
    assert "global.extra-index-url: https://a.example/simple https://b.example/simple" in told
    assert ":env:.index-url: https://c.example/simple" in told
    assert told.endswith("also set: PIP_CONFIG_FILE, PIP_SOMETHING")
    assert "s3cret" not in told
    assert "jane" not in told


def test_without_settings_the_public_index_is_named(settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.write_text("")
    monkeypatch.setattr("fillerscope.cli.pip_settings._settings", list)  # a machine may have some for all its users
    assert pip_places() == "https://pypi.org; also set: PIP_CONFIG_FILE"
