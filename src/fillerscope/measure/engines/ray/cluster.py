"""A Ray cluster to work on: one that is there, or one of our own on this machine, closed to everybody else.

Whoever reaches a Ray cluster runs code on it. Our own asks for a token, listens on loopback alone, and has neither a
dashboard nor usage reports.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, chdir, contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from ipaddress import ip_address
from numbers import Integral, Real
from pathlib import Path
from stat import S_ISREG
from typing import TypedDict

from fillerscope.display import first_line
from fillerscope.errors import StudyError
from fillerscope.study.arguments import shown

OLDEST = (2, 59)  # older ones have no tokens, or let web pages reach them
INSTALL = "pip install 'fillerscope[ray]'"
ADDRESS = "RAY_ADDRESS"
LOCAL = "local"  # Ray's word for a cluster that it starts
CURRENT = Path("/tmp/ray/ray_current_cluster")  # where `ray start` writes the address
LONGEST_ADDRESS = 300
KNOCK = 10.0  # seconds that a cluster has to answer
_PATIENT = {"agent_register_timeout_ms": 300_000, "worker_register_timeout_seconds": 300}  # of busy machines


class RayChoices(TypedDict, total=False):
    """How many workers there are, what each of them takes, and on which cluster; None is the default."""

    workers: int | None  # as many as the cluster has room for
    cpus: float | None  # for each worker: one for each of its threads, or one beside a GPU
    gpus: float | None  # for each worker: one where the study is measured on GPUs
    address: str | None  # of a cluster, as Ray writes it; else that of RAY_ADDRESS, else one of our own


@dataclass(frozen=True)
class RayOptions:
    """The choices of one run, checked."""

    workers: int | None = None
    cpus: float | None = None
    gpus: float | None = None
    address: str | None = None

    @classmethod
    def of(cls, choices: RayChoices | None) -> RayOptions | None:
        if choices is None:
            return None
        if not isinstance(choices, Mapping) or not choices.keys() <= RayChoices.__annotations__.keys():
            names = ", ".join(RayChoices.__annotations__)
            came = str(dict(choices)) if isinstance(choices, Mapping) else shown(choices)
            raise StudyError(f"ray is a mapping with some of {names}, such as {{'workers': 4}}, not {came:.80}")
        return cls(**choices)

    def __post_init__(self) -> None:
        for name in ("workers", "cpus", "gpus"):
            number, kind = getattr(self, name), Integral if name == "workers" else Real
            if number is not None and (not isinstance(number, kind) or isinstance(number, bool) or number != number):
                raise StudyError(f"ray: {name} is a {'whole ' if name == 'workers' else ''}number, not {shown(number)}")
        if self.address is not None and not isinstance(self.address, str):
            raise StudyError(f"ray: address is a text, not {shown(self.address)}")
        if (self.workers is not None and self.workers < 1) or (self.cpus or 0) < 0 or (self.gpus or 0) < 0:
            raise StudyError("Ray's workers are 1 or more, and the CPUs and GPUs of each are 0 or more")
        if (self.address or "").startswith("ray://"):
            raise StudyError(
                f"{self.address} is the address of a Ray client; run this on a machine of the cluster with --address "
                "auto, or submit it: ray job submit -- fillerscope run STUDY --engine ray"
            )


@dataclass(frozen=True)
class WorkerNeeds:
    """What Ray sets aside for a worker, and how many of them are started."""

    count: int
    cpus: float
    gpus: float


def require_ray() -> None:
    """Raise where Ray is missing or older than what closes its known holes."""
    try:
        installed = version("ray")
    except PackageNotFoundError:
        raise StudyError(f"Ray is missing, which --engine ray needs: {INSTALL}") from None
    if tuple(map(int, re.findall("[0-9]+", installed)[:2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise StudyError(f"--engine ray needs Ray {oldest} or later, not {installed}: {INSTALL}")


@contextmanager
def cluster(options: RayOptions, device: str, threads: int, most: int) -> Iterator[WorkerNeeds]:
    """Be connected to a cluster, and know how many workers fit it; `most` is how many have something to do.

    A cluster of our own ends with the block. One that the caller is connected to stays as it is."""
    require_ray()
    gpus = options.gpus if options.gpus is not None else float(device.startswith("cuda"))
    cpus = options.cpus if options.cpus is not None else 1.0 if gpus else float(threads)
    address = options.address or os.environ.get(ADDRESS)
    if address == LOCAL:  # what Ray itself would start is open to others
        address = None
    if address or _is_connected():
        with _connected(address):
            yield WorkerNeeds(min(most, options.workers or _room(cpus, gpus)), cpus, gpus)
    else:
        count = min(most, options.workers or _room_here(cpus, gpus))
        with _own(count * cpus, count * gpus):
            yield WorkerNeeds(count, cpus, gpus)


def _is_connected() -> bool:
    return "ray" in sys.modules and bool(sys.modules["ray"].is_initialized())


@contextmanager
def _connected(address: str | None) -> Iterator[None]:
    import ray

    if ray.is_initialized():
        yield
        return
    address = _current() if address in (None, "auto") else address
    with _explained(f"the Ray cluster at {address} was not reached"), _own_sigterm(), _at_root():
        _knock(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Raise an OSError where nobody listens: Ray itself would end this process with pages of its own."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise OSError("an address is a host and a port, such as 10.0.0.1:6379")
    socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK).close()


def _current() -> str:
    """The address of the cluster that this user or root has started here. Ray itself would believe a file, or a process
    of that name, whoever has made it."""
    told = "give the address of the cluster, such as --address 10.0.0.1:6379"
    try:
        # A link would lead to a file of root's whose text somebody else has chosen, such as one of /proc.
        with open(CURRENT, opener=_unlinked) as file:
            status = os.fstat(file.fileno())
            if status.st_uid not in (os.getuid(), 0) or not S_ISREG(status.st_mode) or CURRENT.parent.is_symlink():
                raise StudyError(f"{CURRENT} is another user's: {told}")
            return file.read(LONGEST_ADDRESS).strip()
    except (OSError, UnicodeDecodeError):
        raise StudyError(f"no Ray cluster was found on this machine ({CURRENT}): {told}") from None


def _unlinked(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


@contextmanager
def _own(cpus: float, gpus: float) -> Iterator[None]:
    """A cluster on this machine. CPUs are what Ray counts, not cores: all workers that were asked for are started."""
    _refuse_imported()
    # Sockets have short names. Ray opens its folder to all users, so it lies in one that is open to this one alone.
    folder = tempfile.mkdtemp(prefix="fs-ray-", dir="/tmp" if Path("/tmp").is_dir() else None)
    with ExitStack() as afterwards, _environment(_closed()):
        import ray

        try:
            with _explained("Ray did not start"), _own_sigterm(), _at_root():
                _read_token_again()
                afterwards.callback(_read_token_again)  # which finds what the user has set
                ray.init(
                    address=LOCAL, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
                    num_cpus=max(1, -int(-cpus // 1)), num_gpus=-int(-gpus // 1) or None, _temp_dir=f"{folder}/r",
                    _system_config={"worker_niceness": 0, **_PATIENT},
                )  # fmt: skip
            _refuse_open(ray.util.get_node_ip_address())
            if Path(folder).stat().st_mode & 0o077:
                raise StudyError(f"other users could reach into {folder}, where Ray has its sockets: try again")
            yield
        finally:
            ray.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


def _closed() -> Mapping[str, str]:
    """The variables that close a cluster, with a new token: processes of Ray's send theirs to whoever listens at the
    cluster's ports after its end. Some of the variables are read when Ray is imported."""
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # no cluster of several machines: all its servers are on loopback
    }


