"""A tiny model in a folder, and a small study of it: everything a run needs, in two seconds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from fillerscope.store.array_file import Part
from fillerscope.store.merge import Merger
from fillerscope.store.run_folder import RunStore
from fillerscope.study.study import Study
from support.tiny import tiny_model, tiny_tokenizer

# Every kind of place for the filler, and every way to draw it, in units of the tiny tokenizer.
CONDITIONS: tuple[Any, ...] = (
    "none",
    {"name": "mless", "kind": "repeat", "text": " /", "count": 6},
    {"name": "first", "kind": "repeat", "text": " he", "count": 4, "position": "start"},
    {"name": "random", "kind": "sentence", "count": 9, "position": "end"},
    {"name": "inside", "kind": "characters", "count": 5, "position": "random", "draw": "problem"},
)


def save_model(folder: Path, family: str = "llama", seed: int = 0, **overrides: Any) -> Path:
    """What `save_pretrained` writes: config, safetensors, tokenizer."""
    tiny_model(family, seed, **overrides).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def replace_study(run: Path, text: str) -> None:
    """Write another study into a run folder, with its checksum."""
    RunStore.open(run)._write("study.json", [text.encode()])


def study_of(model: Path | str, **changes: Any) -> Study:
    return Study.model_validate(settings(model, **changes))


def write_study(path: Path, model: Path | str, **changes: Any) -> Path:
    path.write_text(yaml.safe_dump(settings(model, **changes)), encoding="utf-8")
    return path


def settings(model: Path | str, **changes: Any) -> dict[str, Any]:
    """Eight problems in shards of three; profiles are cut where only the longest prompts go on."""
    return {
        "name": "tiny",
        "models": [str(model)],
        "problems": {"limit": 8},
        "prompt": {"system": "Think."},
        "conditions": list(CONDITIONS),
        "batch": {"shard": 3, "tokens": 256},
        "probes": {"attention": {"positions": 110}},
    } | changes


def merge(parts: Iterable[Part]) -> Part:
    """Shards put together, all arrays in memory."""
    shards = {str(number): part for number, part in enumerate(parts)}
    merged = Merger(list(shards), lambda name, _: shards[name]).merged()
    return Part({key: np.asarray(array) for key, array in merged.arrays.items()}, merged.records)
