"""What the page is sent is what the analysis says, and the analysis what lies in the files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.numpy import load_file

from fillerscope.analysis.accuracy import compare
from fillerscope.analysis.depth import depth_table
from fillerscope.analysis.flips import flips
from fillerscope.analysis.heads import head_table
from fillerscope.analysis.mechanism import activation_table, affine_table
from fillerscope.analysis.run import Run, open_live_run, open_run
from fillerscope.analysis.stats import mean_interval, sample_interval
from fillerscope.analysis.twins import UNTRAINED
from fillerscope.errors import FigureError, FillerscopeError, StoreError
from fillerscope.prompts.prompt import QUESTION
from fillerscope.report import answer_payload, payload
from fillerscope.report.answer_payload import PAGE
from fillerscope.report.packed_arrays import unpack
from fillerscope.report.payload import Place
from fillerscope.store.moments import Moments
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import METRICS, MOMENTS, answer_attention_name, answers_name, merged_name, shard_name
from support.answered import Key, Row, answer, build
from support.intervals import interval_of_mean
from support.synthetic import CLASSES, MLESS, NONE, RANDOM, Effect, Synthetic

MODEL = "tiny-a"
RECIPE = Synthetic(
    right={"none": 0.5, "mless": 0.75}, affine=True, activations=True, answering=True, problems=6, failed=(4,),
    unanswered=(2,), layers=3, heads=4, shard=2, generation={"temperature": [0, 0.7], "samples": [1, 2]},
)  # fmt: skip
PLAIN = Synthetic(problems=4, noise=0.3)
EXACT = {"rtol": 1e-6, "atol": 0}  # 32-bit floats


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return RECIPE.build(tmp_path_factory.mktemp("payload") / "run")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return PLAIN.build(tmp_path_factory.mktemp("payload") / "plain")


def place(**changes: Any) -> dict[str, str]:
    asked = {"model": MODEL, "layer": 2, "head": 3, "queries": "original", "view": "aligned"} | changes
    return {key: str(value) for key, value in asked.items()}


# Numbers again from the files, by other code


@pytest.mark.parametrize(
    ("view", "condition"), [("aligned", "none"), ("aligned", "mless"), ("whole", "random"), ("logratio", "mless")]
)
def test_a_head_is_mean_and_interval_of_the_problems(plain: Run, view: str, condition: str) -> None:
    """From every problem's own curve, as the recipe has it: query 2 (last), layer 3, head 2."""
    header, found = unpack(
        payload.head(plain[MODEL], Place.of(plain[MODEL], place(layer=3, head=2, queries="last", view=view)))
    )
    samples = PLAIN.samples(condition, view)[:, 2, 2, 1]  # [problem, position]
    n = np.isfinite(samples).sum(axis=0)
    for at in range(samples.shape[1]):
        values = samples[np.isfinite(samples[:, at]), at]
        got = {key: found[f"{condition}/{key}"][at] for key in ("n", "mean", "sd", "low", "high")}
        assert got["n"] == len(values)
        if len(values):
            assert_allclose(got["mean"], values.mean(), rtol=2e-6)
        if len(values) > 1:
            assert_allclose(got["sd"], values.std(ddof=1), rtol=1e-4, atol=1e-8)
            assert_allclose([got["low"], got["high"]], interval_of_mean(values), rtol=1e-5, atol=1e-7)
        else:
            assert np.isnan([got["sd"], got["low"], got["high"]]).all()
    assert header["reach"][condition] == np.flatnonzero(n >= 2)[-1] + 1
    assert (header["layer"], header["head"], header["queries"], header["view"]) == (3, 2, "last", view)


