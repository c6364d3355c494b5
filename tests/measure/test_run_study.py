"""A study from end to end on a tiny model in a folder: what names a run, what is reused, what is mended."""

from __future__ import annotations

import ast
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fillerscope
from fillerscope.analysis.integrity import faults
from fillerscope.capture import passes
from fillerscope.errors import ModelError, ProblemError, StoreError, StudyError
from fillerscope.files import digest_of
from fillerscope.measure.engines import local, model_work
from fillerscope.measure.environment import environment, hardware
from fillerscope.measure.identity import NO_NUMBERS, _precision, code_version, identify, measuring_code
from fillerscope.measure.reuse import holds
from fillerscope.measure.run_study import run_study
from fillerscope.models.resolve import resolve
from fillerscope.problems.sources import load_problems
from fillerscope.prompts.chat_template import TemplateLimitError
from fillerscope.prompts.prompt import Prompt, PromptMaker
from fillerscope.report.methods.page import methods
from fillerscope.store.run_folder import RunStore
from fillerscope.store.schema import merged_name, shard_name, slug
from fillerscope.study.study import Study
from support.studies import CONDITIONS, save_model, settings, study_of, write_study


@pytest.fixture(scope="module", autouse=True)
def _surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache and a working folder of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FILLERSCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.chdir(tmp_path_factory.mktemp("work"))
        yield


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "tiny-llama")


