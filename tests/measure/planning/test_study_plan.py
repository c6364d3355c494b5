"""A plan beside the run of the same study: prompts, tokens, passes and bytes are those of the run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, cast

import pytest

from fillerscope.capture.packing import Text
from fillerscope.capture.passes import Measured, PassRunner, Prefix
from fillerscope.errors import ModelError
from fillerscope.measure.engines import local
from fillerscope.measure.planning.calibrate import Calibrated, Peak
from fillerscope.measure.planning.counting import CountingRunner
from fillerscope.measure.planning.rates import DEVICES, WRITING, Rates
from fillerscope.measure.planning.study_plan import PlanOptions, StudyPlan, _Planning, plan_study
from fillerscope.measure.run_study import run_study
from fillerscope.store.contents import ANSWERING, ANSWERING_AGAIN, MEASURING, MEASURING_ANSWERS
from fillerscope.store.run_folder import RunStore
from fillerscope.study.study import Study
from support.studies import CONDITIONS, save_model, study_of

BY_TABLE = PlanOptions("h100")
SHARDS = 3  # of eight problems, three in each


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FILLERSCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tokens of every pass that a run makes on prompts and answers, those of prefixes included."""
    counted: list[int] = []
    one_pass, run_prefix, measure_shards = PassRunner.one_pass, PassRunner._run_prefix, local.measure_shards

    def passed(self: PassRunner, texts: Any) -> Measured:
        if not isinstance(self, CountingRunner):
            counted.append(sum(text.own for text in texts))
        return one_pass(self, texts)

    def begun(*given: Any) -> None:
        counted.clear()  # what checks have run
        measure_shards(*given)

    def prefixed(self: PassRunner, text: Text) -> Prefix:
        counted.append(text.shared)
        return run_prefix(self, text)

    monkeypatch.setattr(local, "measure_shards", begun)
    monkeypatch.setattr(PassRunner, "one_pass", passed)
    monkeypatch.setattr(PassRunner, "_run_prefix", prefixed)
    return counted


def stored(store: RunStore, beginning: str) -> int:
    return sum(entry["bytes"] for name, entry in store.manifest["files"].items() if name.startswith(beginning))


PROBES: dict[str, dict[str, Any]] = {
    "attention": {"attention": {"positions": 110}},
    "whole": {},
    "affine": {"affine": True},
    "answering": {"answering": True},
}


@pytest.mark.parametrize("probes", PROBES.values(), ids=PROBES)
def test_the_bytes_are_those_of_the_run(probes: dict[str, Any], folder: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"generation": {"max_tokens": 8}} if "answering" in probes else {}
    study = study_of(folder, probes=probes, references={"twin": 2}, **options)
    plan = plan_study(study, BY_TABLE)
    store = run_study(study, tmp_path / "run")
    assert [model.name for model in plan.models] == [str(folder), *study.twins(str(folder))]
    measured = sum(model.stages[MEASURING].bytes for model in plan.models)
    assert measured == pytest.approx(stored(store, "shards/"), rel=2e-3)
    merged = sum(model.stages[MEASURING].merged for model in plan.models)
    assert merged == pytest.approx(stored(store, "merged/"), rel=2e-3)
    if "answering" in probes:  # answers that end early are shorter than planned
        lookback = plan.models[0].stages[MEASURING_ANSWERS]
        assert lookback.bytes + lookback.merged == pytest.approx(stored(store, "lookback/"), rel=0.2)


@pytest.mark.parametrize("tokens", [None, 64, 256])
@pytest.mark.parametrize("prefix", ["share", "off"])
def test_the_passes_are_those_of_the_run(
    tokens: int | None, prefix: str, folder: Path, tmp_path: Path, seen: list[int]
) -> None:
    study = study_of(folder, batch={"shard": 3, "tokens": tokens, "prefix": prefix})
    plan = plan_study(study, PlanOptions("cpu", calibrate=False)).models[0]
    assert seen == []  # no model has run
    store = run_study(study, tmp_path / "run")
    assert store.manifest["models"][str(folder)]["batch_tokens"] == plan.pass_tokens
    stage = plan.stages[MEASURING]
    assert stage.passes == len(seen) > SHARDS
    assert sum(seen) <= stage.computed < 1.05 * sum(seen)  # with padding
    names = [name for name in store.manifest["files"] if name.startswith("shards/")]
    records = [record for name in names for record in store.get(name).records]
    assert (plan.problems, plan.prompts) == (8, 8 * len(CONDITIONS))
    assert plan.prompt_tokens == sum(len(p["ids"]) for record in records for p in record["prompts"].values())


