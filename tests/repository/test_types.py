"""Functions say what they take: `Any`, alone or as a part of a type, is the exception."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT

FOLDERS = {"openclaw": ROOT / "openclaw", "slime": ROOT / "slime" / "slime", "tests": ROOT / "tests"}
MOST = {
    "openclaw": {"alone": 0.026, "in Callable": 0.003, "in another type": 0.04},
    "slime": {"alone": 0.023, "in Callable": 0.005, "in another type": 0.023},
    "tests": {"alone": 0.05},
}
"""Shares of annotated parameters, as measured when last lowered; JSON that is not checked yet is most of them."""


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


def kind(annotation: ast.expr) -> str | None:
    """Where `Any` stands: "alone" (`Any`, `Any | None`), "in Callable", "in another type"; None: nowhere."""
    union = annotation
    while isinstance(union, ast.BinOp):
        if is_any(union.right):
            return "alone"
        union = union.left
    if is_any(union):
        return "alone"
    parts = [node for node in ast.walk(annotation) if isinstance(node, ast.Subscript)]
    holding = [
        part
        for part in parts
        if any(is_any(node) for node in ast.walk(part.slice) if isinstance(node, ast.expr))
    ]
    if not holding:
        return None
    return (
        "in Callable" if any(ast.unparse(part.value) == "Callable" for part in holding) else "in another type"
    )


@pytest.mark.parametrize(
    ("annotation", "found"),
    [
        ("Any", "alone"),
        ("None | Any", "alone"),
        ("dict[str, Any]", "in another type"),
        ("list[Any] | None", "in another type"),
        ("Callable[..., Any]", "in Callable"),
        ("Callable[[Any], int] | None", "in Callable"),
        ("Mapping[str, object]", None),
    ],
)
def test_any_is_detected_in_every_position(annotation: str, found: str | None) -> None:
    assert kind(ast.parse(annotation, mode="eval").body) == found


@pytest.mark.parametrize("package", FOLDERS)
def test_few_parameters_have_any_in_their_type(package: str) -> None:
    every = [(place, kind(annotation)) for place, annotation in annotations(FOLDERS[package])]
    for name, most in MOST[package].items():
        found = [place for place, one in every if one == name]
        assert len(found) <= most * len(every), (name, len(found) / len(every), found)


def test_no_function_of_slime_takes_the_flags_untyped() -> None:
    root = FOLDERS["slime"]
    found: list[str] = []
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.arg) and node.arg == "args" and node.annotation is not None:
                found += [f"{path.relative_to(root)}:{node.lineno}"] * is_any(node.annotation)
    others = [
        place for place in found if not place.startswith(("engines/vllm/", "training/core/safe_loading"))
    ]
    assert others == [], "these read no flags of slime, or name the group that they read"
