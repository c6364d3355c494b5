"""The command line as a person meets it: help with examples, JSON for programs, one line for every mistake."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from fillerscope import cli, session
from fillerscope.store import merged_name
from synthetic import MLESS, NONE, Synthetic

CACHE = os.environ.get("FILLERSCOPE_CACHE")  # the person's own, for tests with real weights
COMMANDS = (
    ["demo"], ["run"], ["reproduce"], ["profile"], ["figures"], ["heads"], ["models"], ["models", "get"], ["export"],
    ["verify"], ["doctor"],
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line that says what is wrong; whatever else is on stderr is progress."""
        lines = self.err.splitlines()
        assert lines, "nothing was said"
        assert lines[-1].startswith("fillerscope: ")
        assert all(line.endswith(" ...") for line in lines[:-1]), self.err
        assert self.out == ""
        assert "Traceback" not in self.err
        assert "unexpected" not in self.err
        return lines[-1].removeprefix("fillerscope: ")


Command = Callable[..., Result]


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Result]:
    """`fillerscope ...` in this process, in an empty folder and with an empty cache."""
    monkeypatch.setenv("FILLERSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["fillerscope", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        found = capsys.readouterr()
        assert isinstance(stopped.value.code, int)
        return Result(stopped.value.code, found.out, found.err)

    return call


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Synthetic(problems=6).build(tmp_path_factory.mktemp("cli") / "run").path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny random Llama: three layers, four heads."""
    from tiny import tiny_model, tiny_tokenizer

    folder = tmp_path_factory.mktemp("models") / "tiny-llama"
    tiny_model("llama").save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def write_study(path: Path, model: Path | str, **changes: Any) -> Path:
    conditions = ["none", {"name": "mless", "kind": "repeat", "text": " /", "count": 6, "label": "Slashes"}]
    settings = {"name": "tiny", "models": [str(model)], "problems": {"limit": 4}, "conditions": conditions}
    path.write_text(yaml.safe_dump(settings | changes), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def measured(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run of the tiny model, with one figure."""
    from fillerscope.library import run
    from fillerscope.study import Study

    folder = tmp_path_factory.mktemp("measured")
    study = write_study(folder / "study.yaml", model, figures=[{"name": "depth"}])
    run(Study.load(study), folder / "run")
    return folder


# Help


@pytest.mark.parametrize("name", COMMANDS, ids=" ".join)
def test_help_shows_an_example_that_can_be_typed(command: Command, name: list[str]) -> None:
    shown = command(*name, "--help")
    assert shown.code == 0
    text = " ".join(shown.out.split())
    found = re.search(r"Example: (fillerscope .*?) ╭", text)
    assert found, text
    example = shlex.split(found[1])[1:]
    assert example[: len(name)] == name
    assert command(*example, "--help").code == 0, "an option of the example does not exist"


def test_help_is_quick_and_loads_nothing_heavy() -> None:
    code = (
        "import json, sys; from fillerscope import cli; sys.argv = ['fillerscope', '--help']\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    heavy = {"torch", "transformers", "matplotlib", "numpy", "scipy", "pyarrow", "pandas", "pydantic", "safetensors"}
    assert not heavy & loaded
    assert "reproduce" in done.stdout


def test_without_arguments_there_is_help(command: Command) -> None:
    shown = command()
    assert shown.code == 2
    assert "reproduce" in shown.out
    assert shown.err.strip() == ""


def test_the_version(command: Command) -> None:
    from fillerscope.version import __version__

    assert command("--version") == Result(0, f"fillerscope {__version__}\n", "")


# A finished run


def test_a_finished_run_is_shown_drawn_exported_and_verified_without_torch(made: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from fillerscope import cli\n"
        "run, out = sys.argv[1:]\n"
        "to = ['-o', out]\n"
        "for arguments in (['heads', run], ['verify', run], ['export', run, *to], ['figures', run, 'depth', *to]):\n"
        "    sys.argv = ['fillerscope', *arguments]\n"
        "    try: cli.main()\n"
        "    except SystemExit as stop: assert not stop.code, arguments\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(made), str(tmp_path)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "depth.pdf").exists()
    assert (tmp_path / "profiles.parquet").exists()


def test_heads(command: Command, made: Path) -> None:
    shown = command("heads", made, "--by", "mass", "--top", 2, "--condition", "random", "--queries", "last")
    assert shown.code == 0
    assert "random against none: 2 of 12 heads by mass; queries last, n = 6" in shown.out
    assert shown.err == ""


def test_heads_as_json(command: Command, made: Path) -> None:
    from fillerscope.analysis.heads import head_table
    from fillerscope.analysis.runs import open_run

    shown = command("heads", made, "--json", "--top", 3)
    found = json.loads(shown.out)
    table = head_table(open_run(made), "mless")
    assert found["heads"] == [table.row(*place) for place in table.ranked("drop")[:3]]
    assert (found["condition"], found["ranked_by"], found["n"]) == ("mless", "drop", 6)
    assert shown.err == ""


def test_figures(command: Command, made: Path, tmp_path: Path) -> None:
    shown = command("figures", made, "heads", "--head", 2, "--keep-first", "--band", "sd", "-q", "last", "-o", "drawn")
    assert shown.code == 0
    assert shown.out.splitlines() == [f"Wrote drawn/heads.{kind}" for kind in ("pdf", "svg", "png", "csv", "txt")]
    caption = " ".join((tmp_path / "drawn/heads.txt").read_text().split())
    assert "First token shown. Bands: standard deviation." in caption
    assert "queries: last" in caption
    assert "chosen" not in caption


def test_figures_as_json_say_what_was_not_drawn(command: Command, tmp_path: Path) -> None:
    folder = Synthetic(conditions=(NONE, MLESS), problems=4).build(tmp_path / "run").path
    from fillerscope.figures import gallery

    chosen = {name: gallery.FIGURES[name] for name in ("fillers", "depth")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gallery, "FIGURES", chosen)
        shown = command("figures", folder, "--json")
    found = json.loads(shown.out)
    assert shown.err == ""
    assert list(found["figures"]) == ["depth"]
    assert all(Path(path).exists() for path in found["figures"]["depth"])
    assert {Path(path).parent for path in found["figures"]["depth"]} == {folder / "figures"}
    assert "compares a repeated token with a sentence" in found["not_drawn"]["fillers"]


def test_export_as_json(command: Command, made: Path) -> None:
    found = json.loads(command("export", made, "--format", "csv", "--out", "tables", "--json").out)
    assert Path(found["files"][0]).name == "profiles.csv"
    assert all(Path(path).exists() for path in found["files"])


def test_verify(command: Command, made: Path, tmp_path: Path) -> None:
    assert "all problems accounted for" in command("verify", made).out
    assert json.loads(command("verify", made, "--json").out)["faults"] == []
    shutil.copytree(made, tmp_path / "copy")
    damaged = tmp_path / "copy" / merged_name("tiny-a")
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    shown = command("verify", "copy")
    assert shown.code == 1
    assert "merged/tiny-a.safetensors: sha256" in shown.out
    assert "1 faults; run the study again" in shown.out
    shown = command("verify", "copy", "--json")
    assert shown.code == 1
    assert len(json.loads(shown.out)["faults"]) == 1


# Measuring


def test_run_measures_draws_and_tells_and_finds_it_done_the_next_time(
    command: Command, measured: Path, tmp_path: Path
) -> None:
    shutil.copytree(measured / "run", tmp_path / "run")
    (
        tmp_path / "run" / merged_name(json.loads((tmp_path / "run/study.json").read_text())["models"][0]["name"])
    ).unlink()
    shown = command("run", measured / "study.yaml", "--out", "run")
    assert shown.code == 0, shown.err
    assert "tiny-llama, mless against none: 10 of 12 heads by drop; queries original, n = 4" in shown.out
    assert "What tiny-llama shows:\n1. Layer 1, mless, original queries: what original tokens receive" in shown.out
    assert shown.out.endswith("Run:     run\nFigures: run/figures (depth)\n")
    assert (tmp_path / "run/figures/depth.png").exists()
    again = command("run", measured / "study.yaml", "--out", "run", "--json")
    assert again.err == ""
    found = json.loads(again.out)["models"]
    (facts,) = found.values()
    assert (facts["problems"], facts["measured"]) == (4, 4)
    assert facts["selfcheck"]["difference"] <= facts["selfcheck"]["tolerance"]
    assert facts["findings"][0]["name"] == "first_layer"
    assert len(facts["heads"]["heads"]) == 10
    assert list(json.loads(again.out)["figures"]) == ["depth"]


def test_a_study_without_filler_says_so(command: Command, model: Path, tmp_path: Path) -> None:
    study = write_study(tmp_path / "study.yaml", model, conditions=["none"], problems={"limit": 2})
    shown = command("run", study, "--out", "run")
    assert shown.code == 0
    assert "Nothing to compare: the study has no condition with filler" in shown.out
    assert "run/figures (none)" in shown.out


def test_reproduce_draws_the_published_figure_on_another_model(command: Command, model: Path, tmp_path: Path) -> None:
    ask = ("reproduce", "heads", "--model", model, "--problems", "builtin", "--limit", 3, "--out", "run")
    shown = command(*ask)
    assert shown.code == 0, shown.err
    assert shown.out.splitlines()[0] == "Wrote run/figures/heads.pdf"
    caption = " ".join((tmp_path / "run/figures/heads.txt").read_text().split())
    assert "tiny-llama; built-in problems, n = 3 problems." in caption
    assert "Of the heads asked for, 12, 13, 14 not in this model; heads chosen by the largest" in caption
    assert "queries: all" in caption

    shown = command(*ask, "--head", 2, "--queries", "original", "--json")
    assert shown.err == ""
    assert list(json.loads(shown.out)["figures"]) == ["heads"]
    caption = " ".join((tmp_path / "run/figures/heads.txt").read_text().split())
    assert "chosen" not in caption
    assert "queries: original" in caption

    shown = command(*ask, "--head", 99)
    assert shown.code == 1
    assert shown.err.splitlines()[-1] == "fillerscope: there is no head 99: tiny-llama has heads 1 to 4"
    shown = command(*ask, "--layer", 99)
    assert shown.code == 1
    assert shown.err.splitlines()[-1] == "fillerscope: there is no layer 99: tiny-llama has layers 1 to 3"


def test_profile(command: Command, model: Path, tmp_path: Path) -> None:
    shown = command("profile", "the quick brown fox jumps", "-m", model, "--head", 2, "--top", 3, "--out", "here")
    assert shown.code == 0, shown.err
    assert shown.out.startswith("tiny-llama, layer 1, head 2: tokens by attention received\n")
    assert shown.out.endswith("Wrote here/profile.csv, all layers and heads\n")
    assert (tmp_path / "here/profile.csv").read_text().startswith('"layer","head","position","n","mean"')

    (tmp_path / "text.txt").write_text("the quick brown fox jumps")
    shown = command("profile", "text.txt", "-m", model, "--json", "--top", 2)
    found = json.loads(shown.out)
    assert shown.err == ""
    assert [row["position"] for row in found["tokens"]] != []
    assert found["tokens"][0]["received"] >= found["tokens"][1]["received"]

    shown = command("profile", "the quick brown fox", "-m", model, "--head", 99)
    assert shown.code == 1
    assert "no layer 1 head 99: this model has layers 1 to 3 and heads 1 to 4" in shown.complaint
    shown = command("profile", "the quick brown fox", "-m", model, "--out", "text.txt")
    assert shown.code == 1
    assert shown.complaint == "cannot write to text.txt: File exists; choose another folder"


def test_models(command: Command, model: Path) -> None:
    found = json.loads(command("models", "--json").out)
    assert [entry["name"] for entry in found["models"] if entry["default"]] == ["smollm2-135m"]
    assert not any(entry["cached"] for entry in found["models"])
    assert "smollm2-135m" in command("models").out
    found = json.loads(command("models", "get", model, "--json").out)
    assert found["path"] == str(model)
    assert f"tiny-llama is ready in {model}" in command("models", "get", model).out


def test_doctor(command: Command) -> None:
    shown = command("doctor", "--json")
    assert shown.code == 0
    assert shown.err == ""
    found = {row["check"]: row for row in json.loads(shown.out)}
    assert set(found) == {"python", "libraries", "device", "memory", "cache", "capture"}
    assert all(row["ok"] for row in found.values())
    assert "not tried: fetch a model first" in found["capture"]["found"]


def test_doctor_reports_what_failed(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from fillerscope import doctor
    from fillerscope.errors import CaptureError

    def broken() -> str:
        raise CaptureError("off by 0.3")

    monkeypatch.setattr(doctor, "CHECKS", {"python": doctor._python, "capture": broken})
    shown = command("doctor")
    assert shown.code == 1
    assert re.search(r"capture +│ FAILED │ off by 0\.3", shown.out)


# Mistakes: one line, no traceback


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("figures RUN heads --head 99", 1, "there is no head 99: Tiny-A has heads 1 to 4"),
        ("figures RUN --head 99", 1, "there is no head 99: Tiny-A has heads 1 to 4"),
        ("figures RUN heads --layer 99", 1, "there is no layer 99: Tiny-A has layers 1 to 3"),
        ("figures RUN pie", 1, "there is no figure 'pie'; there are layers, heads, fillers, headmap, depth"),
        ("figures RUN depth pie --condition mful", 1, "this run has no condition 'mful'; it has none, mless, random"),
        ("figures RUN --condition mful", 1, "this run has no condition 'mful'; it has none, mless, random"),
        ("figures RUN headmap --queries some", 1, "queries are all, original, last, not 'some'"),
        ("figures RUN heads --model other", 1, "this run has no model 'other'; it has tiny-a"),
        ("figures RUN heads --band wide", 1, "--band takes interval or sd, not 'wide'"),
        ("figures RUN depth --out FILE", 1, "cannot write figures to FILE: File exists; choose another folder"),
        ("figures nowhere", 1, "no run at nowhere: it has no manifest.json; `fillerscope run` makes one"),
        ("heads nowhere", 1, "no run at nowhere: it has no manifest.json; `fillerscope run` makes one"),
        ("heads FILE", 1, "no run at FILE: it has no manifest.json; `fillerscope run` makes one"),
        ("verify nowhere", 1, "no run at nowhere: it has no manifest.json; `fillerscope run` makes one"),
        ("export nowhere", 1, "no run at nowhere: it has no manifest.json; `fillerscope run` makes one"),
        ("heads RUN --condition mful", 1, "this run has no condition 'mful'; it has none, mless, random"),
        ("heads RUN --condition none", 1, "heads are compared with `none`; name a condition with filler"),
        ("heads RUN --queries some", 1, "queries are all, original, last, not 'some'"),
        ("heads RUN --by size", 1, "heads are ranked by drop, mass, peak, not by 'size'"),
        ("heads RUN --model other", 1, "this run has no model 'other'; it has tiny-a"),
        ("export RUN --format xlsx", 1, "tables are written as parquet or csv, not 'xlsx'"),
        ("export RUN --out FILE", 1, "cannot write tables to FILE: File exists; choose another folder with --out"),
        ("run nowhere.yaml", 2, "no study file at nowhere.yaml; give the path of a YAML file"),
        ("run RUN", 2, "cannot read the study file RUN"),
        ("run BINARY", 2, "not UTF-8 text"),
        ("run FILE", 2, "a study is a mapping of keys to values"),
        ("reproduce pie", 2, "there is no ready study 'pie'; there are depth, fillers, headmap, heads"),
        ("reproduce heads --device gpu", 2, "device: String should match"),
        ("reproduce heads -m a -m a", 2, "models: model 'a' is given 2 times; names must differ"),
        ("reproduce heads --model smollm2-135 --problems builtin", 1, "model 'smollm2-135' is not known; did you"),
        ("reproduce heads --model m --problems nowhere.jsonl", 1, "no file of problems at "),
        ("reproduce heads --model m --problems EMPTY", 1, "holds no problems; give a source with at least one row"),
        ("reproduce heads --model m --problems BINARY", 1, "is not a source of problems"),
        ("models get smollm2-135", 1, "model 'smollm2-135' is not known; did you mean smollm2-135m?"),
        ("profile hello --model smollm2-135", 1, "model 'smollm2-135' is not known; did you mean smollm2-135m?"),
        ("profile .", 1, ". is a folder; give a text, or the path of a text file"),
        ("profile BINARY", 1, "is not a text file in UTF-8"),
        ("figures RUN heads -c none", 1, "`none` is what the others are compared with; name a condition with filler"),
        ("reproduce heads --model m -q zzz", 1, "--queries takes all, original, last, not 'zzz'"),
        ("demo --limit 0", 2, "Invalid value for '--limit' / '-n': Input should be greater than or equal to 1; see"),
        ("figures RUN --head 0", 2, "Invalid value for '--head': Input should be greater than or equal to 1; see fill"),
        ("heads", 2, "; see fillerscope heads --help"),
        ("figure RUN", 2, "No such command 'figure'"),
        ("heads RUN --tops 3", 2, "No such option: --tops"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_clear_line(
    command: Command, made: Path, tmp_path: Path, arguments: str, code: int, message: str
) -> None:
    (tmp_path / "file").write_text("not a run\n")
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x01")
    places = {"RUN": made, "FILE": tmp_path / "file", "EMPTY": tmp_path / "empty.jsonl", "BINARY": tmp_path / "binary"}
    shown = command(*(places.get(word, word) for word in arguments.split()))
    assert shown.code == code
    for word, place in places.items():
        message = message.replace(word, str(place))
    assert message in shown.complaint


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"conditions": ["none", {"name": "m", "kind": "text", "text": "apples" * 9, "count": 54}]}, 1,
         "condition 'm': 'applesapplesapplesapp...' gives 27 tokens and 54 were asked for; write count: 27"),
        ({"conditions": ["none", "mles"]}, 2, "'mles' is not a ready-made condition"),
        ({"figures": [{"name": "pie"}]}, 1, "there is no figure 'pie'; there are layers, heads, fillers"),
        ({"figures": [{"name": "heads", "conditions": ["mful"]}]}, 1, "asks for condition 'mful', which"),
        ({"problems": {"source": "nowhere.jsonl"}}, 1, "no file of problems at "),
        ({"modles": []}, 2, "unknown key 'modles'; check the spelling, or remove it"),
    ],
)  # fmt: skip
def test_a_study_that_does_not_work_out(
    command: Command, model: Path, tmp_path: Path, changes: dict[str, Any], code: int, message: str
) -> None:
    shown = command("run", write_study(tmp_path / "study.yaml", model, **changes), "--out", "run")
    assert shown.code == code
    assert message in shown.complaint


def test_a_run_does_not_write_over_something_else(command: Command, model: Path, tmp_path: Path) -> None:
    study = write_study(tmp_path / "study.yaml", model)
    shown = command("run", study, "--out", study)
    assert shown.code == 1
    assert "exists and is not a fillerscope run; choose another folder with --out" in shown.complaint


@pytest.mark.weights
def test_slashes_that_melt_together_are_refused(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a real tokenizer does this: 55 slashes in a row are nine tokens for SmolLM2."""
    from fillerscope.models.catalogue import CATALOGUE
    from fillerscope.models.convert import converted_folder

    monkeypatch.delenv("FILLERSCOPE_CACHE")
    if CACHE:
        monkeypatch.setenv("FILLERSCOPE_CACHE", CACHE)
    if not converted_folder("smollm2-135m", CATALOGUE["smollm2-135m"].sha256).exists():
        pytest.skip("smollm2-135m is not in the cache; `fillerscope models get smollm2-135m` puts it there")
    melting = {"name": "melting", "kind": "text", "text": "/" * 55, "count": 55}
    study = write_study(tmp_path / "study.yaml", "smollm2-135m", conditions=["none", melting])
    shown = command("run", study, "--out", "run")
    assert shown.code == 1
    assert "gives 9 tokens and 55 were asked for; write" in shown.complaint
    assert 'text: " /", count: 55`, whose unit is one token' in shown.complaint


# The process


def shell(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fillerscope.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **options)


def test_exit_codes_of_the_process(tmp_path: Path) -> None:
    done = shell("heads", tmp_path / "nowhere")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("fillerscope: no run at ")
    assert done.stderr.count("\n") == 1
    done = shell("run", tmp_path / "nowhere.yaml")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_a_reader_who_leaves_early_is_no_error(made: Path) -> None:
    line = f"{shlex.quote(sys.executable)} -m fillerscope.cli heads {shlex.quote(str(made))} --top 12 --json | true"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""


def test_ctrl_c_says_how_to_go_on(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "measure_and_show", interrupted)
    shown = command("demo", "--out", "my run")
    assert shown.code == 130
    assert shown.complaint == "stopped. What is finished is kept; go on with: fillerscope demo --out 'my run'"


def test_a_bug_is_one_line_and_a_traceback_on_request(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("first line\nsecond line")

    monkeypatch.setattr(session, "show_heads", broken)
    monkeypatch.delenv("FILLERSCOPE_DEBUG", raising=False)
    shown = command("heads", "run")
    assert shown.code == 1
    assert shown.err == (
        "fillerscope: unexpected ZeroDivisionError: first line (set FILLERSCOPE_DEBUG=1 to see where)\n"
    )
    monkeypatch.setenv("FILLERSCOPE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        command("heads", "run")