ANSWERED: dict[str, Any] = {"probes": {"attention": False}, "generation": {"max_tokens": 24, "noise": True}}


def test_a_calibrated_plan_knows_how_long_answers_are(folder: Path, tmp_path: Path) -> None:
    study = study_of(folder, **ANSWERED)
    plan = plan_study(study)
    assert plan.calibrated
    assert any("as long as 15 sampled ones" in note for note in plan.notes)
    store = run_study(study, tmp_path / "run")
    tables = {name: store.get_table(name) for name in store.manifest["files"] if name.startswith(("answers", "again"))}
    model = plan.models[0]
    assert model.answers == sum(len(table["text"]) for table in tables.values()) == 8 * (len(CONDITIONS) + 1)
    assert model.answer_tokens == pytest.approx(sum(sum(table["tokens"]) for table in tables.values()), rel=0.3)
    assert model.stages[ANSWERING].bytes == pytest.approx(stored(store, "answers/"), rel=0.1)
    assert model.stages[ANSWERING_AGAIN].bytes == pytest.approx(stored(store, "again"), rel=0.3)
    assert plan.bytes == pytest.approx(sum(one.stat().st_size for one in store.path.rglob("*.*")), rel=0.15)


@pytest.mark.parametrize("options", [{}, ANSWERED], ids=["attention", "answers"])
def test_a_calibrated_plan_tells_time_and_memory(options: dict[str, Any], folder: Path) -> None:
    """How near the time is stands in `benchmarks/plan.py`."""
    plan = plan_study(study_of(folder, **options))
    assert 0 < plan.seconds < 3600
    assert plan.device_memory is None
    assert 100 * 10**6 < plan.process_memory < 10**10
    assert next(iter(plan.models[0].fixed)) == "loading"


def test_a_model_is_planned_by_its_config_alone(folder: Path, tmp_path: Path) -> None:
    """Weights are neither read nor needed."""
    whole = plan_study(study_of(folder), BY_TABLE).record()
    bare = tmp_path / "tiny"
    bare.mkdir()
    for file in folder.iterdir():
        if file.suffix != ".safetensors":
            (bare / file.name).write_bytes(file.read_bytes())
    alone = plan_study(study_of(bare), BY_TABLE).record()
    for model in (whole["models"][0], alone["models"][0]):
        del model["name"]
    assert alone == whole
    with pytest.raises(ModelError, match="no weights here to calibrate with: name a device of the table, such as"):
        plan_study(study_of(bare))


def test_more_of_everything_takes_longer(folder: Path) -> None:
    def seconds(device: str = "h100", **options: Any) -> float:
        return plan_study(study_of(folder, **options), PlanOptions(device)).seconds

    long = {"probes": {"attention": False}, "generation": {"max_tokens": 100}}
    assert seconds("t4", **long) > seconds(**long)
    assert seconds(**long) > seconds(**(long | {"generation": {"max_tokens": 20}})) + 0.005


def test_a_gpu_measures_while_shards_are_written(folder: Path) -> None:
    """Of a tiny model writing takes longer than all else."""
    stage = plan_study(study_of(folder), BY_TABLE).models[0].stages[MEASURING]
    assert sum(stage.seconds) == pytest.approx((stage.bytes + stage.merged) / WRITING)


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"num_hidden_layers": 10_000_000}, "num_hidden_layers: 10000000"),
        ({"attn_implementation": "someone/kernel"}, "comes from the hub"),
    ],
)
def test_what_a_run_refuses_is_not_built_for_a_plan(
    changed: dict[str, Any], told: str, weights: bool, folder: Path, tmp_path: Path
) -> None:
    model = Path(shutil.copytree(folder, tmp_path / "model"))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | changed))
    if not weights:
        (model / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=told):
        plan_study(study_of(model), BY_TABLE)


