"""The set-up of `make`: the lock holds what pyproject.toml asks for, and nothing of the machine that wrote it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCK = (ROOT / "requirements" / "lock.txt").read_text(encoding="utf-8")
TORCH = (ROOT / "requirements" / "torch.txt").read_text(encoding="utf-8")
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


def wanted() -> list[Requirement]:
    """What the set-up has to provide: to build, to run, and to develop."""
    lines = PROJECT["build-system"]["requires"] + PROJECT["project"]["dependencies"] + lines_of("dev")
    return [Requirement(line) for line in lines]


def test_the_lock_holds_what_pyproject_asks_for() -> None:
    pins = versions_in(LOCK) | versions_in(TORCH)
    needed = [one for one in wanted() if one.name != "triton"]  # a build of torch for CUDA names its version
    missing = [str(one) for one in needed if not fits(one, pins.get(canonicalize_name(one.name)))]
    assert not missing, f"not in requirements/lock.txt: {missing}; run `make lock`"


def fits(requirement: Requirement, version: str | None) -> bool:
    return version is not None and requirement.specifier.contains(version)


def test_every_entry_of_the_lock_is_one_version_with_hashes() -> None:
    entry = re.compile(r"[a-z0-9-]+==\S+( ; [^\\]*?)?(\s+--hash=sha256:[0-9a-f]{64})+")
    strange = [line for line in entries(LOCK) if not entry.fullmatch(line)]
    assert not strange, f"neither an index nor a path nor a package without a hash belongs here: {strange}"


def test_the_lock_leaves_to_each_machine_its_build_of_torch() -> None:
    assert versions_in(TORCH).keys() == {"torch"}
    assert not [name for name in versions_in(LOCK) if OF_EACH_MACHINE.fullmatch(name)]
