"""One process, one model at a time: shards in order, each kept as soon as it is measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fillerscope.capture.attention import capturing
from fillerscope.capture.selfcheck import selfcheck
from fillerscope.errors import ProblemError
from fillerscope.models.loading import load_folder
from fillerscope.models.resolve import ModelFolder
from fillerscope.prompts import PromptMaker
from fillerscope.reducers import Moments
from fillerscope.runner import Shard, run_shard
from fillerscope.store import Part, RunStore, merged_name, shard_name
from fillerscope.study import ModelSpec, Study


def measure_model(
    study: Study,
    spec: ModelSpec,
    folder: ModelFolder,
    shards: Sequence[Shard],
    store: RunStore,
    progress: Any,
) -> None:
    """All shards of one model that are not there yet, then their merger."""
    names = [shard_name(spec.name, shard.index) for shard in shards]
    missing = [(shard, name) for shard, name in zip(shards, names, strict=True) if not store.is_sound(name)]
    if missing:
        _measure(study, spec, folder, missing, len(shards), store, progress)
    store.put(merged_name(spec.name), merge(store.get(name) for name in names))


def _measure(
    study: Study, spec: ModelSpec, folder: ModelFolder, missing: list[tuple[Shard, str]], total: int,
    store: RunStore, progress: Any,
) -> None:  # fmt: skip
    progress.stage(f"loading {folder.label}", 0, None)
    loaded = load_folder(folder, spec.dtype, study.device)
    check = selfcheck(loaded)
    maker = PromptMaker.of(loaded.tokenizer, study.prompt, study.template_of(spec), study.seed)
    facts = {"label": loaded.label, "template": maker.template, "selfcheck": check.record()}
    store.note("models", store.manifest.get("models", {}) | {spec.name: facts})
    if len(missing) < total:
        progress.say(f"{total - len(missing)} of {total} shards of {loaded.label} are there: going on from them")
    prompts = sum(len(shard.problems) for shard, _ in missing) * len(study.conditions)
    done = 0

    def tick(count: int) -> None:
        nonlocal done
        done += count
        progress.stage(f"measuring {loaded.label}", done, prompts)

    tick(0)
    with capturing(loaded.model):
        for shard, name in missing:
            store.put(name, run_shard(study, shard, loaded, maker, tick))


def merge(parts: Iterable[Part]) -> Part:
    """Shards put together in order: moments merged, problems one after the other. One is held at a time."""
    records: list[dict[str, Any]] = []
    moments: dict[str, Moments] = {}
    rows: dict[str, list[NDArray[Any]]] = {}
    for part in parts:
        records += part.records
        views = {key.removesuffix("/m2") for key in part.arrays if key.endswith("/m2")}
        for view in sorted(views):
            piece = Moments(*(part.arrays[f"{view}/{key}"] for key in ("count", "mean", "m2")))
            moments[view] = moments[view].merge(piece) if view in moments else piece
        for key in sorted(part.arrays):
            if key.rpartition("/")[0] not in views:
                rows.setdefault(key, []).append(part.arrays[key])
        del part  # before the next one is read
    if not moments:
        first = next(record["error"] for record in records if record["status"] == "failed")
        raise ProblemError(f"none of the {len(records)} problems could be measured; the first says: {first}")
    arrays = {f"{view}/{key}": array for view, one in moments.items() for key, array in one.state().items()}
    return Part(arrays | {key: np.concatenate(pieces) for key, pieces in rows.items()}, records)
