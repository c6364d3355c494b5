"""The wheel: what is in it, and what it does in an environment that holds nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from support.studies import save_model, write_study

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "fillerscope"
TOOLS = {"pytest", "mypy", "playwright", "xllamacpp", "ruff"}


def call(*command: str | Path, **environment: str) -> str:
    """What a command prints. One that fails is reported with all that it said."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    arguments = [str(part) for part in command]
    done = subprocess.run(arguments, env={**clean, **environment}, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (path,) = folder.glob("fillerscope-*-py3-none-any.whl")
    return path


def test_the_wheel_holds_the_package_with_its_data_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    held = {name for name in names if ".dist-info/" not in name}
    ours = {path.relative_to(PACKAGE.parent).as_posix() for path in PACKAGE.rglob("*") if path.is_file()}
    assert held == {name for name in ours if "__pycache__" not in name}
    data = ("prompts/sentences.txt", "report/static/page.js", "study/ready/demo.yaml", "report/templates/page.html.j2")
    assert {f"fillerscope/{name}" for name in data} <= held


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment into which pip installed the wheel, in the versions that the tests run with."""
    folder = tmp_path_factory.mktemp("environment")
    pins = {canonicalize_name(one.name): one.version for one in distributions() if one.name != "fillerscope"}
    constraints = folder / "constraints.txt"
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in pins.items()))
    call(sys.executable, "-m", "venv", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    call(python, "-m", "pip", "install", "--quiet", "--progress-bar", "off", "-c", constraints, wheel)
    return python.parent


@pytest.mark.slow
def test_the_wheel_brings_no_tools_of_ours_and_no_other_torch(environment: Path) -> None:
    lines = call(environment / "python", "-m", "pip", "list", "--format=freeze").split()
    installed = {canonicalize_name(line.partition("==")[0]) for line in lines}
    here = {canonicalize_name(one.name) for one in distributions()}
    assert not installed & TOOLS
    assert not {name for name in installed - here if name.startswith(("nvidia-", "cuda-", "triton"))}


@pytest.mark.slow
def test_the_installed_command_measures_draws_and_reports(environment: Path, tmp_path: Path) -> None:
    command = environment / "fillerscope"
    assert "demo" in call(command, "--help")
    home = {"FILLERSCOPE_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    assert "torch" in call(command, "doctor", **home)
    changes = {"problems": {"limit": 3}, "figures": [{"name": "depth"}]}
    study = write_study(tmp_path / "study.yaml", save_model(tmp_path / "model"), **changes)
    run = tmp_path / "run"
    call(command, "run", study, "--out", run, **home)
    call(command, "report", run, "--out", tmp_path / "report.html", **home)
    assert "<script" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert list((run / "figures").rglob("*.png"))
