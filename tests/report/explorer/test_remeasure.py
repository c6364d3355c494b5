"""One problem measured again: the same numbers as in the run, from the same prompts and weights, or a plain refusal."""

from __future__ import annotations

import copy
import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fillerscope
from fillerscope.analysis.model_run import ModelRun
from fillerscope.analysis.run import Run, open_live_run, open_run
from fillerscope.capture import head_matrix, passes
from fillerscope.capture.attention import capturing
from fillerscope.capture.passes import PassRunner
from fillerscope.errors import CaptureError, FigureError, ModelError, StoreError
from fillerscope.measure import identity
from fillerscope.measure.prepare import Shard
from fillerscope.models import hub, loading
from fillerscope.models.loading import LoadedModel, load_model
from fillerscope.models.structure import context_length
from fillerscope.problems.sources import load_problems
from fillerscope.progress import Silent
from fillerscope.prompts.prompt import PromptMaker
from fillerscope.report.explorer import remeasure
from fillerscope.report.explorer.remeasure import KEPT, Remeasured, Remeasurer
from fillerscope.store.array_file import Part
from fillerscope.store.manifest import sealed
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import METRICS, merged_name
from fillerscope.study.generation import EndpointSpec
from fillerscope.study.study import Study
from support.shards import run_shard
from support.studies import CONDITIONS, merge, replace_study, save_model, study_of

MLESS = CONDITIONS[1]
CHANGED: tuple[Any, ...] = (
    *CONDITIONS,
    {**MLESS, "name": "hidden", "intervention": {"kind": "knockout", "layers": [1, 3]}},
    {"name": "arm", "intervention": {"kind": "arm", "layers": [2]}},
    {"name": "moved", "intervention": {"kind": "shift", "by": 6}},
)
FAMILIES = ("llama", "gemma3_text")
in_every_family = pytest.mark.parametrize("family", ["llama", pytest.param("gemma3_text", marks=pytest.mark.slow)])


