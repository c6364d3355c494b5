"""Study files: whatever is wrong is named with its line, and what is measured names the run."""

from __future__ import annotations

import hashlib
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fillerscope.errors import StudyError
from fillerscope.files import digest_of
from fillerscope.study.conditions import PRESETS, USUAL
from fillerscope.study.generation import Decoding, GenerationSpec
from fillerscope.study.study import (
    ActivationProbe,
    FigureSpec,
    ModelSpec,
    Study,
)
from fillerscope.study.token_classes import CLASSES

START = """\
# a study
name: small
models:
  - smollm2-135m
"""
SWEEP = 'conditions:\n  - none\n  - name: m\n    kind: repeat\n    text: " /"\n    count: [0, 5, 9]\n'
INSIDE = "conditions:\n  - none\n  - name: x\n    intervention:\n"  # to line 8
SHIPPED = sorted(Path(str(files("fillerscope.study"))).joinpath("ready").glob("*.yaml"))


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "study.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refusal(path: Path) -> str:
    """The message, after checking that it is one line, without the folder."""
    with pytest.raises(StudyError) as caught:
        Study.load(path)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message.replace(f"{path.parent}/", "")


# What is added to START (which has four lines), where the mistake is, and what is said about it.
MISTAKES = {
    "unknown key": ("colour: red\n", "5: colour: unknown key 'colour'"),
    "unknown key, nested": (
        "probes:\n  attention:\n    diagonal: true\n    diagnal: true\n",
        "8: probes.attention.diagnal: unknown key 'diagnal'; did you mean probes.attention.diagonal?",
    ),
    "unknown key, in a list": (
        "conditions:\n  - none\n  - name: x\n    kind: repeat\n    text: a\n    cuont: 3\n    count: 3\n",
        "10: conditions.1.cuont: unknown key 'cuont'; did you mean conditions.1.count?",
    ),
    "unknown key, in a flow list": (
        "conditions:\n  [none,\n   {name: x,\n    knd: none}]\n",
        "8: conditions.1.knd: unknown key 'knd'",
    ),
    "unknown key of a mapping": (
        "problems:\n  fields:\n    question: text\n    colour: red\n",
        "8: problems.fields.colour: Input should be 'id', 'question' or 'answer'",
    ),
    "a key that is a number": ("3: 4\n", "5: 3: Keys should be strings"),
    "key given twice": ("seed: 1\nseed: 2\n", "6: key 'seed' is given twice"),
    "key given twice, nested": ("batch:\n  shard: 1\n  tokens: 9\n  shard: 2\n", "8: key 'shard' is given twice"),
    "key given twice, in a list": (
        "conditions:\n  - none\n  - name: x\n    kind: repeat\n    kind: text\n",
        "9: key 'kind' is given twice",
    ),
    "wrong type": ("batch:\n  shard: 3\n  tokens: many\n", "7: batch.tokens: Input should be a valid integer"),
    "wrong type, in a list": (
        "figures:\n  - name: heads\n    layers:\n      - 1\n      - 0\n",
        "9: figures.0.layers.1: Input should be greater than or equal to 1",
    ),
    "a word where a list goes": ("conditions: none\n", "5: conditions: a list is expected here, not 'none'"),
    "nothing where keys go": ("problems:\n", "5: problems: a mapping of keys to values is expected here, not None"),
    "a number where a model goes": ("  - 3\n", "5: models.1: a mapping of keys to values is expected here, not 3"),
    "a choice that does not exist": (
        "  - name: b\n    dtype: int2\n",
        "6: models.1.dtype: Input should be 'auto', 'float32', 'bfloat16', 'float16', 'int8' or 'nf4'",
    ),
    "a choice that may be left out": (
        "  - name: b\n    template: chatty\n",
        "6: models.1.template: Input should be 'auto', 'chat' or 'raw'",
    ),
    "a number that may be left out": ("problems:\n  source: builtin\n  limit: 0\n", "7: problems.limit: "),
    "an empty name": ("  - ''\n", "5: models.1: String should have at least 1 character"),
    "the same model twice": ("  - smollm2-135m\n", "3: models: model 'smollm2-135m' is given 2 times"),
    "missing key, in a list": (
        "conditions:\n  - none\n  - name: x\n    text: a\n",
        "7: conditions.1: a condition needs a `kind` (repeat, text, sentence, characters) or an `intervention`",
    ),
    "a ready-made condition that does not exist": (
        "conditions:\n  - none\n  - mless\n  - mles\n",
        "8: conditions.2: 'mles' is not a ready-made condition; there are none, mless, mful, random, "
        "arm, scatter, gaussian, knockout, positions",
    ),
    "a condition without text": (
        "conditions:\n  - none\n  -\n    name: x\n    kind: repeat\n    count: 3\n",
        "8: conditions.1: a condition of kind repeat needs `text`",
    ),
    "a condition without count": (
        "conditions:\n  - none\n  - mless\n  - {name: x, kind: sentence}\n",
        "8: conditions.2: a condition of kind sentence needs `count`",
    ),
    "a condition with a bad name": (
        "conditions:\n  - none\n  - kind: sentence\n    count: 3\n    name: a b\n",
        "9: conditions.1.name: String should match pattern",
    ),
    "a condition with a bad kind": (
        "conditions:\n  - none\n  - count: 3\n    kind: rpeat\n    name: a\n",
        "8: conditions.1.kind: Input should be 'none', 'repeat', 'text', 'sentence' or 'characters'",
    ),
    "none is not the first condition": (
        "seed: 1\nconditions:\n  - mless\n  - none\n",
        "6: conditions: conditions must begin with `none`",
    ),
    "none is missing": ("seed: 1\nconditions: [mless]\n", "6: conditions: conditions must begin with `none`"),
    "no conditions": ("seed: 1\nconditions: []\n", "6: conditions: conditions must begin with `none`"),
    "none by another name": (
        "conditions:\n  - {name: nothing, kind: none}\n",
        "6: conditions.0: a condition needs a `kind` (repeat, text, sentence, characters) or an `intervention`",
    ),
    "a second condition without filler": (
        "conditions: [none, {name: again, kind: none}]\n",
        "5: conditions.1: a condition needs a `kind` (repeat, text, sentence, characters) or an `intervention`",
    ),
    "none that is not nothing": (
        "conditions:\n  - {name: none, intervention: {kind: arm}}\n",
        "5: conditions: conditions must begin with `none`, the baseline of every pair, once",
    ),
    "the same condition twice": (
        "conditions:\n  - none\n  - mless\n  - {name: mless, kind: sentence, count: 2}\n",
        "5: conditions: condition 'mless' is given 2 times",
    ),
    "difficulty": ("problems:\n  seed: 1\n  difficulty: [1, 4]\n", "7: problems.difficulty: difficulty takes a list"),
    "raw without a question": (
        "prompt:\n  system: x\n  raw: abc\n",
        "7: prompt.raw: raw takes {question} exactly once",
    ),
    "device": ("device: gpu\n", "5: device: String should match"),
    "a merged key": (
        "batch: &b\n  shard: 3\nproblems:\n  <<: *b\n  limit: 3\n",
        "7: problems: unknown key 'shard'",
    ),
    "not YAML": ("probes: [1, 2\nseed: 3\n", "6: not valid YAML: expected ',' or ']'"),
    "a tab": ("\tseed: 3\n", "5: not valid YAML: found character '\\t'"),
    "an unknown alias": ("batch: *nope\n", "5: not valid YAML: found undefined alias 'nope'"),
    "two documents": ("---\nname: b\n", "5: not valid YAML: but found another document"),
    "a list as key": ("[a]: 3\n", "5: not valid YAML: found unhashable key"),
    "a foreign object": ("seed: !!python/name:os.system\n", "5: not valid YAML: could not determine a constructor"),
    "a date": ("batch:\n  shard: 2024-01-01\n", "6: batch.shard: Input should be a valid integer"),
    "a set": ("conditions: !!set {none, mless}\n", "5: not valid YAML: could not determine a constructor"),
    "a set in a list": ("seed: 1\nfigures:\n  - !!set {a, b}\n", "7: not valid YAML: could not determine"),
    "a mapping as a list": ("seed: !!omap [a: 1]\n", "5: not valid YAML: could not determine a constructor"),
    "pairs": ("seed: !!pairs [a: 1]\n", "5: not valid YAML: could not determine a constructor"),
    "bytes": ("device: !!binary aGk=\n", "5: not valid YAML: could not determine a constructor"),
    "a tag of a date": ("device: !!timestamp 2024-01-01\n", "5: not valid YAML: could not determine a constructor"),
    "a tag that does not fit": ("seed: !!int abc\n", "5: not valid YAML: 'abc': invalid literal for int"),
    "a word that is no truth": ("seed: !!bool foo\n", "5: not valid YAML: 'foo': 'foo'"),
    "a tag of a number on a list": ("seed: !!int [1]\n", '5: not valid YAML: "[ScalarNode('),
    "a tag of a text on a key": ("? !!str {=: seed}\n: 1\n", "5: not valid YAML: a key is no text"),
    "a character that is no text": ("seed: 1\ndevice: a\0b\n", "6: not valid YAML: unacceptable character #x0000"),
    "a list inside itself": ("figures: &a\n  - *a\n", "1: not a study: it is nested too deeply, or refers to itself"),
    "nested too deeply": (f"seed: {'[' * 1200}{']' * 1200}\n", "1: not a study: it is nested too deeply"),
    "nested more deeply than a study": (f"seed: {'[' * 60}{']' * 60}\n", "1: not a study: it is nested too deeply"),
    "more parts than a study, cut off": (
        f"seed: [{'a,' * 100_000}\n",
        "1: not a study: it has over 100000 parts",
    ),
    "a number in base 60": (
        "seed: 1:59:59\n",
        "5: not valid YAML: '1:59:59': a number in base 60; write it",
    ),
    "a number in base 8": ("seed: 010\n", "5: not valid YAML: '010': a whole number does not begin with 0"),
    "a negative one": ("seed: -0_17\n", "5: not valid YAML: '-0_17': a whole number does not begin with 0"),
    "more filler than fits into memory": (
        "conditions:\n  - none\n  - name: x\n    kind: repeat\n    text: [a, b, c, d]\n"
        "    count: [99999, 99998, 99997, 99996, 99995, 99994, 99993, 99992]\n",
        "5: conditions: conditions have 3,199,856 tokens of filler in all, and 3,000,000 are the most",
    ),
    "a temperature that divides to infinity": (
        "generation:\n  temperature: 1.0e-38\n",
        "6: generation.temperature: a temperature is 0 or at least 1e-06",
    ),
    "a fraction in base 60": ("seed: 1:59:59.5\n", "5: not valid YAML: '1:59:59.5': a number in base 60"),
    "a number beyond 64 bits": (f"seed: {1 << 63}\n", f"5: not valid YAML: '{1 << 63}': a whole number is at most"),
    "a number of many digits": (f"seed: {'9' * 9000}\n", f"5: not valid YAML: '{'9' * 40}': a whole number is at most"),
    "a sweep, before the mistake": (
        f"{SWEEP}  - name: x\n    kind: repeat\n    text: a\n    cuont: 3\n    count: 3\n",
        "14: conditions.2.cuont: unknown key 'cuont'",
    ),
    "a sweep, with a mistake in a list": (
        f"{SWEEP}    position: [start, middle]\n",
        "11: conditions.1.position: Input should be 'start', 'before_question', 'end' or 'random'",
    ),
    "a sweep, with a mistake beside the lists": (f"{SWEEP}    darw: once\n", "11: conditions.1.darw: unknown key"),
    "a sweep with a list in a list": (
        "conditions:\n  - none\n  - name: m\n    kind: sentence\n    count: [3, [4]]\n",
        "9: conditions.1.count: Input should be a valid integer",
    ),
    "a sweep whose name is none": (
        "conditions:\n  - none\n  - name:\n    kind: sentence\n    count: [1, 2]\n",
        "7: conditions.1.name: Input should be a valid string",
    ),
    "a sweep over nothing": (
        "conditions:\n  - none\n  - {name: x, kind: sentence, count: 3}\n  - name: m\n    kind: sentence\n"
        "    count: []\n",
        "10: conditions.2.count: the list is empty; give the values that the sweep goes through",
    ),
    "a sweep without a name": (
        "conditions:\n  - none\n  - kind: sentence\n    count: [1, 2]\n",
        "7: conditions.1: 'name' is required and missing",
    ),
    "a sweep whose names are too long": (
        f"conditions:\n  - none\n  - kind: sentence\n    name: {'m' * 59}\n    count: [1, 2]\n",
        "8: conditions.1.name: String should have at most 60 characters",
    ),
    "a sweep that is there already": (
        f"{SWEEP}  - {{name: m-5, kind: sentence, count: 2}}\n",
        "5: conditions: condition 'm-5' is given 2 times; names must differ",
    ),
    "unknown key, in an intervention": (f"{INSIDE}      kind: arm\n      cc: 3\n", "10: {0}.cc: unknown key 'cc'"),
    "a key of another kind of intervention": (
        f"{INSIDE}      by: 3\n      kind: knockout\n",
        "9: {0}.by: unknown key 'by'; check the spelling, or remove it",
    ),
    "unknown key, in a flow intervention": (
        "conditions:\n  - none\n  - name: x\n    intervention: {kind: arm,\n      cc: 3}\n",
        "9: {0}.cc: unknown key 'cc'",
    ),
    "wrong type, in an intervention": (
        f"{INSIDE}      kind: scatter\n      p1: 90\n      c: much\n",
        "11: {0}.c: Input should be a valid number",
    ),
    "an intervention without a kind": (f"{INSIDE}      c: 0.1\n", "8: {0}: 'kind' is required and missing"),
    "an intervention of an unknown kind": (
        f"{INSIDE}      kind: amr\n",
        "8: {0}: there is no kind 'amr'; there are 'arm', 'scatter', 'gaussian', 'knockout', 'shift'",
    ),
    "an intervention of two kinds": (f"{INSIDE}      kind: [arm, scatter]\n", "8: {0}: there is no kind "),
    "a word where an intervention goes": (
        "conditions:\n  - none\n  - name: x\n    intervention: arm\n",
        "8: {0}: a mapping of keys to values is expected here, not 'arm'",
    ),
    "nothing where an intervention goes": (
        "conditions:\n  - none\n  - name: x\n    intervention:\n",
        "7: conditions.1: a condition needs a `kind` (repeat, text, sentence, characters) or an `intervention`",
    ),
    "an intervention's key given twice": (f"{INSIDE}      kind: arm\n      kind: arm\n", "10: key 'kind' is given"),
    "an intervention's key that is a number": (f"{INSIDE}      kind: arm\n      3: 4\n", "10: {0}.3: Keys should be"),
    "a layer that cannot be": (
        f"{INSIDE}      kind: arm\n      layers:\n        - 1\n        - 0\n",
        "12: {0}.layers.1: Input should be greater than or equal to 1",
    ),
    "a preset that does not exist": (
        f"{INSIDE}      kind: arm\n      preset: GPT-5\n",
        "8: {0}: there are no published settings for 'GPT-5'; there are for Qwen2.5-Math-1.5B, ",
    ),
    "several presets": (
        f"{INSIDE}      kind: arm\n      preset: [a, b]\n",
        "8: {0}: there are no published settings for",
    ),
    "limits the wrong way round": (
        f"{INSIDE}      kind: arm\n      p_min: 0.5\n",
        "8: {0}: p_min is 0.5 and p_max 0.25: p_min must not be the larger",
    ),
    "a knock-out of nothing": (f"{INSIDE}      kind: knockout\n", "7: conditions.1: a knock-out needs filler to hide"),
    "a shift with filler": (
        f"{INSIDE}      kind: shift\n    kind: sentence\n    count: 3\n",
        "7: conditions.1: a shift stands for filler that is not there: leave `kind` out",
    ),
    "a sweep inside an intervention, with a mistake in a list": (
        f"{INSIDE}      kind: arm\n      p1: [90, 95]\n      c: [0.1, -1]\n",
        "11: {0}.c: Input should be greater than or equal to 0",
    ),
    "a sweep inside an intervention, with a mistake beside the list": (
        f"{INSIDE}      kind: arm\n      c: [0.1, 0.2]\n      mode: set\n",
        "11: {0}.mode: Input should be 'add' or 'replace'",
    ),
    "a sweep of a key of another kind": (
        f"{INSIDE}      kind: shift\n      c: [0.1, 0.2]\n",
        "10: {0}.c: unknown key 'c'",
    ),
    "a sweep of layers, with a mistake in one": (
        f"{INSIDE}      kind: arm\n      layers:\n        - [1]\n        - [2]\n        - [3, 0]\n",
        "10: {0}.layers: Input should be greater than or equal to 1",
    ),
    "a sweep inside an intervention over nothing": (
        f"{INSIDE}      kind: arm\n      c: []\n",
        "10: {0}.c: Input should be",
    ),
    "a sweep inside an intervention, before the mistake": (
        f"{INSIDE}      kind: arm\n      c: [0.1, 0.2, 0.3]\n"
        "  - name: b\n    intervention:\n      kind: shift\n      bye: 3\n",
        "14: conditions.2.intervention.bye: unknown key 'bye'",
    ),
    "a server and an intervention": (
        "  - name: b\n    endpoint: {url: 'http://a/v1'}\ngeneration: {}\nconditions: [none, mless, arm]\n",
        "2: condition 'arm' changes the model itself, and 'b' answers from a server; leave its endpoint out",
    ),
    "a server and a look at answers": (
        "  - name: b\n    endpoint: {url: 'http://a/v1'}\ngeneration: {}\nprobes: {answering: on}\n",
        "2: probes.answering needs the model, and 'b' answers from a server; leave its endpoint out",
    ),
    "vLLM and an intervention": (
        "generation: {engine: vllm}\nconditions: [none, mless, arm]\n",
        "2: condition 'arm' changes the model itself, which vLLM does not: give such conditions, with `none`, a study",
    ),
    "vLLM and a server": (
        "  - name: b\n    endpoint: {url: 'http://a/v1'}\ngeneration: {engine: vllm}\n",
        "2: 'b' answers from a server: leave its endpoint out, or generation.engine",
    ),
    "vLLM and weights in few bits": (
        "  - name: b\n    dtype: int8\ngeneration: {engine: vllm}\n",
        "2: vLLM does not round weights to int8: choose another dtype",
    ),
    "vLLM and exact answers": (
        "generation: {engine: vllm, exact: on}\n",
        "2: generation.exact is not kept by vLLM: leave one of them out",
    ),
    "vLLM and another dtype": (
        "generation: {engine: vllm, noise: {dtype: float32}}\n",
        "2: vLLM answers again in other batches, not in another dtype: set generation.noise to `on`",
    ),
    "an engine that does not exist": (
        "generation: {engine: sglang}\n",
        "5: generation.engine: Input should be 'fillerscope' or 'vllm'",
    ),
    "a look at answers that nobody writes": (
        "probes: {answering: on}\n",
        "2: probes.answering looks at answers: give `generation`",
    ),
    **{
        f"{probe} without attention": (
            f"generation: {{}}\nprobes:\n  attention: off\n  {probe}: on\n",
            "6: probes: affine, activations and answering are measured with attention: leave it on",
        )
        for probe in ("affine", "activations", "answering")
    },
    "activations by another word": (
        "probes:\n  activations: always\n",
        "6: probes.activations: a mapping of keys to values is expected here, not 'always'",
    ),
    "an unknown key of activations": (
        "probes:\n  activations:\n    d: 3\n",
        "7: probes.activations.d: unknown key 'd'",
    ),
    "a threshold of nothing": (
        "probes:\n  activations:\n    c: 0\n",
        "7: probes.activations.c: Input should be greater",
    ),
    "a class that is no pattern": (
        "probes:\n  activations:\n    classes:\n      a: '('\n",
        "7: probes.activations.classes: class 'a': '(' is not a pattern: missing )",
    ),
    "a class with a name of ours": (
        "probes:\n  activations:\n    classes: {other: a}\n",
        "7: probes.activations.classes: 'other' cannot name a class of tokens",
    ),
    "too many classes": (
        f"probes:\n  activations:\n    classes: {{{', '.join(f'c{n}: a' for n in range(17))}}}\n",
        "7: probes.activations.classes: 17 classes of tokens, and 16 is the most",
    ),
    "a class that is a number": (
        "probes:\n  activations:\n    classes:\n      a: a\n      b: 3\n",
        "9: probes.activations.classes.b: Input should be a valid string",
    ),
    "a list of classes": (
        "probes:\n  activations:\n    classes: [ab, cd]\n",
        "7: probes.activations.classes: Input should be a valid dictionary",
    ),
    "attention off by another word": (
        "probes:\n  attention: never\n",
        "6: probes.attention: a mapping of keys to values is expected here, not 'never'",
    ),
    "beginnings shared by another word": (
        "batch:\n  prefix: never\n",
        "6: batch.prefix: Input should be 'share' or 'off'",
    ),
    "beginnings shared by a number": ("batch:\n  prefix: 0\n", "6: batch.prefix: Input should be 'share' or 'off'"),
    "no tokens in a pass": ("batch:\n  tokens: 0\n", "6: batch.tokens: Input should be greater than or equal to 1"),
    "nothing asked for": (
        "probes:\n  attention: off\n",
        "2: nothing is asked for: leave probes.attention on, or give `generation`",
    ),
    "several samples of the same": (
        "generation:\n  samples: [1, 4]\n",
        "5: generation: samples above 1 need a temperature above 0: greedy answers are all alike",
    ),
    "no samples": (
        "generation:\n  temperature: 1\n  samples: [4, 0]\n",
        "7: generation.samples.1: Input should be greater than or equal to 1",
    ),
    "an answer without end": (
        "generation:\n  max_tokens: 1000000000000\n",
        "6: generation.max_tokens: Input should be less than or equal to 1000000",
    ),
    "an empty list of temperatures": (
        "generation:\n  max_tokens: 3\n  temperature: []\n",
        "7: generation.temperature: Tuple should have at least 1 item",
    ),
    "a temperature below nothing": (
        "generation:\n  max_tokens: 3\n  temperature: [0, -1]\n",
        "7: generation.temperature: Input should be greater than or equal to 0",
    ),
    "a temperature twice": (
        "generation:\n  temperature: [0, 1, -0.0]\n",
        "5: generation: temperature '0' is given 2 times",
    ),
    "a number of samples twice": (
        "generation:\n  temperature: 1\n  samples: [2, 2]\n",
        "5: generation: number of samples '2' is given 2 times",
    ),
    "pass@k of more than there are": (
        "generation:\n  temperature: 1\n  samples: 4\n  k: [1, 8]\n",
        "5: generation: pass@8 needs 8 samples, and there are 4",
    ),
    "a server without a protocol": (
        "  - name: b\n    endpoint: {url: 'localhost:8000'}\n",
        "6: models.1.endpoint.url: String should match pattern",
    ),
    "not UTF-8": (b"device: cpu\nseed: \xff\n", "6: not UTF-8 text: invalid start byte; save the file as UTF-8"),
}


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["unix", "windows"])
def test_a_mistake_is_named_with_its_line(tmp_path: Path, newline: str) -> None:
    """All of them in one test: as tests of their own they would take longer to collect than to run."""
    wrong = {}
    for name, (added, expected) in MISTAKES.items():
        text = START.encode() + (added.encode() if isinstance(added, str) else added)
        message = refusal(write(tmp_path, text.replace(b"\n", newline.encode())))
        if not message.startswith(f"study.yaml:{expected.replace('{0}', 'conditions.1.intervention')}"):
            wrong[name] = message
    assert wrong == {}


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing yet\n", "- a list\n", "a word\n", "null\n"])
def test_a_file_that_holds_no_keys_is_refused(tmp_path: Path, text: str) -> None:
    assert refusal(write(tmp_path, text)).startswith("study.yaml:1: a study is a mapping of keys to values")


