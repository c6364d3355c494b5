"""A run whose model several processes share: the first one has the run folder, and the others a copy that nobody sees.

All of them must find the same shards missing and the same facts noted, or they would wait for each other for ever.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

from fillerscope.errors import ModelError, StudyError
from fillerscope.files import Json, digest_of
from fillerscope.models import tensor_parallel
from fillerscope.store.job_part import JobPart
from fillerscope.store.run_folder import RunStore
from fillerscope.study.interventions import Redistribution
from fillerscope.study.study import Study


def refuse_unshared(study: Study, on_ray: bool) -> None:
    """Raise for what one process alone can do."""
    if tensor_parallel.processes() == 1:
        return
    moved = [one.name for one in study.conditions if isinstance(one.intervention, Redistribution)]
    asked = {
        "answers are written by one process: leave `generation` out, and give a study of its own to a server": (
            study.generation is not None
        ),
        "the affine picture needs all heads in one process: leave `probes.affine` out": study.probes.affine,
        "activations are shared among processes: leave `probes.activations` out": study.probes.activations is not None,
        "untrained twins are drawn by one process: set `references.twin` to 0": bool(study.references.twin),
        "activations are shared among processes: leave the conditions with ARM and its controls out": bool(moved),
        "Ray's workers have a model each: leave --engine ray out": on_ray,
    }
    for told, is_asked in asked.items():
        if is_asked:
            raise StudyError(f"with tensor parallelism ({tensor_parallel.processes()} processes) {told}")


def create_store(path: Path, identity: Json, study: Json, part: JobPart | None) -> RunStore:
    """The folder of a run, made where it is missing; in all processes but the first, a copy of it."""
    if tensor_parallel.processes() == 1:
        return RunStore.create(path, identity, study, part)
    tensor_parallel.join()
    if not tensor_parallel.is_same(digest_of(identity)):
        raise ModelError(
            "the processes that share the model do not find the same: model files, data, libraries and settings of "
            "torch must be equal on all machines"
        )
    if tensor_parallel.rank() == 0:
        store = RunStore.create(path, identity, study, part)
        tensor_parallel.wait_for_all()  # it is there
        tensor_parallel.wait_for_all()  # it was copied
        return store
    tensor_parallel.wait_for_all()
    folder = Path(tempfile.mkdtemp(prefix="fillerscope-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    copy = folder / path.name
    shutil.copytree(path, copy, symlinks=True)
    tensor_parallel.wait_for_all()
    return RunStore.open(copy)
