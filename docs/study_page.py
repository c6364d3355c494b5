"""Writes the reference of the study file, docs/study.md, and its JSON Schema from the models: `make study-page`."""

from __future__ import annotations

import json
from pathlib import Path

from fillerscope.study.json_schema import study_schema
from fillerscope.study.reference import markdown

DOCS = Path(__file__).parent
PAGE = DOCS / "study.md"
SCHEMAS = (DOCS / "study.schema.json", DOCS.parent / "src" / "fillerscope" / "study" / "schema.json")


def written() -> dict[Path, str]:
    """Every file with its text."""
    schema = json.dumps(study_schema(), indent=1, ensure_ascii=False) + "\n"
    return {PAGE: markdown(), **dict.fromkeys(SCHEMAS, schema)}


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")