@pytest.mark.parametrize(
    ("text", "key"), [("# comment\n\nname: a\n", "models"), ("# comment\n\nmodels: [a]\n", "name")]
)
def test_a_missing_key_is_named_where_the_study_begins(tmp_path: Path, text: str, key: str) -> None:
    assert refusal(write(tmp_path, text)) == f"study.yaml:3: {key!r} is required and missing"


def test_a_file_that_is_missing_or_no_file_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path / "no.yaml") == "no study file at no.yaml; give the path of a YAML file"
    folder = tmp_path / "folder"
    folder.mkdir()
    assert refusal(folder).startswith("cannot read the study file folder: ")


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    assert Study.load(write(tmp_path, b"\xef\xbb\xbf" + START.encode())).name == "small"


def test_a_date_is_a_text(tmp_path: Path) -> None:
    study = Study.load(write(tmp_path, "name: 2024-01-01\nmodels: [a/b]\nconditions: [none, mless]\n"))
    assert study.name == "2024-01-01"


def test_names_alone_stand_for_models_and_ready_made_conditions(tmp_path: Path) -> None:
    study = Study.load(write(tmp_path, START + "  - {name: b, dtype: float32}\nconditions: [none, random]\n"))
    assert study.models == (ModelSpec(name="smollm2-135m"), ModelSpec(name="b", dtype="float32"))
    assert study.conditions == (PRESETS["none"], PRESETS["random"])


