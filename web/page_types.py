"""Writes the types of what the page is sent, described in Python, as TypeScript: `make page-types`."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import NoneType, UnionType
from typing import Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from fillerscope.report import answer_types, panel_types, payload_types

TARGET = Path(__file__).parent / "src" / "data" / "types.ts"
PLAIN = {str: "string", int: "number", float: "number", bool: "boolean", NoneType: "null"}
HEAD = "// Written by `make page-types` from the *_types.py of fillerscope.report: change it there.\n"
CHOICES = {"Scale": panel_types.Scale, "Verdict": answer_types.Verdict, "Direction": answer_types.Direction}
NAMES = {hint: name for name, hint in CHOICES.items()}


def typescript() -> str:
    """The whole file."""
    members = vars(panel_types) | vars(answer_types) | vars(payload_types)
    dicts = [one for one in members.values() if is_typeddict(one)]
    panel = f"export type Panel = {written(panel_types.Panel)};\n"
    return "\n".join([HEAD, *map(choice, CHOICES), *map(interface, dicts), panel])


def choice(name: str) -> str:
    """A few words of which one holds, as a list that a menu can show and as a type."""
    words = ", ".join(f'"{word}"' for word in get_args(CHOICES[name]))
    return (
        f"export const {name.upper()}S = [{words}] as const;\nexport type {name} = (typeof {name.upper()}S)[number];\n"
    )


def interface(of: type) -> str:
    """One TypedDict, with what it inherits."""
    fields = [f"  {key}{field(hint)};" for key, hint in get_type_hints(of, include_extras=True).items()]
    note = f"/** {' '.join(inspect.cleandoc(of.__doc__).split())} */\n" if of.__doc__ else ""
    return f"{note}export interface {of.__name__} {{\n" + "\n".join(fields) + "\n}\n"


def field(hint: object) -> str:
    return f"?: {written(get_args(hint)[0])}" if get_origin(hint) is NotRequired else f": {written(hint)}"


def written(hint: object) -> str:
    """One type as TypeScript spells it."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint in PLAIN:
        return PLAIN[hint]  # type: ignore[index]
    if origin is Literal:
        return NAMES.get(hint) or " | ".join(f'"{word}"' for word in parts)
    if origin in (Union, UnionType):
        return " | ".join(written(part) for part in parts)
    if origin is list:
        inner = written(parts[0])
        return f"({inner})[]" if " " in inner else f"{inner}[]"
    if origin is tuple:
        return f"[{', '.join(written(part) for part in parts)}]"
    if origin is dict:
        return f"Record<{written(parts[0])}, {written(parts[1])}>"
    if is_typeddict(hint):
        return hint.__name__  # type: ignore[attr-defined]
    raise TypeError(f"{hint} has no form in TypeScript yet")


if __name__ == "__main__":
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(typescript(), encoding="utf-8")
