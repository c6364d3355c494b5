"""The library's functions: attention of any texts as whole matrices give it, studies of models in memory, runs."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import fillerscope
from fillerscope.analysis.profile import Profile, top_tokens
from fillerscope.api import attention_matrix, attention_profile
from fillerscope.capture import blocks
from fillerscope.capture.blocks import Attended, attend_texts
from fillerscope.capture.passes import PassRunner
from fillerscope.errors import (
    ArgumentError,
    CaptureError,
    FigureError,
    ModelError,
    PromptError,
    StoreError,
    StudyError,
)
from fillerscope.models.structure import decoder_of
from fillerscope.report.explorer.remeasure import Remeasurer
from fillerscope.report.methods.reproducing import again, study_yaml
from fillerscope.store.schema import merged_name
from support.families import small_model
from support.studies import replace_study, save_model
from support.tiny import tiny_model, tiny_tokenizer

TEXTS = (
    "Anna has 3 apples and buys 4 more. How many apples does she have now?",
    "What is 12 + 30?",
    "The quick brown fox jumps over the lazy dog, and the dog does not care.",
)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tiny_tokenizer()


@pytest.fixture(scope="module")
def llama() -> Any:
    return tiny_model("llama")


def eager(model: Any, ids: list[int], queries: str, diagonal: bool) -> np.ndarray:
    """[layer, head, position] by the definition, from whole matrices."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        out = decoder_of(model)(input_ids=torch.tensor([ids]), output_attentions=True, use_cache=False)
    model.set_attn_implementation(before)
    matrix = torch.stack([layer[0] for layer in out.attentions]).double().numpy()
    n = len(ids)
    result = np.full((*matrix.shape[:2], n), np.nan)
    for j in range(n):
        rows = [i for i in ([n - 1] if queries == "last" else range(n)) if i > j or (diagonal and i == j)]
        if rows:
            result[..., j] = matrix[:, :, rows, j].mean(axis=-1)
    return result


@pytest.mark.parametrize(("queries", "diagonal"), [("all", False), ("all", True), ("last", False), ("original", False)])
@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt2"])
def test_one_text_is_what_eager_attention_gives(family: str, queries: str, diagonal: bool, tokenizer: Any) -> None:
    model = tiny_model(family)
    profile = attention_profile(model, tokenizer, [TEXTS[0]], queries, diagonal)
    ids = tokenizer.encode(TEXTS[0])
    np.testing.assert_allclose(profile.mean, eager(model, ids, queries, diagonal), atol=1e-6)
    assert "".join(profile.tokens) == TEXTS[0]
    assert len(profile.tokens) == len(ids) == profile.positions
    assert profile.problems == 1
    assert np.isnan(profile.sd).all()  # one text has no spread


@pytest.mark.parametrize("family", ["qwen3_next", "lfm2", "jamba"])
def test_a_hybrid_has_numbers_where_it_has_attention(family: str, tokenizer: Any) -> None:
    """Though its first layer has none."""
    profile = attention_profile(small_model(family), tokenizer, TEXTS[:2])
    measured = np.isfinite(profile.mean).any(axis=(1, 2))
    assert 0 < measured.sum() < len(measured)
    assert not measured[0]
    shortest = min(len(tokenizer.encode(text)) for text in TEXTS[:2])
    assert np.isfinite(profile.mean[measured][..., : shortest - 1]).all()