def test_without_conditions_those_that_change_the_prompt_alone_are_measured(tmp_path: Path) -> None:
    usual = tuple(PRESETS[name] for name in ("none", "mless", "mful", "random"))
    assert Study.load(write(tmp_path, START)).conditions == usual == USUAL


def test_all_ready_made_conditions_may_be_measured_together(tmp_path: Path) -> None:
    study = Study.load(write(tmp_path, f"{START}conditions: [{', '.join(PRESETS)}]\n"))
    assert study.conditions == tuple(PRESETS.values())
    assert Study.model_validate(study.model_dump(mode="json")) == study


def test_a_server_answers_where_nothing_is_done_inside_the_model(tmp_path: Path) -> None:
    """And where it is, but nobody answers: attention is measured here."""
    served = START + "  - name: b\n    endpoint: {url: 'http://a/v1'}\n"
    assert Study.load(write(tmp_path, served + "generation: {}\n")).generation
    assert Study.load(write(tmp_path, served + "conditions: [none, arm]\n")).conditions[1].intervention


@pytest.mark.parametrize("written", ["on", "true", "{}"])
def test_activations_are_off_unless_asked_for(tmp_path: Path, written: str) -> None:
    """YAML reads `on` as true."""
    assert Study.load(write(tmp_path, START)).probes.activations is None
    assert Study.load(write(tmp_path, f"{START}probes: {{activations: off}}\n")).probes.activations is None
    study = Study.load(write(tmp_path, f"{START}probes: {{activations: {written}}}\n"))
    assert study.probes.activations == ActivationProbe(c=0.13, classes=CLASSES)
    assert Study.model_validate(study.model_dump(mode="json")) == study


