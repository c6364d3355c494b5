"""fillerscope in forked processes: torch is imported once, and a process can be told when to die.

Requests come on stdin, one JSON object a line, and each gets one in return:

    {"commands": [[...], ...], "log": path, ...}    run these one after the other -> {"pid": p}
    {"wait": p}                                     -> {"code": exit code, or minus the signal}
    {"wait_stopped": p}                             -> {"stopped": whether it is; false: it has ended}

A command is what the shell would give to `fillerscope`; `measure STUDY RUN` is `run` without its figures,
and `retry STUDY RUN` the same with `--retry-failed`.
More about a process may be said, a step being the sync of a file, its rename, or the sync of its folder:

    "steps": path           note every step of writing a file there, a line each: what it is, and of which file
    "die_at": n             kill -9 itself at the n-th step. At the sync of a file half of it is lost first, as if
                            the kill had come while it was written
    "half": true            lose half of it at a rename, too, for files that are not synced
    "die_in": [m, f, n]     kill -9 itself at the n-th call of the function f of module m
    "stop_after": n         stop itself, as by Ctrl-Z, when n shards have their names
    "fail_at": [n, e, f]    let the n-th operation on files under the folder f fail with the error number e: opening a
                            file to read or to write, its sync, its rename, making, listing or removing
    "operations": path      write their number there at the end
    "flock_fails": e        let every flock fail with the error number e, as on file systems without locks
    "failing": [n, ...]     let these problems fail, as where a device is broken
    "memory": n             let it take n bytes more than it has, and no more
    "clock": s              set the clock forward by s seconds, or back

Nothing is computed here, in the parent: threads do not survive a fork.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import time
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.network import refuse_network

# What a run would import on its way, and again in every child.
BEFOREHAND = (
    "fillerscope.api", "fillerscope.measure.run_study", "fillerscope.cli.run_commands",
    "fillerscope.cli.show_commands", "fillerscope.cli.app", "fillerscope.analysis.export",
    "safetensors.numpy", "rich.console",
    "transformers.models.llama.modeling_llama", "transformers.models.llama.tokenization_llama", "pyarrow.parquet",
    "pandas", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_pdf", "matplotlib.backends.backend_svg",
)  # fmt: skip


def serve() -> None:
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping  # not for whoever needs Steps alone

    refuse_network()
    for name in BEFOREHAND:
        with suppress(ImportError):
            import_module(name)
    get_checkpoint_conversion_mapping("llama")  # kept by transformers: half the time of loading a tiny model
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), flush=True)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    if "wait" in request:
        _, status = os.waitpid(request["wait"], 0)
        return {"code": os.waitstatus_to_exitcode(status)}
    if "wait_stopped" in request:
        _, status = os.waitpid(request["wait_stopped"], os.WUNTRACED)
        return {"stopped": os.WIFSTOPPED(status)}
    child = os.fork()
    if not child:
        _live(request)
    return {"pid": child}


def _live(request: dict[str, Any]) -> None:
    """The whole life of a child."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background begins with it ignored
    code: Any = 70
    try:
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        Steps(request).watch()
        Faults(request).watch()
        if "flock_fails" in request:
            _refuse_locks(request["flock_fails"])
        if "failing" in request:
            _let_fail(request["failing"])
        if "memory" in request:
            _limit_memory(request["memory"])
        if "clock" in request:
            now = time.time
            time.time = lambda: now() + request["clock"]
        if request.get("die_in"):
            _die_in(*request["die_in"])
        for command in request["commands"]:
            code = _run(command)
            if code:
                break
    except BaseException:
        traceback.print_exc()
        code = 70
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(command: list[str]) -> int:
    if command[0] in ("measure", "retry"):
        from fillerscope.api import run
        from fillerscope.errors import FillerscopeError
        from fillerscope.study.study import Study

        try:
            run(Study.load(command[1]), Path(command[2]), retry_failed=command[0] == "retry")
        except FillerscopeError as error:
            print(f"fillerscope: {error}")
            return 1
        return 0
    from fillerscope.cli.app import main

    sys.argv = ["fillerscope", *command]
    try:
        main()
    except SystemExit as ending:
        return int(ending.code or 0)


