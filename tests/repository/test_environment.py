"""Reads of environment variables: flags and settings read theirs in one place; the others are listed here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.imports import ROOTS

WHOLE = "all"
"""The complete environment: to find variables of flags, or to pass it to a process."""
READS = {
    "claw_base": {
        "settings/command_line.py": {WHOLE},  # the variables of all settings
    },
    "openclaw": {
        "connect/own_file.py": {WHOLE},  # folders in which other programs keep their settings
        "judge/worker.py": {
            "OPENBLAS_NUM_THREADS",
            "OMP_NUM_THREADS",
        },  # numpy's threads, unless they are set
    },
    "slime": {
        "sandbox/images/cache.py": {"SLIME_IMAGE_DIR", "XDG_CACHE_HOME"},  # folder of images
        "sandbox/shell_worker.py": {WHOLE},  # environment of the shells in the sandbox
        "agents/foreign/worker.py": {WHOLE},  # PATH and similar, for a process of another Python
        "engines/sglang/launch.py": {WHOLE},
        "engines/toolchain.py": {WHOLE},
        "engines/vllm/launch.py": {WHOLE},
        "plan/driver.py": {WHOLE},  # the CUDA version of a torch that will be installed
        "plan/dry_run.py": {WHOLE},
        "plan/words.py": {WHOLE},  # to check the variables of all flags before anything is installed
        "processes/servers.py": {WHOLE},
        "processes/supervisor.py": {WHOLE},
        "ray/__init__.py": {"RAY_ADDRESS", WHOLE},  # Ray's own settings, unless they are set
        "ray/servers/specs.py": {WHOLE},  # where engines will search for programs
        "ray/components.py": {WHOLE},
        "ray/train_actor.py": {WHOLE},  # the allocator of trainers, unless it is set
        "ray/runtime.py": {WHOLE, "RAY_ADDRESS", "MALLOC_ARENA_MAX"},
        "ray/servers/watch_actor.py": {
            WHOLE
        },  # environment of this machine's servers, in addition to the driver's
        "ray/servers/weight_sender.py": {"NCCL_CUMEM_ENABLE", WHOLE},  # to remove the allocator's
        "rented/completions.py": {"COMPLETIONS_API_KEY"},
        "rollout/rm_hub/grader.py": {WHOLE},
        "training/core/distributed.py": {WHOLE},  # the interface of process groups, unless it is set
    },
}
ENVIRONMENT = ("os.environ", "os.environb")
NAMED_BY_CALL = ("os.getenv", "os.getenvb", "os.environ.get", "os.environ.setdefault", "os.environ.pop")


def reads(source: str) -> Iterator[str]:
    """Yields names of the variables that a file reads, and `WHOLE` if they are not literal. Setting a variable is not
    a read; a default that yields to a set variable is one."""
    if "environ" not in source and "getenv" not in source:
        return
    tree = ast.parse(source)
    meaning = {alias.asname or alias.name: full for alias, full in _imported(tree)}
    inside = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    for node in ast.walk(tree):
        name = _full_name(node, meaning)
        parent = inside.get(node)
        if name in NAMED_BY_CALL:
            called = isinstance(parent, ast.Call) and parent.func is node
            yield _variable(parent.args[0]) if called and isinstance(parent, ast.Call) else WHOLE
        elif name in ENVIRONMENT:
            if isinstance(parent, ast.Subscript):
                if isinstance(parent.ctx, ast.Load):
                    yield _variable(parent.slice)
            elif not (isinstance(parent, ast.Attribute) and f"{name}.{parent.attr}" in NAMED_BY_CALL):
                yield WHOLE


def _imported(tree: ast.AST) -> Iterator[tuple[ast.alias, str]]:
    """Yields a file's aliases of `os` and its parts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias, "os") for alias in node.names if alias.name == "os")
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            yield from ((alias, f"os.{alias.name}") for alias in node.names)


def _full_name(node: ast.AST, meaning: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return meaning.get(node.id)
    if isinstance(node, ast.Attribute):
        holder = _full_name(node.value, meaning)
        return holder and f"{holder}.{node.attr}"
    return None


def _variable(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else WHOLE


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import os\nos.environ['A']", {"A"}),
        ("import os\nos.environ.get('A')", {"A"}),
        ("import os\nos.environ.setdefault('A', '1')", {"A"}),
        ("import os\nos.getenv('A')", {"A"}),
        ("import os as system\nsystem.getenv('A')", {"A"}),
        ("from os import environ\nenviron['A']\nenviron.get('B')", {"A", "B"}),
        ("from os import environ as around\nprint(around)", {WHOLE}),
        ("from os import getenv\ngetenv('A')\nread = getenv", {"A", WHOLE}),
        ("import os\n'A' in os.environ\nos.environ.get(name)", {WHOLE}),
        ("import os\nos.environ['A'] = '1'", set()),
        ("environ = {}\nenviron['A']", set()),
    ],
)
def test_every_way_to_read_a_variable_is_detected(source: str, found: set[str]) -> None:
    assert set(reads(source)) == found


@pytest.mark.parametrize("package", READS)
def test_every_read_of_the_environment_is_listed(package: str) -> None:
    folder: Path = ROOTS[package] / package
    found = {
        path.relative_to(folder).as_posix(): set(reads(path.read_text())) for path in folder.rglob("*.py")
    }
    assert {path: names for path, names in found.items() if names} == READS[package]
