"""A study to start from: valid as it is, and with any or all of its comments uncommented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from fillerscope.study.json_schema import study_schema
from fillerscope.study.starter import Starter
from fillerscope.study.study import Study
from support.json_schema import complaints

SETTING = re.compile(r"^( *)#(?=\S)", re.MULTILINE)
STARTERS = {
    "built in": Starter("study.yaml", "smollm2-135m", limit=64),
    "attention alone": Starter("study.yaml", "smollm2-135m", limit=64, answers=False),
    "no references": Starter("a b/My Study.yaml", "./my model", "rows.csv", {"question": "text"}, answers=None),
    "behind hashes": Starter("é.yaml", "owner/name", "my rows: #1.csv", {"question": "q", "answer": "a"}, "hashes", 3),
    "data set": Starter("x.yaml", "C:\\models\\a.gguf", "gsm8k", {"question": "question"}, "box", 100, True),
}


def load(folder: Path, text: str) -> Study:
    path = folder / "study.yaml"
    path.write_text(text, encoding="utf-8")
    schema = study_schema()
    assert list(complaints(yaml.safe_load(text), schema, schema)) == []
    return Study.load(path)


@pytest.mark.parametrize("name", STARTERS)
def test_it_holds_what_was_asked_for(tmp_path: Path, name: str) -> None:
    starter = STARTERS[name]
    study = load(tmp_path, starter.text())
    assert (study.models[0].name, study.problems.limit) == (starter.model, starter.limit)
    assert study.problems.source in (starter.source, str(tmp_path / starter.source))
    assert study.problems.fields == starter.fields
    assert study.problems.answer_form == (starter.answer_form or "auto")
    assert bool(study.generation) is bool(starter.answers)


@pytest.mark.parametrize("name", STARTERS)
def test_every_comment_is_a_setting_that_can_be_uncommented(tmp_path: Path, name: str) -> None:
    text = STARTERS[name].text()
    usual = load(tmp_path, text)
    places = [match.start() for match in SETTING.finditer(text)]
    assert len(places) >= 8
    for place in places:
        one = text[:place] + SETTING.sub(r"\1", text[place:], count=1)
        assert load(tmp_path, one) != usual, text[place:].splitlines()[0]
    assert load(tmp_path, SETTING.sub(r"\1", text)) != usual


def test_verdicts_have_the_references_and_controls_that_they_need(tmp_path: Path) -> None:
    from fillerscope.report.preview.verdicts import outlooks

    told = outlooks(load(tmp_path, STARTERS["built in"].text()), 400)
    assert [one.reachable for one in told] == [True, True, True]
    assert "Without a control" not in told[0].text


@pytest.mark.parametrize(
    ("file", "name"), [("My Study.yaml", "my-study"), ("a/b.c.yml", "b.c"), ("-.yaml", "my-study"), ("é1.yaml", "1")]
)
def test_the_name_comes_from_the_file(file: str, name: str) -> None:
    assert Starter(file, "a").name == name


def test_editors_find_the_schema() -> None:
    first = STARTERS["built in"].text().splitlines()[0]
    uri = first.removeprefix("# yaml-language-server: $schema=file://")
    assert Path(uri).is_file()
