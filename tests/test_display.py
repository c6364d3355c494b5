"""Text for people: what cannot be seen is replaced, numbers have their intervals."""

from __future__ import annotations

import json
import math
import sys
import tracemalloc
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fillerscope import display
from fillerscope.display import (
    HIDDEN,
    NEVER,
    bounded,
    escaped,
    first_line,
    holds_key,
    message,
    printable,
    spreadsheet_text,
    token,
    visible,
)
from support.watchdog import watched


def test_numbers_in_words() -> None:
    assert bounded(0.5, 0.4, 0.6) == "0.500 [0.400, 0.600]"
    assert bounded(0.5, math.nan, math.nan) == "0.500"
    assert bounded(math.nan, math.nan, math.nan) == "-"
    assert bounded(-0.0001, -0.0001, 0.0) == "0.000 [0.000, 0.000]"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("for url 'http://me:pass@host:1/api/x'\nmore", "for url 'http://host:1/api/x'"),
        ("at https://me:p@ss@host/x", "at https://host/x"),
        ("of s3://bucket/run?X-Amz-Signature=abc&b=c, twice", "of s3://bucket/run twice"),
        ("of 's3://bucket/a?k=1' and (why?s3://b/c?d=1?e)", "of 's3://bucket/a' and (why?s3://b/c"),
        ("what is this? a=b me@host", "what is this? a=b me@host"),
        ("", "ValueError"),
    ],
)
def test_errors_of_libraries_are_shown_without_what_addresses_hide(said: str, shown: str) -> None:
    assert first_line(ValueError(said)) == shown


@pytest.mark.parametrize("text", ["://" * 1_000_000, "://a@" * 600_000, "://a?b" * 500_000, "'?" * 1_000_000])
def test_an_error_as_long_as_a_file_takes_no_longer_than_its_text(text: str) -> None:
    with watched():
        assert message(first_line(ValueError(text)))
        assert spreadsheet_text(f"={text}") == f"'={text}"


def test_tokens_show_their_line_breaks_and_stay_short() -> None:
    assert token(" the\n") == '" the\u21b5"'
    assert len(token("x" * 1000)) == 26


def test_what_cannot_be_seen_is_replaced() -> None:
    import unicodedata

    assert printable("a\tb\nc\rd\u202e") == "a\tb\nc\ufffdd\ufffd"
    for letter in map(chr, range(sys.maxunicode + 1)):
        hidden = (unicodedata.category(letter) in HIDDEN or letter in NEVER) and letter not in "\n\t"
        assert printable(letter) == ("\ufffd" if hidden else letter)


def test_a_message_is_one_short_line_whatever_is_in_it() -> None:
    assert message("no file a b; check it") == "no file a b; check it"
    assert message("a\nb\x1b[31mc\u202e") == "a b\ufffd[31mc\ufffd"
    name = message(f"no file {'x' * 5000}.csv; check it")
    assert len(name) < 450
    assert name.startswith("no file xxx")
    assert name.endswith("xxx.csv; check it")
    assert len(message("word " * 5000)) <= 2000


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        (" the", " the"), (" ", "\u2423"), (" " * 9, "\u2423\u00d79"), ("\n\n", "\u21b5\u21b5"), ("\t", "\u21e5"),
        ("\x1b[31m", "\u241b[31m"), ("\x00", "\u2400"), ("\r\n", "\u240d\u21b5"), ("\u0301", "\u25cc\u0301"),
        ("\u202eabc", "\ufffdabc"), ("\ufffd", "\ufffd"), ("\u200d", "\ufffd"), ("\xa0", "\u237d"), ("", ""),
        ("\u6f22", "\u6f22"), ("<|im_start|>", "<|im_start|>"),
    ],
)  # fmt: skip
def test_a_token_can_be_seen_and_moves_nothing(token: str, shown: str) -> None:
    assert visible(token) == shown
    assert visible(token).isprintable() or "\ufffd" in shown


@pytest.mark.parametrize(
    "text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "-x", "\uff1d1"]
)
def test_a_cell_is_no_formula(text: str) -> None:
    assert spreadsheet_text(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "7", "-7", "+0.5", "-1e-3", "-12%", "-1,000", "a=b", "x"])
def test_numbers_and_other_texts_stay_as_they_are(text: str) -> None:
    assert spreadsheet_text(text) == text


@given(st.text())
def test_escaped_json_is_the_same_and_holds_nothing_that_a_terminal_obeys(text: str) -> None:
    made = escaped(json.dumps({"a": text}, ensure_ascii=False, indent=2))
    assert json.loads(made) == {"a": text}
    assert not any(unicodedata.category(letter) in HIDDEN for letter in made if letter not in "\n")


@pytest.mark.parametrize("hidden", ["\x9b2J", "\x7f", "\u202e", "\u2028", "\ud800", "\U000e0041"])
def test_what_a_terminal_would_obey_is_escaped(hidden: str) -> None:
    made = escaped(json.dumps(hidden, ensure_ascii=False))
    assert made.isascii()
    assert json.loads(made) == hidden


KEY = "hf_abcdefghijklmnopSECRET"


@pytest.mark.parametrize("between", ["", "\u200b" * 7, "\x00" * 7, " - "])
@pytest.mark.parametrize("before", range(0, 60, 7))
def test_a_key_is_found_where_pieces_of_a_text_meet(between: str, before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "_PIECE", 16)
    text = "x" * before + between.join(KEY.upper()) + "x" * 40
    assert holds_key(text, ["", "another-key-of-mine", KEY])
    assert not holds_key(text.replace("E", ""), ["", "another-key-of-mine", KEY, "\u4e2d"])


@pytest.mark.parametrize(
    "text",
    ["ab {}" * 1_600_000, "\u00e9b {}" * 1_600_000, "".join(map(chr, range(0x10000, 0x60000)))],
    ids=["ASCII", "Latin", "many"],
)
def test_a_long_text_is_searched_in_little_memory(text: str) -> None:
    tracemalloc.start()
    try:
        with watched(30):
            assert not holds_key(text, [KEY])
        assert tracemalloc.get_traced_memory()[1] < 28 << 20
    finally:
        tracemalloc.stop()
