"""Public functions say what they take: `Any` is the exception."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST = 0.03


def annotations(folder: Path) -> Iterator[tuple[str, ast.expr]]:
    """(file:line, annotation) of every annotated parameter."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                own = node.args
                every = [*own.posonlyargs, *own.args, *own.kwonlyargs, own.vararg, own.kwarg]
                for one in every:
                    if one is not None and one.annotation is not None:
                        yield f"{path.relative_to(folder)}:{one.lineno}", one.annotation


def is_any(annotation: ast.expr) -> bool:
    return isinstance(annotation, ast.Name) and annotation.id == "Any"


def test_at_most_three_of_a_hundred_parameters_of_slime_are_any() -> None:
    found = [(place, is_any(annotation)) for place, annotation in annotations(ROOT / "slime" / "slime")]
    untyped = [place for place, untyped in found if untyped]
    assert len(untyped) <= MOST * len(found), untyped


def test_no_function_of_slime_takes_the_flags_untyped() -> None:
    root = ROOT / "slime" / "slime"
    found = []
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.arg) and node.arg == "args" and node.annotation is not None:
                found += [f"{path.relative_to(root)}:{node.lineno}"] * is_any(node.annotation)
    others = [
        place for place in found if not place.startswith(("engines/vllm/", "training/core/safe_loading"))
    ]
    assert others == [], "these read no flags of slime, or name the group that they read"
