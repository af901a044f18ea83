"""The imports of each module, parsed from the sources."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tests import ROOT

ROOTS = {"claw_base": ROOT / "base", "openclaw": ROOT, "slime": ROOT / "slime", "claw_lab": ROOT / "lab"}
"""The folder that contains each package."""


@cache
def files(package: str) -> dict[str, Path]:
    """Each module of the package by name."""
    base = ROOTS[package]
    return {_name(path.relative_to(base)): path for path in sorted((base / package).rglob("*.py"))}


def _name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def named(path: Path, *, late: bool = True) -> frozenset[str]:
    """Returns modules and attributes that a file imports. `late`: include imports in functions and for
    annotations."""
    return frozenset(
        name for node in _imports(ast.parse(path.read_text()).body, late) for name in _names(node)
    )


def _imports(body: Iterable[ast.AST], late: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        # an import is a statement: expressions, which are most nodes, contain none
        elif not isinstance(node, ast.expr) and (
            late or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ):
            typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            yield from _imports([] if typing and not late else ast.iter_child_nodes(node), late)


def _names(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert node.level == 0, "imports are absolute"
    return [f"{node.module}.{alias.name}" for alias in node.names]


@cache
def graph(package: str, *, late: bool = True) -> dict[str, set[str]]:
    """Returns the package's modules that each of its modules imports."""
    known = files(package)
    arrows: dict[str, set[str]] = {}
    for name, path in known.items():
        found = (_module(target, known) for target in named(path, late=late))
        arrows[name] = {target for target in found if target} - {name}
    return arrows


def _module(name: str, known: dict[str, Path]) -> str | None:
    """Returns the module that a name is, or in which it is defined."""
    return name if name in known else (parent if (parent := name.rpartition(".")[0]) in known else None)


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Returns groups of modules that import each other, directly or indirectly (Tarjan's components of at least
    two)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        number[name] = lowest[name] = len(number)
        stack.append(name)
        for target in sorted(arrows[name]):
            if target not in number:
                visit(target)
            if target in stack:
                lowest[name] = min(lowest[name], lowest[target])
        if lowest[name] == number[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in arrows:
        if name not in number:
            visit(name)
    return found
