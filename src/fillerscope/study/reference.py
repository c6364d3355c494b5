"""The reference of the study file: every key with its type, default, meaning and an example, from the models.

`sections` is the one source of the page in docs/, of `fillerscope study` and of its help.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import yaml

from fillerscope.display import escaped
from fillerscope.errors import StudyError
from fillerscope.files import Json
from fillerscope.study.conditions import PRESETS
from fillerscope.study.data_sets import DATA_SETS
from fillerscope.study.json_schema import NO_FILLER, SWITCH, study_schema

REQUIRED = "required"
# Where a part stands in a file, in the order of the page; [] marks a list.
PLACES = (
    ("", ""), ("models[]", "ModelSpec"), ("models[].endpoint", "EndpointSpec"), ("problems", "ProblemsSpec"),
    ("prompt", "PromptSpec"), ("prompt.examples[]", "Example"), ("conditions[]", "Condition"),
    ("conditions[].intervention", "Redistribution"), ("conditions[].intervention", "Knockout"),
    ("conditions[].intervention", "Shift"), ("probes", "Probes"),
    ("probes.attention", "AttentionProbe"), ("probes.activations", "ActivationProbe"), ("generation", "GenerationSpec"),
    ("generation.noise", "NoiseSpec"), ("references", "References"), ("batch", "BatchSpec"),
    ("figures[]", "FigureSpec"),
)  # fmt: skip
PLAIN = re.compile(r"[A-Za-z.][\w ./+-]*")  # a text that YAML needs no quotes for
WORDS = {"string": "text", "integer": "whole number", "number": "number", "null": "null"}


@dataclass(frozen=True)
class Key:
    """One key of a study file."""

    path: str  # as in messages: problems.limit, models[].name
    type: str
    default: str  # as YAML, or `required`
    text: str
    example: str  # as it is written in a file, from its section on; empty where the section's keys show it


@dataclass(frozen=True)
class Section:
    """One part of a study file with its keys."""

    path: str
    kinds: str  # which kinds of intervention it is for, where a place has several
    text: str
    keys: tuple[Key, ...]

    @property
    def title(self) -> str:
        return f"{self.path} ({self.kinds})" if self.kinds else self.path or "The file"


@cache
def sections() -> tuple[Section, ...]:
    """All parts of a study file."""
    schema = study_schema()
    return tuple(_section(path, schema["$defs"][name] if name else schema) for path, name in PLACES)


def find(wanted: str) -> list[Key]:
    """The keys of a name: a whole path, the last part of one, or a section with all its keys."""
    keys = [key for section in sections() for key in section.keys]
    plain = wanted.replace("[]", "").strip(".")
    exact = [key for key in keys if _plain(key) == plain]
    last = [key for key in keys if _plain(key).endswith(f".{plain}")]
    below = [key for key in keys if _plain(key).startswith(f"{plain}.")]
    if found := [*exact, *below] or last:
        return found
    near = difflib.get_close_matches(plain, [name for key in keys for name in (_plain(key), _last(key))], n=1)
    hint = f"did you mean {near[0]}?" if near else "`fillerscope study` lists them"
    raise StudyError(f"a study file has no key {wanted!r}; {hint}")


def markdown() -> str:
    """The page of the reference."""
    ready = ", ".join(f"`{name}`" for name in PRESETS)
    data = ", ".join(f"`{name}` (`hub:{one.repo}`)" for name, one in DATA_SETS.items())
    parts = [HEAD.format(ready=ready, data=data), *map(_markdown, sections())]
    return "\n".join(parts)


HEAD = """<!-- Written by `make study-page` from fillerscope.study: change it there. -->
# The study file

A study is a YAML file that says what to measure. `fillerscope init` writes one to start from, `fillerscope check
STUDY` shows what it asks for without running it, and `fillerscope study KEY` shows one key of this page.

- Only `name` and `models` are required.
- A name alone stands for a model with its defaults, or for a ready-made condition: {ready}.
- One word stands for a data set on the hub: {data}.
- A list in a condition's `text`, `count` or `position`, or in the settings of its intervention, is a sweep: a condition
  for every combination.
- Switches are `on` and `off`.
- For help while typing, an editor with the YAML language server reads the line
  `# yaml-language-server: $schema=study.schema.json`; `fillerscope study --schema` prints that schema.