def test_a_text_without_numbers_is_an_error(llama: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = PassRunner.measure
    monkeypatch.setattr(PassRunner, "measure", lambda *given: replace(real(*given), errors={1: "memory ran out"}))
    with pytest.raises(CaptureError, match="text 2 could not be measured: memory ran out"):
        attention_profile(llama, tokenizer, TEXTS, check=False)


@pytest.mark.parametrize("batch_tokens", [1, 100, 4096])
def test_several_texts_are_averaged_where_they_reach(batch_tokens: int, llama: Any, tokenizer: Any) -> None:
    profile = attention_profile(llama, tokenizer, TEXTS, batch_tokens=batch_tokens)
    each = [eager(llama, tokenizer.encode(text), "all", False) for text in TEXTS]
    lengths = [array.shape[-1] for array in each]
    assert len(set(lengths)) == 3
    stacked = np.full((3, *each[0].shape[:2], max(lengths)), np.nan)
    for row, array in zip(stacked, each, strict=True):
        row[..., : array.shape[-1]] = array
    count = np.isfinite(stacked).sum(axis=0)
    np.testing.assert_array_equal(profile.count, count)
    assert sorted(set(count.ravel().tolist())) == [0, 1, 2, 3]
    kept = count > 0
    np.testing.assert_allclose(profile.mean[kept], np.nanmean(stacked[:, kept], axis=0), atol=1e-6)
    assert np.isnan(profile.mean[~kept]).all()
    spread = count > 1
    np.testing.assert_allclose(profile.sd[spread], np.nanstd(stacked[:, spread], axis=0, ddof=1), atol=1e-6)
    assert profile.problems == 3
    assert profile.tokens == ()  # no token stands for all of them


def test_passes_stay_within_the_budget(llama: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[list[int]] = []

    one_pass = PassRunner.one_pass

    def noting(gauge: PassRunner, texts: Any) -> Any:
        passes.append([len(text) for text in texts])
        return one_pass(gauge, texts)

    monkeypatch.setattr(PassRunner, "one_pass", noting)
    attention_profile(llama, tokenizer, TEXTS * 3, batch_tokens=130, check=False)
    assert sorted(n for batch in passes for n in batch) == sorted(len(tokenizer.encode(text)) for text in TEXTS * 3)
    assert 1 < len(passes) < 9
    assert all(sum(batch) <= 130 for batch in passes)


def test_a_text_by_itself_is_one_text(llama: Any, tokenizer: Any) -> None:
    """A string is a sequence of strings, too: with a tokenizer that adds a BOS each letter would pass for a text."""
    alone = attention_profile(llama, tokenizer, TEXTS[1])
    np.testing.assert_array_equal(alone.mean, attention_profile(llama, tokenizer, [TEXTS[1]]).mean)


def test_texts_may_come_from_anywhere(llama: Any, tokenizer: Any) -> None:
    from_list = attention_profile(llama, tokenizer, list(TEXTS), check=False)
    generated = attention_profile(llama, tokenizer, (text for text in TEXTS), check=False)
    np.testing.assert_array_equal(generated.mean, from_list.mean)


def test_it_is_part_of_the_library() -> None:
    assert fillerscope.attention_profile is attention_profile


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(tokenizer: Any, training: bool) -> None:
    model = tiny_model("llama").train(training)
    attention_profile(model, tokenizer, TEXTS)
    assert model.config._attn_implementation == "sdpa"
    assert model.training is training


# What cannot be measured

BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "nothing": ([], {}, "give at least one text, each of two tokens or more"),
    "one token": (["a"], {}, "a single token receives nothing"),
    "an empty text": ([""], {}, "each of two tokens or more"),
    "one token among others": ([*TEXTS, "a"], {}, "each of two tokens or more"),
    "an empty string": ("", {}, "each of two tokens or more"),
    "an array of no dimension": (np.array("text"), {}, "texts are a list of strings, not an object of type ndarray"),
    "no text": ([TEXTS[0], None], {}, "texts are strings, and one of them is NoneType"),
    "ids": ([[1, 2, 3]], {}, "texts are strings, and one of them is list"),
    "unknown rows": (TEXTS, {"queries": "first"}, "queries are all, original, last, not 'first'"),
    "too long": (["a b" * 700], {}, r"a text has \d+ tokens, and the model takes 1024; shorten it"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_line(what: str, llama: Any, tokenizer: Any) -> None:
    texts, options, reason = BAD[what]
    with pytest.raises(PromptError, match=reason) as caught:
        attention_profile(llama, tokenizer, texts, **options)
    assert "\n" not in str(caught.value)
    assert llama.config._attn_implementation == "sdpa"


def test_a_capture_that_is_wrong_is_found_unless_nobody_asks(
    llama: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*given: Any) -> Attended:
        found = attend_texts(*given)
        return replace(found, received=found.received * 1.01)

    monkeypatch.setattr(blocks, "attend_texts", wrong)
    with pytest.raises(CaptureError, match=r"self-check failed on LlamaForCausalLM: .* differs .* by \d\.\de-0\d"):
        attention_profile(llama, tokenizer, TEXTS)
    ids = tokenizer.encode(TEXTS[0])
    unchecked = attention_profile(llama, tokenizer, [TEXTS[0]], check=False)
    np.testing.assert_allclose(unchecked.mean, 1.01 * eager(llama, ids, "all", False), atol=1e-6)


# Tables of it


@pytest.fixture(scope="module")
def profile(llama: Any, tokenizer: Any) -> Profile:
    return attention_profile(llama, tokenizer, TEXTS)


def test_pandas_holds_the_same_numbers(profile: Profile) -> None:
    pandas = pytest.importorskip("pandas")
    frame = profile.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    low, high = profile.interval()
    arrays = {"n": profile.count, "mean": profile.mean, "sd": profile.sd, "low": low, "high": high}
    assert list(frame.columns) == ["layer", "head", "position", *arrays]
    assert len(frame) == (profile.count > 0).sum()
    for row in frame.sample(200, random_state=0).itertuples():
        cell = (row.layer - 1, row.head - 1, row.position)
        for name, array in arrays.items():
            np.testing.assert_equal(getattr(row, name), array[cell])
    assert (frame["layer"].min(), frame["layer"].max(), frame["head"].max()) == (1, 3, 4)


def test_xarray_holds_the_same_numbers(profile: Profile) -> None:
    pytest.importorskip("xarray")
    dataset = profile.to_xarray()
    low, high = profile.interval()
    arrays = {"n": profile.count, "mean": profile.mean, "sd": profile.sd, "low": low, "high": high}
    assert dict(dataset.sizes) == {"layer": 3, "head": 4, "position": profile.positions}
    for name, array in arrays.items():
        np.testing.assert_array_equal(dataset[name].values, array)
    cell = dataset["mean"].sel(layer=2, head=3, position=5)
    assert cell.item() == profile.mean[1, 2, 5]


def test_one_head_keeps_its_number_in_tables(profile: Profile) -> None:
    pandas = pytest.importorskip("pandas")
    whole, one = profile.to_pandas(), profile.head(2, 3).to_pandas()
    expected = whole[(whole["layer"] == 2) & (whole["head"] == 3)].reset_index(drop=True)
    pandas.testing.assert_frame_equal(one, expected)
    assert profile.head(2, 3).to_xarray()["mean"].sel(layer=2, head=3, position=5) == profile.mean[1, 2, 5]


def test_the_tokens_that_receive_most_come_first(llama: Any, tokenizer: Any) -> None:
    profile = attention_profile(llama, tokenizer, [TEXTS[0]])
    for head in (None, 2):
        rows = top_tokens(profile, layer=3, head=head, top=5)
        values = profile.mean[2].mean(axis=0) if head is None else profile.mean[2, 1]
        assert [row["received"] for row in rows] == sorted(values[:-1], reverse=True)[:5]
        assert all(values[row["position"]] == row["received"] for row in rows)
        assert all(profile.tokens[row["position"]] == row["token"] for row in rows)
    everything = top_tokens(profile, layer=1, head=1, top=10_000)
    assert sorted(row["position"] for row in everything) == list(range(profile.positions - 1))  # the last has none


def test_a_head_that_is_not_there_is_named(profile: Profile) -> None:
    message = re.escape("there is no layer 1 head 5: this model has layers 1 to 3 and heads 1 to 4")
    with pytest.raises(FigureError, match=message):
        top_tokens(profile, layer=1, head=5, top=3)


def test_the_matrix_of_a_head_has_the_profile_as_its_column_means(llama: Any, tokenizer: Any) -> None:
    llama.train()
    matrix = attention_matrix(llama, tokenizer, TEXTS[0], layer=2, head=3)
    assert llama.training
    llama.eval()
    profile = attention_profile(llama, tokenizer, [TEXTS[0]])
    np.testing.assert_allclose(matrix.received(), profile.mean[1, 2], atol=1e-6)
    assert matrix.tokens == profile.tokens
    assert (matrix.layer, matrix.head) == (2, 3)
    with pytest.raises(CaptureError, match="there is no layer 2 head 9"):
        attention_matrix(llama, tokenizer, TEXTS[0], layer=2, head=9, check=False)


# Run a model in memory

STUDY: dict[str, Any] = {
    "name": "memory",
    "problems": {"limit": 4},
    "prompt": {"system": "Think."},
    "conditions": ["none", {"name": "mless", "kind": "repeat", "text": " /", "count": 6}],
    "batch": {"shard": 2, "tokens": 256},
    "references": {"twin": 2},
    "generation": {"max_tokens": 6, "recheck": 0},
}


@pytest.fixture(scope="module")
def in_memory(tmp_path_factory: pytest.TempPathFactory) -> fillerscope.Run:
    folder = tmp_path_factory.mktemp("memory") / "run"
    return fillerscope.run(STUDY, folder, model=tiny_model("llama"), tokenizer=tiny_tokenizer(), name="tiny")


def test_a_model_in_memory_gives_the_numbers_of_the_same_model_in_a_folder(
    in_memory: fillerscope.Run, tmp_path: Path
) -> None:
    saved = str(save_model(tmp_path / "tiny"))
    loaded = fillerscope.run(STUDY | {"models": [saved]}, tmp_path / "run")
    for model, other in (("tiny", saved), *((f"tiny#twin{n}", f"{saved}#twin{n}") for n in (1, 2))):
        ours, theirs = (run.store.get(merged_name(name)) for run, name in ((in_memory, model), (loaded, other)))
        assert ours.records == theirs.records
        assert ours.arrays.keys() == theirs.arrays.keys()
        for key, array in ours.arrays.items():
            np.testing.assert_array_equal(array, theirs.arrays[key], err_msg=f"{model} {key}")
    answers, others = in_memory["tiny"].answer_columns(), loaded[saved].answer_columns()
    assert answers == others
    assert in_memory.store.manifest["identity"] != loaded.store.manifest["identity"]


def test_the_same_model_resumes_and_a_changed_one_starts_anew(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study = {key: value for key, value in STUDY.items() if key not in ("references", "generation")}
    model = tiny_model("llama").train()
    first = fillerscope.run(study, model=model, tokenizer=tokenizer)
    (first.path / merged_name("LlamaForCausalLM")).unlink()
    again = fillerscope.run(study, model=model, tokenizer=tokenizer)
    assert again.path == first.path
    assert again.verify() == []
    assert model.training
    assert model.config._attn_implementation == "sdpa"
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    model.lm_head.weight.data[0, 0] += 1
    assert fillerscope.run(study, model=model, tokenizer=tokenizer).path != first.path
    assert (
        fillerscope.run(fillerscope.Study(**study), model=tiny_model("llama"), tokenizer=tokenizer).path == first.path
    )


def test_how_to_make_it_again_names_the_call(in_memory: fillerscope.Run) -> None:
    section = again(in_memory)
    assert "fillerscope.run('study.yaml', model=model, tokenizer=tokenizer)" in section.paragraphs[0]
    assert "models" not in yaml.safe_load(study_yaml(in_memory))
    with pytest.raises(ModelError, match="tiny was in memory when it was measured"):
        Remeasurer().measure(in_memory["tiny"], 0)


def test_bfloat16_is_answered_again_in_float32_and_stays(tokenizer: Any, tmp_path: Path) -> None:
    model = tiny_model("llama").bfloat16()
    noise = {"max_tokens": 4, "recheck": 0, "noise": {"dtype": "float32"}}
    run = fillerscope.run(
        {"name": "noise", "problems": {"limit": 2}, "conditions": ["none"], "generation": noise}, tmp_path / "run",
        model=model, tokenizer=tokenizer,
    )  # fmt: skip
    assert run.store.manifest["identity"]["models"][0]["dtype"] == "bfloat16"
    assert model.dtype == torch.bfloat16
    assert len(run[None].again_columns()["text"]) == 2


REFUSED_STUDIES: dict[str, tuple[Any, str]] = {
    "both": (
        STUDY | {"models": ["a", "b"]},
        "study 'memory' names a, b, and a model in memory was given: leave `models`",
    ),
    "device": (STUDY | {"device": "cuda"}, "study 'memory' asks for device cuda, and the model is on cpu"),
    "key": (STUDY | {"problems": {"lmit": 3}}, "unknown key 'lmit'; did you mean problems.limit?"),
    "key at the top": (STUDY | {"condition": ["none"]}, "unknown key 'condition'; did you mean conditions?"),
    "value": (STUDY | {"seed": -1}, "study: seed: Input should be greater than or equal to 0"),
    "sweep": (
        STUDY | {"conditions": ["none", "mless", {"name": "s", "kind": "repeat", "text": " /", "count": [3, 0, -1]}]},
        "study: conditions.2.count: Input should be greater than or equal to 1",
    ),
    "no name": ({}, "study: 'name' is required and missing"),
    "key that is no text": (STUDY | {3: 4}, "study: 3: Keys should be strings"),
    "list": ([STUDY], "a study is a file, a mapping or a Study, not list"),
}


@pytest.mark.parametrize("what", REFUSED_STUDIES)
def test_a_study_that_does_not_fit_is_refused_by_key(what: str, llama: Any, tokenizer: Any, tmp_path: Path) -> None:
    study, reason = REFUSED_STUDIES[what]
    with pytest.raises(StudyError, match=re.escape(reason)):
        fillerscope.run(study, tmp_path / "run", model=llama, tokenizer=tokenizer)
    assert not (tmp_path / "run").exists()


def test_a_model_without_logits_is_measured_and_not_asked_for_answers(tokenizer: Any, tmp_path: Path) -> None:
    decoder = tiny_model("llama").model
    with pytest.raises(StudyError, match="asks for answers, and LlamaModel has no layer that makes logits"):
        fillerscope.run(STUDY, tmp_path / "run", model=decoder, tokenizer=tokenizer)
    alone = STUDY | {"generation": None, "references": {}}
    run = fillerscope.run(alone, tmp_path / "run", model=decoder, tokenizer=tokenizer)
    whole = fillerscope.run(alone, tmp_path / "whole", model=tiny_model("llama"), tokenizer=tokenizer)
    np.testing.assert_array_equal(run.profile("mless").mean, whole.profile("mless").mean)


def test_without_a_model_in_memory_a_study_names_its_models(tmp_path: Path) -> None:
    bare = {key: value for key, value in STUDY.items() if key != "references"}
    with pytest.raises(StudyError, match="study: 'models' is required and missing"):
        fillerscope.run(bare)
    with pytest.raises(StudyError, match="study 'memory' names no model: give it `models`"):
        fillerscope.run(fillerscope.Study(**bare))
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump(bare), encoding="utf-8")
    with pytest.raises(StudyError, match=r"study.yaml:1: 'models' is required and missing"):
        fillerscope.run(file)
    with pytest.raises(StudyError, match="tokenizer and name belong to a model in memory"):
        fillerscope.run(bare, name="mine")


@pytest.mark.parametrize("call", [attention_profile, lambda *given: attention_matrix(*given, 1, 1)])
def test_arguments_in_another_order_are_refused_in_one_line(call: Any, llama: Any, tokenizer: Any) -> None:
    for given in [(tokenizer, llama, "a text"), (llama, "a text", tokenizer), ("smollm2-135m", tokenizer, "a text")]:
        with pytest.raises(ModelError, match=r"as Auto(ModelForCausalLM|Tokenizer) gives one, not") as refused:
            call(*given)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("call", [attention_profile, lambda *given: attention_matrix(*given, 1, 1)])
def test_a_model_that_a_run_refuses_is_refused_in_the_same_words(call: Any, tokenizer: Any) -> None:
    model = tiny_model("llama")
    with pytest.raises(ModelError, match=r"^the model is in float64; convert it to one of .* such as model.float\(\)$"):
        call(model.double(), tokenizer, TEXTS[0])
    with pytest.raises(ModelError, match=r"^some weights of the model are on no device"):
        call(model.to("meta"), tokenizer, TEXTS[0])


def test_a_folder_whose_name_is_too_long_is_one_line(llama: Any, tokenizer: Any, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"File name too long; choose another folder with --out$"):
        fillerscope.run(STUDY, tmp_path / ("x" * 300), model=llama, tokenizer=tokenizer)


def test_a_matrix_leaves_every_module_in_its_mode(llama: Any, tokenizer: Any) -> None:
    llama.train()
    llama.lm_head.eval()
    attention_matrix(llama, tokenizer, TEXTS[1], 1, 1, check=False)
    assert llama.training
    assert not llama.lm_head.training
    llama.eval()


# What a run offers


def test_a_run_says_what_it_is_in_one_line(in_memory: fillerscope.Run) -> None:
    assert repr(in_memory) == "<Run run: tiny; none, mless; builtin, n = 4; finished>"
    assert repr(in_memory["tiny"]) == "<ModelRun tiny of run>"
    assert repr(in_memory.profile("mless")).startswith("<Profile tiny mless aligned original: 3 layers, 4 heads, ")


def test_tables_can_be_read_at_a_python_prompt(in_memory: fillerscope.Run) -> None:
    compared = in_memory.compare()
    title, header, *lines = str(compared).splitlines()
    assert title == "Accuracy under each condition (2 rows)"
    assert header.split()[:4] == ["label", "condition", "n", "accuracy"]
    assert [line.split()[:4] for line in lines] == [
        ["tiny", r.condition, f"{r.n}", f"{r.accuracy:.4g}"] for r in compared
    ]
    table = in_memory.heads()
    title, header, *lines = repr(table).splitlines()
    assert title == "tiny: mless against none, queries original, n = 4 (3 layers, 4 heads)"
    assert [tuple(map(int, line.split()[:2])) for line in lines] == table.ranked()
    assert [line.split()[2] for line in lines] == [f"{row['drop']:.3f}" for row in table.records()]
    findings = in_memory.findings()
    assert len(repr(findings).splitlines()) == 2 + min(12, len(findings)) + (len(findings) > 12)


def test_only_public_names_are_offered(in_memory: fillerscope.Run) -> None:
    for one in (in_memory, in_memory["tiny"]):
        assert not [name for name in dir(one) if name.startswith("_")]
        assert {"heads", "compare", "flips", "findings", "mechanism", "profile"} <= set(dir(one))
    assert {"figures", "report", "verify"} <= set(dir(in_memory))


def test_tables_go_to_pandas(in_memory: fillerscope.Run) -> None:
    pytest.importorskip("pandas")
    table = in_memory.heads()
    frame = table.to_pandas("mass")
    assert list(zip(frame["layer"], frame["head"], strict=True)) == table.ranked("mass")
    assert frame["drop"][0] == table.at("drop", *table.ranked("mass")[0]).value
    compared = in_memory.compare()
    assert compared.to_pandas()["accuracy"].tolist() == [row.accuracy for row in compared]
    assert in_memory["tiny"].compare().records() == compared.records()
    assert in_memory.findings().to_pandas()["name"].tolist() == [finding.name for finding in in_memory.findings()]
    assert len(in_memory.flips()[:0].to_pandas()) == 0


def test_figures_and_report_are_written(in_memory: fillerscope.Run, tmp_path: Path) -> None:
    drawn = in_memory.figures("heads", out=tmp_path, heads=(2,), layers=(3,))
    assert {file.suffix for file in drawn["heads"]} >= {".png", ".svg", ".pdf", ".csv"}
    assert 'src="data:image/png;base64,' in drawn._repr_html_()
    with pytest.raises(FigureError, match="there is no head 9"):
        in_memory.figures("heads", out=tmp_path, heads=(9,))
    with pytest.raises(FigureError, match="there is no figure 'pie'"):
        in_memory.figures("pie")
    assert in_memory.report(tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!")


def test_a_run_is_opened_by_the_beginning_of_its_name(
    in_memory: fillerscope.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(in_memory.path, tmp_path / "runs" / "memory-0123456789")
    monkeypatch.chdir(tmp_path)
    for text in ("memory", "memory-01", "latest", Path("runs/memory-0123456789")):
        assert fillerscope.open_run(text).path == Path("runs/memory-0123456789")


WRONG = (None, 3.5, b"x", object(), [None])
SMALL = {"name": "small", "problems": {"limit": 1}, "conditions": ["none", "mless"]}


def calls() -> dict[str, Callable[[Any], object]]:
    """Every argument of every function, with the others as they should be."""
    model, tokenizer, text = tiny_model("llama"), tiny_tokenizer(), "Anna has 3 apples."

    def enter(model: Any, **settings: Any) -> None:
        with fillerscope.arm(model, **settings):
            pass

    def asked(**options: Any) -> object:
        return fillerscope.try_question(text, model, tokenizer=tokenizer, **options)

    def profiled(**options: Any) -> object:
        return fillerscope.attention_profile(model, tokenizer, [text], **options)

    def matrix(**others: Any) -> object:
        given = {"model": model, "tokenizer": tokenizer, "text": text, "layer": 1, "head": 1, "check": False}
        return fillerscope.attention_matrix(**given | others)

    def ran(**options: Any) -> object:
        return fillerscope.run(SMALL, model=model, tokenizer=tokenizer, **options)

    return {
        "open_run": fillerscope.open_run,
        "load_model": fillerscope.load_model,
        **{f"load_model {key}": lambda bad, key=key: fillerscope.load_model("smollm2-135m", **{key: bad or 3})
           for key in ("dtype", "device", "progress", "accept_licence")},
        "run": fillerscope.run,
        "run model": lambda bad: fillerscope.run(SMALL, model=bad or 3, tokenizer=tokenizer),
        "run tokenizer": lambda bad: fillerscope.run(SMALL, model=model, tokenizer=bad),
        **{f"run {key}": lambda bad, key=key: ran(**{key: bad or 3})
           for key in ("out", "name", "progress", "accept_licence", "on_measured")},
        "try_question": lambda bad: fillerscope.try_question(bad, model, tokenizer=tokenizer),
        "try_question model": lambda bad: fillerscope.try_question(text, bad, tokenizer=tokenizer),
        "try_question filler": lambda bad: fillerscope.try_question(text, model, bad, tokenizer),
        "try_question tokenizer": lambda bad: fillerscope.try_question(text, model, tokenizer=bad),
        **{f"try_question {key}": lambda bad, key=key: asked(**{key: bad or ""}) for key in
           ("layer", "head", "queries", "raw", "max_tokens", "device", "accept_licence", "progress")},
        "try_question system": lambda bad: asked(system=bad),
        "attention_profile texts": lambda bad: fillerscope.attention_profile(model, tokenizer, bad),
        "attention_profile model": lambda bad: fillerscope.attention_profile(bad, tokenizer, [text]),
        "attention_profile tokenizer": lambda bad: fillerscope.attention_profile(model, bad, [text]),
        **{f"attention_profile {key}": lambda bad, key=key: profiled(**{key: bad})
           for key in ("queries", "diagonal", "batch_tokens", "check")},
        **{f"attention_matrix {key}": lambda bad, key=key: matrix(**{key: bad})
           for key in ("model", "tokenizer", "text", "layer", "head", "check")},
        "arm": enter,
        **{f"arm {key}": lambda bad, key=key: enter(model, **{key: bad or "x"})
           for key in ("spec", "seed", "layers", "c", "preset", "mode")},
    }  # fmt: skip


@pytest.mark.parametrize("bad", WRONG, ids=lambda bad: type(bad).__name__)
def test_an_argument_of_another_kind_is_one_line_of_ours(
    bad: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, call in calls().items():
        if name.startswith("arm c") and isinstance(bad, float):
            continue
        with pytest.raises(fillerscope.FillerscopeError) as caught:
            call(bad)
        assert "\n" not in str(caught.value), name
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["attention_profile", "attention_matrix", "arm"])
def test_a_module_that_is_no_language_model_is_refused(name: str) -> None:
    other = torch.nn.Linear(2, 2)
    with pytest.raises(ModelError, match=r"model is a transformers model, .* not a module without a decoder"):
        {
            "attention_profile": lambda: fillerscope.attention_profile(other, tiny_tokenizer(), ["a b"]),
            "attention_matrix": lambda: fillerscope.attention_matrix(other, tiny_tokenizer(), "a b", 1, 1),
            "arm": lambda: fillerscope.arm(other).__enter__(),
        }[name]()


def test_a_token_that_the_model_has_no_embedding_for_is_refused() -> None:
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    tokenizer.add_tokens([f"<x{number}>" for number in range(300)])
    told = r"the tokenizer gives token \d+, and the model has embeddings for 512 \(0 to 511\)"
    for call in (
        lambda: fillerscope.attention_profile(model, tokenizer, ["a <x250>"]),
        lambda: fillerscope.attention_matrix(model, tokenizer, "a <x250>", 1, 1),
        lambda: fillerscope.try_question("a <x250>", model, tokenizer=tokenizer),
        lambda: fillerscope.try_question("a b", model, "<x250>", tokenizer),
    ):
        with pytest.raises(PromptError, match=told):
            call()


def test_figures_with_other_options_are_refused(tmp_path: Path) -> None:
    run = fillerscope.run(SMALL, tmp_path / "run", model=tiny_model("llama"), tokenizer=tiny_tokenizer())
    for options in ({"layers": 3}, {"heads": "zz"}, {"conditions": "mless"}, {"models": 3}, {"band": "zz"}, {"out": 3}):
        with pytest.raises(ArgumentError, match=f"^{next(iter(options))} is "):
            run.figures("heads", **options)
    with pytest.raises(TypeError, match=r"figures\(\) got an unexpected keyword argument 'zz'"):
        run.figures("heads", zz=3)  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match=r"^name is a text"):
        run.figures(["heads"])  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"^out is a path"):
        run.report(3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"^models is a list of names, not 'x'"):
        run.compare(models="x")


@pytest.mark.parametrize("text", ['{"name": "zz"}', "[]", "3", "null", '{"name": "zz", "models": []}'])
def test_a_stored_study_that_is_none_is_one_line(tmp_path: Path, text: str) -> None:
    run = fillerscope.run(SMALL, tmp_path / "run", model=tiny_model("llama"), tokenizer=tiny_tokenizer())
    replace_study(run.path, text)
    opened = fillerscope.open_run(run.path)
    for use in (opened.heads, opened.findings, opened.figures, lambda: opened[None], lambda: opened.model()):
        with pytest.raises(StoreError, match=r"study\.json does not hold a study"):
            use()
    assert "does not hold a study" in repr(opened)
