"""YAML with the line of every key, so that an error can point at it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from fillerscope.errors import StudyError
from fillerscope.files import open_file

LARGEST_FILE = 1 << 20  # bytes: a parser in Python takes seconds for these
LARGEST = 100_000  # parts of a study with its aliases written out; a few make a million
LONG_TEXT = 100  # characters of a text that count as a part
DEEPEST = 50  # levels of a study: the parser takes seconds for thousands of them
LARGEST_NUMBER = (1 << 63) - 1
_LONGEST_NUMBER = 70  # characters: 64 binary digits and some
_TAGS = "tag:yaml.org,2002:"
_PLAIN = tuple(_TAGS + kind for kind in ("str", "int", "float", "bool", "null", "seq", "map"))
_BASE_8 = re.compile(r"[-+]?0[0-9_]+")
_BASE_60 = "a number in base 60; write it in base 10, or in quotes if it is a text"


class TooMuchError(ValueError):
    """A document of more than a study has: its parser would take long."""


class _Loader(yaml.SafeLoader):
    """Stops at what is no study before it takes long, and gives the line of values such as `!!bool foo`, which yaml
    refuses without saying where. Makes plain values alone: a set has another order in each process. A date is a text.
    """

    _parts = _level = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._parts += 1
        self._level += 1
        if self._parts > LARGEST:
            raise TooMuchError(f"it has over {LARGEST} parts")
        if self._level > DEEPEST:
            raise TooMuchError("it is nested too deeply, or refers to itself")
        node = super().compose_node(parent, index)
        self._level -= 1
        return node

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        if ":" in node.value:
            raise ValueError(_BASE_60)
        if _BASE_8.fullmatch(node.value):
            raise ValueError("a whole number does not begin with 0, which yaml reads in base 8; write it without")
        number = super().construct_yaml_int(node) if len(node.value) <= _LONGEST_NUMBER else LARGEST_NUMBER + 1
        if abs(number) > LARGEST_NUMBER:
            raise ValueError(f"a whole number is at most {LARGEST_NUMBER}")
        return int(number)

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        if ":" in node.value:
            raise ValueError(_BASE_60)
        return float(super().construct_yaml_float(node))

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, AttributeError, LookupError, TypeError) as error:  # a tag may be on anything
            problem = f"{str(node.value)[:40]!r}: {error}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None


_Loader.yaml_constructors = {
    tag: make for tag, make in yaml.SafeLoader.yaml_constructors.items() if tag in (None, *_PLAIN)
}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in forms if tag != f"{_TAGS}timestamp"]
    for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_constructor(f"{_TAGS}int", _Loader.construct_yaml_int)
_Loader.add_constructor(f"{_TAGS}float", _Loader.construct_yaml_float)


def parse_yaml(text: str) -> tuple[yaml.Node | None, object]:
    """The nodes of a document, with their lines, and its data. A TooMuchError where it is larger than a study."""
    root = yaml.compose(text, Loader=_Loader)
    if root is not None and _expanded(root, {}) > LARGEST:
        raise TooMuchError(f"it has over {LARGEST} parts")
    return root, yaml.load(text, Loader=_Loader)  # read again: merged keys would change the nodes


@dataclass(frozen=True)
class LinedYaml:
    """A YAML document with the lines of its keys."""

    path: Path
    root: yaml.Node
    data: Any

    @classmethod
    def read(cls, path: Path) -> LinedYaml:
        """Read a file; whatever is wrong with it is a StudyError with the line."""
        text = _text(path)
        try:
            root, data = parse_yaml(text)
            if not isinstance(root, yaml.MappingNode):
                raise StudyError(f"{path}:1: a study is a mapping of keys to values; see studies/demo.yaml")
            if (key := repeated_key(root)) is not None:
                raise StudyError(f"{path}:{key.start_mark.line + 1}: key {key.value!r} is given twice")
        except yaml.YAMLError as error:
            raise StudyError(_syntax(path, text, error)) from None
        except TooMuchError as error:
            raise StudyError(f"{path}:1: not a study: {error}") from None
        except RecursionError:
            raise StudyError(f"{path}:1: not a study: it is nested too deeply, or refers to itself") from None
        return cls(path, root, data)

    def locate(self, where: Sequence[str | int], message: str) -> str:
        """`file:line: dotted.path: message` for a place given as pydantic gives it."""
        node, line, known = self.root, self.root.start_mark.line, []
        for step in where:
            child = _child(node, step)
            if child is None:
                break
            node, line = child
            known.append(str(step))
        label = f"{'.'.join(known)}: " if known else ""
        return f"{self.path}:{line + 1}: {label}{message}"


def located(data: Any, where: Sequence[str | int], message: str) -> str:
    """`study: dotted.path: message` for a place in a mapping that came from no file."""
    known: list[str] = []
    for step in where:
        is_place = isinstance(data, list | tuple) and isinstance(step, int) and step < len(data)
        if not is_place and not (isinstance(data, Mapping) and step in data):
            break
        data = data[step]
        known.append(str(step))
    return ": ".join(filter(None, ["study", ".".join(known), message]))


def _text(path: Path) -> str:
    try:
        with open_file(path) as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise StudyError(f"{path}:1: not a study: it is larger than {LARGEST_FILE >> 20} MiB; put data in files")
        return content.decode("utf-8")
    except FileNotFoundError:
        raise StudyError(f"no study file at {path}; give the path of a YAML file") from None
    except OSError as error:
        raise StudyError(f"cannot read the study file {path}: {error.strerror or error}; check the path") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise StudyError(f"{path}:{line}: not UTF-8 text: {error.reason}; save the file as UTF-8") from None


def _syntax(path: Path, text: str, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    line = mark.line if mark else text.count("\n", 0, getattr(error, "position", 0))
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"{path}:{line + 1}: not valid YAML: {problem}"


def _child(node: yaml.Node, step: str | int) -> tuple[yaml.Node, int] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(step):
                return value, key.start_mark.line
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step].start_mark.line
    return None


def _expanded(node: yaml.Node, sizes: dict[int, int]) -> int:
    """How many nodes a document has once its aliases are written out, without writing them out. Long texts count as
    several."""
    if id(node) not in sizes:
        sizes[id(node)] = 1  # also what a node inside itself counts
        if isinstance(node, yaml.ScalarNode):
            sizes[id(node)] += len(node.value) // LONG_TEXT
        parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
        if not isinstance(node, yaml.ScalarNode):
            sizes[id(node)] += sum(_expanded(part, sizes) for part in parts)
    return sizes[id(node)]


def repeated_key(node: yaml.Node) -> yaml.Node | None:
    """The first key that a mapping in a document has twice: yaml takes the last of them without a word. A YAMLError
    where a key is a list or a mapping, of which a tag can make a text."""
    seen: set[str] = set()
    parts = [node.value] if isinstance(node, yaml.SequenceNode) else []
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(None, None, "a key is no text", key.start_mark)
        if key.value in seen:
            return cast(yaml.Node, key)
        seen.add(str(key.value))
        parts.append([value])
    return next((found for items in parts for item in items if (found := repeated_key(item)) is not None), None)
