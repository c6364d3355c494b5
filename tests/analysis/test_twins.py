"""Untrained twins: measured in the same run, kept apart from its models, drawn as their names say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForCausalLM

import fillerscope
from fillerscope.analysis.depth import depth_table
from fillerscope.analysis.export import export
from fillerscope.analysis.findings.all import missing_parts
from fillerscope.analysis.heads import head_table
from fillerscope.analysis.integrity import faults
from fillerscope.analysis.run import Run, open_live_run, open_run
from fillerscope.analysis.twins import head_drops, head_masses, head_profiles
from fillerscope.errors import StoreError, StudyError
from fillerscope.models.loading import load_folder
from fillerscope.models.resolve import resolve
from fillerscope.models.untrained import untrained
from fillerscope.store.schema import merged_name
from fillerscope.study.study import Study
from support.studies import save_model, settings, study_of
from support.tiny import tiny_model


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("twins")
    study = study_of(save_model(folder / "model"), references={"twin": 2}, probes={"affine": True, "activations": True})
    return fillerscope.run(study, folder / "run")


def test_twins_stand_beside_the_models_of_a_run(run: Run) -> None:
    model = run.models[0]
    assert run.models == [model]
    assert [twin.name for twin in run[None].twins()] == [f"{model}#twin1", f"{model}#twin2"]
    assert [twin.label for twin in run[None].twins()] == [f"model, untrained twin {seed}" for seed in (1, 2)]
    assert run[None].twins()[0].twins() == [], "a twin has no twins"
    assert faults(run) == []
    assert run.store.verify() == []
    assert all(stage.finished for stage in open_live_run(run.path).store.progress())


def test_twins_write_no_answers_so_nothing_is_asked_of_them_there(tmp_path: Path) -> None:
    """A run with the attention of answers and with twins is shown and exported whole."""
    model = save_model(tmp_path / "model")
    study = study_of(
        model, references={"twin": 2}, probes={"answering": True}, generation={"max_tokens": 4, "recheck": 0},
        problems={"limit": 2},
    )  # fmt: skip
    run = fillerscope.run(study, tmp_path / "run")
    table = head_table(run[None], "mless", "answer")
    assert np.isnan(table.columns["twin"].value).all()
    assert np.isfinite(head_table(run[None], "mless").columns["twin"].value).all()
    assert np.isnan(depth_table(run[None], "mless", "answer").values["twin"].value).all()
    assert head_profiles(run[None], "mless", 1, "answer", "aligned").size == 0
    assert {path.stem for path in export(run, tmp_path / "tables")} >= {"heads", "depth", "lookback"}


def test_twins_have_weights_of_their_own_and_the_same_prompts(run: Run) -> None:
    values = [one.summary("received_original", "mless") for one in (run[None], *run[None].twins())]
    for one in range(3):
        for other in range(one):
            assert np.abs(values[one] - values[other]).max() > 1e-6
    runs = run[None], *run[None].twins()
    assert len({str([record["prompts"] for record in one.records()]) for one in runs}) == 1
    for twin in run[None].twins():
        assert np.isfinite(twin.affine("lambda_fit", "mless")).all()
        assert twin.facts["rowcheck"] == run[None].facts["rowcheck"]


def test_a_twin_is_drawn_from_its_seed_alone(tmp_path: Path) -> None:
    folder = resolve(str(save_model(tmp_path / "model")))
    torch.manual_seed(5)
    before = torch.rand(3)
    torch.manual_seed(5)
    first = load_folder(folder.twin("a", 1)).model
    assert torch.equal(torch.rand(3), before), "the caller's random numbers are not used up"
    again, other = (load_folder(folder.twin("a", seed)).model for seed in (1, 2))
    name, weight = next((n, p) for n, p in first.named_parameters() if p.dim() == 2)
    assert torch.equal(weight, again.get_parameter(name))
    assert not torch.equal(weight, other.get_parameter(name))
    own = load_folder(folder).model
    for name, parameter in own.named_parameters():
        drawn = first.get_parameter(name)
        if parameter.dim() > 1:
            assert float(drawn.square().mean()) == pytest.approx(float(parameter.square().mean()), rel=1e-4)
            assert not torch.allclose(drawn, parameter, atol=1e-3)
        else:
            assert torch.equal(drawn.sort().values, parameter.sort().values), "gains in another order"
    assert not first.training
    assert folder.twin("a", 1).digest != folder.twin("a", 2).digest != folder.digest


def test_tables_hold_a_model_against_its_twins(run: Run) -> None:
    drops, masses = (read(run[None], "mless", "original") for read in (head_drops, head_masses))
    for place, twin in enumerate(run[None].twins()):
        table = head_table(twin, "mless").columns
        np.testing.assert_allclose(drops[place], table["drop"].value)
        np.testing.assert_allclose(masses[place], table["mass"].value)
    column = head_table(run[None], "mless").columns["twin"]
    np.testing.assert_allclose(column.value, drops.mean((0, 2))[:, None].repeat(4, 1))
    np.testing.assert_allclose(column.low, drops.min((0, 2))[:, None].repeat(4, 1))
    np.testing.assert_allclose(column.high, drops.max((0, 2))[:, None].repeat(4, 1))
    layers = [depth_table(twin, "mless").values["drop"][0] for twin in run[None].twins()]
    mean, low, high = depth_table(run[None], "mless").values["twin"]
    np.testing.assert_allclose([mean, low, high], [np.mean(layers, 0), np.min(layers, 0), np.max(layers, 0)])
    profiles = head_profiles(run[None], "mless", 2, "original", "aligned")
    assert profiles.shape[0] == 2 * 4
    np.testing.assert_allclose(profiles[4], run[None].twins()[1].profile("mless").mean[1, 0])


def test_exports_have_the_range_of_twins_in_every_row(run: Run, tmp_path: Path) -> None:
    export(run, tmp_path)
    for name in ("heads", "depth"):
        table = pq.read_table(tmp_path / f"{name}.parquet")
        assert np.isfinite(table["twin"].to_numpy()).all()
        assert set(table["model"].to_pylist()) == set(run.models)


def test_a_run_goes_on_from_the_twins_that_are_there(tmp_path: Path) -> None:
    study = study_of(save_model(tmp_path / "model"), references={"twin": 2})
    whole = fillerscope.run(study, tmp_path / "run")
    kept = {name: one["sha256"] for name, one in whole.store.manifest["files"].items()}
    last = whole.path / max(name for name in kept if name.startswith("shards/") and "twin2" in name)
    last.unlink()
    again = fillerscope.run(study, tmp_path / "run")
    assert {name: one["sha256"] for name, one in again.store.manifest["files"].items()} == kept
    found, wanted = ([twin.name for twin in one[None].twins()] for one in (open_run(again.path), whole))
    assert found == wanted


def test_a_twin_that_is_missing_is_never_left_out_in_silence(tmp_path: Path) -> None:
    run = fillerscope.run(study_of(save_model(tmp_path / "model"), references={"twin": 2}), tmp_path / "run")
    last = run[None].twins()[1].name
    (run.path / merged_name(last)).unlink()
    again = open_run(run.path)
    with pytest.raises(StoreError, match=r"is not finished for .*#twin2; run the study again"):
        head_table(again[None], "mless")
    assert f"{last}: it is not finished; run the study again" in faults(again)
    growing = open_live_run(run.path)
    assert (growing[None].twins(), head_table(growing[None], "mless").knows("twin")) == ([], False)
    assert any("twins of model are not all measured yet" in line for line in missing_parts(growing[None]))


def test_without_twins_nothing_is_said_of_them(tmp_path: Path) -> None:
    run = fillerscope.run(study_of(save_model(tmp_path / "model")), tmp_path / "run")
    assert run[None].twins() == []
    assert "twin" not in head_table(run[None], "mless").columns
    assert head_profiles(run[None], "mless", 1, "original", "aligned").size == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"references": {"twin": 1}}, "one untrained twin does not show how much twins differ"),
        ({"references": {"twin": -1}}, "greater than or equal to 0"),
        ({"references": {"twins": 3}}, "Extra inputs"),
        ({"references": {"twin": True}}, "twin takes a number"),
        ({"references": {"twin": 2}, "probes": {"attention": False}, "generation": {}}, "leave probes.attention on"),
    ],
)
def test_what_cannot_be_asked_for(changes: dict[str, object], words: str) -> None:
    with pytest.raises((StudyError, ValueError), match=words):
        Study.model_validate(settings("m", **changes))


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3_text"])
def test_a_twin_is_a_model_of_the_same_class(family: str) -> None:
    model = tiny_model(family)
    twin = untrained(AutoModelForCausalLM.from_config, model.config, torch.float32, "cpu", 3)
    assert type(twin) is type(model)
