"""Ready studies, and what the keyboard changes in them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fillerscope.errors import StudyError
from fillerscope.figures.registry import FIGURES, check
from fillerscope.study.conditions import PRESETS
from fillerscope.study.overrides import Changes, data_path, names, ready_study
from fillerscope.study.study import Study

READY = [
    "arm",
    "composite",
    "depth",
    "fillers",
    "headmap",
    "heads",
    "heads-llama",
    "layers",
    "length",
    "mechanism",
    "passes",
    "position",
]


def test_there_is_a_ready_study_for_each_figure() -> None:
    assert names() == READY
    assert {figure.name for name in names() for figure in ready_study(name).figures} == set(FIGURES)


@pytest.mark.parametrize("name", READY)
def test_ready_studies_ask_for_what_they_hold(name: str) -> None:
    study = ready_study(name)
    assert study.figures
    check(study)


@pytest.mark.parametrize(
    ("name", "layers", "heads", "y_max"),
    [
        ("layers", (1, 2, 3), (22,), (0.08, 0.20, 0.175)),
        ("heads", (1,), (12, 13, 14), (0.14,) * 6),
        ("heads-llama", (1,), (20, 25, 26), (0.08, 0.12, 0.14, 0.07, 0.04, 0.05)),
        ("fillers", (1,), (1, 27, 8), (0.14, 0.10, 0.6)),
    ],
)
def test_the_published_heads_and_axes(
    name: str, layers: tuple[int, ...], heads: tuple[int, ...], y_max: tuple[float, ...]
) -> None:
    figure = ready_study(name).figures[0]
    assert (figure.layers, figure.heads, figure.y_max, figure.queries) == (layers, heads, y_max, "all")


def test_the_first_token_is_left_out_for_llama_and_gemma() -> None:
    assert ready_study("heads").figures[0].skip_first == (False,)
    assert ready_study("heads-llama").figures[0].skip_first == (True,)
    assert ready_study("fillers").figures[0].skip_first == (False, True, True)


def test_an_unknown_study_is_named_with_those_there_are() -> None:
    with pytest.raises(StudyError, match=f"^there is no ready study 'head'; there are {', '.join(READY)}$"):
        ready_study("head")


def test_no_changes_leave_a_study_as_it_is() -> None:
    for name in ("demo", "heads"):
        assert Changes().apply(ready_study(name)) == ready_study(name)


def test_another_model_takes_its_own_axes() -> None:
    study = Changes(models=("smollm2-135m", "gemma-3-270m")).apply(ready_study("heads"))
    assert [model.name for model in study.models] == ["smollm2-135m", "gemma-3-270m"]
    figure = study.figures[0]
    assert (figure.y_max, figure.skip_first) == ((), ())
    assert figure.heads == (12, 13, 14), "asked for all the same; the caption says when they do not exist"


def test_layers_and_heads_from_the_keyboard() -> None:
    figure = Changes(layers=(4,), heads=(2, 7)).apply(ready_study("heads")).figures[0]
    assert (figure.layers, figure.heads) == ((4,), (2, 7))
    assert figure.y_max == (0.14,) * 6


def test_other_data_take_their_own_columns() -> None:
    base = ready_study("heads")
    problems = base.problems.model_copy(update={"fields": {"question": "q"}, "split": "train"})
    study = Changes(problems="builtin", limit=3).apply(base.model_copy(update={"problems": problems}))
    assert (study.problems.source, study.problems.limit) == ("builtin", 3)
    assert (study.problems.fields, study.problems.split) == ({}, "test")
    kept = Changes(limit=3).apply(base.model_copy(update={"problems": problems}))
    assert (kept.problems.fields, kept.problems.split) == ({"question": "q"}, "train")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (Changes(models=("a", "a")), "models: model 'a' is given 2 times; names must differ"),
        (Changes(device="gpu"), "device: .*, not 'gpu'"),
        (Changes(device="cuda:x"), "device: .*, not 'cuda:x'"),
        (Changes(limit=0), "problems.limit: .*, not 0"),
        (Changes(heads=(0,)), "figures.0.heads.0: .*, not 0"),
        (Changes(models=("",)), "models.0.name: .*, not ''"),
    ],
)
def test_what_does_not_fit_is_refused(changes: Changes, message: str) -> None:
    with pytest.raises(StudyError, match=f"^{message}$"):
        changes.apply(ready_study("heads"))


def test_paths_are_relative_to_where_the_person_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert data_path("rows.jsonl") == str(tmp_path / "rows.jsonl")
    assert data_path("~/rows.jsonl") == str(Path.home() / "rows.jsonl")
    assert data_path("hub:owner/name") == "hub:owner/name"
    assert data_path("builtin") == "builtin"
    assert data_path(None) is None


def changed(name: str, *settings: str) -> Study:
    return Changes(settings=settings).apply(ready_study(name))


def test_a_setting_goes_to_its_place() -> None:
    study = changed("demo", "generation.max_tokens=256", "seed=7", "models.0.dtype=float32", "prompt.system='Say: x=1'")
    assert study.generation is not None
    assert (study.generation.max_tokens, study.seed) == (256, 7)
    assert (study.models[0].dtype, study.prompt.system) == ("float32", "Say: x=1")
    base = ready_study("demo")
    assert (study.conditions, study.probes, study.problems) == (base.conditions, base.probes, base.problems)


def test_a_section_that_is_off_is_turned_on_by_a_setting_inside_it() -> None:
    assert ready_study("heads").generation is None
    generation = changed("heads", "generation.max_tokens=9").generation
    assert generation is not None
    assert generation.max_tokens == 9
    probe = changed("heads", "probes.activations.classes.digits='[0-9]'").probes.activations
    assert probe is not None
    assert probe.classes == {"digits": "[0-9]"}


def test_lists_are_set_as_a_whole_or_by_the_number_of_an_item() -> None:
    assert changed("demo", "problems.difficulty=[1, 2]").problems.difficulty == (1, 2)
    assert changed("demo", "conditions.1.count=5").conditions[1].count == 5
    swept = changed("heads", "conditions.1.count=[5, 7]")
    assert [one.name for one in swept.conditions] == ["none", "mless-5", "mless-7"]
    assert swept.figures[0].conditions == (), "it asked for mless, which the study no longer has"


def test_of_two_settings_of_a_key_the_last_one_wins_also_over_an_option() -> None:
    assert changed("demo", "seed=1", "seed=2").seed == 2
    study = Changes(seed=3, limit=4, settings=("seed=5", "problems.limit=6")).apply(ready_study("demo"))
    assert (study.seed, study.problems.limit) == (5, 6)


@pytest.mark.parametrize(
    ("option", "setting"),
    [
        (Changes(max_tokens=9), "generation.max_tokens=9"),
        (Changes(limit=9), "problems.limit=9"),
        (Changes(seed=9), "seed=9"),
        (Changes(conditions=("mful",)), "conditions=[none, mful]"),
        (Changes(conditions=("none", "arm")), "conditions=[none, arm]"),
        (Changes(problems="hub:owner/name"), "problems.source=hub:owner/name"),
        (Changes(models=("a", "b")), "models=[a, b]"),
        (Changes(device="cpu"), "device=cpu"),
        (Changes(heads=(2, 7)), "figures.0.heads=[2, 7]"),
    ],
)
@pytest.mark.parametrize("name", ["heads", "composite"])
def test_an_option_is_short_for_a_setting(option: Changes, setting: str, name: str) -> None:
    assert option.apply(ready_study(name)) == changed(name, setting) != ready_study(name)


def test_conditions_are_those_of_the_study_before_the_ready_made_ones() -> None:
    base = ready_study("length")
    study = Changes(conditions=("mless", "random")).apply(base)
    assert study.conditions == (*base.conditions, PRESETS["random"]), "a name stands for all cells of its sweep"
    assert [one.name for one in Changes(conditions=("mless-25",)).apply(base).conditions] == ["none", "mless-25"]


def test_figures_lose_the_conditions_that_the_study_loses() -> None:
    study = Changes(conditions=("mless",)).apply(ready_study("fillers"))
    assert study.figures[0].conditions == ("mless",)
    check(study)


def test_settings_of_other_data_are_kept_in_any_order() -> None:
    settings = ("problems.fields.question=q", "problems.source=hub:a/b", "problems.split=train")
    problems = changed("heads", *settings).problems
    assert (problems.source, problems.fields, problems.split) == ("hub:a/b", {"question": "q"}, "train")


def test_a_path_in_a_setting_is_relative_to_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for setting in ("problems.source=rows.jsonl", "problems={source: rows.jsonl}"):
        assert changed("heads", setting).problems.source == str(tmp_path / "rows.jsonl")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("generation.max_token=2", "generation: unknown key 'max_token'; did you mean generation.max_tokens?"),
        ("generation={max_token: 2}", "generation: unknown key 'max_token'; did you mean generation.max_tokens?"),
        ("generaton.max_tokens=2", "unknown key 'generaton'; did you mean generation?"),
        ("max_tokens=2", "unknown key 'max_tokens'; did you mean generation.max_tokens?"),
        ("models.0.dtpe=x", "models.0: unknown key 'dtpe'; did you mean models.0.dtype?"),
        ("zzz=2", "unknown key 'zzz'; there are name, models, problems, prompt, conditions, probes, generation, "
         "references, seed, batch, device, figures"),
        ("references.twin=1", "references.twin: one untrained twin does not show how much twins differ: ask for 2 or "
         "more (3 are advised), or 0, not 1"),
        ("references.zzz=2", "references: unknown key 'zzz'; there are twin"),
        ("conditions.1.cout=3", "conditions.1: unknown key 'cout'; did you mean conditions.1.count?"),
        ("seed", "--set takes KEY=VALUE, such as generation.max_tokens=256, not 'seed'"),
        ("=3", "--set takes KEY=VALUE, such as generation.max_tokens=256, not '=3'"),
        ("a..b=3", "--set takes KEY=VALUE, such as generation.max_tokens=256, not 'a..b=3'"),
        ("seed=!!bool foo", "--set seed: '!!bool foo' is not valid YAML: 'foo': 'foo'; quote it if it is a text"),
        (f"models.{'9' * 5000}=x", "9999': its items are number 0 to 0; or set models as a whole"),
        ("seed=[1", "--set seed: '[1' is not valid YAML: expected ',' or ']', but got '<stream end>'; quote it if it "
         "is a text"),
        ("generation={max_tokens: 2, max_tokens: 3}", "--set generation: key 'max_tokens' is given twice; remove one"),
        ("conditions=[none, {name: a, name: b}]", "--set conditions: key 'name' is given twice; remove one"),
        ("problems.limit=yes", "problems.limit: a number is expected here, not yes, no, on, off, true or false, not "
         "True"),
        ("seed=x", "seed: Input should be a valid integer, unable to parse string as an integer, not 'x'"),
        ("seed.x=1", "seed is 0, which has no key 'x'; set seed itself"),
        ("models.1=a", "models is a list, and has no item '1': its items are number 0 to 0; or set models as a whole"),
        ("models.first=a", "models is a list, and has no item 'first': its items are number 0 to 0; or set models as a "
         "whole"),
        ("conditions=[none, mles]", "there is no condition 'mles'; the study and the ready-made ones have none, mless, "
         "mful, random, arm, scatter, gaussian, knockout, positions"),
        ("conditions=[mless]", "conditions: conditions must begin with `none`, the baseline of every pair, once"),
        ("probes.attention=off", "nothing is asked for: leave probes.attention on, or give `generation`"),
    ],
)  # fmt: skip
def test_a_setting_that_does_not_fit_is_refused(setting: str, message: str) -> None:
    with pytest.raises(StudyError, match=f"{re.escape(message)}$"):
        changed("heads", setting)


def test_an_item_of_a_list_can_be_set() -> None:
    assert changed("demo", "models.0=other-model").models[0].name == "other-model"
    assert changed("demo", "models.0.dtype=bfloat16").models[0].dtype == "bfloat16"
    assert changed("demo", "problems.difficulty.0=0").problems.difficulty[0] == 0


@pytest.mark.parametrize("setting", ["models.0=3", "models.0=null", "conditions.0=null", "figures.0=3", "models=3"])
def test_an_item_of_another_kind_is_one_line(setting: str) -> None:
    with pytest.raises(StudyError) as caught:
        changed("heads", setting)
    assert "\n" not in str(caught.value)


ARM = {"name": "arm", "intervention": {"kind": "arm", "preset": "Qwen2.5-Math-7B"}}
OF_GEMMA = {"name": "arm", "intervention": {"kind": "arm", "preset": "Gemma-3-4b-it"}}


def study_with(*conditions: object) -> Study:
    return Study.model_validate({"name": "a", "models": ["tiny"], "conditions": ["none", *conditions]})


@pytest.mark.parametrize("given", [ARM, OF_GEMMA, {"name": "arm", "intervention": {"kind": "arm"}}], ids=str)
@pytest.mark.parametrize(
    ("key", "value"),
    [("preset", "Qwen2.5-Math-1.5B"), ("preset", "Qwen2.5-Math-7B"), ("benchmark", "AIME 2024"), ("follows", "code"),
     ("c", 0.3), ("fraction", 0.5), ("p1", 90), ("kind", "scatter")],
)  # fmt: skip
def test_an_intervention_is_changed_as_in_the_file(given: dict[str, Any], key: str, value: Any) -> None:
    """A preset that is named on the command line has its own numbers, not those of the one before."""
    written = given | {"intervention": given["intervention"] | {key: value}}
    setting = Changes(settings=(f"conditions.1.intervention.{key}={value}",))
    try:
        expected = study_with(written)
    except ValidationError:
        with pytest.raises(StudyError):
            setting.apply(study_with(given))
        return
    assert setting.apply(study_with(given)).conditions == expected.conditions


def test_what_was_given_beside_a_preset_goes_before_another_preset() -> None:
    given = ARM | {"intervention": ARM["intervention"] | {"p1": 80, "benchmark": "AIME 2024"}}
    changes = Changes(settings=("conditions.1.intervention.preset=Qwen2.5-Math-1.5B",))
    expected = given | {"intervention": given["intervention"] | {"preset": "Qwen2.5-Math-1.5B"}}
    assert changes.apply(study_with(given)).conditions == study_with(expected).conditions


@pytest.mark.parametrize("setting", ["conditions.1.count=20", "conditions.2.count=20", "conditions.3.text=x"])
def test_a_number_that_a_sweep_makes_unclear_is_refused(setting: str) -> None:
    """Number 2 of the file is `mless`, and the second cell of the sweep in the list that it is expanded to."""
    study = study_with({"name": "dots", "kind": "repeat", "text": " .", "count": [5, 55]}, "mless", "mful")
    with pytest.raises(StudyError, match=r"the sweep 'dots' stands for several conditions, .*; set `conditions` as a"):
        Changes(settings=(setting,)).apply(study)
    assert Changes(settings=("conditions.0.label=Nothing",)).apply(study).conditions[0].label == "Nothing"
    whole = Changes(settings=("conditions=[none, mless]", "conditions.1.count=20")).apply(study)
    assert [one.count for one in whole.conditions] == [None, 20]
