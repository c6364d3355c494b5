"""The set-up of `make`: the locks hold what pyproject.toml asks for, and nothing of the machine that wrote them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def requirements(name: str) -> str:
    return (ROOT / "requirements" / name).read_text(encoding="utf-8")


LOCK, DEV, TORCH, TRITON = map(requirements, ("lock.txt", "dev.txt", "torch.txt", "triton.txt"))
AUDIT = requirements("audit.txt")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OF_EACH_MACHINE = re.compile(r"(torch|triton|nvidia-.*|cuda-.*)")


def entries(text: str) -> Iterator[str]:
    """One line for each requirement of a file, with what is continued below it and without comments."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    yield from "\n".join(lines).replace("\\\n", " ").splitlines()


def versions_in(text: str) -> dict[str, str]:
    pins = (re.match(r"([\w.-]+)==(\S+)", line) for line in entries(text))
    return {canonicalize_name(pin[1]): pin[2] for pin in pins if pin}


def lines_of(extra: str) -> list[str]:
    """The requirements of an extra, with those of the extras that it names."""
    project = PROJECT["project"]
    lines = []
    for line in project["optional-dependencies"][extra]:
        requirement = Requirement(line)
        inner = requirement.extras if requirement.name == project["name"] else ()
        lines += [other for name in inner for other in lines_of(name)] if inner else [line]
    return lines


def missing_from(pins: dict[str, str], lines: list[str]) -> list[str]:
    """Requirements that no pin meets."""
    needed = [Requirement(line) for line in lines]
    return [str(one) for one in needed if not fits(one, pins.get(canonicalize_name(one.name)))]


def test_the_lock_holds_what_the_package_needs() -> None:
    """To build and to run: with this and torch, `make demo` and a user's studies work."""
    pins = versions_in(LOCK) | versions_in(TORCH)
    missing = missing_from(pins, PROJECT["build-system"]["requires"] + PROJECT["project"]["dependencies"])
    assert not missing, f"not in requirements/lock.txt: {missing}; run `make lock`"


def test_both_locks_hold_what_development_needs() -> None:
    pins = versions_in(LOCK) | versions_in(DEV) | versions_in(TORCH)
    missing = missing_from(pins, [line for line in lines_of("dev") if not line.startswith("triton")])
    assert not missing, f"not in requirements/dev.txt: {missing}; run `make lock`"
    assert [one.name for one in map(Requirement, entries(TRITON))] == ["triton"]


def test_test_tools_are_not_installed_for_users() -> None:
    """`make demo` installs the lock and torch."""
    tools = {canonicalize_name(Requirement(line).name) for line in PROJECT["project"]["optional-dependencies"]["dev"]}
    brought = {canonicalize_name(Requirement(line).name) for line in PROJECT["project"]["dependencies"]}
    assert not (tools - brought) & (versions_in(LOCK) | versions_in(TORCH)).keys()


def test_no_package_has_two_versions() -> None:
    ours, tools = versions_in(LOCK), versions_in(DEV)
    assert {name: tools[name] for name in tools.keys() & ours.keys() if tools[name] != ours[name]} == {}


def fits(requirement: Requirement, version: str | None) -> bool:
    return version is not None and requirement.specifier.contains(version)


@pytest.mark.parametrize("lock", [LOCK, DEV, AUDIT], ids=["lock", "dev", "audit"])
def test_every_entry_of_a_lock_is_one_version_with_hashes(lock: str) -> None:
    entry = re.compile(r"[a-z0-9-]+==\S+( ; [^\\]*?)?(\s+--hash=sha256:[0-9a-f]{64})+")
    strange = [line for line in entries(lock) if not entry.fullmatch(line)]
    assert not strange, f"neither an index nor a path nor a package without a hash belongs here: {strange}"


def test_the_locks_leave_to_each_machine_its_build_of_torch() -> None:
    assert versions_in(TORCH).keys() == {"torch"}
    assert not [name for name in versions_in(LOCK) | versions_in(DEV) if OF_EACH_MACHINE.fullmatch(name)]


@pytest.fixture(scope="module")
def auditing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `make audit` has its tool."""
    folder = tmp_path_factory.mktemp("audit")
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    shutil.copy(ROOT / "Makefile", folder)
    made = make(folder, ".venv/audit/.ready")
    if made.returncode:
        pytest.skip(f"pip-audit cannot be installed here: {made.stderr.strip()[-200:]}")
    return folder


@pytest.mark.slow
def test_an_audit_without_its_service_fails_and_says_so(auditing: Path) -> None:
    done = make(auditing, "audit", HTTPS_PROXY="http://127.0.0.1:9", https_proxy="http://127.0.0.1:9")
    assert done.returncode != 0
    assert "PyPI's advisory service was not reached" in done.stderr


@pytest.mark.slow
def test_an_audit_fails_for_a_package_that_its_service_does_not_know(auditing: Path) -> None:
    unknown = auditing / "requirements" / "lock.txt"
    unknown.write_text(f"fillerscope-has-no-such-part==1.0 --hash=sha256:{'0' * 64}\n")
    done = make(auditing, "audit", "DEV_LOCK=requirements/lock.txt")
    assert done.returncode != 0
    assert re.search(r"ERROR.*fillerscope-has-no-such-part.* could not be audited", done.stderr)
    assert "did not answer for it" in done.stderr


def make(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", f"PYTHON={sys.executable}", *words]
    environment = {**os.environ, **variables}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