@pytest.fixture(autouse=True)
def _cache(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with real weights share the user's."""
    if not request.node.get_closest_marker("weights"):
        monkeypatch.setenv("FILLERSCOPE_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def models(shared: Callable[..., Path]) -> dict[str, Path]:
    folder = shared("models-measured-again", lambda folder: [save_model(folder / name, name) for name in FAMILIES])
    return {family: folder / family for family in FAMILIES}


@pytest.fixture(scope="module")
def runs(models: dict[str, Path], shared: Callable[..., Path]) -> Callable[[str], Path]:
    """Undisturbed runs with every kind of condition and probe. Never changed: tests copy them."""

    def make(folder: Path) -> None:
        probes = {"attention": {"positions": 110}, "affine": True, "activations": {}}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FILLERSCOPE_CACHE", f"{folder}-cache")
            fillerscope.run(study_of(models[folder.name.split("-")[-1]], conditions=CHANGED, probes=probes), folder)

    return lambda family: shared(f"run-measured-again-{family}", make)


@pytest.fixture
def run(runs: Callable[[str], Path]) -> Run:
    return open_run(runs("llama"))


@pytest.fixture
def model(run: Run) -> str:
    return run.models[0]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The problems that are measured from now on."""
    seen: list[int] = []
    measure = remeasure._measured

    def note(run: ModelRun, record: dict[str, Any], *rest: Any) -> Part:
        seen.append(record["number"])
        return measure(run, record, *rest)

    monkeypatch.setattr(remeasure, "_measured", note)
    return seen


def small_run(folder: Path, model: Path, **changes: Any) -> Run:
    """Two problems in no time."""
    return fillerscope.run(study_of(model, **{"problems": {"limit": 2}} | changes), folder)


# The same numbers


@in_every_family
def test_all_problems_measured_again_have_the_numbers_of_the_run(runs: Callable[[str], Path], family: str) -> None:
    run, again = open_run(runs(family)), Remeasurer()
    name = run.models[0]
    found = [again.measure(run[name], number) for number in range(8)]
    mine, kept = merge(one.part for one in found), run.store.get(merged_name(name))
    others = ("/affine", "/bias/count", "/bias/mean", "/bias/m2", "/bias/m3", "/activations", "/histogram/counts")
    assert mine.arrays.keys() == {key for key in kept.arrays if not key.endswith(others)}
    assert len(mine.arrays) == 15 + 7 * 18
    assert json.loads(json.dumps(mine.records)) == kept.records
    for key, array in mine.arrays.items():
        if key.endswith("/heads"):
            array, there = (np.delete(one, METRICS.index("kurtosis"), axis=1) for one in (array, kept.arrays[key]))
            close(array, there, 1e-5)
        elif key.endswith(("/count", "/peak_at")):
            np.testing.assert_array_equal(array, kept.arrays[key], err_msg=key)
        elif key.endswith("/m3"):  # cubes cancel out: what is left is rounded as they are
            size = 1 + np.max(kept.arrays[key.replace("/m3", "/m2")]) ** 1.5
            close(array / size, kept.arrays[key] / size, 1e-5)
        else:  # squares and quotients are rounded by more
            close(array, kept.arrays[key], 1e-5 if key.endswith("/m2") or "/logratio/" in key else 1e-6)
    assert all(0 <= one.agreement < 1e-5 and one.note == "" for one in found)
    assert max(one.agreement for one in found) > 0  # the passes were others: equal numbers would be copied ones


def close(mine: Any, kept: Any, tolerance: float) -> None:
    np.testing.assert_allclose(mine, kept, rtol=tolerance, atol=tolerance)


@in_every_family
def test_it_is_the_road_of_a_shard_to_the_last_bit(runs: Callable[[str], Path], family: str) -> None:
    """From the problem itself, through `run_shard`, with no other probe and from the prompts of the record."""
    run = open_run(runs(family))
    study = Study.model_validate(run.study.model_dump() | {"probes": {"attention": {"positions": 110}}})
    name, problems = run.models[0], load_problems(study.problems)
    loaded = load_model(name)
    maker = PromptMaker.of(loaded.tokenizer, study.prompt, "auto", study.seed)
    with capturing(loaded.model):
        shard = Shard(0, 5, (problems[5],))
        expected = run_shard(
            study, shard, PassRunner(loaded.model, 256), maker, context_length(loaded.model), lambda _: None
        )
    part = Remeasurer().measure(run[name], 5).part
    assert part.records == expected.records
    assert part.arrays.keys() == expected.arrays.keys()
    for key, array in expected.arrays.items():
        np.testing.assert_array_equal(part.arrays[key], array, err_msg=key)


def test_a_lost_or_changed_file_of_problems_changes_nothing(models: dict[str, Path], tmp_path: Path) -> None:
    """The run holds its prompts; where it was measured may be another machine."""
    file = tmp_path / "problems.jsonl"
    file.write_text('{"id": "a", "question": "What is 1 + 1?"}\n{"id": "b", "question": "What is 12 + 30?"}\n')
    run = small_run(tmp_path / "run", models["llama"], problems={"source": str(file)})
    name = run.models[0]
    before = Remeasurer().measure(run[name], 1)
    file.write_text('{"id": "a", "question": "Other?"}\n{"id": "b", "question": "And another?"}\n')
    changed = Remeasurer().measure(run[name], 1)
    file.unlink()
    lost = Remeasurer().measure(run[name], 1)
    assert Remeasurer().at_hand(run[name]) == ""
    for found in (changed, lost):
        assert found.agreement == before.agreement < 1e-5
        assert found.part.records == before.part.records


def test_a_run_in_half_precision_is_measured_in_it_and_told(models: dict[str, Path], tmp_path: Path) -> None:
    half = {"name": str(models["llama"]), "dtype": "bfloat16"}
    run = small_run(tmp_path / "run", models["llama"], models=[half], conditions=CONDITIONS[:2])
    again = Remeasurer()
    found = again.measure(run[run.models[0]], 0)
    assert again._model is not None
    assert again._model[1].dtype == "bfloat16"
    assert found.agreement < 0.2
    assert found.note == "" or found.note.startswith("in bfloat16, what is measured beside a problem")


def test_every_model_of_a_run_can_be_measured_in_turn(models: dict[str, Path], tmp_path: Path) -> None:
    both = [str(models["llama"]), str(models["gemma3_text"])]
    run = small_run(tmp_path / "run", models["llama"], models=both)
    again = Remeasurer()
    for name in (*both, both[0]):
        found = again.measure(run[name], 1)
        assert found.agreement < 1e-5
        assert np.shape(found.part.arrays["none/heads"])[3] == (3 if name == both[0] else 4)


# What is kept


def test_a_problem_is_measured_once_and_the_model_loaded_once(
    run: Run, model: str, measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[str] = []
    load = loading.load_folder
    monkeypatch.setattr(loading, "load_folder", lambda *given: loads.append("") or load(*given))
    again = Remeasurer()
    first = again.measure(run[model], 2)
    assert again.measure(run[model], 2) is first
    again.measure(run[model], 3)
    assert measured == [2, 3]
    assert loads == [""]


def test_the_problem_used_longest_ago_is_forgotten(
    run: Run, model: str, measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert KEPT == 16
    monkeypatch.setattr(remeasure, "KEPT", 2)
    again = Remeasurer()
    for number in (0, 1, 0, 2, 0, 1):
        again.measure(run[model], number)
    assert measured == [0, 1, 2, 1]


def test_problems_of_two_runs_are_not_mixed_up(run: Run, model: str, tmp_path: Path) -> None:
    other = small_run(tmp_path / "run", Path(model), prompt={"system": "Think!"})
    again = Remeasurer()
    tokens = [again.measure(one[model], 0).part.records[0]["tokens"] for one in (run, other)]
    assert tokens[0] != tokens[1]


def test_a_copy_of_a_run_is_compared_for_itself(own: tuple[Run, Path], tmp_path: Path, measured: list[int]) -> None:
    run, _ = own
    shutil.copytree(run.path, tmp_path / "copy")
    again, (model,) = Remeasurer(), run.models
    for one in (run, open_run(tmp_path / "copy"), run):
        again.measure(one[model], 0)
    assert measured == [0, 0]


def test_two_who_ask_at_once_wait_for_each_other(
    run: Run, model: str, measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    observe, together, most = passes.observe, 0, 0

    def watched(*given: Any) -> Any:
        nonlocal together, most
        together += 1
        most = max(most, together)
        threading.Event().wait(0.01)
        try:
            return observe(*given)
        finally:
            together -= 1

    monkeypatch.setattr(passes, "observe", watched)
    again, found, start = Remeasurer(), dict[str, Remeasured](), threading.Barrier(4)

    def ask(name: str, number: int) -> None:
        start.wait()
        found[name] = again.measure(run[model], number)

    threads = [threading.Thread(target=ask, args=(f"{n} {number}", number)) for n in "ab" for number in (4, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert most == 1
    assert sorted(measured) == [4, 6]
    assert found["a 4"] is found["b 4"]
    for number in (4, 6):
        assert found[f"a {number}"].part.records[0]["number"] == number
        assert found[f"a {number}"].agreement < 1e-5


def test_what_was_measured_is_there_while_another_is_measured(
    run: Run, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = Remeasurer()
    first = again.measure(run[model], 0)
    at_work, go_on = threading.Event(), threading.Event()

    def slow(*_: Any) -> Any:
        at_work.set()
        go_on.wait(20)
        raise CaptureError("stopped")

    monkeypatch.setattr(remeasure, "_measured", slow)

    def ask() -> None:
        with pytest.raises(CaptureError, match="stopped"):
            again.measure(run[model], 1)

    thread = threading.Thread(target=ask)
    thread.start()
    assert at_work.wait(60)
    try:
        assert again.measure(run[model], 0) is first
        assert thread.is_alive()  # and was not waited for
    finally:
        go_on.set()
        thread.join(60)


def test_after_a_failure_the_next_problem_is_measured(run: Run, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    again, observe = Remeasurer(), passes.observe

    def out_of_memory(*_: Any) -> Any:
        raise torch.OutOfMemoryError("out of memory")

    again.measure(run[model], 0)
    monkeypatch.setattr(passes, "observe", out_of_memory)
    with pytest.raises(CaptureError, match=r"problem \S+ could not be measured: \d+ tokens, and memory runs out"):
        again.measure(run[model], 1)
    monkeypatch.setattr(passes, "observe", observe)
    assert again.measure(run[model], 1).agreement < 1e-5


# What is refused


def refused(run: Run, model: str, reason: str, error: type[Exception]) -> None:
    """Both told before anybody asks, and said when somebody does."""
    again = Remeasurer()
    assert again.at_hand(run[model]) == reason
    with pytest.raises(error) as caught:
        again.measure(run[model], 0)
    assert str(caught.value) == reason


@pytest.fixture
def own(models: dict[str, Path], tmp_path: Path) -> tuple[Run, Path]:
    """A run and a model that a test may change."""
    folder = Path(shutil.copytree(models["llama"], tmp_path / "own"))
    return small_run(tmp_path / "run", folder), folder


@pytest.fixture
def opened(models: dict[str, Path], shared: Callable[..., Path]) -> tuple[Run, Path]:
    """The same, made once: a test may change what is in memory, and nothing on the disk."""
    folder = shared("small-measured-again", lambda folder: small_run(folder, models["llama"]))
    return open_run(folder), models["llama"]


def test_at_hand_says_nothing_where_all_is_there(run: Run, model: str) -> None:
    assert Remeasurer().at_hand(run[model]) == ""


def test_at_hand_loads_nothing(run: Run, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "load_folder", lambda *_: pytest.fail("loaded"))
    monkeypatch.setattr("fillerscope.models.digests._hash_file", lambda *_: pytest.fail("read"))
    assert Remeasurer().at_hand(run[model]) == ""


def test_a_model_that_is_gone(own: tuple[Run, Path]) -> None:
    run, folder = own
    shutil.rmtree(folder)
    refused(run, str(folder), f"there is no folder or GGUF file {folder} on this machine: put it there", ModelError)


def test_changed_weights(own: tuple[Run, Path]) -> None:
    run, folder = own
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    again = Remeasurer()
    assert again.at_hand(run[str(folder)]) == ""  # nobody has read the file since
    reason = rf"^{folder} is not the model that the run measured \(digest \w{{12}}, expected \w{{12}}\): put that"
    with pytest.raises(ModelError, match=reason):
        again.measure(run[str(folder)], 0)
    assert "is not the model that the run measured" in again.at_hand(run[str(folder)])


def renamed(run: Run, name: str, **identity: Any) -> Run:
    """The same run with a model of another name."""
    study = json.dumps(run.store.study).replace(json.dumps(run.models[0]), json.dumps(name))
    manifest = json.loads(json.dumps(run.store.manifest).replace(json.dumps(run.models[0]), json.dumps(name)))
    files = manifest["files"]
    old, new = merged_name(run.models[0]), merged_name(name)
    files[new] = files[old]
    (run.path / old).rename(run.path / new)
    manifest["identity"] |= identity
    (run.path / "manifest.json").write_text(json.dumps(sealed(manifest)))
    replace_study(run.path, study)
    return Run(RunStore.open(run.path))


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "snapshot", lambda *_: pytest.fail("asked the hub"))
    monkeypatch.setattr("fillerscope.models.resolve.fetch", lambda *_: pytest.fail("fetched"))
    monkeypatch.setattr("fillerscope.models.resolve.convert", lambda *_: pytest.fail("converted"))


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", ["smollm2-135m", "someone/not-in-any-cache", "tiny.gguf"])
def test_a_model_that_would_have_to_be_fetched_or_converted(
    own: tuple[Run, Path], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    unmade = "" if "/" in name else ", or not converted yet"
    refused(
        renamed(own[0], name), name, f"{name} is not on this machine{unmade}: fillerscope models get {name}", ModelError
    )


@pytest.mark.usefixtures("no_network")
def test_a_hub_model_in_the_cache_is_measured(own: tuple[Run, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    run = renamed(own[0], "someone/some-model")
    monkeypatch.setattr(hub, "cached", lambda _: own[1])
    again = Remeasurer()
    assert again.at_hand(run["someone/some-model"]) == ""
    assert again.measure(run["someone/some-model"], 1).agreement < 1e-5


@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_what_is_not_installed(run: Run, model: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = remeasure.find_spec
    monkeypatch.setattr(remeasure, "find_spec", lambda name: None if name == package else find_spec(name))
    reason = f"measuring needs {package}, which is not installed here: pip install {package}"
    refused(run, model, reason, ModelError)
    assert Remeasurer().differs(run) == reason


@in_every_family
def test_the_matrix_of_a_head_agrees_with_the_run_under_every_condition(
    family: str, runs: Callable[[str], Path]
) -> None:
    run = open_run(runs(family))
    one, again = run[None], Remeasurer()
    part = again.measure(one, 3).part
    for condition in run.conditions:
        matrix, note = again.matrix(one, 3, condition, 2, 1)
        spans = part.records[0]["prompts"][condition]["spans"]
        assert len(matrix.tokens) == len(matrix.weights) == len(spans)
        profile = part.arrays[f"{condition}/whole/mean"][0, 1, 0][: len(spans) - 1]
        np.testing.assert_allclose(matrix.received()[: len(profile)], profile, atol=1e-5)
        assert note.startswith("its column means agree with the stored run to ")
        assert float(note.split()[-1].rstrip(".")) < 1e-4


def test_a_matrix_that_cannot_be_shown_is_refused(run: Run, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    again = Remeasurer()
    with pytest.raises(FigureError, match="this run has no condition 'other'"):
        again.matrix(run[model], 0, "other", 1, 1)
    with pytest.raises(CaptureError, match="there is no layer 9 head 1"):
        again.matrix(run[model], 0, "none", 9, 1)
    monkeypatch.setattr(head_matrix, "LONGEST", 20)
    with pytest.raises(CaptureError, match=r"the prompt has \d+ tokens, and attention token by token is shown for 20"):
        again.matrix(run[model], 0, "mless", 1, 1)
    served = run.study.models[0].model_copy(update={"endpoint": EndpointSpec(url="http://localhost:1/v1")})
    monkeypatch.setattr(run[model], "study", run.study.model_copy(update={"models": (served,)}))
    with pytest.raises(FigureError, match="answers from a server, which gives no attention"):
        again.matrix(run[model], 0, "none", 1, 1)


def test_a_problem_that_the_run_does_not_have(run: Run, model: str) -> None:
    with pytest.raises(FigureError, match="this run has problems 0 to 7, not 8"):
        Remeasurer().measure(run[model], 8)


def test_a_run_without_attention_or_without_its_end(own: tuple[Run, Path]) -> None:
    run, folder = own
    (run.path / merged_name(str(folder))).unlink()
    refused(
        run,
        str(folder),
        f"{run.path} is not finished for {folder}: run the study again, it goes on from there",
        StoreError,
    )
    off = run.study.model_copy(update={"probes": run.study.probes.model_copy(update={"attention": None})})
    run[None].study = off
    refused(run, str(folder), "this run did not measure attention: its study has `probes.attention` off", FigureError)


def test_a_run_that_does_not_say_what_it_measured(opened: tuple[Run, Path]) -> None:
    run, folder = opened
    run.store.manifest["identity"]["models"] = []
    reason = f"{run.path} does not say which weights of {folder} it measured: run the study again"
    refused(run, str(folder), reason, StoreError)


def test_a_problem_that_failed_says_why(tmp_path: Path) -> None:
    model = save_model(tmp_path / "short", max_position_embeddings=100)
    run = fillerscope.run(study_of(model), tmp_path / "run")
    failed = [record for record in run[None].records() if record["status"] == "failed"]
    measured = [record["number"] for record in run[None].records() if record["status"] == "ok"]
    assert failed
    assert measured[-1] > failed[0]["number"]  # its place among the summaries is not its number
    again = Remeasurer()
    with pytest.raises(
        CaptureError, match=rf"^problem {failed[0]['id']} was not measured: \d+ tokens, and the model takes"
    ):
        again.measure(run[str(model)], failed[0]["number"])
    assert again._model is None
    assert again.measure(run[str(model)], measured[-1]).agreement < 1e-5


# What is told


def test_other_versions_are_told_and_not_refused(opened: tuple[Run, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    run, folder = opened
    again = Remeasurer()
    assert again.differs(run) == ""
    run.store.manifest["identity"]["libraries"]["torch"] = "1.0"
    monkeypatch.setattr(identity, "code_version", lambda: "0+other")
    code = run.store.manifest["identity"]["code"]
    told = (
        f"the run was made with torch 1.0, and this with {torch.__version__}; "
        f"the run was made with fillerscope {code}, and this with 0+other"
    )
    assert again.differs(run) == told
    assert again.measure(run[str(folder)], 0).note == told


def test_where_there_is_no_such_device_the_cpu_is_used_and_told(
    opened: tuple[Run, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    run, folder = opened
    run.store.manifest["identity"]["device"] = "cuda"
    run.store.manifest["identity"]["models"][0]["dtype"] = "bfloat16"
    again = Remeasurer()
    assert again.at_hand(run[str(folder)]) == ""
    found = again.measure(run[str(folder)], 0)
    assert found.note == "the run was made on cuda, and this on the CPU in float32"
    assert again._model is not None
    assert (again._model[1].device, again._model[1].dtype) == ("cpu", "float32")


def test_numbers_that_are_not_those_of_the_run_are_refused(
    opened: tuple[Run, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, folder = opened
    summary = run[None].summary

    def other(metric: str, condition: str, *rest: Any) -> Any:
        return summary(metric, condition, *rest) * (1.001 if (metric, condition) == ("spread", "random") else 1.0)

    monkeypatch.setattr(run[None], "summary", other)
    with pytest.raises(CaptureError, match=r"measured again differs from the run by 1e-03 .*1e-04 is allowed.*verify"):
        Remeasurer().measure(run[str(folder)], 0)
    run.store.manifest["identity"]["libraries"]["torch"] = "1.0"
    assert Remeasurer().measure(run[str(folder)], 0).agreement == pytest.approx(1e-3, rel=1e-2)


def test_a_number_that_is_none_in_the_run_is_a_difference(
    opened: tuple[Run, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, folder = opened
    summary = run[None].summary
    monkeypatch.setattr(run[None], "summary", lambda *given: summary(*given) * (np.nan if given[0] == "peak" else 1.0))
    with pytest.raises(CaptureError, match="by inf "):
        Remeasurer().measure(run[str(folder)], 0)


def test_a_number_that_is_none_in_the_run_in_one_head_alone_is_a_difference(
    opened: tuple[Run, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, folder = opened
    summary = run[None].summary

    def holed(metric: str, *rest: Any) -> Any:
        values = np.array(summary(metric, *rest))
        values[0, -1, -1] = np.nan if metric == "peak" else values[0, -1, -1]
        return values

    monkeypatch.setattr(run[None], "summary", holed)
    with pytest.raises(CaptureError, match="by inf "):
        Remeasurer().measure(run[str(folder)], 0)


def test_progress_is_told(run: Run, model: str) -> None:
    stages: list[tuple[str, float, int | None]] = []

    class Listener(Silent):
        def stage(self, text: str, done: float, total: int | None) -> None:
            stages.append((text, done, total))

    Remeasurer(Listener()).measure(run[model], 0)
    identifier = run[None].records()[0]["id"]
    assert ("loading llama", 0, None) in stages
    assert stages[-1] == (f"measuring {identifier} with llama", 8, 8)


@pytest.mark.slow
@pytest.mark.weights
def test_problems_of_a_real_model(smollm2: LoadedModel, tmp_path: Path) -> None:
    conditions = ["none", "mless", {"name": "arm", "intervention": {"kind": "arm"}}]
    study = study_of(smollm2.name, problems={"limit": 3}, conditions=conditions, probes={}, device="cpu")
    run = fillerscope.run(study, tmp_path / "run")
    again = Remeasurer()
    assert again.at_hand(run[smollm2.name]) == ""
    found = [again.measure(run[smollm2.name], number) for number in range(3)]
    mine, kept = merge(one.part for one in found), run.store.get(merged_name(smollm2.name))
    assert max(one.agreement for one in found) < 1e-4
    for condition in run.conditions:
        close(mine.arrays[f"{condition}/aligned/mean"], kept.arrays[f"{condition}/aligned/mean"], 1e-5)


# Prompts that no model was given


def lengthened(record: dict[str, Any]) -> None:
    """By more tokens than the model takes."""
    for prompt in record["prompts"].values():
        prompt["ids"] += [prompt["ids"][5]] * 40_000
        prompt["spans"] += [prompt["spans"][-1]] * 40_000
    record["tokens"] += [record["tokens"][5]] * 40_000


def moved(record: dict[str, Any]) -> None:
    record["prompts"]["mless"]["gap"] = 1 << 40


def unknown(record: dict[str, Any]) -> None:
    record["prompts"]["mless"]["ids"][3] = 1 << 40


def negative(record: dict[str, Any]) -> None:
    record["prompts"]["mless"]["ids"][3] = -1


@pytest.mark.parametrize(
    ("forge", "reason"),
    [
        (lengthened, r"is recorded with 40\d{3} tokens, and .* takes \d+: run the study again"),
        (moved, r"is recorded with \d{13} tokens, and"),
        (unknown, r"is recorded with token 1099511627776, and .* has tokens 0 to \d+: run the study again"),
        (negative, "is recorded with token -1, and"),
    ],
)
def test_a_prompt_that_the_model_cannot_take_is_refused(
    runs: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forge: Any, reason: str
) -> None:
    monkeypatch.setattr(remeasure, "_measured", lambda *_: pytest.fail("measured"))
    shutil.copytree(runs("llama"), tmp_path / "run")
    store = RunStore.open(tmp_path / "run")
    name = merged_name(open_run(tmp_path / "run").models[0])
    part = store.get(name)
    records = [copy.deepcopy(dict(record)) for record in part.records]
    forge(records[0])
    with store.writing():
        store.put(name, Part(part.arrays, records))
    run = open_live_run(tmp_path / "run")[None]
    with pytest.raises(CaptureError, match=reason):
        Remeasurer().measure(run, 0)
    if forge is not lengthened:  # which is too long to be shown, whatever the model takes
        with pytest.raises(CaptureError, match=reason):
            Remeasurer().matrix(run, 0, "mless", 1, 1)
