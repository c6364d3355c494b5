"""Checks of a tokenizer before it is used: rules that make texts longer and longer, and tokens without end.

The tokenizer's own library bounds neither, and running out of memory in it cannot be caught. Its files are looked at
before they are loaded, and what was loaded once more: rules may come from other files than tokenizer.json.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from fillerscope.display import first_line
from fillerscope.errors import ModelError
from fillerscope.files import Json, parse_json, read_limited
from fillerscope.models.redirects import TOKENIZER_SETTINGS
from fillerscope.models.tokenizer_growth import rule_tokens, text_growth, token_growth
from fillerscope.prompts.tokenizer import Tokenizer, decode, encode

MOST_GROWTH = 100  # times a text may grow: one character of a published tokenizer becomes up to 18, each with a mark
LONGEST_TOKEN = 4096  # characters; runs of spaces of published tokenizers have some hundred
LONGEST_WORD = 1000  # characters; published tokenizers have 100 or 200
SHORT_TEXT, LONGEST_TRIED = 64, 2  # characters, one more each time up to the first, which is then doubled
ATTEMPTS = 3  # before a text is called slow: the machine may have stood still
SLOWEST, SLOWEST_CHARACTER = 0.5, 0.001  # seconds for a text: published tokenizers take some microseconds a character
_SAMPLES = ("a", " ", "1", "What is 12 + 30?\n", "\u00e9\u4e00\U0001f600x ")
MOST_MADE = 10_000  # tokens that are made of a number alone; published tokenizers make 7 to 103
_STAGES = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
_MADE = re.compile(r"^(extra_ids|offset|num_\w+|n_\w+)$")


def check_tokenizer(folder: Path) -> None:
    """Refuse files of a tokenizer whose rules would make a text many times as long, or whose tokens are texts."""
    for name in TOKENIZER_SETTINGS:
        _refuse_made_tokens(_parsed(folder, name), folder / name)
    rules = _parsed(folder, "tokenizer.json")
    _refuse_growth(rules, folder / "tokenizer.json")
    _refuse_long_words(rules, folder / "tokenizer.json")
    _refuse_long_tokens(_tokens(rules), folder / "tokenizer.json")


def _parsed(folder: Path, name: str) -> Json:
    """The JSON object in a file; an empty one where there is no file, or something else in it."""
    try:
        content = parse_json(read_limited(folder / name)) if (folder / name).exists() else None
    except (OSError, ValueError) as error:
        raise ModelError(f"the tokenizer in {folder} cannot be loaded: {name}: {first_line(error)}") from error
    return content if isinstance(content, dict) else {}


def check_loaded(tokenizer: Tokenizer, folder: Path) -> None:
    """Refuse a tokenizer that was made of other files than tokenizer.json, for the same reasons."""
    refuse_chance(tokenizer, str(folder))
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return
    parts = {stage: getattr(backend, stage) for stage in _STAGES}
    rules = {stage: parse_json(part.__getstate__()) for stage, part in parts.items() if part is not None}
    _refuse_growth(rules, folder)
    _refuse_slow(tokenizer, folder)
    _refuse_long_tokens(map(str, tokenizer.added_tokens_decoder.values()), folder)
    if not (folder / "tokenizer.json").exists():  # all tokens take some time to list, and were looked at there
        _refuse_long_tokens(backend.get_vocab(), folder)


def _refuse_slow(tokenizer: Tokenizer, folder: Path) -> None:
    """Refuse a tokenizer that takes long for short texts: a pattern in it tries many ways at each of them, and nothing
    can interrupt it. The texts become longer little by little, so that the first which is slow is not very slow."""
    for length in (*range(1, SHORT_TEXT), *(SHORT_TEXT << times for times in range(LONGEST_TRIED))):
        allowed = SLOWEST + SLOWEST_CHARACTER * length
        for sample in _SAMPLES:
            text = (sample * length)[:length]
            if all(_seconds(tokenizer, text) > allowed for _ in range(ATTEMPTS)):
                raise ModelError(
                    f"the tokenizer in {folder} takes more than {allowed:.1f} s for {length} characters: a pattern in "
                    "it tries very many ways; use the tokenizer of another model"
                )


def _seconds(tokenizer: Tokenizer, text: str) -> float:
    """Of encoding a text and decoding it."""
    began = time.perf_counter()
    decode(tokenizer, encode(tokenizer, text))
    return time.perf_counter() - began


def refuse_chance(tokenizer: Tokenizer, name: str) -> None:
    """Refuse a tokenizer that splits the same text otherwise each time."""
    model = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
    for key in ("dropout", "alpha"):
        if getattr(model, key, None):
            raise ModelError(
                f"{name}: its tokenizer splits texts by chance ({key}: {getattr(model, key)}), so that nothing can be "
                f"measured twice; set `{key}` to null in tokenizer.json"
            )


def _refuse_growth(rules: Json, path: Path) -> None:
    """The rules for texts are applied one after another, those for tokens and for answers by themselves."""
    before = text_growth(rules.get("normalizer"))
    growths = (
        ("normalizer", before, "a text", "long"),
        ("pre_tokenizer", before * text_growth(rules.get("pre_tokenizer")), "a text", "long"),
        ("post_processor", token_growth(rules.get("post_processor")), "tokens", "many"),
        ("decoder", text_growth(rules.get("decoder")), "a text", "long"),
    )
    for stage, growth, what, much in growths:
        if growth > MOST_GROWTH:
            raise ModelError(
                f"{path}: the rules of its {stage} can make {what} {growth:.3g} times as {much}, and {MOST_GROWTH} "
                "times is the most; use the tokenizer that was published with the model"
            )


def _refuse_long_words(rules: Json, path: Path) -> None:
    """The time that a word takes grows with the cube of its length."""
    model = rules.get("model")
    longest = model.get("max_input_chars_per_word") if isinstance(model, dict) else None
    if isinstance(longest, int | float) and longest > LONGEST_WORD:
        raise ModelError(
            f"{path}: max_input_chars_per_word is {longest!r:.40}, and {LONGEST_WORD} is the most; use the tokenizer "
            "that was published with the model"
        )


def _refuse_long_tokens(tokens: Iterable[str], path: Path) -> None:
    """A token is copied for each place where it stands, an unknown one for each word."""
    longest = max(map(len, tokens), default=0)
    if longest > LONGEST_TOKEN:
        raise ModelError(
            f"{path}: a token has {longest} characters, and {LONGEST_TOKEN} is the most; use the tokenizer that was "
            "published with the model"
        )


def _tokens(rules: Json) -> Iterator[str]:
    """All tokens of a tokenizer.json, and what its model adds to them."""
    model = rules.get("model")
    model = model if isinstance(model, dict) else {}
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, dict):
        yield from vocabulary
    elif isinstance(vocabulary, list):  # pieces with their scores
        yield from (str(piece[0]) for piece in vocabulary if isinstance(piece, list) and piece)
    yield from (str(model.get(key)) for key in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix"))
    added = rules.get("added_tokens")
    yield from (str(token.get("content")) for token in added or () if isinstance(token, dict))
    yield from rule_tokens(rules.get("post_processor"))


def _refuse_made_tokens(settings: Json, path: Path) -> None:
    """Some tokenizers make as many tokens as a number says."""
    for key, value in settings.items():
        if _MADE.search(key) and isinstance(value, int | float) and value > MOST_MADE:
            raise ModelError(
                f"{path}: {key} is {value!r:.40}, and {MOST_MADE} is the most; use the tokenizer that was published "
                "with the model"
            )