def _read_token_again() -> None:
    """Have Ray read from the environment whether there is a token, and which: it keeps the first one that it finds."""
    core = import_module("ray._raylet")
    core.Config.initialize("")
    core.AuthenticationTokenLoader.instance().reset_cache()


def _refuse_imported() -> None:
    """Raise where Ray was imported beforehand, without the variables that it reads only then."""
    constants = sys.modules.get("ray._private.ray_constants")
    if getattr(constants, "ENABLE_RAY_CLUSTER", False):
        raise StudyError(
            "Ray was imported before, and a cluster of ours would be open to others: connect to one with ray.init, "
            "or start the run in a process of its own"
        )


def _refuse_open(address: str) -> None:
    """Raise where our own cluster listens to other machines, whatever the reason."""
    if not ip_address(address).is_loopback:
        raise StudyError(f"the Ray cluster would listen on {address}: start one with a token, and give its address")


def _room(cpus: float, gpus: float) -> int:
    """How many workers a cluster has room for; at least one, which may wait for machines to come."""
    import ray

    return _fitting(ray.cluster_resources(), cpus, gpus)


def _room_here(cpus: float, gpus: float) -> int:
    import torch

    return _fitting({"CPU": float(os.cpu_count() or 1), "GPU": float(torch.cuda.device_count())}, cpus, gpus)


def _fitting(resources: Mapping[str, float], cpus: float, gpus: float) -> int:
    wanted = {"CPU": cpus, "GPU": gpus}
    counts = [int(resources.get(kind, 0.0) // each) for kind, each in wanted.items() if each]
    return max(1, min(counts, default=1))


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in (*variables, ADDRESS)}
    os.environ.pop(ADDRESS, None)
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _at_root() -> AbstractContextManager[None]:
    """Ray puts the folder in which it is started first on the import path of all workers: modules that lie beside a
    study would run in them. Nobody but the system's owner puts some into the root folder."""
    return chdir(Path(sys.prefix).anchor)


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """Keep what a SIGTERM does: Ray puts an exit of its own in its place, after which nothing says how to resume."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Whatever Ray does not like, in one line."""
    try:
        yield
    except Exception as error:
        raise StudyError(f"{what}: {first_line(error)}") from None
