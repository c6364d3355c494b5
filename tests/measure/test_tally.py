"""Probes of a whole study: however it is cut into shards and passes, killed or short of memory, the same numbers."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fillerscope
from fillerscope.capture import passes
from fillerscope.capture.activations import Scale
from fillerscope.capture.passes import Measured
from fillerscope.measure.engines import local
from fillerscope.measure.prepare import Shard, shards_of
from fillerscope.measure.run_study import run_study
from fillerscope.measure.tally import tally
from fillerscope.problems.problem import Problem
from fillerscope.problems.sources import load_problems
from fillerscope.store.array_file import Part
from fillerscope.store.moments import Moments
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import (
    ACTIVATION_METRICS,
    AFFINE_METRICS,
    MOMENTS,
    answer_attention_name,
    merged_name,
    shard_name,
)
from fillerscope.study.study import Study
from support.grid import grid, some_fast
from support.stock import ALL_PROBES, loaded, measure, probed, scale_for
from support.studies import CONDITIONS, merge, save_model, study_of

COUNT = 5  # problems
CONTINUOUS = ("tokens", "mean", "variance", "l1", "l2")
EVERYTHING: tuple[Any, ...] = (
    *CONDITIONS[:3],
    {"name": "arm", "intervention": {"kind": "arm", "layers": [1, 3]}},
    {"name": "knockout", "kind": "repeat", "text": " /", "count": 6, "intervention": {"kind": "knockout"}},
    {"name": "moved", "intervention": {"kind": "shift", "by": 6}},
)


def five(**changes: Any) -> Study:
    return probed(**({"problems": {"limit": COUNT}, "conditions": EVERYTHING} | changes))


@cache
def frozen() -> Scale:
    return scale_for(five(), loaded())


@cache
def in_shards(size: int, **batch: Any) -> Part:
    study, model = five(batch={"shard": size} | batch), loaded()
    return merge(measure(study, model, shard, frozen()) for shard in shards_of(load_problems(study.problems), size))


def assert_close(a: Part, b: Part, elements: float) -> None:
    """Probes alone. So many elements may stand on the other side of a threshold."""
    assert a.arrays.keys() == b.arrays.keys()
    seen = set()
    for key in a.arrays:
        kind = key.split("/")[1]
        seen.add(kind)
        x, y = a.arrays[key].astype(np.float64), b.arrays[key].astype(np.float64)
        if kind == "affine":
            keep = [AFFINE_METRICS.index(name) for name in ("lambda_fit", "explained", "bias", "output")]
            np.testing.assert_allclose(x[:, keep], y[:, keep], atol=2e-6, rtol=2e-6, err_msg=key)
        elif kind == "activations":
            keep = [ACTIVATION_METRICS.index(name) for name in CONTINUOUS]
            np.testing.assert_allclose(x[:, keep], y[:, keep], atol=2e-6, rtol=2e-6, err_msg=key)
            tokens = np.nan_to_num(x[:, :1] * 96)
            for name in ("near_zero", "below_median"):
                place = ACTIVATION_METRICS.index(name)
                moved = np.nan_to_num(np.abs(x[:, place] - y[:, place])) * tokens[:, 0]
                assert moved.max() < elements + 0.01, key
        elif kind == "histogram":
            assert x.sum() == y.sum()
            assert np.abs(x - y).sum(-1).max() <= 2 * elements, key
        elif kind == "bias":
            np.testing.assert_allclose(x, y, atol=2e-6, rtol=2e-6, err_msg=key)
    assert {"affine", "activations", "histogram", "bias"} <= seen


@pytest.mark.parametrize("size", some_fast([1, 3], 3))
def test_where_passes_are_the_same_the_size_of_shards_changes_no_bit(size: int) -> None:
    """One problem a pass and nothing shared: then only the merging differs."""
    alone, together = (in_shards(each, tokens=1, prefix="off") for each in (size, COUNT))
    for key, array in together.arrays.items():
        if key.endswith(("/affine", "/activations", "/counts")):
            np.testing.assert_array_equal(alone.arrays[key], array, err_msg=key)
    assert_close(alone, together, 0)


@pytest.mark.parametrize(
    ("batch", "size"), grid([{"tokens": 256}, {"tokens": 100_000}, {"tokens": 256, "prefix": "off"}], [3, 1]), ids=str
)
def test_the_size_of_shards_and_passes_changes_nothing(batch: dict[str, Any], size: int) -> None:
    assert_close(in_shards(size, **batch), in_shards(COUNT, tokens=1, prefix="off"), 3)


def test_what_is_merged_of_shards_is_their_sum_and_their_problems_in_order() -> None:
    study, model = five(), loaded()
    parts = [measure(study, model, shard, frozen()) for shard in shards_of(load_problems(study.problems), 2)]
    merged = merge(parts)
    for condition in study.conditions:
        key = f"{condition.name}/histogram/counts"
        np.testing.assert_array_equal(merged.arrays[key], sum(part.arrays[key] for part in parts))
        assert merged.arrays[key].dtype == np.int64
        for key in (f"{condition.name}/affine", f"{condition.name}/activations"):
            if condition.name != "none" or "affine" not in key:
                np.testing.assert_array_equal(merged.arrays[key], np.concatenate([p.arrays[key] for p in parts]))
    for name in ("mless", "moved"):
        pieces = [Moments(*(part.arrays[f"{name}/bias/{key}"] for key in MOMENTS)) for part in parts]
        whole = pieces[0].merge(pieces[1]).merge(pieces[2])
        assert whole.count.tolist() == [[[COUNT]]]
        for key, array in whole.state().items():
            np.testing.assert_array_equal(merged.arrays[f"{name}/bias/{key}"], array)


def test_a_bias_counts_where_every_head_has_one() -> None:
    """Moments over problems, one of which has no token behind its filler."""
    random = np.random.default_rng(0)
    biases = torch.tensor(random.normal(size=(2, 6, 3, 4)))  # [layer, text, head, dim]
    biases[:, :3] = torch.nan  # without filler there is none
    biases[1, 4, 2] = torch.nan
    numbers = torch.tensor(random.normal(size=(2, 6, len(AFFINE_METRICS), 3)))
    nothing = torch.zeros(0)
    measured = Measured(nothing, nothing, nothing, (), probes={"affine": numbers, "affine_more": biases})
    found = tally({"none": [0, 1, 2], "mless": [5, 4, 3]}, measured)
    assert set(found) == {"mless/affine", *(f"mless/bias/{part}" for part in MOMENTS)}
    np.testing.assert_array_equal(found["mless/affine"], numbers[:, [5, 4, 3]].permute(1, 2, 0, 3).float())
    assert found["mless/bias/count"].tolist() == [[[2]]]
    kept = biases[:, [5, 3]].numpy()
    np.testing.assert_allclose(found["mless/bias/mean"], kept.mean(1), rtol=1e-12)
    for power, part in ((2, "m2"), (3, "m3")):
        sums = ((kept - kept.mean(1, keepdims=True)) ** power).sum(1)
        np.testing.assert_allclose(found[f"mless/bias/{part}"], sums, rtol=1e-9, atol=1e-12)


# Memory


def test_a_problem_that_memory_does_not_hold_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its texts stay together while passes are halved; the others have the numbers that they had."""
    study, model = five(batch={"shard": COUNT, "prefix": "off"}), loaded()
    healthy = measure(study, model, scale=frozen())
    sizes = [sum(len(p["ids"]) for p in record["prompts"].values()) for record in healthy.records]
    bad = int(np.argmax(sizes))
    observe, failed = passes.observe, []

    def limited(model: Any, recorder: Any) -> Any:
        texts = recorder.packing.texts
        assert all(sum(t.problem == text.problem for t in texts) == len(study.conditions) for text in texts)
        if sum(map(len, texts)) >= sizes[bad]:
            failed.append(len(texts))
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return observe(model, recorder)

    monkeypatch.setattr(passes, "observe", limited)
    part = measure(study, model, scale=frozen())
    assert max(failed) > min(failed) == len(study.conditions)
    assert [record["number"] for record in part.records if record["status"] == "failed"] == [bad]
    assert "memory runs out" in part.records[bad]["error"]
    rest = [number for number in range(COUNT) if number != bad]
    for name in ("affine", "activations"):
        keep = slice(None) if name == "affine" else [ACTIVATION_METRICS.index(metric) for metric in CONTINUOUS]
        mine, theirs = part.arrays[f"mless/{name}"], healthy.arrays[f"mless/{name}"][rest]
        np.testing.assert_allclose(mine[:, keep], theirs[:, keep], rtol=1e-4, atol=2e-6)
    tokens = part.arrays["mless/activations"][:, 0, 0, 0].sum()
    assert part.arrays["mless/histogram/counts"][0, 0].sum() == tokens * 96