def test_activations_take_a_threshold_and_classes_of_their_own(tmp_path: Path) -> None:
    text = "probes:\n  activations:\n    c: 0.2\n    classes:\n      words: '[a-z]+'\n      joins: and|or\n"
    probe = Study.load(write(tmp_path, START + text)).probes.activations
    assert probe is not None
    assert (probe.c, list(probe.classes.items())) == (0.2, [("words", "[a-z]+"), ("joins", "and|or")])


def test_the_order_of_classes_is_kept_and_measured() -> None:
    """The first that fits has a token; files of JSON are written with their keys in order."""

    def study(*names: str) -> Study:
        return changed(probes={"activations": {"classes": {name: CLASSES[name] for name in names}}})

    one, other = study("operators", "digits"), study("digits", "operators")
    assert digest(one) != digest(other)
    stored = json.loads(json.dumps(one.model_dump(mode="json"), sort_keys=True))
    probe = Study.model_validate(stored).probes.activations
    assert probe is not None
    assert list(probe.classes) == ["operators", "digits"]


@pytest.mark.parametrize(
    ("written", "prefix"),
    [("off", "off"), ("'off'", "off"), ("no", "off"), ("share", "share"), ("on", "share"), ("true", "share")],
)
def test_beginnings_are_shared_or_not(written: str, prefix: str, tmp_path: Path) -> None:
    """YAML reads `off` as false."""
    study = Study.load(write(tmp_path, f"{START}batch: {{prefix: {written}}}\n"))
    assert study.batch.prefix == prefix
    assert Study.model_validate(study.model_dump(mode="json")) == study


