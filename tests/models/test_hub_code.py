"""No code of the hub is fetched where the package `kernels` is installed, a stand-in for which is made here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
from transformers.integrations import hub_kernels
from transformers.integrations.gguf import kernels as gguf_kernels
from transformers.utils import import_utils

from fillerscope.models.hub_code import hide_hub_code
from fillerscope.models.in_memory import ModelInMemory
from fillerscope.models.loading import load_model, wrap
from fillerscope.models.resolve import resolve
from support.tiny import tiny_model, tiny_tokenizer


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is fetched from now on: transformers has found the package, as after an import before ours."""
    package, fetched = ModuleType("kernels"), list[str]()
    package.__spec__ = ModuleSpec("kernels", None)
    (described := tmp_path / f"kernels-{import_utils.KERNELS_MIN_VERSION}.dist-info").mkdir()
    (described / "METADATA").write_text(f"Name: kernels\nVersion: {import_utils.KERNELS_MIN_VERSION}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "kernels", package)
    monkeypatch.setattr(hub_kernels, "get_kernel_hub", lambda name, **_: fetched.append(name), raising=False)
    monkeypatch.setattr(gguf_kernels, "_gguf_kernel", None)
    import_utils.is_kernels_available.cache_clear()
    assert import_utils.is_kernels_available()
    yield fetched
    import_utils.is_kernels_available.cache_clear()


def test_transformers_that_has_found_the_package_finds_it_no_more(fetched: list[str]) -> None:
    hide_hub_code()
    assert not import_utils.is_kernels_available()
    assert gguf_kernels.get_gguf_kernel() is False
    with pytest.raises(ImportError, match="code of the hub"):
        hub_kernels.get_kernel_hub("one/kernel")
    with pytest.raises(ImportError):
        import kernels  # noqa: F401
    assert not fetched


WAYS: dict[str, Callable[[Path], object]] = {
    "by name": lambda folder: load_model(str(folder), device="cpu"),
    "wrapped": lambda _: wrap(tiny_model("llama"), tiny_tokenizer()),
    "in memory": lambda _: ModelInMemory.of(tiny_model("llama"), tiny_tokenizer()),
}


@pytest.mark.parametrize("way", WAYS)
def test_it_is_hidden_however_a_model_is_loaded(way: str, folder: Path, fetched: list[str]) -> None:
    WAYS[way](folder)
    assert not import_utils.is_kernels_available()
    assert not fetched


def test_it_is_hidden_where_a_gguf_file_is_converted(write_gguf: Callable[..., Path], fetched: list[str]) -> None:
    resolve(str(write_gguf()))
    assert not import_utils.is_kernels_available()
    assert not fetched