def test_a_head_is_what_lies_in_the_merged_file(plain: Run) -> None:
    arrays = load_file(plain.path / merged_name(MODEL))
    _, found = unpack(payload.head(plain[MODEL], Place.of(plain[MODEL], place(layer=1, head=4, queries="all"))))
    for condition in plain.conditions:
        count, *sums = (arrays[f"{condition}/aligned/{part}"] for part in MOMENTS)
        n = np.broadcast_to(count, sums[0].shape)[0, 0, 3]
        stored = Moments(n, *(part[0, 0, 3] for part in sums))
        assert_allclose(found[f"{condition}/mean"], stored.value(), **EXACT)
        assert_array_equal(found[f"{condition}/n"], n)
        for key, bound in zip(("low", "high"), mean_interval(stored), strict=True):
            assert_allclose(found[f"{condition}/{key}"], bound, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("queries", ["all", "original", "last"])
def test_the_map_of_drops_is_the_geometric_mean_of_the_summaries(plain: Run, queries: str) -> None:
    header, found = unpack(payload.head_maps(plain[MODEL], "mless", queries))
    arrays = load_file(plain.path / merged_name(MODEL))
    row, metric = ["all", "original", "last"].index(queries), METRICS.index("received_original")
    after, before = (arrays[f"{name}/heads"][:, metric, row].astype(float) for name in ("mless", "none"))
    logs = np.log(after / before)
    assert_allclose(found["drop/value"], np.exp(logs.mean(axis=0)), **EXACT)
    for key, bound in zip(("low", "high"), sample_interval(logs)[1:], strict=True):
        assert_allclose(found[f"drop/{key}"], np.exp(bound), rtol=1e-5)
    mass = arrays["mless/heads"][:, METRICS.index("filler_mass"), row].astype(float)
    assert_allclose(found["mass/value"], mass.mean(axis=0), **EXACT)
    assert_allclose(found["lambda/value"], 1 - mass.mean(axis=0), rtol=1e-5)
    assert_allclose(found["lambda/low"], 1 - found["mass/high"], rtol=1e-4, atol=1e-6)
    assert_allclose(found["lambda/high"], 1 - found["mass/low"], rtol=1e-4, atol=1e-6)
    assert header == {"n": 4, "condition": "mless", "queries": queries}


# The same as the analysis


def test_overview(run: Run, plain: Run) -> None:
    found = payload.overview(run)
    json.dumps(found, allow_nan=False)
    (model,) = found["models"]
    assert (model["layers"], model["heads"], model["measured"], model["failed"]) == (3, 4, 5, 1)
    assert [problem["number"] for problem in model["problems"]] == [0, 1, 2, 3, 5]
    assert (model["name"], model["label"], found["name"], found["folder"]) == (MODEL, "Tiny-A", "synthetic", "run")
    assert [one["name"] for one in found["conditions"]] == ["none", "mless", "random"]
    assert [one["filler"] for one in found["conditions"]] == [False, True, True]
    assert found["conditions"][1]["recipe"] == "' /' repeated, 30 tokens, before the question."
    assert [one["style"] for one in found["conditions"]] == [0, 1, 3]  # as printed: mful would have 2
    assert found["queries"] == ["all", "original", "last", "answer"]
    assert found["has"] == dict.fromkeys(("attention", "answers", "affine", "activations", "answering"), True)
    assert (found["main"], found["classes"], found["temperatures"]) == ("mless", list(CLASSES), [0, 0.7])
    names = ["drop", "mass", "lambda", "peak", "entropy", "explained", "direction"]
    assert [one["name"] for one in found["metrics"]] == names
    assert next(one["label"] for one in found["metrics"] if one["name"] == "lambda") == "Lambda fitted to outputs"
    less = payload.overview(plain)
    assert [one["name"] for one in less["metrics"]] == names[:5]
    assert next(one["label"] for one in less["metrics"] if one["name"] == "lambda") == "Lambda, 1 - filler mass"
    assert (less["classes"], less["temperatures"], less["queries"]) == ([], [], ["all", "original", "last"])


def test_overview_of_a_run_without_filler_or_attention(tmp_path: Path) -> None:
    found = payload.overview(Synthetic(conditions=(NONE,), problems=2).build(tmp_path / "none"))
    assert (found["main"], found["metrics"]) == (None, [])
    found = payload.overview(Synthetic(attention=False, right={"none": 0.5}, problems=2).build(tmp_path / "answers"))
    assert (found["queries"], found["metrics"], found["main"]) == ([], [], "mless")
    assert (found["models"][0]["layers"], found["models"][0]["measured"]) == (0, 0)


@pytest.mark.parametrize("queries", ["original", "last", "answer"])
def test_maps_are_the_head_table_and_the_affine_one(run: Run, queries: str) -> None:
    header, found = unpack(payload.head_maps(run[MODEL], "random", queries))
    table, affine = head_table(run[None], "random", queries), affine_table(run[None], "random").heads
    wanted = {name: (one.value, one.low, one.high) for name, one in table.columns.items()}
    wanted |= {"lambda": affine["lambda_fit"], "explained": affine["explained"], "direction": affine["direction"]}
    assert {name.partition("/")[0] for name in found} == wanted.keys()
    for name, three in wanted.items():
        for part, array in zip(("value", "low", "high"), three, strict=True):
            assert_array_equal(found[f"{name}/{part}"], array.astype(np.float32))
    assert header["n"] == (4 if queries == "answer" else 5), "one problem failed, and the answer of another"


@pytest.mark.parametrize("view", ["whole", "aligned", "difference", "logratio"])
@pytest.mark.parametrize("queries", ["all", "answer"])
def test_a_head_and_a_layer_are_cut_from_the_profile(run: Run, view: str, queries: str) -> None:
    at = Place.of(run[MODEL], place(queries=queries, view=view))
    header, one = unpack(payload.head(run[MODEL], at))
    again, layer = unpack(payload.whole_layer(run[MODEL], at))
    names = run.fillers if view in ("difference", "logratio") else run.conditions
    assert list(layer) == names
    assert list(one) == [f"{name}/{part}" for name in names for part in ("n", "mean", "low", "high", "sd")]
    for name in names:
        profile = run.profile(name, queries, view)
        assert_array_equal(layer[name], profile.mean[1].astype(np.float32))
        low, high = profile.interval()
        parts = {"n": profile.count, "mean": profile.mean, "low": low, "high": high, "sd": profile.sd}
        for part, array in parts.items():
            assert_array_equal(one[f"{name}/{part}"], array[1, 2].astype(np.float32))
        assert header["reach"][name] == again["reach"][name] == profile.head(2, 3).reach()


@pytest.mark.parametrize("changes", [{"layer": 0}, {"layer": 4}, {"layer": -1}, {"head": 0}, {"head": 5}, {"head": -3}])
def test_a_head_that_is_not_there_is_refused(run: Run, changes: dict[str, int]) -> None:
    with pytest.raises(FigureError, match=r"there is no layer .* head .*: Tiny-A has layers 1 to 3 and heads 1 to 4"):
        Place.of(run[MODEL], place(**changes))


@pytest.mark.parametrize("layer", [0, -1, 4, 99])
def test_a_histogram_of_a_layer_that_is_not_there_is_refused(run: Run, layer: int) -> None:
    with pytest.raises(FigureError, match=rf"^there is no layer {layer}: Tiny-A has layers 1 to 3$"):
        payload.histogram_of(run[MODEL], layer)


@pytest.mark.parametrize(("changes", "message"),
    [({"view": "side"}, "views are"), ({"queries": "some"}, "queries are")],
)  # fmt: skip
def test_views_and_queries_that_are_not_there_are_refused(run: Run, changes: dict[str, str], message: str) -> None:
    with pytest.raises(FillerscopeError, match=message):
        payload.head(run[MODEL], Place.of(run[MODEL], place(**changes)))


def test_one_problem_alone_is_that_problem(run: Run) -> None:
    part = RECIPE._part(range(3, 4))
    for view in ("whole", "aligned", "difference", "logratio"):
        header, found = unpack(
            payload.one_problem(run[MODEL], part, Place.of(run[MODEL], place(view=view, queries="last")), "as it was")
        )
        assert header["note"] == "as it was"
        number = RECIPE.measured.index(3)
        for name in run.fillers if view in ("difference", "logratio") else run.conditions:
            own = RECIPE.samples(name, view)[number, 2, 1, 2]
            own = own[: len(found[f"{name}/mean"])]
            assert_allclose(found[f"{name}/mean"], own, rtol=2e-6, atol=1e-9)
            assert_array_equal(found[f"{name}/n"], np.isfinite(own) if view == "logratio" else found[f"{name}/n"])
            assert found[f"{name}/n"].max() == 1
            assert np.isnan(found[f"{name}/low"]).all(), "one problem has no interval"
    with pytest.raises(FigureError, match="choose other queries than the answer's"):
        payload.one_problem(run[MODEL], part, Place.of(run[MODEL], place(queries="answer")), "")


def test_tokens_and_regions(run: Run) -> None:
    found = payload.tokens(run[MODEL])
    assert found["aligned"] == found["whole"]["none"] == list(run.tokens("none"))
    assert found["whole"]["mless"][20:50] == ["\u00b7"] * 30
    assert [(one["condition"], one["start"], one["stop"]) for one in found["regions"]] == [
        ("mless", 20, 50),
        ("random", 20, 50),
    ]


def lines_of(panels: list[dict[str, Any]], title: str) -> dict[str, Any]:
    panel = next(panel for panel in panels if panel["title"] == title)
    return {line["condition"]: line for line in panel["series"]}


def test_panels_by_layer(run: Run) -> None:
    drop = lines_of(payload.depth(run[MODEL], "last"), "Paired drop, ratio to none")
    explained = lines_of(payload.affine(run[MODEL]), "Variation explained")
    near = lines_of(payload.activations(run[MODEL], "digits"), "Near zero, change in points")
    for name in run.fillers:
        assert [drop[name][key] for key in ("y", "low", "high")] == [
            bound.tolist() for bound in depth_table(run[None], name, "last").values["drop"]
        ]
        assert explained[name]["y"] == affine_table(run[None], name).values["explained"][0].tolist()
        table = activation_table(run[None], name, "digits")
        assert near[name]["y"] == (100 * table.difference["near_zero"][0]).tolist()
        assert near[name]["n"] == table.n.tolist()


def test_a_histogram_is_of_its_layer_and_class(run: Run) -> None:
    found = payload.histogram_of(run[MODEL], 3, "words")
    for line in found["series"]:
        counts = run[None].histogram(line["condition"], "words")[2]
        assert line["n"] == counts.tolist()
        assert line["y"] == (counts / counts.sum()).tolist()
    assert found["eps"] == run[None].calibration()["eps"][2]
    assert len(found["edges"]) == len(found["series"][0]["x"]) + 1


# Answers


def test_the_comparison(run: Run) -> None:
    found = answer_payload.comparison(run)
    json.dumps(found, allow_nan=False)
    assert found["fields"] == ["level"]
    rows = compare(run)
    assert len(found["rows"]) == len(rows)
    for told, row in zip(found["rows"], rows, strict=True):
        assert {key: told[key] for key in ("condition", "temperature", "samples", "n", "accuracy", "low")} == {
            "condition": row.condition, "temperature": row.temperature, "samples": row.samples, "n": row.n,
            "accuracy": row.accuracy, "low": row.low,
        }  # fmt: skip
        assert (told["adjusted"] is None) == (row.against is None)
        assert bool(told["verdict"]) == (row.against is not None)
    grouped = answer_payload.comparison(run, "level")["rows"]
    assert {row["group"] for row in grouped} == {"level 1", "level 2"}
    assert answer_payload.comparison(run, "") == found
    with pytest.raises(FigureError, match="no field 'colour'"):
        answer_payload.comparison(run, "colour")


def test_flips(run: Run) -> None:
    found = answer_payload.flipped(run[MODEL], "mless", "none", 0.7)
    wanted = flips(run[MODEL], "mless", "none", 0.7)
    assert [(one["id"], one["sample"], one["direction"]) for one in found["flips"]] == [
        (one.id, one.sample, one.direction) for one in wanted
    ]
    assert found["flips"][0]["after"]["verdict"] == "right"
    assert found["flips"][0]["reference"] == wanted[0].reference
    json.dumps(found, allow_nan=False)
    back = answer_payload.flipped(run[MODEL], "none", "mless", None)["flips"]
    assert {one["direction"] for one in back} == {"lost"}


TEXTS = ["Die STRASSE ist lang", "die Stra\u00dfe", "\u0130stanbul", "  two  words ", "100% [a-z]* .", ""]


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """40 problems, two conditions: the text of a problem is one of six."""

    def draw(key: Key) -> Row:
        verdict = "failed" if key[1] == 39 else "right" if key[1] % 2 else "wrong"
        return answer(verdict, np.random.default_rng(0)) | {"text": TEXTS[key[1] % 6] if key[3] == "none" else "other"}

    return build(tmp_path_factory.mktemp("payload") / "answers", draw, 40, conditions=["none", "mless"], shard=40)


def ids(run: Run, start: int = 0, **wanted: str) -> tuple[int, list[str]]:
    found = answer_payload.transcripts(run["a"], wanted, start)
    json.dumps(found, allow_nan=False)
    return found["total"], [one["id"] for one in found["answers"]]


def test_all_answers_come_by_pages_once_each(answered: Run) -> None:
    pages = [ids(answered, start) for start in (0, 50, 100)]
    assert [total for total, _ in pages] == [80] * 3
    assert [len(page) for _, page in pages] == [PAGE, 30, 0] == [50, 30, 0]
    seen = pages[0][1] + pages[1][1]
    assert seen == [f"p{n}" for n in range(40)] * 2, "one condition behind the other"
    first = answer_payload.transcripts(answered["a"], {})["answers"][3]
    assert (first["condition"], first["sample"], first["question"], first["reference"]) == (
        "none",
        1,
        "What is 3?",
        "3",
    )
    assert (first["verdict"], first["text"]) == ("right", TEXTS[3])
    assert answer_payload.transcripts(answered["a"], {}, 7)["start"] == 7
    with pytest.raises(FigureError, match="answers are counted from 0, not from -1"):
        answer_payload.transcripts(answered["a"], {}, -1)


def test_a_search_finds_what_people_mean(answered: Run) -> None:
    every = lambda place: [f"p{n}" for n in range(40) if n % 6 in place]  # noqa: E731
    none = {"condition": "none"}
    assert ids(answered, text="strasse") == (14, every((0, 1))), "sharp s is two letters"
    assert ids(answered, text="STRA\u00dfE")[1] == every((0, 1))
    assert ids(answered, text="[a-z]* .")[1] == every((4,)), "no pattern"
    assert ids(answered, text="OTHER")[0] == 40
    assert ids(answered, text="other", **none)[0] == 0
    assert ids(answered, text="What is 7?", **none)[1] == ["p7"], "in the question"
    assert ids(answered, text="p12", **none)[1] == ["p12"], "in the id"
    assert ids(answered, text="nowhere") == (0, [])
    assert ids(answered, text="", **none)[0] == ids(answered, **none)[0] == 40
    assert ids(answered, condition="", verdict="")[0] == 80


def test_conditions_and_verdicts_are_chosen(answered: Run) -> None:
    assert ids(answered, verdict="failed") == (2, ["p39", "p39"])
    assert ids(answered, verdict="right", condition="mless")[1] == [f"p{n}" for n in range(1, 39, 2)]
    assert ids(answered, condition="nothing") == (0, [])


def test_temperatures(run: Run) -> None:
    def total(wanted: dict[str, str]) -> int:
        return int(answer_payload.transcripts(run[MODEL], wanted)["total"])

    assert (total({}), total({"temperature": "0"}), total({"temperature": "0.7"})) == (18, 18, 36)
    assert {one["sample"] for one in answer_payload.transcripts(run[MODEL], {"temperature": "0.7"})["answers"]} == {
        1,
        2,
    }
    with pytest.raises(FigureError, match=r"no temperature 1; it has 0, 0\.7"):
        answer_payload.transcripts(run[MODEL], {"temperature": "1"})


# A run that grows


def test_a_growing_run_speaks_of_the_problems_that_are_there(run: Run, tmp_path: Path) -> None:
    """Shards of two: of six problems the first four, the answers of two, and no answer looked at."""
    shutil.copytree(run.path, tmp_path / "run")
    store = RunStore.open(tmp_path / "run")
    gone = [
        merged_name(MODEL),
        answer_attention_name(MODEL),
        shard_name(MODEL, 2),
        answers_name(MODEL, 1),
        answers_name(MODEL, 2),
    ]
    for name in gone:
        (store.path / name).unlink()
        del store.manifest["files"][name]
    store._save_manifest()
    growing = open_live_run(store.path)
    (model,) = payload.overview(growing)["models"]
    assert (model["measured"], model["layers"]) == (4, 3)
    header, found = unpack(payload.head_maps(growing[MODEL], "mless", "original"))
    assert header["n"] == 4
    few = Synthetic(problems=4, affine=True, shard=2).build(tmp_path / "few")
    ratio = np.exp(
        np.log(
            RECIPE.summary("received_original", "mless")[:4, 1] / RECIPE.summary("received_original", "none")[:4, 1]
        ).mean(axis=0)
    )
    assert_allclose(found["drop/value"], ratio, rtol=1e-5)
    assert payload.head(growing[MODEL], Place.of(growing[MODEL], place())) != payload.head(
        few[MODEL], Place.of(few[MODEL], place())
    )
    assert answer_payload.comparison(growing)["rows"][0]["n"] == 2
    assert answer_payload.transcripts(growing[MODEL], {})["total"] == 2 * 3
    with pytest.raises(StoreError, match="no attention of answers of tiny-a yet"):
        payload.head_maps(growing[MODEL], "mless", "answer")
    with pytest.raises(StoreError, match="is not finished"):
        answer_payload.transcripts(open_run(store.path)[MODEL], {})


def test_an_empty_run_has_an_overview(tmp_path: Path) -> None:
    study = Synthetic(conditions=(NONE, MLESS, RANDOM), right={"none": 0.5}).study
    RunStore.create(tmp_path / "run", {"synthetic": True}, study.model_dump(mode="json"))
    found = payload.overview(open_live_run(tmp_path / "run"))
    assert [(one["layers"], one["measured"]) for one in found["models"]] == [(0, 0)]
    json.dumps(found, allow_nan=False)


def test_untrained_twins_stand_behind_the_curves_by_layer(tmp_path: Path) -> None:
    effects = tuple(Effect(drop=np.full((3, 4), drop), filler=0.9) for drop in (0.59, 0.61))
    run = Synthetic(diluted=0.6, twins=effects, affine=True, activations=True).build(tmp_path / "run")[None]
    drop = lines_of(payload.depth(run, "original"), "Paired drop, ratio to none")[UNTRAINED]
    own = np.array([depth_table(twin, run.main).values["drop"].value for twin in run.twins()])
    assert_allclose([drop["y"], drop["low"], drop["high"]], [own.mean(0), own.min(0), own.max(0)])
    assert "Paired drop, untrained twins (mean and range)" not in [
        one["title"] for one in payload.depth(run, "original")
    ]
    for panels in (payload.affine(run), payload.activations(run)):
        assert all(panel["series"][0]["condition"] == UNTRAINED for panel in panels)


def test_the_map_begins_with_what_goes_beyond_length(tmp_path: Path) -> None:
    known = Synthetic(diluted=0.6, problems=2).build(tmp_path / "odds")
    assert [one["name"] for one in payload.overview(known)["metrics"]][:2] == ["beyond", "drop"]
    effects = tuple(Effect(drop=np.full((3, 4), drop), filler=0.9) for drop in (0.59, 0.61))
    twins = Synthetic(problems=2, twins=effects).build(tmp_path / "twins")
    assert [one["name"] for one in payload.overview(twins)["metrics"]][:2] == ["beyond_uniform", "drop"]


def test_problems_are_listed_with_their_questions(run: Run) -> None:
    problems = payload.overview(run)["models"][0]["problems"]
    assert all(len(one["question"]) <= payload.LINE for one in problems)
    record = run[MODEL].measured()[0]
    spans = record["prompts"]["none"]["spans"]
    words = "".join(text for text, span in zip(record["tokens"], spans, strict=True) if span == QUESTION).split()
    assert problems[0]["question"].split()[0] == words[0]