def test_beginnings_are_shared_and_passes_go_by_memory_unless_set(tmp_path: Path) -> None:
    batch = Study.load(write(tmp_path, START)).batch
    assert (batch.prefix, batch.tokens) == ("share", None)


def test_off_is_off_and_on_is_as_usual(tmp_path: Path) -> None:
    """YAML reads `off` as false."""
    text = START + "probes: {attention: off}\ngeneration: {}\n"
    study = Study.load(write(tmp_path, text))
    assert study.probes.attention is None
    assert Study.model_validate_json(study.model_dump_json()) == study
    usual = Study.load(write(tmp_path, text.replace("off", "on")))
    assert usual.probes == Study.load(write(tmp_path, START)).probes


def generation(**settings: Any) -> GenerationSpec:
    return GenerationSpec.model_validate(settings)


def test_one_value_stands_for_a_list_of_it() -> None:
    assert generation(temperature=0.7, samples=4, k=2) == generation(temperature=[0.7], samples=[4], k=[2])
    assert generation() == generation(temperature=0, samples=1)


def test_every_temperature_is_drawn_once_and_shown_for_each_number_of_samples() -> None:
    spec = generation(temperature=[0.7, 0, 1.5], samples=[8, 1], max_tokens=9, top_p=0.5)
    assert spec.cells() == [(0.7, 1), (0.7, 8), (0, 1), (1.5, 1), (1.5, 8)]
    assert [spec.drawn(temperature) for temperature in spec.temperature] == [8, 1, 8]
    assert spec.decoding(1.5) == Decoding(max_tokens=9, temperature=1.5, top_p=0.5)
    assert GenerationSpec.model_validate_json(spec.model_dump_json()) == spec


