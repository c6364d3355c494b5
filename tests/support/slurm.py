"""A Slurm of one node on this machine, for as long as a test takes. Needs Debian's slurmctld, slurmd and munge."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
ReturnToService=2
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmdSpoolDir={folder}/spool
StateSaveLocation={folder}/state
SlurmUser=root
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName={host} CPUs={cores} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str:
    """What a Slurm of one's own lacks on this machine; empty where nothing."""
    missing = [name for name in ("slurmctld", "slurmd", "sbatch", "munge") if shutil.which(name) is None]
    if missing:
        return f"there is no {missing[0]}"
    if os.geteuid():
        return "slurmd runs as root alone"
    answers = subprocess.run(["munge", "-n"], capture_output=True, check=False).returncode == 0
    return "" if answers else "munged is not running"


@contextmanager
def running_slurm(folder: Path) -> Iterator[dict[str, str]]:
    """The variables under which Slurm's commands find it."""
    for name in ("spool", "state"):
        (folder / name).mkdir(parents=True)
    file = folder / "slurm.conf"
    host = platform.node()
    file.write_text(CONFIGURATION.format(host=host, folder=folder, ports=_ports(2), cores=os.cpu_count()))
    environment = os.environ | {"SLURM_CONF": str(file)}
    daemons = [subprocess.Popen([name, "-D", "-f", str(file)], env=environment) for name in ("slurmctld", "slurmd")]
    try:
        wait_for(lambda: "idle" in slurm(environment, "sinfo", "-h", "-o", "%t"))
        yield environment
    finally:
        slurm(environment, "scancel", "--full", "--signal=KILL", "--user=root")
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(timeout=60)


def slurm(environment: dict[str, str], *words: str) -> str:
    """What a command of Slurm prints."""
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=120)
    return done.stdout.strip()


def wait_until_done(environment: dict[str, str]) -> None:
    """Wait until no job is left."""
    wait_for(lambda: slurm(environment, "squeue", "-h") == "")


def wait_for(is_so: Callable[[], bool], most: float = 900) -> None:
    """Wait until something is so."""
    stop = time.monotonic() + most
    while not is_so():
        assert time.monotonic() < stop, "Slurm did not come to an end"
        time.sleep(0.5)


def _ports(count: int) -> list[int]:
    """Ports that nobody listens at."""
    sockets = [socket.create_server(("", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
