"""The mechanism by layer: every number is known in advance, and what is missing is said to be missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from fillerscope.analysis.answer_attention import lookback_table
from fillerscope.analysis.depth import depth_table
from fillerscope.analysis.export import export
from fillerscope.analysis.heads import head_table
from fillerscope.analysis.integrity import faults
from fillerscope.analysis.mechanism import activation_table, affine_table, flipped, mechanism_rows
from fillerscope.analysis.run import Run, open_run
from fillerscope.errors import FigureError
from fillerscope.store.array_file import Part
from fillerscope.store.schema import ACTIVATION_METRICS, AFFINE_METRICS, answer_attention_name, merged_name
from fillerscope.study.conditions import PRESETS
from fillerscope.study.study import Study
from support.intervals import interval_of_mean
from support.synthetic import CLASSES, EDGES, HEAD_STEP, MLESS, NONE, RANDOM, Mechanism, Synthetic

SMALLEST = 2 / 2**12  # the p of twelve problems that all move the same way


@pytest.fixture(scope="module")
def recipe() -> Synthetic:
    return Synthetic(
        conditions=(NONE, MLESS, RANDOM, PRESETS["arm"]), affine=True, activations=True, answering=True,
        right={"none": 0.5}, failed=(1,), problems=13, missing={"digits": (3, 4), "operators": (0, *range(2, 13))},
        unanswered=(0, 7), mechanisms={"random": Mechanism(lam=(0.9, 1.1), together=0.25, variance=(0.5, 1.0))},
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(recipe: Synthetic, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return recipe.build(tmp_path_factory.mktemp("mechanism") / "run")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Synthetic(problems=4).build(tmp_path_factory.mktemp("mechanism") / "plain")


def test_what_was_stored_comes_back(run: Run, recipe: Synthetic) -> None:
    for place, metric in enumerate(AFFINE_METRICS):
        np.testing.assert_allclose(
            run[None].affine(metric, "random"), recipe.affine_samples("random")[:, place], rtol=1e-6
        )
    np.testing.assert_allclose(run[None].bias("mless").value(), recipe.bias_samples("mless").mean(axis=0))
    assert run[None].bias("mless").count.max() == 12
    assert run.classes == CLASSES
    for place, metric in enumerate(ACTIVATION_METRICS):
        for number, cls in enumerate(CLASSES):
            expected = recipe.activation_samples("mless")[:, place, number]
            np.testing.assert_allclose(run[None].activations(metric, "mless", cls), expected, rtol=1e-6)
    np.testing.assert_array_equal(run[None].histogram("random", "words"), recipe.histogram("random")[:, 3])
    np.testing.assert_array_equal(run[None].histogram("none"), recipe.histogram("none")[:, 0])
    assert run[None].calibration()["edges"] == EDGES.tolist()
    assert run[None].calibration()["eps"] == pytest.approx([0.1, 0.2, 0.3])


def test_classes_keep_the_order_in_which_the_study_names_them(tmp_path: Path) -> None:
    classes = {"words": "a|b", "digits": "[0-9]"}
    recipe = Synthetic(activations=True, problems=2)
    study = Study.model_validate(recipe.study.model_dump() | {"probes": {"activations": {"classes": classes}}})
    recipe.__dict__["study"] = study
    assert recipe.build(tmp_path / "run").classes == ("all", "words", "digits", "other")


def test_the_affine_picture_by_layer(run: Run, recipe: Synthetic) -> None:
    table = affine_table(run[None], "mless")
    heads = HEAD_STEP * 1.5  # the mean over heads
    for name, (first, later) in {"lambda_fit": (0.7, 0.99), "explained": (0.9, 0.8), "direction": (0.8, 0.3)}.items():
        mean, low, high = table.values[name]
        np.testing.assert_allclose(mean, np.array([first, later, later]) + heads, rtol=1e-6)
        np.testing.assert_allclose(high - mean, recipe.reach(), rtol=1e-4)
        np.testing.assert_allclose(mean - low, recipe.reach(), rtol=1e-4)
    np.testing.assert_allclose(table.values["relative_bias"][0], 0.1, rtol=1e-6)
    np.testing.assert_allclose(table.values["lambda_mass"][0], 1 - recipe.mass("mless").mean(axis=-1), rtol=1e-6)
    gap = table.values["lambda_fit"][0] - table.values["lambda_mass"][0]
    np.testing.assert_allclose(table.values["gap"][0], gap, rtol=1e-6)
    doubled = table.values["gap"][2] - table.values["gap"][0]  # lambda rises with the jitter and 1 - mass falls with it
    np.testing.assert_allclose(doubled, 2 * recipe.reach(), rtol=1e-3)
    assert table.problems == 12
    np.testing.assert_allclose(table.heads["lambda_fit"][0][0], 0.7 + HEAD_STEP * np.arange(4), rtol=1e-6)


@pytest.mark.parametrize(("condition", "together"), [("mless", 0.6), ("random", 0.25)])
def test_biases_of_different_problems_are_compared_as_vectors(run: Run, condition: str, together: float) -> None:
    table = affine_table(run[None], condition)
    np.testing.assert_allclose(table.consistency, together, rtol=1e-6)
    np.testing.assert_allclose(table.head_consistency, np.full((3, 4), together), rtol=1e-6)
    assert table.chance == pytest.approx(12**-0.5)


def test_tables_of_the_affine_picture_are_tidy(run: Run) -> None:
    table = affine_table(run[None], "mless")
    layers, heads = table.columns(), table.head_columns()
    assert layers["layer"].tolist() == [1, 2, 3]
    assert heads["layer"].tolist() == [1] * 4 + [2] * 4 + [3] * 4
    assert heads["head"].tolist() == [1, 2, 3, 4] * 3
    assert {len(column) for column in layers.values()} == {3}
    np.testing.assert_array_equal(heads["lambda_fit"], table.heads["lambda_fit"][0].ravel())
    np.testing.assert_array_equal(layers["gap_low"], table.values["gap"][1])
    assert set(layers["consistency_chance"]) == {table.chance}


def test_without_filler_there_is_no_mass_to_set_lambda_against(run: Run) -> None:
    table = affine_table(run[None], "arm")
    assert np.isnan(table.values["lambda_mass"]).all()
    assert np.isnan(table.values["gap"]).all()
    assert np.isfinite(table.values["lambda_fit"]).all()


def test_activations_by_layer(run: Run, recipe: Synthetic) -> None:
    table = activation_table(run[None], "mless")
    assert table.n.tolist() == [12, 12, 12]
    before, after = (recipe.activation_samples(name)[:, 1, 0] for name in ("none", "mless"))
    np.testing.assert_allclose(table.without["near_zero"], before.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(table.under["near_zero"], after.mean(axis=0), rtol=1e-6)
    mean, low, high = table.difference["near_zero"]
    np.testing.assert_allclose(mean, [-0.03, 0.0, 0.0], atol=1e-7)
    np.testing.assert_allclose(high - low, 0.2 * recipe.reach(), rtol=1e-3)
    np.testing.assert_allclose(table.difference["gini"][0], [-0.02, 0.0, 0.0], atol=1e-7)
    np.testing.assert_allclose(table.ratio["variance"][0], [1.3, 1.0, 1.0], rtol=1e-6)
    np.testing.assert_allclose(table.ratio["l1"][0], np.sqrt([1.3, 1.0, 1.0]), rtol=1e-6)


@pytest.mark.parametrize("name", ["variance", "l1", "l2"])
def test_the_interval_of_a_ratio_is_that_of_the_mean_of_the_logarithms(run: Run, name: str) -> None:
    table = activation_table(run[None], "mless")
    for layer, found in enumerate(zip(*table.ratio[name], strict=True)):
        logs = table.samples[f"log_{name}"][:, layer]
        assert found == pytest.approx(np.exp([logs.mean(), *interval_of_mean(logs)]), rel=1e-9)


def test_p_is_of_flipped_signs_and_adjusted_over_layers(run: Run) -> None:
    table = activation_table(run[None], "mless")
    for name in ("near_zero", "variance"):
        assert table.p[name][0] == pytest.approx(SMALLEST)
        assert table.adjusted[name][0] == pytest.approx(3 * SMALLEST)
        assert (table.p[name][1:] > 0.9).all()
        assert (table.adjusted[name][1:] == 1).all()


def test_problems_without_a_token_of_the_class_are_left_out(run: Run) -> None:
    digits = activation_table(run[None], "mless", "digits")
    assert digits.n.tolist() == [10, 10, 10]
    np.testing.assert_allclose(digits.difference["near_zero"][0][0], -0.06, atol=2e-3)
    assert digits.p["near_zero"][0] == pytest.approx(2 / 2**10)
    none = activation_table(run[None], "mless", "operators")
    assert none.n.tolist() == [0, 0, 0]
    for found in (*none.difference.values(), *none.ratio.values(), (none.p["variance"], none.adjusted["near_zero"])):
        assert np.isnan(found).all()
    assert np.isnan(none.columns()["near_zero_with"]).all()


def test_a_token_under_one_condition_alone_is_no_pair(run: Run) -> None:
    model = run[None]
    stored = model.activations

    def changed(metric: str, condition: str, cls: str = "all") -> object:
        values = np.array(stored(metric, condition, cls))
        if metric == "tokens" and condition == "mless":
            values[0] = 0.0
        return values

    model.activations = changed  # type: ignore[method-assign,assignment]
    try:
        table = activation_table(model, "mless")
    finally:
        del model.activations  # type: ignore[attr-defined]
    assert table.n.tolist() == [11, 11, 11]
    assert table.p["near_zero"][0] == pytest.approx(2 / 2**11)


def test_flipping_leaves_out_what_is_missing_layer_by_layer() -> None:
    generator = np.random.default_rng(1)
    samples = generator.normal(1.0, 0.3, (30, 3))
    samples[4, 1] = np.nan
    samples[:, 2] = np.nan
    p = flipped(samples)
    assert (p[:2] < 0.001).all()
    assert np.isnan(p[2])


def test_where_no_problem_changes_nothing_is_tested() -> None:
    assert flipped(np.zeros((5, 1))) == [1.0]


def test_one_problem_has_no_interval(tmp_path: Path) -> None:
    run = Synthetic(problems=1, affine=True, activations=True).build(tmp_path / "run")
    table, affine = activation_table(run[None], "mless"), affine_table(run[None], "mless")
    assert np.isfinite(table.ratio["variance"][0]).all()
    assert np.isnan(table.ratio["variance"][1:]).all()
    assert np.isnan(affine.values["lambda_fit"][1:]).all()
    assert affine.chance == 1.0


def test_answers_are_queries_of_their_own(run: Run, recipe: Synthetic) -> None:
    kept = [place for place, number in enumerate(recipe.measured) if number not in (0, 7)]
    assert run.queries == ("all", "original", "last", "answer")
    assert [record["number"] for record in run[None].measured(queries="answer")] == [
        recipe.measured[row] for row in kept
    ]
    assert len(run[None].measured()) == 12
    found = run.summary("received_original", "mless", "answer")
    np.testing.assert_allclose(found, recipe.summary("received_original", "mless")[kept][:, 2], rtol=1e-6)
    mass = run.summary("filler_mass", "mless", "answer")
    np.testing.assert_allclose(mass, 0.5 * recipe.summary("filler_mass", "mless")[kept][:, 2], rtol=1e-6)
    profile = run.profile("mless", "answer", "whole")
    assert profile.problems == 10
    np.testing.assert_allclose(profile.mean[1, 2, 5], recipe.samples("mless", "whole")[kept][:, 2, 1, 2, 5].mean())
    assert run[None].peak_at("mless", "answer").shape == (10, 3, 4)
    assert head_table(run[None], "mless", "answer").columns["drop"].samples.shape == (10, 3, 4)
    assert depth_table(run[None], "mless", "answer").layers == 3


def test_the_answer_is_set_beside_the_question_of_the_same_problem(run: Run, recipe: Synthetic) -> None:
    table = lookback_table(run[None], "mless")
    kept = [place for place, number in enumerate(recipe.measured) if number not in (0, 7)]
    mass = recipe.summary("filler_mass", "mless")[kept][:, 1].mean(axis=-1)
    assert table.problems == 10
    np.testing.assert_allclose(table.samples["question"], mass, rtol=1e-6)
    np.testing.assert_allclose(table.samples["difference"], -0.5 * mass, rtol=1e-5)
    factor = table.samples["per_filler"] / table.samples["per_original"]
    np.testing.assert_allclose(table.values["factor"][0], np.exp(np.log(factor).mean(axis=0)), rtol=1e-6)
    assert table.columns()["n"].tolist() == [10] * 3


REFUSED = {
    "affine": (
        lambda run: run[None].affine("lambda_fit", "mless"),
        r"no affine picture: its study needs `probes: \{affine",
    ),
    "bias": (lambda run: run[None].bias("mless"), "no affine picture"),
    "activations": (
        lambda run: run[None].activations("gini", "mless"),
        r"its study needs `probes: \{activations: true\}`",
    ),
    "histogram": (lambda run: run[None].histogram("mless"), "did not look at activations"),
    "calibration": (lambda run: run[None].calibration(), "did not look at activations"),
    "answer": (lambda run: run.summary("peak", "mless", "answer"), r"its study needs `probes: \{answering: true\}`"),
    "profile": (lambda run: run.profile("mless", "answer"), "did not look where answers attend"),
    "measured": (lambda run: run[None].measured(queries="answer"), "did not look where answers attend"),
    "rows": (lambda run: mechanism_rows(run[None], "mless"), "this run did not look inside"),
    "queries": (lambda run: run.summary("peak", "mless", "some"), "queries are all, original, last, not 'some'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_study_did_not_ask_for_is_refused_with_what_to_put_into_it(plain: Run, name: str) -> None:
    ask, words = REFUSED[name]
    with pytest.raises(FigureError, match=words):
        ask(plain)


def test_wrong_names_are_refused(run: Run) -> None:
    with pytest.raises(FigureError, match=r"affine metrics are lambda_fit, .*, not 'lambda'"):
        run[None].affine("lambda", "mless")
    with pytest.raises(FigureError, match="taken against `none`; name another condition"):
        run[None].affine("lambda_fit", "none")
    with pytest.raises(FigureError, match="classes of tokens are all, digits, operators, words, other, not 'verbs'"):
        run[None].activations("gini", "mless", "verbs")
    with pytest.raises(FigureError, match="no condition 'mles'"):
        run[None].histogram("mles")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("mless/affine", "11 problems under mless, 12 were measured"),
        ("none/activations", "11 problems under none, 12 were measured"),
        ("random/heads", "9 answers were looked at, 10 are recorded"),
    ],
)
def test_a_table_with_a_problem_too_few_is_a_fault(recipe: Synthetic, tmp_path: Path, key: str, words: str) -> None:
    run = recipe.build(tmp_path / "run")
    assert faults(run) == []
    name = answer_attention_name("tiny-a") if "heads" in key else merged_name("tiny-a")
    part = run.store.get(name)
    run.store.put(name, Part(part.arrays | {key: part.arrays[key][:-1]}, part.records))
    assert faults(open_run(run.path)) == [f"tiny-a: {words}"]


def test_the_main_condition_is_the_first_plain_filler(tmp_path: Path) -> None:
    def main(*conditions: object) -> str:
        return Synthetic(conditions=(NONE, *conditions), problems=2).build(tmp_path / str(len(conditions))).main  # type: ignore[arg-type]

    assert main(PRESETS["arm"], PRESETS["knockout"], RANDOM, MLESS) == "random"
    assert main(PRESETS["positions"]) == "positions"


def test_every_table_is_exported(run: Run, tmp_path: Path) -> None:
    written = {path.stem: parquet.read_table(path).to_pandas() for path in export(run, tmp_path)}
    assert {"affine", "affine_heads", "activations", "histograms", "lookback"} <= set(written)
    assert len(written["affine"]) == 3 * 3
    assert len(written["affine_heads"]) == 3 * 12
    assert len(written["activations"]) == 3 * 5 * 3
    assert len(written["histograms"]) == 4 * 5 * 3 * (len(EDGES) - 1)
    assert set(written["lookback"]["condition"]) == {"mless", "random"}, "what has no filler has nothing to look at"
    rows = written["activations"].query("condition == 'random' and token_class == 'words'")
    expected = activation_table(run[None], "random", "words").columns()
    for key, column in expected.items():
        np.testing.assert_array_equal(rows[key], column)
    some = written["histograms"].query("condition == 'random' and token_class == 'digits' and layer == 2")
    np.testing.assert_array_equal(some["count"], run[None].histogram("random", "digits")[1])
    np.testing.assert_array_equal(some["low"], EDGES[:-1])
    assert set(written["summaries"]["queries"]) == set(written["profiles"]["queries"]) == set(run.queries)
    answers = written["summaries"].query("queries == 'answer' and condition == 'mless'")
    assert len(answers) == 10 * 12
    assert "p07" not in set(answers["problem"])


def test_a_run_without_the_probes_has_no_such_tables(plain: Run, tmp_path: Path) -> None:
    names = {path.stem for path in export(plain, tmp_path)}
    assert names == {"profiles", "summaries", "heads", "depth", "problems"}


def test_rows_hold_all_that_was_measured(run: Run) -> None:
    rows = mechanism_rows(run[None], "random")
    assert [row["layer"] for row in rows] == [1, 2, 3]
    assert rows[0]["lambda_fit"] == affine_table(run[None], "random").values["lambda_fit"][0][0]
    assert rows[2]["variance_ratio_high"] == activation_table(run[None], "random").ratio["variance"][2][2]