def test_a_study_made_in_python_is_checked_alike() -> None:
    with pytest.raises(ValidationError, match="conditions must begin with `none`"):
        Study(name="a", models=("b",), conditions=("mless", "none"))
    with pytest.raises(ValidationError, match="model 'b' is given 2 times"):
        Study(name="a", models=("b", ModelSpec(name="b")))


def test_a_study_does_not_change_once_made() -> None:
    study = Study(name="a", models=("b",))
    with pytest.raises(ValidationError, match="frozen"):
        study.seed = 3  # type: ignore[misc]


def test_data_is_looked_for_beside_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "studies"
    folder.mkdir()
    text = START + "problems: {source: ../data/rows.jsonl}\n"
    expected = str((tmp_path / "data/rows.jsonl").resolve())
    assert Study.load(write(folder, text)).problems.source == expected
    monkeypatch.chdir(tmp_path)
    assert Study.load("studies/study.yaml").problems.source == expected


@pytest.mark.parametrize("source", ["builtin", "hub:owner/name", "/data/rows.jsonl"])
def test_other_sources_stay_as_they_are(tmp_path: Path, source: str) -> None:
    study = Study.load(write(tmp_path, START + f"problems: {{source: '{source}', limit: 3}}\n"))
    assert (study.problems.source, study.problems.limit) == (source, 3)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_shipped_studies_load(path: Path) -> None:
    study = Study.load(path)
    assert study.name == path.stem
    used = {name for figure in study.figures for name in figure.conditions}
    assert used <= {condition.name for condition in study.conditions}


