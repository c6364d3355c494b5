"""fillerscope in forked processes: torch is imported once, and a process can be told when to die.

Requests come on stdin, one JSON object a line, and each gets one in return:

    {"commands": [[...], ...], "log": path, "die_at": n}    run these one after the other -> {"pid": p}
    {"wait": p}                                             -> {"code": exit code, or minus the signal}

A command is what the shell would give to `fillerscope`; `measure STUDY RUN` is `run` without its figures.
`die_at` n: kill -9 itself at the n-th step of writing a file, a step being a sync or a rename. At the sync
of a file half of it is lost first, as if the kill had come while it was written.

Nothing is computed here, in the parent: threads do not survive a fork.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

# What a run would import on its way, and again in every child.
BEFOREHAND = (
    "fillerscope.library", "fillerscope.session", "fillerscope.analysis.export", "safetensors.numpy", "rich.console",
    "transformers.models.llama.modeling_llama", "transformers.models.llama.tokenization_llama", "pyarrow.parquet",
    "pandas", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_pdf", "matplotlib.backends.backend_svg",
)  # fmt: skip


def serve() -> None:
    for name in BEFOREHAND:
        with suppress(ImportError):
            import_module(name)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            print(json.dumps({"code": os.waitstatus_to_exitcode(status)}), flush=True)
            continue
        child = os.fork()
        if not child:
            _live(request)
        print(json.dumps({"pid": child}), flush=True)


def _live(request: dict[str, Any]) -> None:
    """The whole life of a child."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background begins with it ignored
    code: Any = 70
    try:
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if request.get("die_at"):
            _die_at(request["die_at"])
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
    if command[0] == "measure":
        from fillerscope.library import run
        from fillerscope.study import Study

        run(Study.load(command[1]), Path(command[2]))
        return 0
    from fillerscope.cli import main

    sys.argv = ["fillerscope", *command]
    try:
        main()
    except SystemExit as ending:
        return int(ending.code or 0)


def _die_at(number: int) -> None:
    left = number
    sync, rename = os.fsync, os.replace

    def is_last() -> bool:
        nonlocal left
        left -= 1
        return left == 0

    def dying_sync(descriptor: int) -> None:
        if is_last():
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode):
                os.ftruncate(descriptor, found.st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        sync(descriptor)

    def dying_rename(source: Any, target: Any, **options: Any) -> None:
        if is_last():
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target, **options)

    os.fsync, os.replace = dying_sync, dying_rename


if __name__ == "__main__":
    serve()
