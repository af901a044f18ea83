"""Bodies of short functions with the arguments x and y, and their results."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

Meaning = Callable[..., Any]
OPERATORS: dict[str, Meaning] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "**": operator.pow, "|": operator.or_, "&": operator.and_, "==": operator.eq, "!=": operator.ne,
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge,
}  # fmt: skip
SLICES = {
    "": slice(None), "[1:]": slice(1, None), "[2:]": slice(2, None), "[:1]": slice(1), "[:2]": slice(2),
    "[:-1]": slice(-1), "[-1:]": slice(-1, None), "[-2:]": slice(-2, None), "[::1]": slice(None, None, 1),
    "[::2]": slice(None, None, 2), "[::-1]": slice(None, None, -1), "[::-2]": slice(None, None, -2),
}  # fmt: skip
OF_TWO: dict[str, Meaning] = {"max": max, "min": min}
OF_ONE: dict[str, Meaning] = {"len": len, "sum": sum, "max": max, "min": min, "sorted": sorted}
ITEMS, STEPS = (0, 1, -1, -2), {"": 0, " + 1": 1, " - 1": -1, " + 2": 2, " - 2": -2}


def _of_pairs() -> Iterator[tuple[str, Meaning]]:
    at = {"x": 0, "y": 1}
    places = list(product("xy", repeat=2))
    for sign, does in OPERATORS.items():
        for a, b in places:
            yield f"{a} {sign} {b}", lambda *v, f=does, i=at[a], j=at[b]: f(v[i], v[j])
    for name, does in OF_TWO.items():
        for a, b in places:
            yield f"{name}({a}, {b})", lambda *v, f=does, i=at[a], j=at[b]: f(v[i], v[j])
    for a, step in product("xy", ("", " + 1", " - 1")):
        yield f"{a}{step}", lambda *v, i=at[a], more=STEPS[step]: v[i] + more


def _of_lists() -> Iterator[tuple[str, Meaning]]:
    for name, part in SLICES.items():
        yield f"x{name}", lambda x, part=part: x[part]
    for item in ITEMS:
        yield f"x[{item}]", lambda x, item=item: x[item]
    for (name, does), (words, part) in product(OF_ONE.items(), SLICES.items()):
        yield f"{name}(x{words})", lambda x, f=does, part=part: f(x[part])
    for name, step in product(("len", "sum", "max", "min"), (" + 1", " - 1", " + 2", " - 2")):
        yield f"{name}(x){step}", lambda x, f=OF_ONE[name], more=STEPS[step]: f(x) + more


_PAIRS, _LISTS = dict(_of_pairs()), dict(_of_lists())
OF_PAIRS = tuple(_PAIRS)
"""Bodies of functions of two integers."""
OF_LISTS = tuple(_LISTS)
"""Bodies of functions of a list of integers."""
_PAIRS |= {"x or y": lambda x, y: x or y, "x and y": lambda x, y: x and y}  # no bug has these


def result(body: str, arguments: tuple[Any, ...]) -> Any:
    """Returns the result of a body, or the name of its error. Raises KeyError for a body with other arguments."""
    meaning = _PAIRS[body] if len(arguments) == 2 else _LISTS[body]
    try:
        return meaning(*arguments)
    except (IndexError, ValueError, ZeroDivisionError) as error:
        return type(error).__name__
