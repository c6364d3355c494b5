"""What all tests share: importable helpers, one thread, real models, folders made once, and what was left out."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # for processes that tests start, too: one core is one worker's

import pytest
import torch
from filelock import FileLock
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton, which reads it once

sys.path.insert(0, str(Path(__file__).parent))
from support.network import refuse_network  # noqa: E402

# Neither limits nor health checks may depend on how busy the machine is.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell: commands would ignore it, too
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # under nohup, too
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

LEFT_OUT = pytest.StashKey[int]()

refuse_network()  # downloads of weights run in processes of their own


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], Any]], Path]:
    """Gives a folder that is made once for all workers. Nobody changes it: tests copy it."""
    base = tmp_path_factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def once(name: str, make: Callable[[Path], Any]) -> Path:
        folder = root / f"shared-{name}"
        with FileLock(f"{folder}.lock"):
            if not (done := Path(f"{folder}.done")).exists():
                make(folder)
                done.touch()
        return folder

    return once


def catalogue_model(name: str) -> Any:
    """A catalogue model in the user's own cache. A licence is accepted for nobody but the project's own CI."""
    from fillerscope.errors import ModelError
    from fillerscope.models.loading import load_model

    try:
        return load_model(name, device="cpu", accept_licence=bool(os.environ.get("CI")))
    except ModelError as error:
        if "licence" not in str(error):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def smollm2() -> Any:
    return catalogue_model("smollm2-135m")


@pytest.fixture(scope="session")
def gemma3() -> Any:
    return catalogue_model("gemma-3-270m")


# What `make chaos` runs, in its long form where there is one (support/chaos.py).
CHAOS = (
    "chaos/", "answers/endpoint/test_allowed.py", "answers/endpoint/test_limits.py", "answers/grading/test_seccomp.py",
    "e2e/test_hostile.py", "e2e/test_token.py", "models/test_changes.py", "models/test_fetch.py",
    "models/test_gguf_header.py", "models/test_kills.py", "prompts/test_chat_template.py",
    "report/explorer/test_access.py", "report/explorer/test_connections.py", "report/explorer/test_jobs.py",
    "report/explorer/test_server_fuzz.py", "store/test_formats.py", "test_files.py", "test_network.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name != "test_soak.py")  # it takes the longest: the others run beside it
    for item in items:
        if str(item.path.relative_to(Path(__file__).parent)).startswith(CHAOS):
            item.add_marker("chaos")
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a GPU"))


# `make test` says at its end what it left out. Workers tell the process that started them.


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = 0


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    left_out = getattr(node, "workeroutput", {}).get("left_out", 0)
    node.config.stash[LEFT_OUT] = max(node.config.stash[LEFT_OUT], left_out)  # all of them collect all tests


def pytest_deselected(items: list[pytest.Item]) -> None:
    if items:
        items[0].config.stash[LEFT_OUT] += sum(item.get_closest_marker("slow") is not None for item in items)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash[LEFT_OUT]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if count := config.stash[LEFT_OUT]:
        terminalreporter.write_line(f"{count} slow tests were left out; run them with: make test-slow")
