"""Rules of a tokenizer that make texts longer and longer are refused before it is loaded."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path

import pytest
from tokenizers import Regex, decoders, normalizers

from fillerscope.errors import ModelError
from fillerscope.models.description import load_tokenizer
from fillerscope.models.in_memory import ModelInMemory
from fillerscope.models.resolve import ModelFolder, resolve
from fillerscope.models.tokenizer_checks import check_loaded, check_tokenizer
from support.tiny import tiny_model, tiny_tokenizer
from support.watchdog import watched


def replace(pattern: dict[str, str], content: str) -> dict[str, object]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def put(folder: Path, stage: str, rule: object) -> None:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {stage: rule}))


def charsmap(length: int) -> str:
    """A map in which `a` becomes so many letters: the size of its index, the index, texts that end with a null byte."""
    index = [0] * 1024
    index[0] = 256 << 10
    index[256 ^ ord("a")] = ord("a") | 1 << 8 | 512 << 10
    return base64.b64encode(struct.pack("<1025I", 4096, *index) + b"b" * length + b"\0").decode()


def precompiled(length: int) -> dict[str, object]:
    return {"type": "Precompiled", "precompiled_charsmap": charsmap(length)}


def template(pieces: int, ids: int, texts: int = 1) -> dict[str, object]:
    """A post-processor that adds so many times so many tokens, and repeats the text."""
    text, other = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    special = {"id": "X", "ids": [0] * ids, "tokens": ["x"] * ids}
    return {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "X", "type_id": 0}}] * pieces + [text] * texts,
        "pair": [text, other],
        "special_tokens": {"X": special},
    }


def sequence(key: str, rules: list[object]) -> dict[str, object]:
    return {"type": "Sequence", key: rules}


DOUBLING = replace({"String": "a"}, "aa")
ADDING = replace({"Regex": "x*"}, "a")
GROWING = {
    "doubled again and again": ("normalizer", {"type": "Sequence", "normalizers": [DOUBLING] * 40}),
    "sequences in sequences": (
        "normalizer",
        {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": [DOUBLING] * 4}] * 4},
    ),
    "something between characters": ("normalizer", {"type": "Sequence", "normalizers": [ADDING] * 40}),
    "one long content": ("normalizer", replace({"String": "a"}, "a" * 1000)),
    "an empty pattern": ("normalizer", replace({"String": ""}, "a" * 100)),
    "while it is decoded": ("decoder", {"type": "Sequence", "decoders": [DOUBLING] * 40}),
    "between characters, for another engine": (
        "normalizer",
        sequence("normalizers", [replace({"Regex": r"\p{N}*"}, "a")] * 10),
    ),
    "between characters, by a count": ("normalizer", sequence("normalizers", [replace({"Regex": "x{2}?"}, "a")] * 10)),
    "characters that are taken apart": (
        "normalizer",
        sequence(
            "normalizers", [replace({"String": "a"}, "\ufdfa"), {"type": "NFKD"}, replace({"String": " "}, "a")] * 2
        ),
    ),
    "a map of characters": ("normalizer", precompiled(10_000)),
    "a map after another": ("normalizer", sequence("normalizers", [precompiled(20)] * 2)),
    "a long beginning": ("normalizer", {"type": "Prepend", "prepend": "x " * 1000}),
    "beginnings before beginnings": ("normalizer", sequence("normalizers", [{"type": "Prepend", "prepend": "x"}] * 7)),
    "a rule without a type": ("normalizer", {"prepend": "x" * 1000}),
    "a replacement without a type": ("normalizer", sequence("normalizers", [{**DOUBLING, "type": None}] * 40)),
    "marks before marks": (
        "pre_tokenizer",
        sequence(
            "pretokenizers",
            [{"type": "Metaspace", "replacement": mark, "prepend_scheme": "always"} for mark in "xyxyxyx"],
        ),
    ),
    "spaces before spaces": (
        "decoder",
        sequence("decoders", [{"type": "WordPiece", "prefix": "", "cleanup": False}] * 7),
    ),
    "bytes of bytes": ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}] * 40}),
}


TEMPLATES = {
    "pieces of many tokens": template(30, 30),
    "many pieces": template(1000, 1),
    "the text again and again": template(0, 0, 1000),
    "without a type": {key: value for key, value in template(30, 30).items() if key != "type"},
    "in a sequence": sequence("processors", [template(5, 3)] * 2),
}


@pytest.mark.parametrize("what", TEMPLATES)
def test_a_post_processor_that_adds_many_tokens_is_refused(folder: Path, what: str) -> None:
    put(folder, "post_processor", TEMPLATES[what])
    with pytest.raises(ModelError, match=r"the rules of its post_processor can make tokens .* times as many, and 100"):
        load_tokenizer(ModelFolder(folder, "m", "m", ""))


def test_the_stages_before_the_tokens_are_counted_together(folder: Path) -> None:
    put(folder, "normalizer", precompiled(20))
    load_tokenizer(ModelFolder(folder, "m", "m", ""))
    put(folder, "pre_tokenizer", sequence("pretokenizers", [{"type": "Metaspace", "replacement": "_"}] * 3))
    with pytest.raises(ModelError, match="the rules of its pre_tokenizer can make a text 160 times as long"):
        load_tokenizer(ModelFolder(folder, "m", "m", ""))


LONG = "u" * 5000
WORDS = {"type": "WordLevel", "vocab": {LONG: 0, "a": 1}, "unk_token": LONG}
TOKEN = {"id": 399, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
LENGTHY = {
    "an unknown word": ("model", WORDS),
    "an unknown piece": ("model", {**WORDS, "type": "WordPiece", "max_input_chars_per_word": 100}),
    "a word": ("model", {**WORDS, "unk_token": "a"}),
    "an unknown word that is no word": ("model", {**WORDS, "vocab": {"a": 1}}),
    "a piece with its score": ("model", {"type": "Unigram", "unk_id": 0, "vocab": [["a", 0.0], [LONG, 0.0]]}),
    "the beginning of pieces": (
        "model",
        {**WORDS, "unk_token": "a", "vocab": {"a": 1}, "continuing_subword_prefix": LONG},
    ),
    "an added token": ("added_tokens", [{**TOKEN, "content": LONG}]),
    "a token of a template": (
        "post_processor",
        {**template(1, 1), "special_tokens": {"X": {"id": "X", "ids": [0], "tokens": [LONG]}}},
    ),
    "a last token": ("post_processor", {"type": "BertProcessing", "sep": [LONG, 0], "cls": ["a", 1]}),
}


@pytest.mark.parametrize("what", LENGTHY)
def test_a_token_as_long_as_a_text_is_refused(folder: Path, what: str) -> None:
    put(folder, *LENGTHY[what])
    with pytest.raises(ModelError, match=r"tokenizer\.json: a token has 5000 characters, and 4096 is the most"):
        load_tokenizer(ModelFolder(folder, "m", "m", ""))


def test_a_long_token_of_the_settings_is_refused(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"bos_token": LONG}))
    with pytest.raises(ModelError, match="a token has 5000 characters, and 4096 is the most"):
        load_tokenizer(ModelFolder(folder, "m", "m", ""))


def test_a_long_token_without_a_tokenizer_json_is_refused(folder: Path) -> None:
    words = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    for file in folder.glob("tokenizer*"):
        file.unlink()
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "vocab.json").write_text(json.dumps(words))
    assert load_tokenizer(ModelFolder(folder, "m", "m", "")).encode("ab")
    (folder / "vocab.json").write_text(json.dumps({**words, LONG: len(words)}))
    with pytest.raises(ModelError, match="a token has 5000 characters, and 4096 is the most"):
        load_tokenizer(ModelFolder(folder, "m", "m", ""))


def test_rules_of_a_loaded_tokenizer_are_looked_at(folder: Path) -> None:
    """Those of a vocabulary file, or of settings, are known when it is loaded."""
    from tokenizers.normalizers import Prepend

    tokenizer = load_tokenizer(ModelFolder(folder, "m", "m", ""))
    tokenizer.backend_tokenizer.normalizer = Prepend("x" * 1000)  # type: ignore[attr-defined]
    with pytest.raises(ModelError, match="the rules of its normalizer can make a text 1e\\+03 times as long"):
        check_loaded(tokenizer, folder)


@pytest.mark.parametrize(
    ("kind", "key"),
    [("T5Tokenizer", "extra_ids"), ("PegasusTokenizer", "offset"), ("XGLMTokenizer", "num_madeup_words")],
)
def test_a_number_that_becomes_tokens_is_refused(folder: Path, kind: str, key: str) -> None:
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text()) | {"tokenizer_class": kind}
    path.write_text(json.dumps(settings | {key: 100}))
    check_tokenizer(folder)
    path.write_text(json.dumps(settings | {key: 10**9}))
    with pytest.raises(ModelError, match=rf"tokenizer_config\.json: {key} is 1000000000, and 10000 is the most"):
        load_tokenizer(ModelFolder(folder, "m", "m", ""))


SPACES = replace({"Regex": " {2,}"}, "\u2581")
MARKED = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
LIKE = {
    "Llama": {
        "normalizer": sequence("normalizers", [{"type": "Prepend", "prepend": "_"}, replace({"String": " "}, "_")])
    },
    "T5": {
        "normalizer": sequence(
            "normalizers", [precompiled(18), {"type": "Strip", "strip_left": False, "strip_right": True}, SPACES]
        ),
        "pre_tokenizer": sequence("pretokenizers", [{"type": "WhitespaceSplit"}, MARKED]),
        "post_processor": template(1, 1),
    },
    "XLNet": {
        "normalizer": sequence(
            "normalizers",
            [replace({"String": "``"}, '"'), {"type": "NFKD"}, {"type": "StripAccents"}, precompiled(18), SPACES],
        ),
        "pre_tokenizer": MARKED,
    },
    "BERT": {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["a", 1], "cls": ["a", 1]},
    },
    "RoBERTa": {
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    },
    "Whisper": {"post_processor": template(4, 1)},
}


@pytest.mark.parametrize("what", LIKE)
def test_rules_like_those_of_published_tokenizers_are_taken(folder: Path, what: str) -> None:
    for stage, rule in LIKE[what].items():
        put(folder, stage, rule)
    assert load_tokenizer(ModelFolder(folder, "m", "m", "")).encode("a  b")


@pytest.mark.weights
@pytest.mark.parametrize("name", ["smollm2-135m", "gemma-3-270m"])
def test_tokenizers_of_the_catalogue_are_taken(name: str) -> None:
    folder = resolve(name, accept_licence=True)
    check_tokenizer(folder.path)
    check_loaded(load_tokenizer(folder), folder.path)


@pytest.mark.parametrize("what", GROWING)
def test_rules_that_make_a_text_many_times_as_long_are_refused(folder: Path, what: str) -> None:
    stage, rule = GROWING[what]
    put(folder, stage, rule)
    with pytest.raises(ModelError, match=rf"tokenizer\.json: the rules of its {stage} can make a text .* times as"):
        load_tokenizer(ModelFolder(folder, "m", "m", ""))


def test_words_without_end_are_refused(folder: Path) -> None:
    """The time for a word grows with the cube of its length."""
    file = folder / "tokenizer.json"
    rules = json.loads(file.read_text())
    for longest in (100, 10**9):
        model = {"type": "WordPiece", "unk_token": "?", "continuing_subword_prefix": "##", "vocab": {"?": 0}}
        file.write_text(json.dumps(rules | {"model": model | {"max_input_chars_per_word": longest}}))
        if longest == 100:
            check_tokenizer(folder)
    with pytest.raises(ModelError, match="max_input_chars_per_word is 1000000000, and 1000 is the most"):
        check_tokenizer(folder)


def test_a_tokenizer_that_splits_by_chance_is_refused(folder: Path) -> None:
    path = folder / "tokenizer.json"
    described = json.loads(path.read_text())
    described["model"]["dropout"] = 0.3
    path.write_text(json.dumps(described))
    with pytest.raises(ModelError, match=r"splits texts by chance \(dropout: 0.3"):
        load_tokenizer(ModelFolder(folder, "m", "m", ""))
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.model.dropout = 0.3
    with pytest.raises(ModelError, match="splits texts by chance"):
        ModelInMemory.of(tiny_model("llama"), tokenizer)


def test_a_rule_of_marks_is_measured_in_time(folder: Path) -> None:
    """Python sorts marks by insertion: the square of their number."""
    put(folder, "normalizer", replace({"String": "q"}, "a" + "\u0301" * 200_000 + "\u0316" * 200_000))
    with watched(20), pytest.raises(ModelError, match="can make a text 4e\\+05 times as long"):
        check_tokenizer(folder)


def test_usual_rules_are_taken(folder: Path) -> None:
    usual = [replace({"String": " "}, "_"), replace({"Regex": " {2,}"}, "_"), {"type": "NFKC"}, DOUBLING]
    put(folder, "normalizer", {"type": "Sequence", "normalizers": usual})
    tokenizer = load_tokenizer(ModelFolder(folder, "m", "m", ""))
    assert tokenizer.decode(tokenizer.encode("a  b")) == "aa__b"


@pytest.mark.parametrize("rule", [3, "x", [], {"type": "Sequence", "normalizers": [3, None]}, {"type": "Replace"}])
def test_what_is_no_rule_is_left_to_the_tokenizer(folder: Path, rule: object) -> None:
    put(folder, "normalizer", rule)
    check_tokenizer(folder)
    with pytest.raises(ModelError, match=r"the tokenizer in .* cannot be loaded"):
        load_tokenizer(ModelFolder(folder, "m", "m", ""))


@pytest.mark.parametrize("times", [20, 24])
@pytest.mark.parametrize("stage", ["normalizer", "decoder"])
def test_a_pattern_that_tries_very_many_ways_is_refused_soon(tmp_path: Path, times: int, stage: str) -> None:
    """Each match is below the limit of its library, so that it never fails: a text would take hours."""
    tokenizer = tiny_tokenizer()
    pattern = Regex("(?:" + r"[\s\S]?" * times + r"\b\B)")
    if stage == "normalizer":
        tokenizer.backend_tokenizer.normalizer = normalizers.Replace(pattern, "z")
    else:
        replace_all = decoders.Replace(pattern, "z")
        tokenizer.backend_tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), replace_all])
    with watched(60), pytest.raises(ModelError, match=r"takes more than 0\.\d s for \d+ characters: a pattern"):
        check_loaded(tokenizer, tmp_path)
