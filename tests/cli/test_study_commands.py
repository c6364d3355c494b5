"""init, fields, check and study as a person meets them, on a tiny model."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from fillerscope.cli import app
from fillerscope.study.study import Study
from support.synthetic import Synthetic


class Result(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Result]
QUESTION = "Ann has 2 apples and 3 pears.\nHow many fruits has she?"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """`fillerscope ...` in this process, in an empty folder and with an empty cache."""
    monkeypatch.setenv("FILLERSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["fillerscope", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            app.main()
        assert isinstance(stopped.value.code, int)
        return Result(stopped.value.code, *capsys.readouterr())

    return call


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from support.tiny import tiny_model, tiny_tokenizer

    folder = tmp_path_factory.mktemp("models") / "tiny-llama"
    tiny_model("llama").save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text(f'question,answer,level\n"{QUESTION}","2 + 3 = 5\n#### 5",1\nWhat is 2*3?,#### 6,2\n')
    return path


@pytest.mark.parametrize("name", ["init", "fields", "check", "study"])
def test_help_shows_an_example_that_can_be_typed(command: Command, name: str) -> None:
    shown = command(name, "--help")
    example = re.search(r"Example: (fillerscope .*?) ╭", " ".join(shown.out.split()))
    assert example
    typed = shlex.split(example[1])[1:]
    assert typed[0] == name
    assert command(*typed, "--help").code == 0


def test_the_help_of_study_lists_the_keys(command: Command) -> None:
    shown = command("study", "--help").out
    assert all(key in shown for key in ("answer_form", "max_tokens", "twin", "skip_first"))


def test_skipped_rows_are_shown_and_counted(command: Command, model: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("question,answer\nWhat is 2*3?,6\n,7\nWhat is 2*4?,8,9\nWhat is 3*3?,9\n")
    assert "bad.csv:3: question: the question is empty" in command("fields", "bad.csv", "--model", model).err
    told = "2 of 4 rows of data were skipped; the first, bad.csv:3: question: the question is empty"
    assert told in command("fields", "bad.csv", "--skip-bad", "--model", model).out
    shown = json.loads(command("fields", "bad.csv", "--skip-bad", "--model", model, "--json").out)
    assert (shown["rows"], shown["problems"], shown["skipped"]) == (4, 2, 2)
    assert [row["place"] for row in shown["skipped_rows"]] == ["bad.csv:3", "bad.csv:4"]
    problems = {"source": "bad.csv", "on_error": "skip"}
    Path("my.yaml").write_text(yaml.safe_dump({"name": "mine", "models": [str(model)], "problems": problems}))
    assert "2 of 4 rows of data were skipped; the first, " in command("check", "my.yaml").out
    ended = command("run", "my.yaml", "--out", "run")
    assert "2 of 4 rows of data were skipped; the first, " in ended.out
    assert json.loads(command("run", "my.yaml", "--out", "run", "--json").out)["data"]["skipped"] == 2


def test_repeated_questions_are_said_before_a_run_and_after(command: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "twice.csv").write_text("question,answer\nWhat is 2*3?,6\nWhat is 2*3?,6\nWhat is 3*3?,9\n")
    told = "1 of 3 problems repeats the question of an earlier one: intervals and p values take them for independent"
    assert told in command("fields", "twice.csv", "--model", model).out
    assert json.loads(command("fields", "twice.csv", "--model", model, "--json").out)["repeated"] == 1
    problems = {"source": "twice.csv"}
    Path("my.yaml").write_text(yaml.safe_dump({"name": "mine", "models": [str(model)], "problems": problems}))
    assert told in command("check", "my.yaml").out
    begun = command("run", "my.yaml", "--out", "run")
    assert told in begun.err, "when it starts"
    assert told in command("findings", "run").out
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["data"]["repeated"] == 1


@pytest.mark.parametrize("name", ["study.json", "manifest.json", "figures/new.yaml"])
def test_a_study_is_not_written_into_a_run(command: Command, tmp_path: Path, name: str) -> None:
    run = Synthetic(problems=2).build(tmp_path / "run").path
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    refused = command("init", f"run/{name}", "--force")
    assert refused.code == 2
    assert f"run/{name} is in the run folder {run}, which holds what was measured; choose another" in refused.err
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.usefixtures("data")
def test_a_study_is_written_checked_and_not_overwritten(command: Command, model: Path) -> None:
    written = command("init", "my.yaml", "--data", "rows.csv", "--model", model)
    assert written.code == 0
    assert "fillerscope check my.yaml" in written.out
    study = Study.load("my.yaml")
    assert study.problems.fields == {"question": "question", "answer": "answer"}
    assert (study.problems.answer_form, study.problems.limit) == ("hashes", 2)
    again = command("init", "my.yaml", "--no-answers")
    assert (again.code, again.err) == (
        2, "fillerscope: my.yaml exists already; choose another name, or --force to overwrite it\n"
    )  # fmt: skip
    assert command("init", "my.yaml", "--no-answers", "--force").code == 0
    assert Study.load("my.yaml").generation is None


def test_the_next_commands_can_be_typed_as_they_are(command: Command) -> None:
    written = command("init", "my study's.yaml")
    lines = [line.removeprefix("Next:").strip() for line in written.out.splitlines() if "fillerscope" in line]
    assert [shlex.split(line) for line in lines] == [
        ["fillerscope", "check", "my study's.yaml"],
        ["fillerscope", "run", "my study's.yaml"],
    ]


def test_a_study_in_another_folder_finds_its_data(command: Command, data: Path, tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    assert command("init", "studies/a.yaml", "--data", "rows.csv").code == 0
    assert Study.load("studies/a.yaml").problems.source == str(data)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["init", "no/such/folder/a.yaml"], "cannot write no/such/folder/a.yaml: No such file or directory"),
        (["init", "--data", "gone.csv"], "no file of problems at gone.csv"),
        (["init", "--data", "bare.csv", "--answers"], "bare.csv: 1 of 1 problems have no answer; --no-answers"),
        (["init", "--data", "odd.csv"], "odd.csv:2: no field problem or question"),
        (["init", "--data", "odd.csv", "--field", "frage"], "--field takes question=COLUMN"),
        (["fields", "rows.csv", "--model", "nobody"], "there is no folder or GGUF file nobody on this machine"),
        (["fields", "rows.csv", "--field", "answer=gold"], "no field 'gold', which problems.fields.answer names"),
        (["check", "gone.yaml"], "no study file at gone.yaml"),
        (["study", "max_token"], "a study file has no key 'max_token'; did you mean max_tokens?"),
    ],
)
@pytest.mark.usefixtures("data")
def test_mistakes_are_one_line(command: Command, tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "bare.csv").write_text("question\nWhat?\n")
    (tmp_path / "odd.csv").write_text("frage\nWas?\n")
    result = command(*arguments)
    assert result.code in (1, 2)
    assert message in result.err
    assert len(result.err.splitlines()) == 1
    assert result.out == ""


def test_a_study_without_answers_is_written_where_there_are_none(command: Command, tmp_path: Path) -> None:
    (tmp_path / "odd.csv").write_text("frage\nWas?\n")
    told = command("init", "--data", "odd.csv", "--field", "question=frage").out
    assert "asks for no answers" in told
    study = Study.load("study.yaml")
    assert study.generation is None
    assert study.problems.fields == {"question": "frage"}


@pytest.mark.usefixtures("data")
def test_fields_show_what_was_recognised(command: Command, model: Path) -> None:
    shown = command("fields", "rows.csv", "--model", model)
    assert shown.code == 0
    assert "rows.csv: CSV, 2 problems" in shown.out
    assert "what follows #### at its end" in shown.out
    assert "reference: 5" in shown.out
    assert "\u27e6" in shown.out
    record = json.loads(command("fields", "rows.csv", "--model", model, "--json").out)
    assert record["recognised"]["columns"] == {"id": [], "question": ["question"], "answer": ["answer"]}
    assert [one["graded"] for one in record["first"]] == ["5", "6"]
    assert record["prompt"]["filler_tokens"] == 55
    assert record["prompt"]["after"].startswith(QUESTION[:10])


def test_fields_name_columns_left_aside_and_choices_that_are_not_asked(command: Command, tmp_path: Path) -> None:
    (tmp_path / "mc.csv").write_text("question,prompt,A,B,C,answer,label\nWhat?,Say: what?,1,2,3,2,easy\n")
    shown = command("fields", "mc.csv").out
    assert "question  question (left aside: prompt)" in shown
    assert "answer    answer: the whole text (left aside: label)" in shown
    assert "only question is asked, not A, B, C; write the choices into question" in shown


def test_fields_judge_a_link_by_what_it_leads_to(command: Command, tmp_path: Path) -> None:
    """Data comes from anybody, and a link in it can lead to what a process has in its environment."""
    (tmp_path / "secrets").write_text("KEY=secret\nOTHER=1\n")
    Path("rows.tsv").symlink_to(tmp_path / "secrets")
    told = command("fields", "rows.tsv").err
    assert "secrets is not a source of problems" in told
    assert "KEY" not in told
    Path("circle.csv").symlink_to("circle.csv")
    assert "cannot read circle.csv: Too many levels of symbolic links" in command("fields", "circle.csv").err


@pytest.mark.usefixtures("data")
def test_without_a_model_the_prompt_is_left_out_and_that_is_said(command: Command) -> None:
    shown = command("fields", "rows.csv")
    assert shown.code == 0
    assert "The prompt is not shown: smollm2-135m is not on this machine" in shown.out


def write(path: Path, model: object, **settings: Any) -> Path:
    conditions = ["none", {"name": "dots", "kind": "repeat", "text": " /", "count": 6}]
    path.write_text(yaml.safe_dump({"name": "t", "models": [str(model)], "conditions": conditions} | settings))
    return path


@pytest.mark.usefixtures("data")
def test_check_counts_what_a_study_asks_for(command: Command, model: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"problems": {"source": "rows.csv"}, "references": {"twin": 2}}
    study = write(
        tmp_path / "s.yaml", model, generation={"max_tokens": 9, "temperature": 0.5, "samples": 3}, **settings
    )
    record = json.loads(command("check", study, "--json").out)
    plain, dots = record["prompts"]
    assert (plain["filler_tokens"], dots["filler_tokens"]) == (0, 6)
    assert dots["tokens"] == plain["tokens"] + 6
    assert record["models"][0]["place"] == "here"
    assert record["models"][0]["longest"] == dots["tokens"]
    assert record["work"]["answers"] == 2 * 2 * 3
    assert record["work"]["most_answer_tokens"] == 2 * 2 * 3 * 9
    assert record["work"]["forward_tokens"] == 3 * record["models"][0]["prompt_tokens"]
    assert record["obstacles"] == []
    shown = command("check", study)
    assert (shown.code, shown.err) == (0, "")
    assert "What it can tell:" in shown.out


@pytest.mark.usefixtures("data")
def test_check_counts_no_prompts_where_none_are_measured(command: Command, model: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"problems": {"source": "rows.csv"}, "probes": {"attention": False}}
    study = write(tmp_path / "study.yaml", model, generation={"max_tokens": 8}, **settings)
    assert "Work: 4 answers of at most 8 tokens (32 in all)." in command("check", study).out


@pytest.mark.usefixtures("data")
def test_the_work_that_is_foreseen_is_the_work_that_is_done(model: Path, tmp_path: Path) -> None:
    from fillerscope.api import run
    from fillerscope.report.preview.check import check_study

    study = Study.load(write(tmp_path / "s.yaml", model, problems={"source": "rows.csv"}, generation={"max_tokens": 3}))
    check = check_study(study)
    done = run(study, tmp_path / "run")
    assert len(done.model_runs[0].answer_columns()["verdict"]) == check.answers
    assert done.store.manifest["data"]["answer_form"] == "hashes"
    assert done.model_runs[0].answer_columns()["id"][0] == check.data.first[0].id


def test_check_fails_where_a_study_cannot_run(command: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "bare.csv").write_text("question\nWhat?\n")
    study = write(tmp_path / "s.yaml", model, problems={"source": "bare.csv"}, generation={})
    shown = command("check", study)
    assert shown.code == 1
    assert "1 of 1 problems have no answer to grade by" in shown.out
    (tmp_path / "long.csv").write_text(f"question\n{'word ' * 9000}\n")
    shown = command("check", write(tmp_path / "s.yaml", model, problems={"source": "long.csv"}))
    assert shown.code == 1
    assert "no problem can be measured" in shown.out


REFUSED_BY_RUN: dict[str, tuple[dict[str, Any], str]] = {
    "arm in a layer": (
        {"conditions": ["none", {"name": "far", "intervention": {"kind": "arm", "layers": [99]}}]},
        "condition 'far' changes layer 99, and tiny-llama has 3 layers; choose from 1 to 3",
    ),
    "knock-out in a layer": (
        {"conditions": ["none", {"name": "far", "kind": "repeat", "text": " /", "count": 3,
                                 "intervention": {"kind": "knockout", "layers": [4]}}]},
        "condition 'far' changes layer 4, and tiny-llama has 3 layers; choose from 1 to 3",
    ),
    "a device": ({"device": "cuda:7"}, "device 'cuda:7' is not on this machine; choose auto, or one of: cpu"),
    "a figure": ({"figures": [{"name": "zz"}]}, "there is no figure 'zz'; there are layers, heads,"),
    "a figure's condition": (
        {"figures": [{"name": "heads", "conditions": ["zz"]}]},
        "figure 'heads' asks for condition 'zz', which the study does not have",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED_BY_RUN)
def test_check_says_what_run_would_refuse(command: Command, model: Path, tmp_path: Path, what: str) -> None:
    changes, told = REFUSED_BY_RUN[what]
    study = {"name": "refused", "models": [str(model)], "problems": {"limit": 1}} | changes
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(study))
    checked, ran = command("check", path), command("run", path)
    assert checked.code == ran.code == 1
    assert f"It cannot run as it is. {told}" in " ".join(checked.out.split())
    assert told in " ".join(ran.err.split())
    as_json = command("check", path, "--json")
    assert as_json.code == 1
    assert json.loads(as_json.out)["obstacles"][0].startswith(told)


def test_check_says_what_run_would_refuse_of_a_tokenizer(command: Command, model: Path, tmp_path: Path) -> None:
    from support.tiny import tiny_tokenizer

    folder = tmp_path / "grown"
    shutil.copytree(model, folder)
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([f"<x{number}>" for number in range(300)])
    tokenizer.save_pretrained(folder)
    (tmp_path / "rows.jsonl").write_text(json.dumps({"question": "What is <x250>?", "answer": "1"}) + "\n")
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump({"name": "x", "models": [str(folder)], "problems": {"source": "rows.jsonl"}}))
    checked, ran = command("check", path), command("run", path)
    assert checked.code == ran.code == 1
    for text in (checked.out, ran.err):
        assert "the tokenizer gives token 650, and the model has embeddings for 512" in " ".join(text.split())


def test_check_says_where_models_are(command: Command, tmp_path: Path) -> None:
    study = write(tmp_path / "s.yaml", "smollm2-135m", problems={"limit": 3})
    record = json.loads(command("check", study, "--json").out)
    assert (record["models"][0]["place"], record["models"][0]["bytes"]) == ("catalogue", 92_871_040)
    assert record["work"]["forward_tokens"] is None
    assert "to be fetched" in command("check", study).out
    wrong = command("check", write(tmp_path / "s.yaml", "smolm2-135m"))
    assert (wrong.code, "did you mean smollm2-135m?" in wrong.err) == (1, True)


def test_keys_are_explained(command: Command) -> None:
    shown = command("study", "problems.fields").out
    assert "fields: {" in shown
    assert [key["path"] for key in json.loads(command("study", "twin", "--json").out)] == ["references.twin"]
    assert json.loads(command("study", "--schema").out)["properties"]["problems"]


def test_data_is_looked_at_without_torch(data: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from fillerscope.cli.study_commands import show_fields\n"
        "from fillerscope.study.study import ProblemsSpec\n"
        f"show_fields(ProblemsSpec(source={str(data)!r}), None, False)"
    )
    environment = {"FILLERSCOPE_CACHE": str(data.parent / "none"), "PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "reference: 5" in done.stdout