def _refuse_locks(error: int) -> None:
    import fcntl

    def flock(*_: Any) -> None:
        raise OSError(error, os.strerror(error))

    fcntl.flock = flock


def _let_fail(numbers: list[int]) -> None:
    from fillerscope.measure import prepare

    real = prepare.prepare

    def prepared(*given: Any) -> prepare.Prepared:
        number, problem = given[3:5]
        return prepare.Prepared(number, problem, {}, "broken") if number in numbers else real(*given)

    prepare.prepare = prepared


def _limit_memory(more: int) -> None:
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + more
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _die_in(module: str, name: str, number: int) -> None:
    place, left = import_module(module), number
    function = getattr(place, name)

    def dying(*given: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            _die()
        return function(*given, **named)

    setattr(place, name, dying)


class Steps:
    """Counts the steps of writing files. It does at one of them what the request says."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.die_at, self.stop_after, self.log = (request.get(key) for key in ("die_at", "stop_after", "steps"))
        self.half = bool(request.get("half"))
        self.count = self.shards = 0
        self.sync, self.rename = os.fsync, os.replace

    def watch(self) -> None:
        os.fsync, os.replace = self.noted_sync, self.noted_rename

    def noted_sync(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        is_file = stat.S_ISREG(found.st_mode)
        if self.is_last("sync" if is_file else "folder"):
            if is_file:
                os.ftruncate(descriptor, found.st_size // 2)
            _die()
        self.sync(descriptor)

    def noted_rename(self, source: Any, target: Any, **options: Any) -> None:
        source, target = _real(source), _real(target)
        if self.is_last(f"rename {target}"):
            if self.half and Path(source).is_file():
                os.truncate(source, Path(source).stat().st_size // 2)
            _die()
        self.rename(source, target, **options)
        self.shards += Path(target).parent.parent.name == "shards"
        if self.shards == self.stop_after:
            self.stop_after = None
            os.kill(os.getpid(), signal.SIGSTOP)

    def is_last(self, what: str) -> bool:
        self.count += 1
        if self.log:
            with Path(self.log).open("a") as file:
                print(what, file=file)
        return self.count == self.die_at


def _real(path: Any, within: int | None = None) -> str:
    """The path of a file whose folder was given by a descriptor of it: as part of the path, or beside it."""
    folder, name = os.path.split(os.fspath(path))
    return os.path.join(os.path.realpath(folder if within is None else f"/proc/self/fd/{within}"), name)


class Faults:
    """Counts operations on files, and lets one of them fail."""

    EVENTS = ("open", "os.rename", "os.mkdir", "os.listdir", "os.scandir", "os.remove", "os.truncate")

    def __init__(self, request: dict[str, Any]) -> None:
        self.number, self.error, self.folder = request.get("fail_at", (0, 0, ""))
        self.log, self.count = request.get("operations"), 0

    def watch(self) -> None:
        if self.folder:
            sys.addaudithook(self.happens)
            sync, os.fsync = os.fsync, lambda descriptor: (self.synced(descriptor), sync(descriptor))

    def happens(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in self.EVENTS and isinstance(arguments[0], (str, os.PathLike)):
            within = arguments[2] if event == "os.mkdir" and arguments[2] >= 0 else None
            self.operation(_real(arguments[0], within))

    def synced(self, descriptor: int) -> None:
        self.operation(os.readlink(f"/proc/self/fd/{descriptor}"))

    def operation(self, path: Any) -> None:
        if not str(path).startswith(self.folder):
            return
        self.count += 1
        if self.log:
            Path(self.log).write_text(str(self.count))
        if self.count == self.number:
            raise OSError(self.error, os.strerror(self.error), path)


if __name__ == "__main__":
    serve()