def test_there_are_shipped_studies() -> None:
    assert "demo" in {path.stem for path in SHIPPED}


def test_a_model_may_choose_its_own_template() -> None:
    study = Study(
        name="a", models=(ModelSpec(name="b"), ModelSpec(name="c", template="raw")), prompt={"template": "chat"}
    )
    assert [study.template_of(model) for model in study.models] == ["chat", "raw"]


def digest(study: Study) -> str:
    return digest_of(study.measured())


BASE = Study(name="a", models=("b",), figures=(FigureSpec(name="heads"),))
MEASURED: dict[str, dict[str, Any]] = {
    "models": {"models": ("c",)},
    "dtype": {"models": ({"name": "b", "dtype": "float16"},)},
    "order of models": {"models": ("b", "c")},
    "problems": {"problems": {"limit": 3}},
    "seed of problems": {"problems": {"seed": 3}},
    "system text": {"prompt": {"system": "Think."}},
    "template": {"prompt": {"template": "raw"}},
    "conditions": {"conditions": BASE.conditions[:2]},
    "order of conditions": {"conditions": (*BASE.conditions[:1], *BASE.conditions[:0:-1])},
    "place of filler": {"conditions": (BASE.conditions[0], BASE.conditions[1].model_copy(update={"position": "end"}))},
    "diagonal": {"probes": {"attention": {"diagonal": True}}},
    "skip_first": {"probes": {"attention": {"skip_first": False}}},
    "positions": {"probes": {"attention": {"positions": 99}}},
    "seed": {"seed": 1},
    "batch": {"batch": {"tokens": 1}},
    "beginnings": {"batch": {"prefix": "off"}},
    "affine": {"probes": {"affine": True}},
    "activations": {"probes": {"activations": True}},
    "near zero": {"probes": {"activations": {"c": 0.2}}},
    "classes": {"probes": {"activations": {"classes": {"a": "a"}}}},
    "a pattern": {"probes": {"activations": {"classes": {"a": "b"}}}},
    "an intervention": {"conditions": ("none", "arm")},
}


def changed(**changes: Any) -> Study:
    kept = {name: getattr(BASE, name) for name in Study.model_fields}
    return Study(**{**kept, **changes})


@pytest.mark.parametrize("change", MEASURED.values(), ids=MEASURED)
def test_whatever_can_change_a_number_changes_the_digest(change: dict[str, Any]) -> None:
    assert digest(changed(**change)) != digest(BASE)


def test_what_is_measured_differs_from_change_to_change() -> None:
    digests = {what: digest(changed(**change)) for what, change in MEASURED.items()}
    assert len(set(digests.values())) == len(digests)


# Each beside the first, which is as usual.
FIELDS: dict[str, list[dict[str, Any]]] = {
    "redistribution": [
        {"kind": "arm"}, {"kind": "scatter"}, {"kind": "gaussian"}, {"kind": "arm", "layers": [1, 2]},
        {"kind": "arm", "layers": 2}, {"kind": "arm", "c": 0.2}, {"kind": "arm", "fraction": 0.13},
        {"kind": "arm", "p1": 99}, {"kind": "arm", "p_min": 0.01}, {"kind": "arm", "p_max": 0.3},
        {"kind": "arm", "mode": "replace"}, {"kind": "arm", "preset": "Qwen2.5-Math-7B"},
    ],
    "knockout": [{"kind": "knockout"}, {"kind": "knockout", "layers": 1}, {"kind": "knockout", "layers": [1, 2]}],
    "shift": [{"kind": "shift"}, {"kind": "shift", "by": 54}],
}  # fmt: skip


@pytest.mark.parametrize("which", FIELDS)
def test_every_setting_of_an_intervention_is_measured_and_stored(which: str) -> None:
    filler = {"kind": "sentence", "count": 3} if which == "knockout" else {}
    studies = [changed(conditions=("none", {"name": "a", "intervention": one} | filler)) for one in FIELDS[which]]
    assert len({digest(study) for study in studies}) == len(studies)
    for study in studies:
        assert Study.model_validate(study.model_dump(mode="json")) == study
        assert Study.model_validate_json(study.model_dump_json()).measured() == study.measured()


