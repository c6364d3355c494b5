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

import numpy as np
import pytest
import yaml

from fillerscope.cli import app, run_commands, show_commands
from fillerscope.store.schema import answers_name, merged_name
from support.answered import CONDITIONS, Key, Row, build, drawn_at_random
from support.answered import answer as graded
from support.synthetic import MLESS, NONE, Synthetic

CACHE = os.environ.get("FILLERSCOPE_CACHE")  # the person's own, for tests with real weights
DRAW = drawn_at_random(3)
COMMANDS = (
    ["demo"], ["try"], ["run"], ["reproduce"], ["profile"], ["figures"], ["findings"], ["heads"], ["mechanism"],
    ["compare"], ["flips"], ["models"], ["models", "get"], ["models", "verify"], ["export"], ["report"], ["view"],
    ["verify"], ["doctor"], ["runs"],
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
            app.main()
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
    from support.tiny import tiny_model, tiny_tokenizer

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
    from fillerscope.api import run
    from fillerscope.study.study import Study

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
        "import json, sys; from fillerscope.cli import app; sys.argv = ['fillerscope', '--help']\n"
        "try: app.main()\n"
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
    from fillerscope import __version__

    assert command("--version") == Result(0, f"fillerscope {__version__}\n", "")


# A finished run


def test_a_finished_run_is_shown_drawn_exported_and_verified_without_torch(made: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from fillerscope.cli import app\n"
        "run, out = sys.argv[1:]\n"
        "to = ['-o', out]\n"
        "for arguments in (['heads', run], ['verify', run], ['export', run, *to], ['figures', run, 'depth', *to]):\n"
        "    sys.argv = ['fillerscope', *arguments]\n"
        "    try: app.main()\n"
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
    from fillerscope.analysis.run import open_run

    shown = command("heads", made, "--json", "--top", 3)
    found = json.loads(shown.out)
    table = head_table(open_run(made)[None], "mless")
    names = ("drop", "mass", "peak", "entropy")  # nothing else is known of this run
    assert found["heads"] == [table.row(*place, names) for place in table.ranked("drop")[:3]]
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
    from fillerscope.figures import registry

    chosen = {name: registry.FIGURES[name] for name in ("fillers", "depth")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "FIGURES", chosen)
        shown = command("figures", folder, "--json")
    found = json.loads(shown.out)
    assert shown.err == ""
    assert list(found["figures"]) == ["depth"]
    assert all(Path(path).exists() for path in found["figures"]["depth"])
    assert {Path(path).parent for path in found["figures"]["depth"]} == {folder / "figures"}
    assert "compares a repeated token with a sentence" in found["not_drawn"]["fillers"]


def test_where_no_figure_can_be_drawn_that_is_an_error(command: Command, answered: Path, tmp_path: Path) -> None:
    shutil.copytree(answered, tmp_path / "copy")
    (tmp_path / "copy" / answers_name("a", 1)).unlink()
    shown = command("figures", "copy", "--out", "drawn", "--json")
    assert shown.code == 1
    assert shown.complaint.startswith("no figure was drawn; copy is not finished for a; run the study again")


def test_export_as_json(command: Command, made: Path) -> None:
    found = json.loads(command("export", made, "--format", "csv", "--out", "tables", "--json").out)
    assert Path(found["files"][0]).name == "profiles.csv"
    assert all(Path(path).exists() for path in found["files"])


def test_report(command: Command, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fillerscope.report import html

    monkeypatch.setattr(html, "pictures", lambda *_: ([], {}))
    made = Path(shutil.copytree(made, tmp_path / "copy"))
    shown = command("report", made, "--out", "new/told.html")
    written = tmp_path / "new/told.html"
    size = written.stat().st_size
    assert (shown.code, shown.out) == (
        0, f"Wrote new/told.html ({size / 1e6:.1f} MB): open it in any browser, or send it to somebody\n"
    )  # fmt: skip
    assert shown.err == "writing the report ...\n"
    shown = command("report", made, "--json")
    assert strict(shown) == {"run": str(made), "report": str(made / "report.html"), "bytes": size}
    assert (made / "report.html").read_bytes() == written.read_bytes()


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


# A run of answers


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, no attention; some answers failed, and the last problems have no level."""
    metas = [{"level": 1 + n % 2} for n in range(8)] + [{}] * 3
    folder = tmp_path_factory.mktemp("answered") / "run"
    return build(folder, DRAW, models=("a", "b"), metas=metas, temperature=[0, 0.7], samples=[1, 4]).path


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def strict(shown: Result) -> Any:
    assert (shown.code, shown.err) == (0, "")
    return json.loads(shown.out, parse_constant=refuse)


def test_compare(command: Command, answered: Path) -> None:
    from fillerscope.analysis.accuracy import compare
    from fillerscope.analysis.run import open_run

    shown = command("compare", answered)
    assert (shown.code, shown.err) == (0, "")
    titles = [line for line in shown.out.splitlines() if line.endswith("accuracy under each condition")]
    drawn = ("greedy", "temperature 0.7, 1 sample a problem", "temperature 0.7, 4 samples a problem")
    assert titles == [f"{label}, {how}: accuracy under each condition" for label in "AB" for how in drawn]
    assert shown.out.count("unbiased pass@k and diversity") == 2
    row = next(row for row in compare(open_run(answered)) if row.condition == "mless")
    change = row.against
    assert change is not None
    line = next(line for line in shown.out.splitlines() if line.startswith("│ mless"))
    assert [cell.strip() for cell in line.strip("│").split("│")] == [
        "mless", str(row.n), str(row.failed), f"{100 * row.accuracy:.1f} [{100 * row.low:.1f}, {100 * row.high:.1f}]",
        str(change.pairs),
        f"{100 * change.difference:+.1f} [{100 * change.difference_low:+.1f}, {100 * change.difference_high:+.1f}]",
        f"{change.adjusted:.3g}", f"{change.p:.3g}", str(change.gained), str(change.lost),
        f"{100 * change.detectable:.1f}", f"{row.tokens:.0f}", f"{100 * row.cut_off:.0f}",
        f"{100 * row.unanswered:.0f}",
    ]  # fmt: skip
    told = shown.out.partition("What A shows:\n")[2]
    assert told.startswith(" 1. Truncated answers, mless, greedy: ")
    assert "What B shows:\n 1. Truncated answers, mless, greedy: " in told, "no sentence leaves its model open"


def test_compare_shows_answers_that_failed_and_what_pass_at_k_is_over(command: Command, tmp_path: Path) -> None:
    """One sample of each hard problem failed under the filler: no problem did."""

    def draw(key: Key) -> Row:
        verdict = "right" if key[1] < 5 else "failed" if (key[3], key[4]) == ("mless", 3) else "wrong"
        return graded(verdict, np.random.default_rng(0), truncated=False)

    run = build(tmp_path / "run", draw, 10, conditions=("none", "mless"), temperature=1, samples=4)
    shown = command("compare", run.path).out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if line.startswith("│")]
    assert [row[:3] for row in rows[:2]] == [["none", "10", "0"], ["mless", "10", "5"]]
    assert "failed answers" in shown
    assert "failed problems" not in shown
    assert [row[:3] for row in rows[2:]] == [[name, "50.0", "100.0 (n = 5)"] for name in ("none", "mless")]
    assert "pass@k: over problems of which k samples were judged under every condition; n where" in shown


def test_compare_as_json(command: Command, answered: Path) -> None:
    found = strict(command("compare", answered, "--json"))
    assert [(row["model"], row["temperature"], row["samples"], row["condition"]) for row in found["rows"]] == [
        (model, *cell, name) for model in "ab" for cell in ((0, 1), (0.7, 1), (0.7, 4)) for name in CONDITIONS
    ]
    for row in found["rows"]:
        assert (row["p"] is None) == (row["condition"] == "none")
        assert row["n"] + row["failed"] == 11
        assert ("pass@4" in row) == (row["samples"] == 4)
    assert list(found["findings"]) == ["a", "b"]
    assert [each["name"] for each in found["findings"]["b"]][:3] == ["truncated_mless", "accuracy_mless", "form_mless"]
    assert found["recheck"] == {}
    assert found["noise"] == {"a": [], "b": []}
    one = strict(command("compare", answered, "--json", "--model", "b"))
    assert {row["model"] for row in one["rows"]} == set(one["findings"]) == {"b"}
    sentences = [each["numbers"]["adjusted"] for each in one["findings"]["b"] if "adjusted" in each["numbers"]]
    assert sentences == [row["adjusted"] for row in one["rows"] if row["condition"] != "none"]


def test_compare_by_a_field(command: Command, answered: Path) -> None:
    shown = command("compare", answered, "--by", "level", "-m", "a")
    assert (shown.code, shown.err) == (0, "")
    accuracy, _, passes = shown.out.rpartition("unbiased pass@k")
    for part in (accuracy, passes):
        first = {line.split("│")[1].strip() for line in part.splitlines() if line.startswith("│")}
        assert {"level 1", "level 2", "level not given"} <= first
    assert ". Accuracy" not in shown.out, "the sentences are on all problems"
    found = strict(command("compare", answered, "--by", "level", "--json"))
    asked = {(row["model"], row["group"]): row["n"] + row["failed"] for row in found["rows"]}
    assert asked == {(m, f"level {g}"): n for m in "ab" for g, n in ((1, 4), (2, 4), ("not given", 3))}


def test_nothing_that_is_missing_is_shown_as_a_number(command: Command, tmp_path: Path) -> None:
    """All failed under one condition, and a single problem under the others."""

    def draw(key: Key) -> Row:
        return graded("failed" if key[3] == "mless" or key[1] else "right", np.random.default_rng(0))

    folder = build(tmp_path / "run", draw, problems=2, temperature=0.7, samples=2).path
    for arguments in (["compare"], ["compare", "--json"], ["flips"], ["export", "--format", "csv"]):
        shown = command(arguments[0], folder, *arguments[1:])
        assert shown.code == 0
        assert not re.search(r"\b(nan|inf|NaN|Infinity)\b", shown.out), shown.out
    compared = command("compare", folder).out
    assert re.search(r"│ mless +│ 0 │ +2 │ +4 │ - +│ 0 +│ - +│ - +│ - +│ 0 │ 0 │ - +│", compared)
    assert re.search(r"│ mful +│ 1 │ +1 │ +2 │ 100\.0 +│ 1 +│ \+0\.0 +│ 1 +│ 1 +│ 0 │ 0 │ - +│", compared)
    assert "none to mless: 0 gained, 0 lost\n" in command("flips", folder).out


def test_flips(command: Command, answered: Path) -> None:
    from fillerscope.analysis.flips import flips
    from fillerscope.analysis.run import open_run

    found = flips(open_run(answered)["b"], "mful", temperature=0.7)
    gained = sum(flip.direction == "gained" for flip in found)
    asked = ("flips", answered, "-c", "mful", "-m", "b", "-t", "0.7")
    shown = command(*asked, "--top", 2)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith(f"none to mful: {gained} gained, {len(found) - gained} lost\n")
    first = found[0]
    said = f"{first.id}, sample {first.sample}: {first.direction}; reference {first.reference}\n{first.question}"
    assert said in shown.out
    assert first.before["text"] in shown.out
    assert first.after["text"] in shown.out
    assert shown.out.endswith(f"{len(found) - 2} more; --top {len(found)} shows all.\n")
    told = strict(command(*asked, "--json"))
    assert (told["condition"], told["against"]) == ("mful", "none")
    assert [(flip["id"], flip["sample"], flip["direction"]) for flip in told["flips"]] == [
        (flip.id, flip.sample, flip.direction) for flip in found
    ]
    assert told["flips"][0]["after"] == first.after
    swapped = strict(command("flips", answered, "-c", "none", "--against", "mful", "-m", "b", "-t", "0.7", "--json"))
    assert len(swapped["flips"]) == len(found)
    assert sum(flip["direction"] == "lost" for flip in swapped["flips"]) == gained


def test_verify_sees_an_edited_answer(command: Command, answered: Path, tmp_path: Path) -> None:
    assert "8 files as they were written, all problems accounted for" in command("verify", answered).out
    shutil.copytree(answered, tmp_path / "copy")
    damaged = tmp_path / "copy" / answers_name("a", 1)
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    shown = command("verify", "copy")
    assert shown.code == 1
    assert "answers/a/00001.parquet: sha256" in shown.out
    shown = command("compare", "copy")
    assert shown.code == 1
    assert "the file is damaged; run the study again to restore it" in shown.complaint
    damaged.unlink()
    assert "is not finished for a; run the study again" in command("compare", "copy").complaint
    assert len(json.loads(command("verify", "copy", "--json").out)["faults"]) == 1


def test_an_edited_study_is_not_taken_for_the_one_that_was_answered(
    command: Command, model: Path, tmp_path: Path
) -> None:
    study = write_study(tmp_path / "study.yaml", model, **ANSWERS)
    assert command("run", study, "--out", "run", "--json").code == 0
    stored = tmp_path / "run/study.json"
    stored.write_text(stored.read_text().replace('"max_tokens": 4', '"max_tokens": 5'))
    shown = command("verify", "run")
    assert shown.code == 1
    assert "study.json: sha256 " in shown.out


ANSWERS: dict[str, Any] = {
    "probes": {"attention": False}, "generation": {"max_tokens": 4, "recheck": 2}, "problems": {"limit": 2},
}  # fmt: skip


def test_run_answers_and_tells(command: Command, model: Path, tmp_path: Path) -> None:
    from fillerscope.analysis.run import open_run

    study = write_study(tmp_path / "study.yaml", model, **ANSWERS)
    shown = command("run", study, "--out", "run")
    assert shown.code == 0, shown.err
    title, truncated, accuracy = shown.out.splitlines()[1:4]
    assert title == "tiny-llama under mless (' /' repeated, 6 tokens, before the question):"
    assert truncated.startswith("- Truncated answers: 100% of the answers are truncated")
    assert accuracy.startswith("- Accuracy: not significant. 0.0% against 0.0%")
    rows = [line.split("│")[1].strip() for line in shown.out.splitlines() if line.startswith("│")]
    assert rows == ["none", "mless"]
    first = open_run(tmp_path / "run").problems()[0]
    told = " ".join(shown.out.split())
    assert f'Asked: 2 built-in problems, the first: "{first["question"][:60]}' in told
    assert f'..." (reference: {first["answer"]}).' in told
    assert "What tiny-llama shows" not in shown.out
    assert "heads by drop" not in shown.out
    told = command("run", study, "--out", "run", "--findings").out
    assert " 1. Truncated answers, mless, greedy: 100% of the answers are truncated" in told
    assert " 2. Accuracy, mless, greedy: +0.0 [" in told
    assert told.endswith(command("findings", "run").out)
    found = strict(command("run", study, "--out", "run", "--json"))
    (facts,) = found["models"].values()
    assert facts["problems"] == 2
    assert facts["recheck"] == {"checked": 2, "same": 2, "margins": []}
    assert (facts["heads"], facts["selfcheck"]) == (None, None)
    assert [row["condition"] for row in found["comparison"]] == ["none", "mless"]
    shown = command("compare", "run")
    assert shown.out.endswith("tiny-llama: 2 of 2 greedy answers are the same written alone.\n")


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
    assert "tiny-llama, mless against none: 5 of 12 heads by drop; queries original, n = 4" in shown.out
    assert shown.out.splitlines()[2].startswith("- Attention in layer 1: ")
    look = "Report:   fillerscope report run\nFindings: fillerscope findings run\nExplore:  fillerscope view run\n"
    assert shown.out.endswith(f"Run:      run\nFigures:  run/figures (depth)\n{look}")
    drawn = (tmp_path / "run/figures/depth.png").stat().st_mtime_ns
    again = command("run", measured / "study.yaml", "--out", "run", "--json")
    assert again.err == ""
    found = json.loads(again.out)["models"]
    (facts,) = found.values()
    assert (facts["problems"], facts["measured"]) == (4, 4)
    assert facts["selfcheck"]["difference"] <= facts["selfcheck"]["tolerance"]
    assert facts["findings"][0]["name"] == "first_layer"
    assert len(facts["heads"]["heads"]) == 10
    assert list(json.loads(again.out)["figures"]) == ["depth"]
    assert (tmp_path / "run/figures/depth.png").stat().st_mtime_ns == drawn, "what is there is not drawn again"


def test_first_figures_are_there_before_the_answers_and_are_drawn_once(
    command: Command, model: Path, tmp_path: Path
) -> None:
    study = write_study(
        tmp_path / "study.yaml", model, problems={"limit": 2}, generation={"max_tokens": 4},
        figures=[{"name": "heads"}, {"name": "depth"}],
    )  # fmt: skip
    first = command("run", study, "--out", "run", "--report")
    assert first.code == 0, first.err
    said = first.err.splitlines()
    shown = next(line for line in said if line.startswith("First figures"))
    assert shown.endswith("run/figures/heads.png run/figures/depth.png")
    assert said.index(shown) < said.index("answering with tiny-llama ...")
    report, figure = tmp_path / "run/report.html", tmp_path / "run/figures/heads.pdf"
    written, drawn = report.read_bytes(), figure.stat().st_mtime_ns
    again = command("run", study, "--out", "run", "--report")
    assert again.err.splitlines()[0] == "run is complete already: nothing to measure"
    assert again.out == first.out
    assert figure.stat().st_mtime_ns == drawn
    assert report.read_bytes() == written
    report.write_text("something else")
    command("run", study, "--out", "run", "--report")
    assert report.read_bytes() == written


def test_a_study_without_filler_says_so(command: Command, model: Path, tmp_path: Path) -> None:
    study = write_study(tmp_path / "study.yaml", model, conditions=["none"], problems={"limit": 2})
    shown = command("run", study, "--out", "run")
    assert shown.code == 0
    assert "- Nothing to compare, because the study has no condition beside none." in shown.out
    assert "run/figures (none)" in shown.out


def reproduce(model: Path) -> tuple[object, ...]:
    return ("reproduce", "heads", "--model", model, "--problems", "builtin", "--limit", 3, "--out", "run")


@pytest.mark.slow  # the fast half asks for heads, layers and queries that there are not
def test_reproduce_draws_what_is_asked_for_instead(command: Command, model: Path, tmp_path: Path) -> None:
    shown = command(*reproduce(model), "--head", 2, "--queries", "original", "--json")
    assert shown.err == ""
    assert list(json.loads(shown.out)["figures"]) == ["heads"]
    caption = " ".join((tmp_path / "run/figures/heads.txt").read_text().split())
    assert "chosen" not in caption
    assert "queries: original" in caption


def test_reproduce_draws_the_published_figure_on_another_model(command: Command, model: Path, tmp_path: Path) -> None:
    ask = reproduce(model)
    shown = command(*ask)
    assert shown.code == 0, shown.err
    assert shown.out.splitlines()[0] == "Wrote run/figures/heads.pdf"
    caption = " ".join((tmp_path / "run/figures/heads.txt").read_text().split())
    assert "tiny-llama; built-in problems, n = 3 problems." in caption
    assert "Of the heads asked for, 12, 13, 14 not in this model; heads chosen by the largest" in caption
    assert "queries: all" in caption

    shown = command(*ask, "--head", 99)
    assert shown.code == 1
    assert shown.err.splitlines()[-1] == "fillerscope: there is no head 99: tiny-llama has heads 1 to 4"
    shown = command(*ask, "--layer", 99)
    assert shown.code == 1
    assert shown.err.splitlines()[-1] == "fillerscope: there is no layer 99: tiny-llama has layers 1 to 3"


def test_reproduce_uses_a_run_that_holds_its_numbers(command: Command, model: Path, tmp_path: Path) -> None:
    options = ("--model", model, "--problems", "builtin", "--limit", 3, "-c", "mless", "--set", "conditions.1.count=6")
    shown = command("reproduce", "heads", *options)
    assert shown.code == 0, shown.err
    (run,) = (tmp_path / "runs").iterdir()
    for name in ("layers", "depth"):
        shown = command("reproduce", name, *options)
        assert shown.err.splitlines()[0] == f"using runs/{run.name}, measured before"
        assert f"Wrote runs/{run.name}/figures/{name}.png" in shown.out
    assert list((tmp_path / "runs").iterdir()) == [run]
    stored = json.loads((run / "study.json").read_text())
    assert [one["count"] for one in stored["conditions"]] == [None, 6], "the study as it was run"


def test_reproduce_draws_all_figures_of_a_study(command: Command, model: Path) -> None:
    from fillerscope.study.overrides import ready_study

    options = ("--model", model, "--problems", "builtin", "--limit", 3, "--max-tokens", 4)
    shown = command("reproduce", "mechanism", *options, "--json")
    assert shown.code == 0, shown.err
    assert list(json.loads(shown.out)["figures"]) == [one.name for one in ready_study("mechanism").figures]


def test_reproduce_says_that_it_draws_other_heads(command: Command, model: Path, tmp_path: Path) -> None:
    options = ("--model", model, "--problems", "builtin", "--limit", 3, "--set", "conditions.1.count=6")
    shown = command("reproduce", "layers", *options)
    assert shown.code == 0, shown.err
    *_, note = shown.out.splitlines()
    assert re.fullmatch(
        r"Note: not the published heads: layers 1, 2, 3, head \d of tiny-llama; "
        "published: layers 1, 2, 3, head 22 of Qwen2.5-Math-7B", note
    )  # fmt: skip
    (caption,) = tmp_path.glob("runs/*/figures/layers.txt")
    assert f"{note.removeprefix('Note: n')}." in " ".join(caption.read_text().split())


def test_profile(command: Command, model: Path, tmp_path: Path) -> None:
    shown = command("profile", "the quick brown fox jumps", "-m", model, "--head", 2, "--top", 3, "--out", "here")
    assert shown.code == 0, shown.err
    assert shown.out.startswith("tiny-llama, layer 1, head 2: tokens by attention received\n")
    assert shown.out.endswith("Wrote here/profile.csv, all layers and heads\n")
    assert (tmp_path / "here/profile.csv").read_text().startswith('"layer","head","position","n","mean"')

    (tmp_path / "here/profile.csv").rename(tmp_path / "own")  # a link in a folder whose listing says that it is ours
    (tmp_path / "here/profile.csv").symlink_to(tmp_path / "own")
    ours = (tmp_path / "own").read_text()
    assert command("profile", "the quick brown fox", "-m", model, "--out", "here").code == 0
    assert (tmp_path / "own").read_text() == ours != (tmp_path / "here/profile.csv").read_text()
    (tmp_path / "here/profile.csv").write_text("mine")
    shown = command("profile", "the quick brown fox", "-m", model, "--out", "here")
    assert "profile.csv is there already, and nothing shows that fillerscope wrote it" in shown.complaint
    assert (tmp_path / "here/profile.csv").read_text() == "mine"

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
    expected = {"python", "libraries", "device", "memory", "cache", "permissions", "package index", "capture"}
    assert set(found) == expected
    assert all(row["ok"] for row in found.values())
    assert "not tried: fetch a model first" in found["capture"]["found"]


def test_doctor_reports_what_failed(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from fillerscope.cli import doctor
    from fillerscope.errors import CaptureError

    def broken() -> str:
        raise CaptureError("off by 0.3")

    monkeypatch.setattr(doctor, "CHECKS", {"python": doctor._python, "capture": broken})
    shown = command("doctor")
    assert shown.code == 1
    assert re.search(r"capture +│ FAILED │ off by 0\.3", shown.out)


# Mistakes: one line, no traceback


MISTAKES = [
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
    ("figures nowhere", 1, "no run at nowhere, and none in runs begins with 'nowhere'; `fillerscope runs` lists"),
    ("heads nowhere", 1, "no run at nowhere, and none in runs begins with 'nowhere'; `fillerscope runs` lists"),
    ("heads FILE", 1, "no run at FILE: it has no manifest.json; `fillerscope run` makes one"),
    ("verify nowhere", 1, "no run at nowhere, and none in runs begins with 'nowhere'; `fillerscope runs` lists"),
    ("export nowhere", 1, "no run at nowhere, and none in runs begins with 'nowhere'; `fillerscope runs` lists"),
    ("report nowhere", 1, "no run at nowhere, and none in runs begins with 'nowhere'; `fillerscope runs` lists"),
    ("report FILE", 1, "no run at FILE: it has no manifest.json; `fillerscope run` makes one"),
    ("view nowhere", 1, "no run at nowhere, and none in runs begins with 'nowhere'; `fillerscope runs` lists"),
    ("view FILE --no-browser", 1, "no run at FILE: it has no manifest.json; `fillerscope run` makes one"),
    ("view FILE EMPTY --no-browser", 1, "FILE is left out: no run at FILE: it has no manifest.json; `fillerscope run`"),
    ("view RUN --port 99999", 2, "Invalid value for '--port' / '-p': Input should be less than or equal to 65535"),
    ("view", 2, "; see fillerscope view --help"),
    ("heads RUN --condition mful", 1, "this run has no condition 'mful'; it has none, mless, random"),
    ("heads RUN --condition none", 1, "heads are compared with `none`; name a condition with filler"),
    ("heads RUN --queries some", 1, "queries are all, original, last, not 'some'"),
    ("heads RUN --by size", 1, "heads are ranked by drop, mass, peak, beyond, not by 'size'"),
    ("heads RUN --model other", 1, "this run has no model 'other'; it has tiny-a"),
    ("compare RUN", 1, "this run has no answers; give `generation` in its study and run it again"),
    ("compare RUN --by level --json", 1, "this run has no answers; give `generation` in its study and run it"),
    ("flips RUN", 1, "this run has no answers; give `generation` in its study and run it again"),
    ("compare nowhere", 1, "no run at nowhere, and none in runs begins with 'nowhere'; `fillerscope runs` lists"),
    ("flips nowhere", 1, "no run at nowhere, and none in runs begins with 'nowhere'; `fillerscope runs` lists"),
    ("compare ANSWERED --by colour", 1, "the problems have no field 'colour'; they have level"),
    ("compare ANSWERED --model other", 1, "this run has no model 'other'; it has a, b"),
    ("flips ANSWERED --model other", 1, "this run has no model 'other'; it has a, b"),
    ("flips ANSWERED -c pause", 1, "this run has no condition 'pause'; it has none, mless, mful"),
    ("flips ANSWERED --against pause", 1, "this run has no condition 'pause'; it has none, mless, mful"),
    ("flips ANSWERED -c mful --against mful", 1, "'mful' does not differ from itself; name two conditions, by"),
    ("flips ANSWERED -t 1", 1, "this run has no temperature 1; it has 0, 0.7"),
    ("flips ANSWERED --top 0", 2, "Invalid value for '--top': Input should be greater than or equal to 1; see"),
    ("heads ANSWERED", 1, "this run did not measure attention: its study has `probes.attention` off"),
    ("figures ANSWERED heads", 1, "this run did not measure attention: its study has `probes.attention` off"),
    ("export RUN --format xlsx", 1, "tables are written as parquet or csv, not 'xlsx'"),
    ("export RUN --out FILE", 1, "cannot write tables to FILE: File exists; choose another folder with --out"),
    ("run nowhere.yaml", 2, "no study file at nowhere.yaml; give the path of a YAML file"),
    ("run RUN", 2, "cannot read the study file RUN"),
    ("run BINARY", 2, "not UTF-8 text"),
    ("run FILE", 2, "a study is a mapping of keys to values"),
    ("reproduce pie", 2, "there is no ready study 'pie'; there are arm, composite, depth, fillers, headmap"),
    ("demo --set generation.max_token=9", 2, "generation: unknown key 'max_token'; did you mean generation.max_tokens"),
    ("demo --set 9", 2, "--set takes KEY=VALUE, such as generation.max_tokens=256, not '9'"),
    ("demo -c mles", 2, "there is no condition 'mles'; the study and the ready-made ones have none, mless, mful"),
    ("reproduce heads --seed=-1", 2, "Invalid value for '--seed': Input should be greater than or equal to 0"),
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
    ("heads latest", 1, "there is no latest run: "),
    ("runs --out nowhere", 1, "no runs: there is no folder nowhere; `fillerscope demo` makes a first run"),
    ("runs --out FILE", 1, "cannot list the runs in FILE: Not a directory; name their folder with --out"),
    ("figure RUN", 2, "No such command 'figure'"),
    ("heads RUN --tops 3", 2, "No such option: --tops"),
]  # fmt: skip


def test_a_mistake_is_one_clear_line(command: Command, made: Path, answered: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a run\n")
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x01")
    places = {
        "RUN": made,
        "ANSWERED": answered,
        "FILE": tmp_path / "file",
        "EMPTY": tmp_path / "empty.jsonl",
        "BINARY": tmp_path / "binary",
    }
    for arguments, code, message in MISTAKES:
        shown = command(*(places.get(word, word) for word in arguments.split()))
        assert shown.code == code, arguments
        for word, place in places.items():
            message = message.replace(word, str(place))
        assert message in shown.complaint, arguments


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"conditions": ["none", {"name": "m", "kind": "text", "text": "apples" * 9, "count": 54}]}, 1,
         "condition 'm': 'applesapplesapplesapp...' gives 27 tokens and 54 were asked for; write count: 27"),
        ({"conditions": ["none", "mles"]}, 2, "'mles' is not a ready-made condition"),
        ({"figures": [{"name": "pie"}]}, 1, "there is no figure 'pie'; there are layers, heads, fillers"),
        ({"figures": [{"name": "heads", "conditions": ["mful"]}]}, 1, "asks for condition 'mful', which"),
        ({"problems": {"source": "nowhere.jsonl"}}, 1, "no file of problems at "),
        ({"probes": {"attention": False}}, 2, "nothing is asked for: leave probes.attention on, or give `generation`"),
        ({"figures": [{"name": "heads"}], "probes": {"attention": False}, "generation": {}}, 1,
         "figure 'heads' shows attention: leave `probes.attention` on in the study"),
        ({"modles": []}, 2, "unknown key 'modles'; did you mean models?"),
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


@pytest.mark.slow  # in the fast half, a study that does not work out has a text of another count
@pytest.mark.weights
def test_slashes_that_melt_together_are_refused(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a real tokenizer does this: 55 slashes in a row are nine tokens for SmolLM2."""
    from fillerscope.models.catalogue import CATALOGUE
    from fillerscope.models.gguf import converted_folder

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
    command = [sys.executable, "-m", "fillerscope.cli.app", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **options)


def test_exit_codes_of_the_process(tmp_path: Path) -> None:
    done = shell("heads", tmp_path / "nowhere")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("fillerscope: no run at ")
    assert done.stderr.count("\n") == 1
    done = shell("run", tmp_path / "nowhere.yaml")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_a_reader_who_leaves_early_is_no_error(made: Path) -> None:
    line = f"{shlex.quote(sys.executable)} -m fillerscope.cli.app heads {shlex.quote(str(made))} --top 12 --json | true"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""


@pytest.mark.parametrize("text", ["-5 + 3", "-x + 3 = 5"])
def test_a_text_that_begins_with_a_dash_gets_a_hint(command: Command, text: str) -> None:
    assert "write -- before a text that begins with -; see fillerscope try --help" in command("try", text).complaint
    assert "write --" not in command("try", "a", "--nosuch", "a b").complaint


def test_ctrl_c_says_how_to_go_on(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_commands, "measure_and_show", interrupted)
    shown = command("demo", "--out", "my run")
    assert shown.code == 130
    assert shown.complaint == "stopped. What is finished is kept; go on with: fillerscope demo --out 'my run'"


def test_a_bug_is_one_line_and_a_traceback_on_request(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("first line\nsecond line")

    monkeypatch.setattr(show_commands, "show_heads", broken)
    monkeypatch.delenv("FILLERSCOPE_DEBUG", raising=False)
    shown = command("heads", ".")
    assert shown.code == 1
    assert shown.err == (
        "fillerscope: unexpected ZeroDivisionError: first line (set FILLERSCOPE_DEBUG=1 to see where)\n"
    )
    monkeypatch.setenv("FILLERSCOPE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        command("heads", ".")


def test_a_panic_of_a_library_is_one_line(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(*_: object) -> None:
        raise type("PanicException", (BaseException,), {})("Onig: retry-limit-in-match over")

    monkeypatch.setattr(show_commands, "show_heads", panic)
    monkeypatch.delenv("FILLERSCOPE_DEBUG", raising=False)
    shown = command("heads", ".")
    assert shown.code == 1
    assert shown.err.startswith("fillerscope: unexpected PanicException: Onig: retry-limit-in-match over (set")


def test_a_key_is_allowed_for_the_host_of_the_study(command: Command, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(run_commands, "measure_and_show", lambda *_, **__: None)
    server = {"name": "m", "endpoint": {"url": "https://api.example.org/v1", "key": "MY_VARIABLE"}}
    Path("study.yaml").write_text(yaml.safe_dump({"name": "s", "models": [server], "generation": {"max_tokens": 8}}))
    assert command("run", "study.yaml", "--allow-key", "OTHER").complaint == (
        "--allow-key OTHER: no endpoint of the study names this variable"
    )
    assert command("run", "study.yaml").code == 0
    settings = tmp_path / "fillerscope" / "keys.json"
    assert not settings.exists()
    assert command("run", "study.yaml", "--allow-key", "MY_VARIABLE").code == 0
    assert json.loads(settings.read_text()) == {"allowed": [["MY_VARIABLE", "api.example.org"]], "hosts": []}
    assert command("run", "study.yaml", "--allow-host", "api.example.org").code == 0
    assert json.loads(settings.read_text())["hosts"] == ["api.example.org"]


@pytest.mark.parametrize(("arguments", "name"), [(["figures", "depth"], "figures"), (["export"], "tables")])
def test_no_link_in_a_run_leads_us_to_write_elsewhere(
    command: Command, made: Path, tmp_path: Path, arguments: list[str], name: str
) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    shutil.copytree(made, run, ignore=shutil.ignore_patterns(name))
    elsewhere.mkdir()
    (run / name).symlink_to(elsewhere)
    shown = command(arguments[0], run, *arguments[1:])
    assert shown.complaint == f"{run / name} would be written outside the run: a link leads there; remove it"
    assert list(elsewhere.iterdir()) == []
    assert command(arguments[0], run, *arguments[1:], "--out", elsewhere).code == 0
    assert list(elsewhere.iterdir())