"""


def _markdown(section: Section) -> str:
    rows = [
        f"| `{_last(key)}` | {_cell(key.type)} | {_code(key.default)} | {_cell(key.text)} | {_code(key.example)} |"
        for key in section.keys
    ]
    title = f"`{section.path}`" + (f": {section.kinds}" if section.kinds else "") if section.path else "The file"
    table = ["| key | type | default | meaning | example |", "|---|---|---|---|---|", *rows]
    return "\n".join([f"## {title}", "", section.text, "", *table, ""])


def _section(path: str, part: Json) -> Section:
    required = part.get("required", [])
    keys = tuple(
        _key(f"{path}.{name}" if path else name, value, name in required)
        for name, value in part["properties"].items()
        if name != "sweep"  # which only fillerscope writes
    )
    kinds = part["properties"].get("kind", {}) if path.endswith("intervention") else {}
    named = kinds.get("enum") or [kinds["const"]] if kinds else []
    text = " ".join(str(part["description"]).split()) if path else "The keys at the top."
    return Section(path, ", ".join(named), text, keys)


def _key(path: str, value: Json, is_required: bool) -> Key:
    text = value.get("description") or _described(value)
    is_section = any("$ref" in form for form in value.get("anyOf", [value]))
    default = REQUIRED if is_required else _default(value, is_section)
    example = f"{_plain_last(path)}: {as_yaml(value['examples'][0])}" if value.get("examples") else ""
    return Key(path, _type(value), default, text, example)


def _described(value: Json) -> str:
    """What the part that a key refers to says of itself."""
    name = str(value.get("$ref", "")).rpartition("/")[2]
    return str(study_schema()["$defs"][name]["description"]).partition(". ")[0] if name else ""


def _default(value: Json, is_section: bool) -> str:
    default = value.get("default")
    if isinstance(default, dict) and is_section:
        return ""  # its keys have their own
    return as_yaml(default) if "default" in value else ""


def as_yaml(value: object) -> str:
    """A value on one line, as a study file has it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str):
        is_plain = PLAIN.fullmatch(value) and yaml.safe_load(value) == value
        return value if is_plain else escaped(json.dumps(value, ensure_ascii=False))
    if isinstance(value, list):
        return f"[{', '.join(map(as_yaml, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {as_yaml(item)}" for key, item in value.items()) + "}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _type(value: Json) -> str:
    """What a key takes. Where it takes a list of what it takes alone, the list is not spelt out."""
    forms = [form for form in dict.fromkeys(map(_form, _alternatives(value))) if form != "null"]
    single = [form for form in forms if not form.startswith("list of ")]
    lists = [form for form in forms if form not in single]
    if single and lists:
        return f"{', or '.join(single)}, or a list"
    return ", or ".join(forms)


def _alternatives(value: Json) -> Iterator[Json]:
    for form in value.get("anyOf") or value.get("oneOf") or [value]:
        if form == NO_FILLER:
            continue
        if "anyOf" in form or "oneOf" in form:
            yield from _alternatives(form)
        else:
            yield form


def _form(form: Json) -> str:
    if "$ref" in form:
        return "keys below"
    if form.get("enum") == SWITCH["enum"]:
        return "on, off"
    if "enum" in form:
        return ", ".join(word for word in form["enum"] if isinstance(word, str)) or "null"
    if "const" in form:
        return str(form["const"])
    if form.get("type") == "array":
        inner = _type(form.get("items", {}))
        return f"list of {inner}" if inner else "list"
    if form.get("type") == "object":
        return "names with texts"
    return WORDS[str(form["type"])] + _bounds(form)


def _bounds(form: Json) -> str:
    """The limits of a number."""
    low, above = form.get("minimum"), form.get("exclusiveMinimum")
    parts = [f"from {low:,}" if low is not None else "", f"above {above:,}" if above is not None else ""]
    parts.append(f"to {form['maximum']:,}" if "maximum" in form else "")
    return " " + " ".join(filter(None, parts)) if any(parts) else ""


def _plain(key: Key) -> str:
    return key.path.replace("[]", "")


def _last(key: Key) -> str:
    return _plain_last(key.path)


def _plain_last(path: str) -> str:
    return path.rpartition(".")[2]


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _code(text: str) -> str:
    if text in ("", REQUIRED):
        return text
    return f"`{text}`".replace("|", "\\|")