def test_labels_do_not_change_the_digest() -> None:
    plain, labelled = (
        changed(conditions=("none", {"name": "a", "intervention": {"kind": "arm"}, "label": label, "sweep": sweep}))
        for label, sweep in (("", ""), ("ARM, once more", "b"))
    )
    assert plain != labelled
    assert digest(plain) == digest(labelled)


def test_names_and_figures_do_not_change_the_digest() -> None:
    assert digest(changed(name="another")) == digest(BASE)
    assert digest(changed(figures=())) == digest(BASE)


def test_the_digest_does_not_depend_on_how_the_study_was_written(tmp_path: Path) -> None:
    long = START + "seed: 0\nconditions:\n  - none\n  - name: mless\n    text: ' /'\n    kind: repeat\n    count: 55\n"
    long += "    label: Meaningless tokens\n"
    short = "conditions: [none, mless]\nmodels: [{name: smollm2-135m}]\nname: small\n"
    assert digest(Study.load(write(tmp_path, long))) == digest(Study.load(write(tmp_path, short)))


def test_the_digest_survives_a_round_trip_through_json() -> None:
    assert digest(Study.model_validate_json(BASE.model_dump_json())) == digest(BASE)
    assert Study.model_validate(BASE.model_dump(mode="json")) == BASE


def test_the_digest_of_a_value_is_fixed() -> None:
    """It names runs on disk: were it to change, every finished run would be measured again."""
    expected = hashlib.sha256(b'{"a":null,"b":[1,"\\u00e9"]}').hexdigest()
    assert digest_of({"b": [1, "é"], "a": None}) == digest_of({"a": None, "b": [1, "é"]}) == expected


def test_a_bomb_of_aliases_is_refused_at_once(tmp_path: Path) -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    path = tmp_path / "study.yaml"
    path.write_text("\n".join(levels))
    with pytest.raises(StudyError, match=r"study\.yaml:1: not a study: it has over 100000 parts"):
        Study.load(path)


def test_a_long_text_that_aliases_repeat_is_refused(tmp_path: Path) -> None:
    """It is written out wherever the study is: 24 GB of a file of a megabyte."""
    path = tmp_path / "study.yaml"
    path.write_text(
        f"models: [a]\nprompt:\n  examples:\n  - &e {{question: '{'x' * 800_000}', answer: '1'}}\n" + "  - *e\n" * 1000
    )
    with pytest.raises(StudyError, match=r"study\.yaml:1: not a study: it has over 100000 parts"):
        Study.load(path)


def test_filler_as_it_is_counts_as_filler() -> None:
    conditions = ["none", *({"name": f"c{n}", "kind": "text", "text": "x" * 500_000} for n in range(7))]
    with pytest.raises(ValidationError, match="conditions have 3,500,000 tokens of filler in all"):
        Study.model_validate({"name": "a", "models": ["a"], "conditions": conditions})


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("exact: on", "generation.exact needs the model itself, and 'b' answers from a server"),
        ("noise: {dtype: float32}", "generation.noise names a dtype, and 'b' answers from a server: set it to `on`"),
    ],
)
def test_what_a_server_cannot_do_is_refused_by_name(tmp_path: Path, setting: str, message: str) -> None:
    served = START + "  - name: b\n    endpoint: {url: 'http://a/v1'}\n"
    with pytest.raises(StudyError, match=re.escape(message)):
        Study.load(write(tmp_path, f"{served}generation: {{{setting}}}\n"))
    assert Study.load(write(tmp_path, served + "generation: {noise: on}\n")).generation


def test_a_noise_floor_without_neighbours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="noise takes neighbours in the batch, and rows is 1"):
        Study.load(write(tmp_path, f"{START}generation: {{noise: on, rows: 1}}\n"))
    assert Study.load(write(tmp_path, f"{START}generation: {{noise: on, rows: 1, exact: on}}\n")).generation


def test_a_noise_floor_names_no_other_run_and_exact_answers_do(tmp_path: Path) -> None:
    """Its answers lie in files of their own; a run made before `exact` could be chosen is still the same."""
    plain, noisy, exact = (
        Study.load(write(tmp_path, f"{START}generation: {{{one}}}\n")) for one in ("", "noise: on", "exact: on")
    )
    assert noisy.generation
    assert noisy.generation.noise
    assert plain.measured() == noisy.measured() != exact.measured()
    assert "exact" not in plain.measured()["generation"]
    off = Study.load(write(tmp_path, START + "generation: {noise: off}\n")).generation
    assert off
    assert off.noise is None


@pytest.mark.parametrize("filling", ["# x", "- 1:", '"', "? "])
def test_a_file_too_large_for_a_study_is_refused_before_it_is_parsed(tmp_path: Path, filling: str) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(START + filling * (10_000_000 // len(filling)))
    with pytest.raises(StudyError, match=r"study\.yaml:1: not a study: it is larger than 1 MiB"):
        Study.load(path)
