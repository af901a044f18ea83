from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rl.factory.mutations import Mutation, compiles, mutations

SOURCE = '''LIMIT = 3


def f(a, b, *, deep=True):
    """Says more than 1 thing."""
    if a < b and not deep:
        return g(a, b + 1)
    for x in range(a):
        if x == 2:
            break
        a += x
    return -a if deep else "ä" + str(a)


class C:
    def m(self):
        return [y for y in self.z if y is not None]
'''


def test_mutations_have_the_expected_kinds_and_positions() -> None:
    found = {(one.line, one.kind, one.after) for one in mutations(SOURCE, "f.py")}
    assert {
        (6, "comparison", "a <= b"),
        (6, "and-or", "a < b or not deep"),
        (6, "negation", "deep"),
        (7, "argument order", "g(b + 1, a)"),
        (7, "arithmetic", "b - 1"),
        (9, "comparison", "x != 2"),
        (10, "loop", "continue"),
        (11, "statement left out", "pass"),
        (12, "branches", "'ä' + str(a) if deep else -a"),
        (17, "comparison", "y is None"),
    } <= found
    assert not any(line == 1 for line, *_ in found), "what is in no function stays"


def test_each_mutation_is_undone_by_its_repair() -> None:
    for one in mutations(SOURCE, "f.py"):
        broken = one.apply(SOURCE)
        assert broken != SOURCE
        assert one.repair(broken) == SOURCE


def test_functions_have_qualified_names() -> None:
    assert {one.function for one in mutations(SOURCE, "f.py")} == {"f", "C.m"}


def test_another_version_of_the_file_is_refused() -> None:
    one = Mutation("f.py", 6, 7, "a > b", "a >= b", "comparison", "f")
    with pytest.raises(ValueError, match=r"f\.py, line 6: 'a > b' is expected at column 7"):
        one.apply(SOURCE)


def test_an_invalid_python_after_installation_is_reported() -> None:
    assert compiles(SOURCE)
    assert not compiles("def f(:\n")


@given(
    st.integers(0, 9),
    st.sampled_from(["+", "-", "*", "//", "%"]),
    st.sampled_from(["<", "<=", "==", "is not"]),
)
def test_mutated_expressions_remain_valid(number: int, operator: str, comparison: str) -> None:
    source = f"def f(x):\n    return x {operator} {number} {comparison} (x, {number})\n"
    for one in mutations(source, "f.py"):
        ast.parse(one.apply(source))
