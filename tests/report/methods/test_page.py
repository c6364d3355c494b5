"""How a run was made, in words: every number is the run's own, and what an old run did not note is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fillerscope.analysis import accuracy
from fillerscope.analysis.accuracy import compare
from fillerscope.analysis.run import Run, open_run
from fillerscope.report.methods.page import Section, as_text, methods, study_yaml
from fillerscope.report.methods.statistics import RESAMPLED
from fillerscope.report.sections import grouped
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import answers_name, merged_name
from fillerscope.study.conditions import PRESETS, Condition
from fillerscope.study.study import Study
from support.answered import Key, Row, answer, build
from support.synthetic import MLESS, NONE, RANDOM, Synthetic

HOSTILE = "<b>&amp;</b>\x1b[31m"
ALL = (
    "Models", "Data", "Conditions", "Attention", "Affine picture", "Activations", "Where answers attend", "Answers",
    "Statistics", "Seeds", "Checks", "Environment", "Skipped", "How to make it again",
)  # fmt: skip


def sections(run: Run, **options: Any) -> dict[str, Section]:
    return {section.title: section for section in methods(run, **options)}


def fact(section: Section, name: str) -> str:
    return dict(section.facts)[name]


def prose(section: Section) -> str:
    return " ".join(section.paragraphs)


def noted(run: Run, **notes: Any) -> Run:
    """The same run with more in its manifest."""
    store = RunStore.open(run.path)
    for key, value in notes.items():
        store.note(key, value)
    return open_run(run.path)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Run:
    conditions = (NONE, MLESS, RANDOM, PRESETS["arm"], PRESETS["knockout"], PRESETS["positions"])
    recipe = Synthetic(
        conditions=conditions, right={"none": 0.5}, affine=True, activations=True, answering=True, failed=(3, 4),
        unjudged=(2,), unanswered=(5,), labels={"tiny-a": "Tiny-A", "tiny-b": HOSTILE},
    )  # fmt: skip
    run = recipe.build(tmp_path_factory.mktemp("methods") / "run")
    facts = run.store.manifest["models"]
    facts["tiny-a"]["selfcheck"] = {"difference": 3.2e-7, "tolerance": 1e-5, "tokens": 48, "layer": 2, "head": 3}
    facts["tiny-a"]["recheck"] = {"checked": 4, "same": 3, "margins": [0.0125]}
    return noted(run, models=facts, problems=12, environment={"torch": "2.9", "python": "3.12", "cores": 2, "odd": "x"})


def test_every_probe_has_its_section_and_no_other(full: Run, tmp_path: Path) -> None:
    assert [section.title for section in methods(full)] == list(ALL)
    attention = Synthetic().build(tmp_path / "attention")
    without = {"Affine picture", "Activations", "Where answers attend", "Answers"}
    assert [section.title for section in methods(attention)] == [title for title in ALL if title not in without]
    answers = build(tmp_path / "answers", right_half, 4)
    without = {"Attention", "Affine picture", "Activations", "Where answers attend"}
    assert [section.title for section in methods(answers)] == [title for title in ALL if title not in without]


def right_half(key: Key) -> Row:
    return answer("right" if key[1] % 2 else "wrong", np.random.default_rng(0))


def test_models_are_told_with_their_shape(full: Run) -> None:
    found = sections(full)["Models"]
    assert found.facts[0] == ("Tiny-A", "tiny-a; 3 layers of 4 heads; dtype auto; template raw")
    assert found.facts[1][0] == HOSTILE  # as it is: escaping is the page's job


def test_what_names_a_run_is_told(tmp_path: Path) -> None:
    study = Study.model_validate({
        "name": "served", "probes": {"attention": False}, "generation": {}, "conditions": ["none", "mless"],
        "models": [{"name": "q", "endpoint": {"url": "http://localhost:8000/v1", "model": "Q", "key": "MY_KEY"}}],
        "problems": {"source": "hub:HuggingFaceH4/MATH-500", "limit": 30, "fields": {"answer": "gold"}},
    })  # fmt: skip
    models = [{"name": "q", "digest": "abc123", "dtype": "bfloat16", "template": "chat"}]
    identity = {"models": models, "problems": "def456", "device": "cuda", "code": "0.1.0+f00"}
    RunStore.create(tmp_path / "run", identity, study.model_dump(mode="json"))
    found = sections(open_run(tmp_path / "run"))
    assert found["Models"].facts == [(
        "q", "q; dtype bfloat16; template chat; digest abc123; answers from http://localhost:8000/v1 (model Q, prompts "
        "as auto)",
    )]  # fmt: skip
    assert found["Data"].facts == [
        ("Source", "hub:HuggingFaceH4/MATH-500"), ("Split", "test"), ("Column of the answer", "gold"), ("Limit", "30"),
        ("Digest of ids, questions and answers", "def456"),
    ]  # fmt: skip
    assert "(MATH-500)" in prose(found["Data"])
    assert fact(found["Environment"], "fillerscope, measuring code") == "0.1.0+f00"
    assert fact(found["Environment"], "Kind of device") == "cuda"
    assert "with fillerscope 0.1.0." in prose(found["How to make it again"])
    assert "q answered from a server" in prose(found["Answers"])
    assert "is missing or truncated" in fact(found["Skipped"], "Not there, q")  # nothing was answered yet


def test_problems_are_counted_with_the_reasons_of_those_that_failed(full: Run) -> None:
    found = sections(full)
    reason = "9000 tokens, and the model takes 1024 (2 times)"
    assert fact(found["Data"], "Tiny-A") == (
        f"10 of 12 problems measured, 2 failed ({reason}); 72 answers to 12 problems, 5 failed (no reason was noted "
        "(5 times))"
    )
    assert fact(found["Data"], "Problems") == "12"
    missing = sections(full, missed={"length": "needs a sweep"})["Skipped"]
    assert fact(missing, "Problems not measured, Tiny-A") == f"2: {reason}"
    assert fact(missing, "Answers not looked at, Tiny-A") == f"3: {reason}; no answer"
    assert fact(missing, "Answers that failed, Tiny-A") == "5: no reason was noted (5 times)"
    assert fact(missing, "Figure length") == "needs a sweep"


def test_reasons_that_differ_in_numbers_stand_together() -> None:
    assert (
        grouped(["b", "12 tokens, not 7", "900 tokens, not 7"]) == "12 tokens, not 7 (2 times, with other numbers); b"
    )
    assert grouped([]) == ""


def test_where_nothing_is_missing_that_is_said(tmp_path: Path) -> None:
    found = sections(Synthetic().build(tmp_path / "run"))
    assert found["Skipped"] == Section("Skipped", ["Nothing was left out."], [])
    assert fact(found["Data"], "Tiny-A") == "12 of 12 problems measured, none failed"


def test_conditions_are_told_with_all_their_settings(full: Run) -> None:
    found = sections(full)["Conditions"]
    assert "mless: ' /' repeated, 30 tokens, before the question." in prose(found)
    assert dict(found.facts) == {
        "mless": "Meaningless tokens; kind repeat; text ' /'; 30 tokens; position before_question",
        "random": "Random sentence; kind sentence; 30 tokens; position before_question; one draw for all problems",
        "arm": "ARM; intervention arm; layers 1; c 0.13; p1 99.5; quantile_of values; p_min 0.02; p_max 0.25; "
        "at_least_one False; mode add",
        "knockout": "Filler knocked out; kind repeat; text ' /'; 55 tokens; position before_question; intervention "
        "knockout; layers all",
        "positions": "Positions only; intervention shift; by 55",
        "System prompt": full.study.prompt.system,
        "Raw format": repr(full.study.prompt.raw),
    }


def test_filler_at_the_end_is_said_to_leave_what_stands_before_it(full: Run, tmp_path: Path) -> None:
    late = Condition(name="late", kind="characters", count=9, position="end")
    released = Condition(name="code", intervention={"kind": "arm", "preset": "gemma-3-4b-it", "follows": "code"})
    run = Synthetic(conditions=(*Synthetic().conditions, late, released)).build(tmp_path / "late")
    found = sections(run)["Conditions"]
    assert "filler at the end is seen by the template's tail and the answer alone" in prose(found)
    assert "filler at the end" not in prose(sections(full)["Conditions"])
    assert "preset Gemma-3-4b-it; benchmark MATH-500; follows code; " in dict(found.facts)["code"]


def test_settings_of_probes_are_those_of_the_study(full: Run, tmp_path: Path) -> None:
    found = sections(full)
    assert dict(found["Attention"].facts)["Positions kept in profiles"].startswith("the first 256;")
    assert fact(found["Activations"], "eps, Tiny-A") == (
        "0.1 in layer 1, 0.1 to 0.3 over 3 layers, from 900 tokens of 8 problems"
    )
    study = json.loads((full.path / "study.json").read_text())
    study["probes"]["attention"] = {"diagonal": True, "skip_first": False, "positions": 1000}
    study["probes"]["activations"]["c"] = 0.5
    study["batch"]["prefix"] = "off"
    store = RunStore.create(tmp_path / "other", {}, study)
    store.note("models", {})
    other = sections(open_run(store.path))
    assert dict(other["Attention"].facts) == {
        "Diagonal": "included", "First token": "kept in head summaries",
        "Positions kept in profiles": "the first 1,000; head summaries use all",
        "Common beginning of prompts": "run with every prompt",
    }  # fmt: skip
    assert "later positions and its own give it" in prose(other["Attention"])
    assert fact(other["Activations"], "c") == "0.5"


def test_answers_are_told_as_they_were_drawn(full: Run, tmp_path: Path) -> None:
    greedy = sections(full)["Answers"]
    assert greedy.facts == [("Temperature", "0"), ("Longest answer", "512 tokens")]
    assert "At temperature 0 the likeliest token is taken. An answer" in prose(greedy)
    assert "ended after 5 s of CPU time" in prose(greedy)
    run = build(tmp_path / "run", right_half, 4, temperature=0.7, samples=8, top_p=0.9, max_tokens=64)
    found = sections(run)
    assert dict(found["Answers"].facts) == {
        "Temperature": "0.7", "Samples a problem": "8", "top_p": "0.9", "Longest answer": "64 tokens",
    }  # fmt: skip
    assert "likeliest" not in prose(found["Answers"])
    assert "whose share reaches 0.9" in prose(found["Answers"])
    said = prose(found["Statistics"])
    assert "a permutation test" in said
    assert "McNemar" not in said
    assert "Wilson" not in said
    assert "for k = 1, 4 and 8. It is over the problems of which at least k samples were judged" in said
    assert "sampled answers" in prose(found["Seeds"])


def test_statistics_count_the_comparisons_of_the_table(full: Run) -> None:
    table = compare(full)
    found = sections(full, compared=table)["Statistics"]
    assert found == sections(full)["Statistics"]
    assert fact(found, "Accuracy comparisons in the family of Holm") == "10"  # five conditions, two models
    assert fact(found, "Family of Holm for activations") == "3 layers"
    said = prose(found)
    assert "the exact McNemar test for one sample, adjusted by Holm" in said
    assert "permutation test on the problems' means" not in said
    assert "10,000 resamples" in said


def test_the_seed_of_accuracies_is_the_one_that_is_used() -> None:
    wanted = np.random.default_rng(RESAMPLED).bit_generator.state
    assert accuracy._generator().bit_generator.state == wanted


def test_checks_and_environment_are_the_manifest_s(full: Run) -> None:
    found = sections(full)
    assert f"SHA-256 of {len(full.store.manifest['files'])} files" in prose(found["Checks"])
    assert dict(found["Checks"].facts) == {
        "Against eager attention, Tiny-A": "largest difference 3.2e-07 in layer 2 head 3 (1e-05 is allowed), on up to "
        "48 tokens",
        f"Against eager attention, {HOSTILE}": "largest difference 0.0e+00 (1e-05 is allowed)",
        "Answers written again, Tiny-A": "3 of 4 are the same; the others part where two logits are within 0.013 of "
        "each other",
    }
    told = [name for name, _ in found["Environment"].facts]
    assert told == ["Python", "Logical cores", "odd", "torch", "fillerscope, this text"]


def test_an_old_or_unfinished_run_leaves_things_out(full: Run, tmp_path: Path) -> None:
    store = RunStore.create(tmp_path / "run", {}, full.study.model_dump(mode="json"))
    found = sections(open_run(store.path))
    assert list(found) == list(ALL)
    assert found["Models"].facts[0] == ("tiny-a", "tiny-a; dtype auto; template auto")
    assert found["Checks"].facts == []
    assert found["Environment"].paragraphs == []
    assert "is not finished for tiny-a" in fact(found["Skipped"], "Not there, tiny-a")
    assert fact(found["Statistics"], "Accuracy comparisons in the family of Holm") == "0"


def test_a_run_in_progress_counts_what_is_there(tmp_path: Path) -> None:
    run = Synthetic(right={"none": 0.5}).build(tmp_path / "run")
    (run.path / answers_name("tiny-a", 0)).unlink()
    found = sections(open_run(run.path))
    assert fact(found["Data"], "Tiny-A") == "12 of 12 problems measured, none failed"
    (run.path / merged_name("tiny-a")).unlink()
    assert "Tiny-A" not in dict(sections(open_run(run.path))["Data"].facts)


# Again


def again(run: Run, folder: Path) -> Study:
    folder.mkdir(exist_ok=True)
    (folder / "study.yaml").write_text(study_yaml(run), encoding="utf-8")
    return Study.load(folder / "study.yaml")


def stored(folder: Path, **settings: Any) -> Run:
    study = Study.model_validate({"name": "s", "models": ["m"], **settings})
    return open_run(RunStore.create(folder, {}, study.model_dump(mode="json")).path)


AWKWARD = "\n \t: # ' \" - \\ \x00\x07\x1b\x85\u2028\ufeff\U0001f600 {a: [b]} yes null 1e3 \n\n"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"conditions": ["none", *(name for name in PRESETS if name != "none")]},
        {"conditions": ["none", {"name": "off", "kind": "repeat", "text": ["/", "?"], "count": [1, 2]}]},
        {"conditions": ["none", {"name": "1e5", "intervention": {"kind": "arm", "c": [1e-9, 1], "layers": [[1]]}}]},
        {"conditions": ["none", {"name": "a", "intervention": {"kind": "arm", "preset": "Gemma-3-4b-it"}}]},
        {"conditions": ["none", {"name": "t", "kind": "text", "text": AWKWARD, "label": AWKWARD}]},
        {"prompt": {"system": AWKWARD, "raw": AWKWARD + "{question}"}, "models": [AWKWARD, "null", "1.5"]},
        {"prompt": {"system": "one\x85two\u2028three"}},  # nothing in it but line ends that YAML changes
        {"probes": {"attention": False}, "generation": {"temperature": [0, 0.7], "samples": [1, 4], "k": [2]}},
        {"probes": {"activations": {"classes": {"z": "z|é", "a": "[0-9]+"}}, "affine": True}, "seed": 7},
        {"batch": {"prefix": "off", "tokens": 512}, "device": "cpu", "problems": {"source": "/data/p.jsonl"}},
        {"models": [{"name": "m", "endpoint": {"url": "http://h/v1", "timeout": 1e22}}], "generation": {}},
        {"figures": [{"name": "heads", "layers": [1, 2], "y_max": [0.05]}]},
    ],
)  # fmt: skip
def test_the_study_comes_back_as_it_was(tmp_path: Path, settings: dict[str, Any]) -> None:
    run = stored(tmp_path / "run", **settings)
    found = again(run, tmp_path / "elsewhere")
    assert found == run.study
    assert found.model_dump(mode="json") == run.store.study


def test_a_relative_source_is_said_to_be_one(tmp_path: Path) -> None:
    run = stored(tmp_path / "run", problems={"source": "p.jsonl"})
    assert "p.jsonl is taken as relative to study.yaml" in prose(sections(run)["How to make it again"])
    assert again(run, tmp_path / "there").problems.source == str((tmp_path / "there" / "p.jsonl").resolve())


# As Markdown


def test_the_text_can_be_pasted(full: Run) -> None:
    text = as_text(methods(full))
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == list(ALL)
    assert f"- {HOSTILE}: tiny-b; " in text
    code = text.partition("```yaml\n")[2].partition("\n```")[0]
    assert yaml.safe_load(code)["name"] == "synthetic"


def test_names_cannot_break_out_of_their_line_or_their_fence() -> None:
    section = Section("T", ["a\n# b"], [("n\r\n## m", "v\nw")], code="x: '````'\n")
    text = as_text([section])
    assert text == "## T\n\na # b\n\n- n ## m: v w\n\n`````yaml\nx: '````'\n`````\n"


def test_long_filler_is_told_in_full(tmp_path: Path) -> None:
    long = Condition(name="long", kind="text", text="<i>" + "word " * 40)
    run = stored(tmp_path / "run", conditions=["none", long.model_dump()])
    assert f"text {long.text!r}" in fact(sections(run)["Conditions"], "long")
