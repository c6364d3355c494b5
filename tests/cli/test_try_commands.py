"""`fillerscope try` and `profile --filler` as a person meets them: colours, bars, JSON, a page, mistakes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from fillerscope.analysis.painted import pieces, scale_of
from fillerscope.cli import app
from fillerscope.cli.painted_text import print_legend, print_painted

Call = Callable[..., tuple[int, str, str]]
QUESTION = "How many apples does Anna have?"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from support.tiny import tiny_model, tiny_tokenizer

    folder = tmp_path_factory.mktemp("models") / "tiny-llama"
    tiny_model("llama").save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """`fillerscope ...` in this process: exit code, output and errors."""
    monkeypatch.setenv("FILLERSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fillerscope", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            app.main()
        shown = capsys.readouterr()
        assert isinstance(stopped.value.code, int)
        return stopped.value.code, shown.out, shown.err

    return run


def test_try_shows_both_prompts_both_answers_and_the_sentence(call: Call, model: Path, tmp_path: Path) -> None:
    asked = ("try", QUESTION, "-m", model, "--filler", '" /" x 12', "--max-tokens", 4, "--device", "cpu")
    code, out, err = call(*asked)
    assert code == 0, err
    assert "[/ \u00d7 12: " in out
    assert "\x1b" not in out  # no terminal, no colour
    assert "truncated at 4 tokens" in out

    code, out, err = call(*asked, "--html", "page.html", "--json")
    record = json.loads(out)
    assert (code, err) == (0, "")
    assert [record[key] for key in ("question", "layer", "head", "filler_tokens", "html")] == [
        QUESTION, 1, None, 12, "page.html",
    ]  # fmt: skip
    assert record["kept"] == pytest.approx(record["received_with"] / record["received_without"])
    assert len(record["with"]["tokens"]) == len(record["without"]["tokens"]) + 12
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert record["sentence"].replace('"', "&#34;") in page
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")


def test_a_hostile_question_stays_text(call: Call, model: Path, tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>\x1b[2J \u202e & how many?"
    code, out, err = call("try", hostile, "-m", model, "--filler", '"<b>" x 3', "--max-tokens", 2, "--html", "page.htm")
    assert code == 0, err
    assert "\x1b" not in out
    assert "\u202e" not in out
    page = (tmp_path / "page.htm").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "<b>" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["try", QUESTION, "--layer", "99"], 1, "there is no layer 99: tiny-llama has layers 1 to 3"),
        (["try", QUESTION, "--head", "9"], 1, "there is no head 9: tiny-llama has heads 1 to 4"),
        (["try", " "], 1, "the question is empty; write one, in quotes"),
        (["try", QUESTION, "--filler", "mles"], 2, "'mles' is close to mless; as a text of its own write"),
        (["try", QUESTION, "--html", "."], 1, "cannot write .: it is a folder; choose another file"),
        (["profile", "the fox", "--filler", ""], 2, "the filler is empty; give"),
        (["profile", "the fox", "--filler", '" /" x 5', "--layer", "9"], 1, "there is no layer 9"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], code: int, complaint: str, call: Call, model: Path) -> None:
    found, out, err = call(*arguments, "-m", model)
    assert (found, out) == (code, "")
    assert err.splitlines()[-1].startswith(f"fillerscope: {complaint}")
    assert "Traceback" not in err


def test_profile_paints_the_text_and_takes_filler(call: Call, model: Path) -> None:
    code, out, err = call("profile", "the quick brown fox", "-m", model)
    assert code == 0, err
    assert "The text" in out
    code, out, err = call("profile", "the quick brown fox", "-m", model, "--filler", '" /" x 9')
    assert code == 0, err
    assert "[/ \u00d7 9: " in out
    code, out, _ = call("profile", "the quick brown fox", "-m", model, "--filler", '" /" x 9', "--json")
    record = json.loads(out)
    by_place = {row["position"]: row["received"] for row in record["tokens"]}
    tokens = record["trial"]["without"]["tokens"]
    assert tokens[1]["received"] == pytest.approx(by_place[1])
    assert record["trial"]["queries"] == record["queries"] == "original"


def shown(width: int = 80, encoding: str = "utf-8", **console: object) -> str:
    """Three tokens, and a run of filler, as a terminal shows them."""
    received = np.array([0.5, *[0.001] * 6, 0.1, np.nan])
    tokens, spans = ["a", *[" /"] * 6, " \u6f22\u5b57", "\n"], ["system", *["filler"] * 6, "question", "tail"]
    scale = scale_of(received)

    class Stream(StringIO):
        @property
        def encoding(self) -> str:  # type: ignore[override]
            return encoding

    stream = Stream()
    terminal = Console(file=stream, width=width, **console)  # type: ignore[arg-type]
    print_painted(terminal, "Title", pieces(tokens, spans, received, scale, 0.006))
    print_legend(terminal, scale)
    return stream.getvalue()


def test_colours_on_a_terminal_and_bars_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = shown(force_terminal=True, color_system="truecolor")
    assert "48;2;253;231;37" in coloured  # the last step of the ramp
    assert "\u2588" not in coloured
    for plain in (shown(), shown(force_terminal=True, no_color=True, color_system="truecolor")):
        assert "48;" not in plain
        assert "\u6f22\u5b57\u2588" in plain
        assert "[/ \u00d7 6: 0.6%]\u00b7" in plain
    few = shown(force_terminal=True, color_system="standard")
    assert "\u6f22\u5b57\u2588" in few  # 16 colours are too few


def test_an_encoding_without_bars_has_digits() -> None:
    plain = shown(encoding="ascii")
    assert plain.isascii()
    assert "??8" in plain


@pytest.mark.parametrize("width", [20, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    from rich.cells import cell_len

    lines = shown(width, force_terminal=True, color_system=None).splitlines()
    assert max(map(cell_len, lines)) <= width
