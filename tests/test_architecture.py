"""The shape of the package: no cycles, what loads without torch, how long a file may be."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

# Opening a finished run needs none of these.
UNDERSTAND = ("errors", "display", "progress", "study", "store", "analysis", "figures", "report", "api", "cli")
NOT_NEEDED_TO_UNDERSTAND = ("torch", "transformers", "ray", "pandas")

# Not part of opening a run, but what they compute needs no tensors.
WITHOUT_TORCH = (*UNDERSTAND, "problems", "prompts")

LONGEST_MODULE = 350  # lines
MOST_PARAMETERS = 6  # of a function, besides self
MOST_ANY = 120  # in all modules together
MOST_FILES = 8  # beside the packages

# Signatures that others decide: typer reads options from parameters, transformers calls attention functions, and
# kernels take pointers and sizes.
GIVEN_SIGNATURES = ("_app", "captured_attention", "slot_attention", "kernel")

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "fillerscope"


def dotted(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {dotted(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def entry_of(module: str) -> str:
    """The package or the file at the top that a module belongs to."""
    return module.split(".")[1] if "." in module else "__init__"


def modules_of(*entries: str) -> list[str]:
    """Modules of some packages and files. Importing a `__main__` would run it."""
    return [module for module in MODULES if entry_of(module) in entries and not module.endswith("__main__")]


def imports_of(module: str) -> Iterator[str]:
    """Modules of the package that a module imports, anywhere in its file: inside functions too."""
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = origin_of(node, module)
            names = [f"{origin}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (nearest_module(name) for name in names if name.split(".")[0] == "fillerscope")


def origin_of(node: ast.ImportFrom, module: str) -> str:
    if not node.level:
        return node.module or ""
    is_package = MODULES[module].name == "__init__.py"
    climb = node.level - 1 if is_package else node.level
    parts = module.split(".")
    return ".".join([*parts[: len(parts) - climb], *filter(None, [node.module])])


def nearest_module(name: str) -> str:
    """`fillerscope.study.study.Study` is something in `fillerscope.study.study`."""
    while name not in MODULES:
        name = name.rpartition(".")[0]
    return name


def run_python(code: str, *arguments: str) -> list[str]:
    """Run code in a fresh interpreter; what it prints last is a JSON list of complaints."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    complaints: list[str] = json.loads(done.stdout.splitlines()[-1])
    return complaints


def test_imports_form_no_cycle() -> None:
    graph = {module: set(imports_of(module)) - {module} for module in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"modules import each other: {' -> '.join(reversed(error.args[1]))}")


REFUSING_IMPORT = """
import importlib, json, sys
refused, modules = sys.argv[1].split(","), sys.argv[2:]

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in refused:
            raise ImportError(f"{name} is not there")

sys.meta_path.insert(0, Refuse())
complaints = []
for module in modules:
    try:
        importlib.import_module(module)
    except ImportError as error:
        complaints.append(f"{module}: {error}")
print(json.dumps(complaints))
"""


def test_a_finished_run_is_understood_without_torch() -> None:
    modules = modules_of(*UNDERSTAND)
    complaints = run_python(REFUSING_IMPORT, ",".join(NOT_NEEDED_TO_UNDERSTAND), *modules)
    assert not complaints, f"cannot be imported without {NOT_NEEDED_TO_UNDERSTAND}: {complaints}"


WATCHING_IMPORT = """
import importlib, json, sys
complaints = []
for module in sys.argv[1:]:
    importlib.import_module(module)
    if "torch" in sys.modules:
        complaints.append(module)
        break
print(json.dumps(complaints))
"""


def test_plain_modules_do_not_load_torch() -> None:
    complaints = run_python(WATCHING_IMPORT, *modules_of(*WITHOUT_TORCH))
    assert not complaints, f"importing {complaints} loads torch: import it inside the function that needs it"


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        module
        for module, path in MODULES.items()
        if (text := path.read_text(encoding="utf-8")).strip() and not ast.get_docstring(ast.parse(text))
    ]
    assert not silent, f"modules without a docstring: {silent}"


def test_no_module_is_too_long() -> None:
    lengths = {module: len(path.read_text(encoding="utf-8").splitlines()) for module, path in MODULES.items()}
    long = {module: length for module, length in lengths.items() if length > LONGEST_MODULE}
    assert not long, f"modules over {LONGEST_MODULE} lines, to be split: {long}"


# Whoever reads the listing of the package has read its architecture, so it must be complete wherever it is printed.
ENTRIES = {
    path.stem
    for path in PACKAGE.iterdir()
    if (path / "__init__.py").is_file() or (path.suffix == ".py" and path.stem != "__init__")
}


def contract_rows() -> list[set[str]]:
    """The rows of the import-linter contract, those that import nothing first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    rows = next(contract["layers"] for contract in settings["contracts"] if contract["name"] == "Rooms")
    return [set(re.split(r"[\s:|]+", row)) for row in reversed(rows)]


def readme_tree() -> list[str]:
    """Packages and files in the tree that the README prints, in its order."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    tree = text.partition("```\nsrc/fillerscope/\n")[2].partition("```")[0]
    names = [line.split()[0] for line in tree.splitlines()]
    return [name.removesuffix(".py").removesuffix("/") for name in names]


def test_every_package_has_a_row_in_the_contract_of_imports() -> None:
    assert set().union(*contract_rows()) == ENTRIES


def test_the_readme_names_every_package_in_the_order_of_imports() -> None:
    tree = readme_tree()
    assert sorted(tree) == sorted(ENTRIES)
    row_of = {name: number for number, row in enumerate(contract_rows()) for name in row}
    numbers = [row_of[name] for name in tree]
    assert numbers == sorted(numbers), "the README's tree is not in the order of imports"


def test_functions_take_few_parameters() -> None:
    many = {
        f"{module}.{node.name}"
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and parameter_count(node) > MOST_PARAMETERS
    }
    assert not {name for name in many if not any(given in name for given in GIVEN_SIGNATURES)}


def parameter_count(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    names = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def test_any_is_rare() -> None:
    uses = [
        node
        for path in MODULES.values()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name) and node.id == "Any"
    ]
    assert len(uses) < MOST_ANY


def test_few_files_lie_beside_the_packages() -> None:
    assert len([path for path in PACKAGE.iterdir() if path.is_file()]) <= MOST_FILES