def test_a_problem_whose_numbers_are_not_finite_is_in_no_histogram() -> None:
    study, model = five(), loaded()
    healthy = measure(study, model, scale=frozen())
    shard = Shard(0, 0, (*load_problems(study.problems), Problem("broken", "What is \u00a7?", "")))
    token = model.tokenizer.encode("\u00a7", add_special_tokens=False)[-1]
    model.model.get_input_embeddings().weight.data[token] = torch.nan
    part = measure(study, model, shard, frozen())
    assert [record["status"] for record in part.records] == ["ok"] * COUNT + ["failed"]
    for condition in study.conditions:
        counts = [each.arrays[f"{condition.name}/histogram/counts"] for each in (part, healthy)]
        assert np.abs(counts[0] - counts[1]).sum(-1).max() <= 2
        assert part.arrays[f"{condition.name}/activations"].shape[0] == COUNT
    assert part.arrays["mless/bias/count"].tolist() == [[[COUNT]]]


# From end to end


@pytest.fixture(scope="module", autouse=True)
def _surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FILLERSCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.chdir(tmp_path_factory.mktemp("work"))
        yield


Shared = Callable[[str, Callable[[Path], Any]], Path]


@pytest.fixture(scope="module")
def saved(shared: Shared) -> Path:
    return shared("tallying-tiny-llama", save_model)