def test_weights_passes_sums_and_slots_are_counted(folder: Path) -> None:
    study = study_of(folder, generation={"max_tokens": 24})
    plan = plan_study(study, BY_TABLE)
    parts = plan.memory[0].parts
    on_disk = sum(file.stat().st_size for file in folder.glob("*.safetensors"))  # in float32, and with headers
    assert parts["weights"] == pytest.approx(on_disk / 2, rel=0.05)
    assert all(parts[name] > 0 for name in ("passes", "sums", "files", "prefill", "slots"))
    assert plan.device_memory == parts["weights"] + max(
        parts["passes"] + parts["sums"], parts["prefill"] + parts["slots"]
    )


def test_checks_of_a_gpu_count_where_they_take_the_most(folder: Path) -> None:
    """In float32, where memory holds that: the calibration has made them, and seen what they take."""
    plan = plan_study(study_of(folder), BY_TABLE)
    model, steady = plan.models[0], plan.memory[0].device
    assert steady is not None
    rates = Rates(0.0, 0.0, lambda *_: 0.0, 0.0, 0.0, 0.0)
    for peak, expected in ((steady // 2, steady), (3 * steady, 3 * steady)):
        seen = Calibrated(rates, model.size, "shared", 1, 256, 0, Peak(10**9, peak))
        assert _Planning._memory(cast(Any, None), model, seen, "cuda").device == expected


def test_jobs_share_the_shards(folder: Path) -> None:
    one, three, many = (plan_study(study_of(folder), PlanOptions("h100", jobs=n)) for n in (1, 3, 50))
    assert one.longest_job == one.seconds == three.seconds
    fixed = sum(one.models[0].fixed.values())
    assert three.longest_job == fixed + max(one.models[0].stages[MEASURING].seconds)
    assert many.longest_job == three.longest_job


def test_answers_of_servers_are_counted_and_not_timed(folder: Path) -> None:
    served = {"name": str(folder), "endpoint": {"url": "http://localhost:1/v1"}}
    study = study_of(folder, probes={"attention": False}, generation={"max_tokens": 9}, models=[served])
    plan = plan_study(study)
    model = plan.models[0]
    assert (model.served, model.answer_tokens) == (8 * len(CONDITIONS), 9 * 8 * len(CONDITIONS))
    assert model.seconds < 10
    assert any("time that servers or vLLM take" in note for note in plan.notes)


def test_an_unknown_device_is_one_line(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"no peak rates are known of 'abacus'; choose cpu, a10, a100, .*h100"):
        plan_study(study_of(folder), PlanOptions("abacus"))


def test_a_problem_that_no_prompt_can_be_made_of_is_told(tmp_path: Path, folder: Path) -> None:
    data = tmp_path / "long.jsonl"
    rows = [{"question": "1 + 1?", "answer": "2"}, {"question": "a b " * 4000, "answer": "2"}]
    data.write_text("\n".join(map(json.dumps, rows)))
    plan = plan_study(study_of(folder, problems={"source": str(data)}), BY_TABLE)
    assert (plan.models[0].failed, plan.models[0].prompts) == (1, len(CONDITIONS))


def test_peak_rates_are_those_of_data_sheets() -> None:
    assert (DEVICES["h100"].operations, DEVICES["h100"].bandwidth) == (989e12, 3350e9)
    assert all(one.kind == "cuda" and one.memory >= 16 * 10**9 for one in DEVICES.values())


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.parametrize("asked", ["attention", "answers", "both"])
def test_a_real_model_takes_what_was_planned(asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In bytes; `benchmarks/plan.py` compares time and memory."""
    monkeypatch.delenv("FILLERSCOPE_CACHE")
    options: dict[str, Any] = {} if asked == "attention" else {"generation": {"max_tokens": 32}}
    options |= {"probes": {"attention": False}} if asked == "answers" else {}
    settings = {"name": "plan", "models": ["smollm2-135m"], "problems": {"limit": 16}, "device": "cpu"}
    study = Study.model_validate(settings | {"conditions": ["none", "mless"], "batch": {"shard": 8}} | options)
    plan = plan_study(study)
    store = run_study(study, tmp_path / "run")
    assert plan.bytes == pytest.approx(sum(one.stat().st_size for one in store.path.rglob("*.*")), rel=0.1)
    assert _is_sound(plan)


def _is_sound(plan: StudyPlan) -> bool:
    hours_agree = plan.record()["hours"] * 3600 == pytest.approx(plan.seconds)
    return hours_agree and plan.process_memory > plan.memory[0].parts["weights"]
