"""Small bugs in Python source: each replaces an expression or statement on one line by a similar one.

The kinds follow mutation testing and the procedural bugs of SWE-smith (arXiv 2504.21798): swapped operators, negated
conditions, constants off by one, exchanged arguments, omitted statements.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}


@dataclass(frozen=True)
class Mutation:
    """A change of one file, as a recipe: it contains only the source fragment that it replaces.

    Attributes:
        file: path in the repository, with "/".
        line: line of the fragment, from 1.
        column: characters before it.
        before, after: the fragment, and its replacement.
        kind: the kind of change.
        function: qualified name of the containing function.
    """

    file: str
    line: int
    column: int
    before: str
    after: str
    kind: str
    function: str

    def apply(self, source: str) -> str:
        """Returns the source with the bug.

        Raises:
            ValueError: the fragment is not at this position, so the file is another version.
        """
        return self._replaced(source, self.before, self.after)

    def repair(self, source: str) -> str:
        """Returns the source without the bug; raises as `apply` does."""
        return self._replaced(source, self.after, self.before)

    def _replaced(self, source: str, old: str, new: str) -> str:
        lines = source.splitlines(keepends=True)
        row = lines[self.line - 1] if self.line <= len(lines) else ""
        if not row.startswith(old, self.column):
            raise ValueError(
                f"{self.file}, line {self.line}: {old!r} is expected at column {self.column}, found {row!r}"
            )
        lines[self.line - 1] = row[: self.column] + new + row[self.column + len(old) :]
        return "".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def mutations(source: str, file: str) -> Iterator[Mutation]:
    """Yields every mutation of the functions of a file, in the order of the source.

    Raises:
        SyntaxError: the file is not valid for this Python version.
    """
    lines = source.splitlines(keepends=True)
    for node, function in _in_functions(ast.parse(source), ""):
        if node.lineno != node.end_lineno or node.end_col_offset is None:
            continue  # replacing a fragment of several lines would lose its layout
        row = lines[node.lineno - 1].encode()
        before = row[node.col_offset : node.end_col_offset].decode()
        column = len(row[: node.col_offset].decode())
        for kind, after in _changes(node):
            if after != before:
                yield Mutation(file, node.lineno, column, before, after, kind, function)


def compiles(source: str) -> bool:
    """Returns whether the source is valid Python; a mutation may break the code around its fragment."""
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def _in_functions(node: ast.AST, name: str) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yields expressions and statements of functions, each with the function's qualified name."""
    for child in ast.iter_child_nodes(node):
        inner = name
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{name}.{child.name}" if name else child.name
        elif (
            isinstance(child, ast.expr | ast.stmt)
            and isinstance(node, ast.stmt | ast.expr | ast.comprehension)
            and name
        ):
            yield child, name
        # before Python 3.12, positions in an f-string are those of the whole string
        if not isinstance(child, ast.JoinedStr):
            yield from _in_functions(child, inner)


def _changes(node: ast.expr | ast.stmt) -> Iterator[tuple[str, str]]:
    for change in _KINDS.get(type(node), ()):
        yield from change(node)


def _compared(node: Any) -> Iterator[tuple[str, str]]:
    other = _COMPARE.get(type(node.ops[0]))
    if len(node.ops) == 1 and other is not None:
        yield "comparison", ast.unparse(ast.Compare(node.left, [other()], node.comparators))


def _arithmetic(node: Any) -> Iterator[tuple[str, str]]:
    other = _ARITHMETIC.get(type(node.op))
    if other is not None and not isinstance(node.left, ast.Constant | ast.JoinedStr):
        yield "arithmetic", ast.unparse(ast.BinOp(node.left, other(), node.right))


def _boolean(node: Any) -> Iterator[tuple[str, str]]:
    yield (
        "and-or",
        ast.unparse(ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values)),
    )


def _negated(node: Any) -> Iterator[tuple[str, str]]:
    if isinstance(node.op, ast.Not):
        yield "negation", ast.unparse(node.operand)
    if isinstance(node.op, ast.USub):
        yield "sign", ast.unparse(node.operand)


def _constant(node: Any) -> Iterator[tuple[str, str]]:
    if isinstance(node.value, bool):
        yield "constant", repr(not node.value)
    elif isinstance(node.value, int):
        yield "constant", repr(node.value + 1)


def _called(node: Any) -> Iterator[tuple[str, str]]:
    plain = len(node.args) >= 2 and not any(isinstance(one, ast.Starred) for one in node.args)
    if plain:
        yield (
            "argument order",
            ast.unparse(ast.Call(node.func, [node.args[1], node.args[0], *node.args[2:]], node.keywords)),
        )


def _returned(node: Any) -> Iterator[tuple[str, str]]:
    if node.value is not None and not isinstance(node.value, ast.Constant):
        yield "return value", "return None"


def _chosen(node: Any) -> Iterator[tuple[str, str]]:
    yield "branches", ast.unparse(ast.IfExp(node.test, node.orelse, node.body))


def _left_out(node: Any) -> Iterator[tuple[str, str]]:
    yield "statement left out", "pass"


def _left_or_broken(node: Any) -> Iterator[tuple[str, str]]:
    yield "loop", "break" if isinstance(node, ast.Continue) else "continue"


_KINDS: dict[type[ast.AST], tuple[Callable[[Any], Iterator[tuple[str, str]]], ...]] = {
    ast.Compare: (_compared,),
    ast.BinOp: (_arithmetic,),
    ast.BoolOp: (_boolean,),
    ast.UnaryOp: (_negated,),
    ast.Constant: (_constant,),
    ast.Call: (_called,),
    ast.Return: (_returned,),
    ast.IfExp: (_chosen,),
    ast.AugAssign: (_left_out,),
    ast.Break: (_left_or_broken,),
    ast.Continue: (_left_or_broken,),
}