def full(model: Path, shard: int = 2, **changes: Any) -> Study:
    """Everything that can be measured."""
    return study_of(
        model, problems={"limit": COUNT}, conditions=EVERYTHING, probes=ALL_PROBES | {"answering": True},
        generation={"max_tokens": 4, "recheck": 0}, batch={"shard": shard, "tokens": 512}, **changes,
    )  # fmt: skip


@pytest.fixture(scope="module")
def finished(saved: Path, shared: Shared) -> Path:
    return shared("tallying-finished", lambda folder: run_study(full(saved), folder))


def data(folder: Path) -> dict[str, bytes]:
    files = (file for kind in ("safetensors", "parquet") for file in folder.rglob(f"*.{kind}"))
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(files)}


KILLS = [(stage, after) for stage in ("start_shard", "measure_answers") for after in (0, 1, 2)]


@pytest.mark.parametrize("kill", some_fast(KILLS, ("start_shard", 1), ("measure_answers", 2)), ids=str)
def test_a_run_that_was_killed_between_shards_ends_in_the_same_bytes(
    saved: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill: tuple[str, int]
) -> None:
    stage, after = kill
    work, done = getattr(local, stage), []

    def killed(*given: Any) -> Any:
        if len(done) == after:
            raise KeyboardInterrupt
        done.append(given)
        return work(*given)

    monkeypatch.setattr(local, stage, killed)
    with pytest.raises(KeyboardInterrupt):
        run_study(full(saved), tmp_path / "run")
    assert len(data(tmp_path / "run")) < len(data(finished))
    monkeypatch.setattr(local, stage, work)
    store = run_study(full(saved), tmp_path / "run")
    assert data(tmp_path / "run") == data(finished)
    facts = [RunStore.open(folder).manifest["models"] for folder in (tmp_path / "run", finished)]
    assert facts[0] == facts[1]
    assert store.verify() == []


@pytest.mark.parametrize("index", some_fast([0, 2], 0))
def test_a_lost_shard_is_measured_against_the_scale_that_was_kept(
    saved: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: int
) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    for name in (shard_name, answer_attention_name):
        (folder / name(str(saved), index)).unlink()
    monkeypatch.setattr(local, "calibrate", lambda *_: pytest.fail("calibrated again"))
    run_study(full(saved), folder)
    assert data(folder) == data(finished)


def test_the_scale_is_kept_with_the_run(saved: Path, finished: Path) -> None:
    record = RunStore.open(finished).manifest["models"][str(saved)]["calibration"]
    scale = Scale.read(record)
    assert len(scale.eps) == len(scale.median) == 3
    counts = RunStore.open(finished).get(merged_name(str(saved))).arrays["mless/histogram/counts"]
    assert counts.shape == (3, 5, len(record["edges"]) - 1)


def test_every_condition_has_its_arrays(saved: Path, finished: Path) -> None:
    store = RunStore.open(finished)
    merged, back = store.get(merged_name(str(saved))).arrays, store.get(answer_attention_name(str(saved))).arrays
    for name in fillerscope.open_run(finished).conditions:
        assert merged[f"{name}/activations"].shape == (COUNT, len(ACTIVATION_METRICS), 5, 3)
        assert back[f"{name}/heads"].shape[2] == 1
        assert (f"{name}/affine" in merged) == (name != "none")
        if name != "none":
            assert merged[f"{name}/affine"].shape == (COUNT, len(AFFINE_METRICS), 3, 4)
            assert merged[f"{name}/bias/mean"].shape == (3, 4, 16)
    assert not [key for key in back if "affine" in key or "activations" in key]


@pytest.mark.slow
def test_the_size_of_shards_changes_nothing_in_a_run(saved: Path, finished: Path, tmp_path: Path) -> None:
    run_study(full(saved, shard=1), tmp_path / "run")
    mine, theirs = (RunStore.open(folder).get(merged_name(str(saved))) for folder in (tmp_path / "run", finished))
    assert_close(mine, theirs, 3)
