"""Imports go in one direction. Runtime and trainer import neither each other nor a method, track or provider; the
base that both need imports none of our packages.

Within runtime and trainer, a package imports only packages on a lower layer, and no two files import each other.
Imports for annotations count like all others, because a module depends on the types that it names.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import ROOT
from tests.imports import circles, files, graph, named

TRAINER = (
    ("errors",),
    ("utils", "flags"),
    ("vision", "sandbox"),
    ("types", "plugins"),
    ("hooks", "processes", "replay", "tracking"),
    ("losses", "weights"),
    ("engines", "rollout", "training"),
    ("rented",),
    ("gate",),
    ("arguments", "torch_dist"),
    ("plan", "contracts", "agents"),
    ("pool",),
    ("ray",),
)
"""The packages of slime/slime, by layer."""


def floors_of(readme: Path) -> tuple[tuple[str, ...], ...]:
    """Returns the packages in the drawing of a README, layer by layer from the bottom."""
    found = re.search(r"A part imports only parts below it:\n+```\n(.*?)```", readme.read_text(), re.DOTALL)
    assert found is not None, f"{readme} draws no floors"
    lines = [tuple(word.removesuffix(".py") for word in line.split()) for line in found[1].splitlines()]
    return tuple(reversed(lines))


BASE = (("errors",), ("files", "imports", "peer", "ports", "settings"), ("hotswap", "run_folder"))
"""The parts of base/claw_base, by layer."""
FLOORS = {"claw_base": BASE, "openclaw": floors_of(ROOT / "openclaw" / "README.md"), "slime": TRAINER}
FOLDERS = sorted(path.name for path in ROOT.glob("*-*/") if next(path.glob("*/__init__.py"), None))
"""Folders of methods, tracks, providers and the tests' programs, each with one package."""
ADDED = {path.parent.name for folder in FOLDERS for path in (ROOT / folder).glob("*/__init__.py")}
STUBS = "_typeshed"
"""Types of the standard library that type checkers provide."""
PUT_ON_THE_PATH = ADDED | {path.stem for folder in FOLDERS for path in (ROOT / folder).glob("*.py")}


def imported_from_outside(package: str) -> dict[str, set[str]]:
    """Returns modules that other packages import, by first part of the name."""
    found: dict[str, set[str]] = {}
    for module, path in files(package).items():
        for name in named(path):
            found.setdefault(name.split(".")[0], set()).add(module)
    return found


@pytest.mark.parametrize(("package", "other"), [("openclaw", "slime"), ("slime", "openclaw")])
def test_runtime_and_trainer_import_neither_each_other_nor_higher_layers(package: str, other: str) -> None:
    outside = imported_from_outside(package)
    assert {name: modules for name, modules in outside.items() if name in {other, *PUT_ON_THE_PATH}} == {}
    assert {"openclaw_rl", "openclaw_opd", "openclaw_combine", "openclaw_test"} <= ADDED


def test_the_shared_base_imports_no_other_package_of_ours() -> None:
    outside = imported_from_outside("claw_base").keys() - sys.stdlib_module_names
    assert outside - {STUBS} == {"claw_base", "orjson", "psutil"}


def test_the_product_does_not_import_the_laboratory() -> None:
    """`run_tiny_*` scripts start it for the tasks of a tiny agent; code does not import it."""
    folders = [
        ROOT / "base",
        ROOT / "openclaw",
        ROOT / "slime",
        ROOT / "launch",
        *map(ROOT.joinpath, FOLDERS),
    ]
    importing = [
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in folder.rglob("*.py")
        if any(name.split(".")[0] == "claw_lab" for name in named(path))
    ]
    assert importing == []


@pytest.mark.parametrize("package", [*FLOORS, "claw_lab"])
def test_no_files_import_each_other_in_a_cycle(package: str) -> None:
    assert circles(graph(package)) == []


@pytest.mark.parametrize("package", FLOORS)
def test_no_package_init_imports_in_a_cycle(package: str) -> None:
    """Importing a module runs the `__init__` of each package around it, unless the importer lies in it."""
    arrows = {
        module: targets
        | {name for target in targets for name in _around(target) - _around(module)} - {module}
        for module, targets in graph(package, late=False).items()
    }
    assert circles(arrows) == []


def _around(module: str) -> set[str]:
    parts = module.split(".")
    return {".".join(parts[:end]) for end in range(2, len(parts))}


@pytest.mark.parametrize("package", FLOORS)
def test_a_package_imports_only_lower_layers(package: str) -> None:
    assert climbing(graph(package), FLOORS[package]) == []


def climbing(arrows: dict[str, set[str]], floors: Sequence[Sequence[str]]) -> list[str]:
    """Returns imports between packages that do not go to a lower layer. Raises KeyError for a package without a
    layer."""
    floor = {wing: number for number, wings in enumerate(floors) for wing in wings}
    return [
        f"{module} -> {target}"
        for module, targets in sorted(arrows.items())
        for target in sorted(targets)
        if (own := _wing(module)) and (other := _wing(target)) and own != other and floor[own] <= floor[other]
    ]


def _wing(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_has_one_package_and_only_alias_modules_beside_it(folder: str) -> None:
    packages = [path.parent.name for path in (ROOT / folder).glob("*/__init__.py")]
    own = folder.replace("-", "_")
    assert own in packages and set(packages) <= {own, "tiny_claw"}
    programs = {
        "openclaw-test": {"TA_chat", "student_chat", "teacher_chat", "test_sglang"},
        "openclaw-tinker": {"run"},
        "openclaw-fireworks": {"run_openclaw_fireworks"},
    }.get(folder, set())
    flat = {path.stem: path for path in (ROOT / folder).glob("*.py") if path.stem not in programs}
    assert [name for name, path in flat.items() if not gives_names_only(path)] == []


def gives_names_only(path: Path) -> bool:
    """Returns whether a file has only imports, assignments and functions of one or two statements, as aliases for
    upstream need."""
    small = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Expr)
    return all(
        isinstance(node, small) or (isinstance(node, ast.FunctionDef) and len(node.body) <= 3)
        for node in ast.parse(path.read_text()).body
    )