@pytest.fixture(scope="module")
def finished(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run. Never changed: tests copy it."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    run_study(study_of(saved), folder)
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


class Listener:
    """Everything that is said about the progress."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.stages: list[tuple[str, int, int | None]] = []

    def stage(self, text: str, done: int, total: int | None) -> None:
        self.stages.append((text, done, total))

    def say(self, text: str) -> None:
        self.said.append(text)


def data(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*.safetensors"))}


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(model_work, "load_source", refuse)


@pytest.fixture
def measured_shards(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The shards that are measured from now on."""
    seen: list[int] = []
    start_shard = local.start_shard

    def note(study: Any, prepared: Any, *rest: Any) -> Any:
        assert len({item.number // study.batch.shard for item in prepared}) == 1
        seen.append(prepared[0].number // study.batch.shard)
        return start_shard(study, prepared, *rest)

    monkeypatch.setattr(local, "start_shard", note)
    return seen


# What names a run


def identity(study: Study) -> dict[str, Any]:
    return identify(study, load_problems(study.problems), {spec.name: resolve(spec.name) for spec in study.models})


def condition(**changes: Any) -> tuple[Any, ...]:
    return ("none", {**CONDITIONS[1], **changes})


MEASURED = {
    "dtype": lambda model: {"models": [{"name": model, "dtype": "bfloat16"}]},
    "template of the model": lambda model: {"models": [{"name": model, "template": "raw"}]},
    "template": lambda _: {"prompt": {"system": "Think.", "template": "raw"}},
    "raw": lambda _: {"prompt": {"system": "Think.", "raw": "{question}"}},
    "system": lambda _: {"prompt": {"system": "Think!"}},
    "seed": lambda _: {"seed": 1},
    "one condition less": lambda _: {"conditions": CONDITIONS[:-1]},
    "order of conditions": lambda _: {"conditions": (CONDITIONS[0], *CONDITIONS[:0:-1])},
    "name of a condition": lambda _: {"conditions": condition(name="other")},
    "text": lambda _: {"conditions": condition(text=" he")},
    "count": lambda _: {"conditions": condition(count=7)},
    "position": lambda _: {"conditions": condition(position="end")},
    "draw": lambda _: {"conditions": condition(draw="problem")},
    "number of problems": lambda _: {"problems": {"limit": 7}},
    "seed of problems": lambda _: {"problems": {"limit": 8, "seed": 1}},
    "difficulty": lambda _: {"problems": {"limit": 8, "difficulty": [3]}},
    "diagonal": lambda _: {"probes": {"attention": {"positions": 110, "diagonal": True}}},
    "skip_first": lambda _: {"probes": {"attention": {"positions": 110, "skip_first": False}}},
    "positions": lambda _: {"probes": {"attention": {"positions": 111}}},
    "shards": lambda _: {"batch": {"shard": 4, "tokens": 256}},
    "passes": lambda _: {"batch": {"shard": 3, "tokens": 257}},
    "passes by memory": lambda _: {"batch": {"shard": 3}},
    "beginnings": lambda _: {"batch": {"shard": 3, "tokens": 256, "prefix": "off"}},
    "another model too": lambda model: {"models": [model, f"{model}/"]},
}


def test_whatever_can_change_a_number_changes_the_identity(saved: Path) -> None:
    digests = {"nothing": digest_of(identity(study_of(saved)))}
    one = {"conditions": condition()}
    digests["one condition"] = digest_of(identity(study_of(saved, **one)))
    for what, change in MEASURED.items():
        digests[what] = digest_of(identity(study_of(saved, **change(str(saved)))))
    same = {(a, b) for a in digests for b in digests if a < b and digests[a] == digests[b]}
    assert not same


@pytest.mark.parametrize(
    "same",
    [
        lambda _: {"name": "another-name"},
        lambda _: {"figures": [{"name": "depth"}]},
        lambda _: {"device": "cpu"},
        lambda model: {"models": [{"name": model, "dtype": "float32"}]},
        lambda _: {"problems": {"limit": 8, "split": "train"}},
        lambda _: {"problems": {"limit": 8, "on_error": "skip"}},
    ],
)
def test_what_cannot_change_a_number_does_not(saved: Path, same: Callable[[str], dict[str, Any]]) -> None:
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        pytest.skip("auto is not the CPU here")
    assert identity(study_of(saved, **same(str(saved)))) == identity(study_of(saved))


def test_a_run_says_first_that_choices_are_not_asked(saved: Path, tmp_path: Path) -> None:
    rows, listener = tmp_path / "choices.csv", Listener()
    rows.write_text("question,A,B,C,answer\nWhat is 1 + 1?,1,2,3,2\n")
    run_study(study_of(saved, problems={"source": str(rows)}), tmp_path / "run", listener)
    advice = "write the choices into question if it does not hold them"
    assert listener.said[0] == f"{rows}: of a multiple-choice question only question is asked, not A, B, C; {advice}"


def test_skipped_rows_are_kept_counted_and_no_part_of_the_identity(saved: Path, tmp_path: Path) -> None:
    rows = [{"id": f"r{number}", "question": f"What is {number}?", "answer": str(number)} for number in range(3)]
    mixed, clean = tmp_path / "mixed.jsonl", tmp_path / "clean.jsonl"
    lines = [json.dumps(row) for row in rows]
    clean.write_text("\n".join(lines))
    mixed.write_text("\n".join([lines[0], "{", lines[1], lines[0], lines[2], "7"]))
    study = study_of(saved, problems={"source": str(mixed), "on_error": "skip"})
    assert identity(study) == identity(study_of(saved, problems={"source": str(clean)}))
    listener = Listener()
    store = run_study(study, tmp_path / "run", listener)
    data = store.manifest["data"]
    assert (data["rows"], store.manifest["problems"], data["skipped"]) == (6, 3, 3)
    assert [row["place"] for row in data["skipped_rows"]] == [f"{mixed}:{line}" for line in (2, 4, 6)]
    assert data["skipped_rows"][1]["reason"].startswith(f"id 'r0' is also at {mixed}:1")
    assert any(text.startswith(f"3 of 6 rows of data were skipped; the first, {mixed}:2: ") for text in listener.said)
    run = fillerscope.open_run(tmp_path / "run")
    facts = dict(next(section for section in methods(run) if section.title == "Data").facts)
    assert (facts["Rows read"], facts["Rows skipped"][:2]) == ("6", "3:")
    assert f"{mixed}:6: expected an object with named fields" in facts["Rows skipped"]
    assert not faults(run)
    run.store.manifest["data"]["skipped"] = 2
    assert faults(run) == ["6 rows of data were read, and there are 3 problems and 2 rows skipped"]


def test_the_same_problems_from_elsewhere_are_the_same(saved: Path, tmp_path: Path) -> None:
    problems = load_problems(study_of(saved).problems)
    rows = [{"id": p.id, "question": p.question, "answer": p.answer} for p in problems]
    identities = []
    for name in ("a.jsonl", "b.jsonl", "c.jsonl"):
        if name == "c.jsonl":
            rows[3]["question"] += " "
        (tmp_path / name).write_text("\n".join(json.dumps(row) for row in rows))
        identities.append(identity(study_of(saved, problems={"source": str(tmp_path / name)})))
    assert identities[0] == identities[1] == identity(study_of(saved))
    assert identities[2] != identities[0]


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "chat_template.jinja", "config.json"])
def test_another_byte_in_the_model_is_another_identity(saved: Path, tmp_path: Path, file: str) -> None:
    copy = Path(shutil.copytree(saved, tmp_path / "copy"))
    before = identity(study_of(copy))
    content = (copy / file).read_bytes()
    changed = content[:-1] + bytes([content[-1] ^ 1]) if file.endswith("safetensors") else content + b" "
    (copy / file).write_bytes(changed)
    assert identity(study_of(copy)) != before
    (copy / file).write_bytes(content)
    (copy / "README.md").write_text("changes nothing")
    assert identity(study_of(copy)) == before


def test_another_kind_of_device_is_another_identity(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number is not: cards of one kind give the same."""
    study, found = study_of(saved, models=[{"name": str(saved), "dtype": "float32"}]), []
    for device in ("cpu", "cuda:0", "cuda:1"):
        monkeypatch.setattr("fillerscope.models.loading.choose_device", lambda _, device=device: device)
        found.append(identity(study))
    assert found[0] != found[1] == found[2]


def test_the_version_of_the_code_is_part_of_the_identity(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = identity(study_of(saved))
    monkeypatch.setattr("fillerscope.measure.identity.code_version", lambda: "another")
    assert identity(study_of(saved)) != before


def test_how_torch_rounds_is_part_of_the_identity(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of float32 in fewer digits, as many notebooks ask for on a GPU."""
    before = identity(study_of(saved))
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    assert identity(study_of(saved)) != before
    monkeypatch.undo()
    assert identity(study_of(saved)) == before
    monkeypatch.setattr("fillerscope.measure.identity.PRECISION", ("backends.cuda.matmul.of_a_later_version",))
    assert "unknown" in _precision()


@pytest.mark.parametrize("name", ["NVIDIA_TF32_OVERRIDE", "DNNL_DEFAULT_FPMATH_MODE"])
def test_variables_by_which_libraries_round_are_part_of_it(
    name: str, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = identity(study_of(saved))
    monkeypatch.setenv(name, "1")
    assert identity(study_of(saved)) != before


def test_precision_of_convolutions_is_part_of_it() -> None:
    before, settings = _precision(), torch.backends.mkldnn.conv
    own = settings.fp32_precision
    try:
        settings.fp32_precision = "bf16"
        assert _precision() != before
    finally:
        settings.fp32_precision = own


def test_optional_packages_that_compute_are_part_of_it(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version of one, or none, is another run, and none has the numbers of another."""
    identities = [identity(study_of(saved))]
    for version in ("1.0", "2.0"):
        (tmp_path / version / "causal_conv1d").mkdir(parents=True)
        (tmp_path / version / "causal_conv1d/__init__.py").touch()
        (described := tmp_path / version / f"causal_conv1d-{version}.dist-info").mkdir()
        (described / "METADATA").write_text(f"Name: causal-conv1d\nVersion: {version}\n")
        monkeypatch.syspath_prepend(tmp_path / version)
        identities.append(identity(study_of(saved)))
        assert f"causal_conv1d {version}" in identities[-1]["libraries"]["optional packages"]
    assert environment("cpu")["causal_conv1d"] == "2.0"
    assert not any(holds(one, other) for one in identities for other in identities if one is not other)


def test_other_code_is_another_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One character in any file that may decide a number; what only shows numbers changes nothing."""
    package = Path(shutil.copytree(Path(fillerscope.__file__).parent, tmp_path / "package"))
    before, measuring = code_version(), dict(measuring_code(package))
    assert before.startswith(fillerscope.__version__ + "+")
    monkeypatch.setattr("fillerscope.measure.identity.files", lambda _: package)
    folders = ("study", "problems", "prompts", "arm", "capture", "answers", "measure")
    assert measuring.keys() >= {
        str(path.relative_to(package)) for folder in folders for path in (package / folder).rglob("*.py")
    }
    for name in ("files.py", "models/borrowing.py", "models/hashed_view.py", "models/redirects.py",
                 "models/structure.py", "prompts/sentences.txt", "store/contents.py", "store/failures.py",
                 "store/moments.py"):  # fmt: skip
        content = (package / name).read_bytes()
        (package / name).write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
        assert code_version() != before, name
        (package / name).write_bytes(content)
    for name in ("figures/style.py", "report/html.py", "cli/app.py", "store/remote.py"):
        (package / name).write_text("changed")
    assert code_version() == before


def test_all_code_is_hashed_or_on_the_list_of_what_decides_no_number() -> None:
    package = Path(fillerscope.__file__).parent
    hashed = {name for name, _ in measuring_code(package)}
    named = [name for names in NO_NUMBERS.values() for name in names]
    assert all((package / name).exists() for name in named)
    for path in package.rglob("*.py"):
        name = str(path.relative_to(package))
        listed = [one for one in named if name == one or name.startswith(f"{one}/")]
        assert len(listed) == (name not in hashed), name


def test_measuring_code_takes_nothing_of_the_packages_that_are_listed_as_a_whole() -> None:
    """Of what is not hashed it takes files with a reason of their own."""
    package = Path(fillerscope.__file__).parent
    folders = [name for names in NO_NUMBERS.values() for name in names if not name.endswith(".py")]
    for name, content in measuring_code(package):
        nodes = ast.walk(ast.parse(content)) if name.endswith(".py") else ()
        taken = [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
        assert not [one for one in taken if one.startswith(tuple(f"fillerscope.{folder}" for folder in folders))], name


def test_a_new_or_renamed_file_that_measures_is_another_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = Path(shutil.copytree(Path(fillerscope.__file__).parent, tmp_path / "package"))
    monkeypatch.setattr("fillerscope.measure.identity.files", lambda _: package)
    seen = {code_version()}
    (package / "capture/new.py").write_text("")
    seen.add(code_version())
    (package / "capture/new.py").rename(package / "capture/newer.py")
    seen.add(code_version())
    assert len(seen) == 3


@pytest.mark.usefixtures("no_model")
def test_the_default_folder_is_named_by_study_and_identity(saved: Path) -> None:
    study = study_of(saved, name="mine")
    with pytest.raises(AssertionError, match="loaded"):
        run_study(study)
    (made,) = Path("runs").iterdir()
    assert made.name == f"mine-{digest_of(identity(study))[:10]}"


# What is there is taken as it is


@pytest.mark.usefixtures("no_model")
def test_a_complete_run_needs_no_model(saved: Path, folder: Path) -> None:
    before, listener = data(folder), Listener()
    store = run_study(study_of(saved), folder, listener)
    assert listener.said == [f"{folder} is complete already: nothing to measure"]
    assert data(store.path) == before


@pytest.mark.usefixtures("no_model")
def test_a_complete_run_is_opened_by_the_library(saved: Path, folder: Path, tmp_path: Path) -> None:
    run = fillerscope.run(write_study(tmp_path / "study.yaml", saved), str(folder))
    assert run.models == [str(saved)]
    assert len(run[None].measured()) == 8
    assert faults(run) == []


@pytest.mark.usefixtures("no_model")
def test_other_figures_need_no_measuring(saved: Path, folder: Path) -> None:
    run = fillerscope.run(study_of(saved, figures=[{"name": "depth"}]), folder)
    assert [figure.name for figure in run.study.figures] == ["depth"]


@pytest.mark.usefixtures("no_model")
def test_a_complete_run_is_reused_while_another_process_writes_there(saved: Path, folder: Path) -> None:
    with RunStore.open(folder).writing():
        run_study(study_of(saved), folder)


@pytest.mark.usefixtures("no_model")
def test_an_unfinished_run_is_left_to_the_process_that_writes_it(saved: Path, folder: Path) -> None:
    (folder / merged_name(str(saved))).unlink()
    with RunStore.open(folder).writing(), pytest.raises(StoreError, match="another process is writing"):
        run_study(study_of(saved), folder)


@pytest.mark.usefixtures("no_model")
def test_a_changed_study_does_not_reuse_the_folder(saved: Path, folder: Path) -> None:
    before = data(folder)
    with pytest.raises(StoreError, match=r"holds another study's run.*; choose another folder with --out"):
        run_study(study_of(saved, seed=1), folder)
    assert data(folder) == before


@pytest.mark.usefixtures("no_model")
def test_shards_that_are_there_are_only_merged(saved: Path, folder: Path) -> None:
    before = data(folder)
    (folder / merged_name(str(saved))).unlink()
    run_study(study_of(saved), folder)
    assert data(folder) == before


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-5] ^= 16
    file.write_bytes(content)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-9])


@pytest.mark.parametrize(
    ("damage", "index"),
    [
        (Path.unlink, 0),
        (flip, 2),
        (cut, 0),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((Path.unlink, 2), (flip, 0), (cut, 2))),
    ],
)
def test_only_the_damaged_shard_is_measured_again(
    saved: Path, folder: Path, measured_shards: list[int], damage: Callable[[Path], Any], index: int
) -> None:
    before = data(folder)
    damage(folder / shard_name(str(saved), index))
    assert len(RunStore.open(folder).verify()) == 1
    listener = Listener()
    store = run_study(study_of(saved), folder, listener)
    assert measured_shards == [index]
    assert listener.said == ["measuring tiny-llama: resuming, 2 of 3 shards are done"]
    assert data(folder) == before
    assert store.verify() == []


@pytest.mark.parametrize("damage", [Path.unlink, flip])
@pytest.mark.usefixtures("no_model")
def test_a_damaged_merger_is_made_again(saved: Path, folder: Path, damage: Callable[[Path], Any]) -> None:
    before = data(folder)
    damage(folder / merged_name(str(saved)))
    assert run_study(study_of(saved), folder).verify() == []
    assert data(folder) == before


def test_the_same_study_gives_the_same_bytes(saved: Path, finished: Path, tmp_path: Path) -> None:
    run_study(study_of(saved), tmp_path / "again")
    assert data(tmp_path / "again") == data(finished)
    manifests = [RunStore.open(folder).manifest for folder in (tmp_path / "again", finished)]
    assert manifests[0] == manifests[1]


# What is kept about a run


def test_the_manifest_says_how_it_was_made(saved: Path, finished: Path) -> None:
    manifest = RunStore.open(finished).manifest
    assert manifest["identity"] == identity(study_of(saved))
    assert manifest["environment"]["torch"] == torch.__version__
    facts = manifest["models"][str(saved)]
    assert (facts["label"], facts["template"]) == ("tiny-llama", "chat")
    assert 0 <= facts["selfcheck"]["difference"] <= facts["selfcheck"]["tolerance"] == 1e-5
    names = [shard_name(str(saved), index) for index in range(3)]
    assert sorted(manifest["files"]) == sorted([*names, merged_name(str(saved)), "study.json"])


def test_the_environment_tells_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = environment("cpu")
    assert (found["torch"], found["cores"]) == (torch.__version__, os.cpu_count())
    assert 0 < found["memory_gib"] < 2**20
    assert found["processor"]
    assert "device" not in found
    described = tmp_path / "cpuinfo"
    described.write_text("processor\t: 0\nmodel name\t: \nmodel name\t: Fast: 9000\n")
    assert hardware("cpu", described)["processor"] == "Fast: 9000"
    described.write_text("processor\t: 0\nCPU implementer\t: 0x41\n")
    assert hardware("cpu", described)["processor"] == platform.machine()
    assert hardware("cpu", tmp_path / "nothing")["processor"]
    monkeypatch.setattr("fillerscope.models.loading.choose_device", lambda _: "cuda:1")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda place: f"a card at {place}")
    assert environment("auto")["device"] == "a card at cuda:1"


def test_the_stored_study_can_be_run_again(saved: Path, finished: Path) -> None:
    stored = Study.model_validate(RunStore.open(finished).study)
    assert stored == study_of(saved)
    assert identity(stored) == RunStore.open(finished).manifest["identity"]


def test_progress_begins_at_nothing_and_ends_at_all(saved: Path, tmp_path: Path) -> None:
    listener = Listener()
    run_study(study_of(saved), tmp_path / "new", listener)
    steps = [(done, total) for text, done, total in listener.stages if text == "measuring tiny-llama"]
    assert steps[0] == (0, 40)
    assert steps[-1] == (40, 40)
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert listener.said == []


# Several models, failures


def test_two_models_are_measured_one_after_the_other(saved: Path, finished: Path, tmp_path: Path) -> None:
    other = save_model(tmp_path / "other", seed=1)
    both = study_of(saved, models=[str(saved), str(other)])
    run = fillerscope.run(both, tmp_path / "run")
    assert [run.label(model) for model in run.models] == ["tiny-llama", "other"]
    files = data(tmp_path / "run")
    assert len(files) == 8
    alone = data(finished)
    assert {name: files[name] for name in alone} == alone
    assert files[merged_name(str(other))] != files[merged_name(str(saved))]
    assert faults(run) == []


@pytest.mark.parametrize(
    ("first", "second", "changes"),
    [
        ("a/m", slug("a/m"), {}),
        ("model", "Model", {}),  # one folder on some file systems
        ("a/m", "a/m#twin1", {"references": {"twin": 2}}),
    ],
)
def test_models_that_would_share_files_are_refused(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, second: str, changes: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (first, second):
        shutil.copytree(saved, tmp_path / name, dirs_exist_ok=True)
    study = study_of(first, models=[{"name": first}, {"name": second}], **changes)
    with pytest.raises(StudyError, match="would be stored in the same files; rename one's folder"):
        run_study(study, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_one_model_under_two_names_is_not_mixed_up(saved: Path, tmp_path: Path) -> None:
    """Both names would make the same file name, had they not their digest."""
    study = study_of(
        saved, models=[{"name": f"{saved}"}, {"name": f"{saved}/", "template": "raw"}], problems={"limit": 2}
    )
    run = fillerscope.run(study, tmp_path / "run")
    lengths = [len(run[model].measured()[0]["tokens"]) for model in run.models]
    assert lengths[0] != lengths[1]


def test_some_problems_too_long_are_counted_as_failed(finished: Path, tmp_path: Path) -> None:
    longest = [
        max(len(p["ids"]) for p in record["prompts"].values())
        for record in fillerscope.open_run(finished)[None].records()
    ]
    context = sorted(longest)[4]
    run = fillerscope.run(study_of(save_model(tmp_path / "short", max_position_embeddings=context)), tmp_path / "run")
    records = run[None].records()
    assert [record["number"] for record in records] == list(range(8))
    failed = [record["number"] for record in records if record["status"] == "failed"]
    assert failed == [number for number, tokens in enumerate(longest) if tokens > context]
    assert len(failed) == 3
    assert faults(run) == []
    for name in run.conditions:
        assert len(run.summary("entropy", name)) == 5
        assert run.profile(name, view="whole").problems == 5
        assert run.profile(name, view="whole").count.max() == 5


def test_problems_that_memory_does_not_hold_are_counted_as_failed(
    saved: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    observe = passes.observe
    healthy = fillerscope.open_run(finished)
    lengths = [
        [len(record["prompts"][name]["ids"]) for name in healthy.conditions]  # in the order of the study
        for record in healthy[None].records()
    ]
    most = sorted(map(max, lengths))[-3]  # of the eight problems two are longer

    def limited(model: Any, recorder: Any) -> Any:
        if max(len(text) for text in recorder.packing.texts) > most:
            raise torch.OutOfMemoryError("out of memory")
        return observe(model, recorder)

    monkeypatch.setattr(passes, "observe", limited)
    run = fillerscope.run(study_of(saved), tmp_path / "run")
    reasons = {record["number"]: record.get("error") for record in run[None].records()}
    assert list(reasons) == list(range(8))
    too_long = [next((n for n in each if n > most), None) for each in lengths]
    assert list(reasons.values()) == [n and f"{n} tokens, and memory runs out: out of memory" for n in too_long]
    assert too_long.count(None) == 6
    assert faults(run) == []
    kept = [number for number in range(8) if reasons[number] is None]
    for name in run.conditions:
        np.testing.assert_allclose(run.summary("entropy", name), healthy.summary("entropy", name)[kept], rtol=1e-5)


def test_a_shard_in_which_all_fail_does_not_stop_the_rest(saved: Path, tmp_path: Path) -> None:
    problems = load_problems(study_of(saved).problems)[:5]
    rows = [{"id": p.id, "question": p.question * (40 if n < 2 else 1)} for n, p in enumerate(problems)]
    (tmp_path / "p.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    study = study_of(saved, problems={"source": str(tmp_path / "p.jsonl")}, batch={"shard": 2, "tokens": 512})
    run = fillerscope.run(study, tmp_path / "run")
    assert [record["status"] for record in run[None].records()] == ["failed", "failed", "ok", "ok", "ok"]
    assert faults(run) == []
    assert run.profile("mless").count.max() == 3
    assert run.store.verify() == []


def test_where_all_problems_fail_one_line_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(save_model(tmp_path / "short", max_position_embeddings=60))
    message = r"^none of the 8 problems could be measured; the first says: \d+ tokens, and the model takes 60\b[^\n]*$"
    with pytest.raises(ProblemError, match=message):
        run_study(study, tmp_path / "run")
    monkeypatch.setattr(model_work, "load_source", lambda *_: pytest.fail("measured again, in vain"))
    with pytest.raises(ProblemError, match=message):
        run_study(study, tmp_path / "run")


def test_nothing_is_made_before_model_and_problems_are_found(saved: Path, tmp_path: Path) -> None:
    for changes, error in (
        ({"models": [str(tmp_path / "nowhere")]}, ModelError),
        ({"problems": {"source": str(tmp_path / "nothing.jsonl")}}, ProblemError),
    ):
        with pytest.raises(error):
            run_study(Study.model_validate(settings(saved, **changes)), tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_thresholds_are_not_calibrated_while_a_template_is_stopped(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would be noted for good, though the problems that fail now may be measured later."""
    study = study_of(saved, problems={"limit": 2}, probes={"attention": {"positions": 90}, "activations": {}})
    real, stopped = PromptMaker.plain, load_problems(study.problems)[0].question

    def plain(maker: PromptMaker, question: str) -> Prompt:
        if question == stopped:
            raise TemplateLimitError("the chat template was stopped")
        return real(maker, question)

    with monkeypatch.context() as patch:
        patch.setattr(PromptMaker, "plain", plain)
        with pytest.raises(ModelError, match=r"cannot be calibrated on the first problems: .* was stopped"):
            run_study(study, tmp_path / "run")
    one, other = (run_study(study, tmp_path / name) for name in ("run", "other"))
    assert one.manifest["files"] == other.manifest["files"]
