"""Small repositories: two modules of three short functions; one function is wrong in one line.

Held-out bugs share neither the function nor the mutation with the demonstrations: names of functions are held out by
their hash, and the last wrong body of each kind, which no demonstrated function has.
"""

from __future__ import annotations

import hashlib
import random
import re
from dataclasses import dataclass
from typing import Any

from claw_lab.tiny_models.swe.bodies import OF_LISTS, OF_PAIRS, result
from swe_rl.instance import Instance

HELD_OUT = 3  # names of each kind
VARIABLES = "abckmnpquw"
WORDS = (
    "area",
    "box",
    "cost",
    "day",
    "fee",
    "gain",
    "item",
    "job",
    "load",
    "mark",
    "node",
    "page",
    "rate",
    "unit",
)
MODULES = ("bank", "cart", "desk", "farm", "game", "mail", "road", "shop")
PAIRS = ((7, 3), (2, 9), (5, 5), (8, 1), (6, 4))
LISTS = ([4, 6, 1], [9, 2], [3, 3, 8], [5], [1, 7, 2])


@dataclass(frozen=True)
class Kind:
    """A kind of function.

    Attributes:
        right, wrong: bodies, with x and y for the arguments; the last wrong one is held out.
        calls: arguments and result.
    """

    name: str
    right: str
    wrong: tuple[str, ...]
    calls: tuple[tuple[tuple[Any, ...], Any], ...]

    @property
    def arity(self) -> int:
        return len(self.calls[0][0])

    def shows(self, body: str) -> bool:
        """Returns whether a call distinguishes this body from the right one."""
        return any(result(body, arguments) != expected for arguments, expected in self.calls)


def _pairs(name: str, right: str, *wrong: str) -> Kind:
    return Kind(name, right, wrong, tuple(((x, y), result(right, (x, y))) for x, y in PAIRS))


def _lists(name: str, right: str, *wrong: str) -> Kind:
    return Kind(name, right, wrong, tuple(((x,), result(right, (x,))) for x in LISTS))


KINDS = (
    _pairs("add", "x + y", "x - y", "x * y", "x + x"),
    _pairs("minus", "x - y", "y - x", "x + y", "x - x"),
    _pairs("times", "x * y", "x + y", "x - y", "y * y"),
    _pairs("larger", "max(x, y)", "min(x, y)", "x", "max(y, y)"),
    _pairs("smaller", "min(x, y)", "max(x, y)", "y", "min(x, x)"),
    _pairs("same", "x == y", "x != y", "x < y", "x >= y"),
    _pairs("below", "x < y", "x == y", "x > y", "x <= y"),
    _lists("first", "x[0]", "x[-1]", "x", "x[:1]"),
    _lists("last", "x[-1]", "x[0]", "x", "x[-1:]"),
    _lists("count", "len(x)", "sum(x)", "max(x)", "len(x) - 1"),
    _lists("total", "sum(x)", "max(x)", "len(x)", "sum(x[1:])"),
    _lists("top", "max(x)", "min(x)", "x[0]", "max(x[1:])"),
    _lists("least", "min(x)", "max(x)", "x[-1]", "min(x[:1])"),
    _lists("back", "x[::-1]", "x[0]", "sorted(x)", "x[::1]"),
)


HELD_OUT_BODIES = frozenset(kind.wrong[-1] for kind in KINDS)


_ANY = {
    kind.name: tuple(
        body
        for body in (OF_PAIRS if kind.arity == 2 else OF_LISTS)
        if body not in HELD_OUT_BODIES and kind.shows(body)
    )
    for kind in KINDS
}


def mutations(kind: Kind, held_out: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns wrong bodies, held out or not: typical mistakes, and arbitrary bodies.

    A model that has seen few wrong bodies copies parts of a new one into its repair.
    """
    return (kind.wrong[-1:],) * 2 if held_out else (kind.wrong[:-1], _ANY[kind.name])


@dataclass(frozen=True)
class Function:
    """A function of a module. `body` is its current body, with x and y."""

    kind: Kind
    word: str
    variables: tuple[str, ...]
    body: str

    @property
    def name(self) -> str:
        return f"{self.kind.name}_{self.word}"

    @property
    def lines(self) -> tuple[str, str]:
        return f"def {self.name}({', '.join(self.variables)}):", f"    return {self.spelt(self.body)}"

    def spelt(self, body: str) -> str:
        """Returns the body with the function's own names in place of x and y."""
        names = dict(zip("xy", self.variables, strict=False))
        return re.sub(r"\b[xy]\b", lambda match: names[match[0]], body)

    def gives(self, arguments: tuple[Any, ...]) -> Any:
        return result(self.body, arguments)


@dataclass(frozen=True)
class Bug:
    """A repository whose function number `wrong` has a bug.

    Attributes:
        modules: names.
        functions: equally many of each module, one module after another.
    """

    modules: tuple[str, ...]
    functions: tuple[Function, ...]
    wrong: int

    @property
    def function(self) -> Function:
        return self.functions[self.wrong]

    @property
    def module(self) -> str:
        return self.modules[self.wrong // self.in_module]

    @property
    def in_module(self) -> int:
        return len(self.functions) // len(self.modules)

    @property
    def line(self) -> int:
        """Returns the line of the wrong body in its module, from 1."""
        return 2 * (self.wrong % self.in_module) + 2

    def files(self) -> dict[str, str]:
        of = self.in_module
        parts = {name: self.functions[n * of : (n + 1) * of] for n, name in enumerate(self.modules)}
        return {
            f"{name}.py": "".join(f"{line}\n" for function in part for line in function.lines)
            for name, part in parts.items()
        }

    def report(self) -> str:
        """Returns the issue text: a call, its result, and the expected result. It names neither file nor line nor
        source."""
        for arguments, expected in self.function.kind.calls:
            result = self.function.gives(arguments)
            if result != expected:
                call = f"{self.function.name}({', '.join(map(repr, arguments))})"
                return f"{call} is {result!r}, not {expected!r}"
        raise AssertionError("no call shows this bug")

    def instance(self) -> Instance:
        """Returns the instance, with a script that tests all functions with all calls."""
        cases = [
            (module, function.name, list(arguments), expected)
            for number, function in enumerate(self.functions)
            for module in [self.modules[number // self.in_module]]
            for arguments, expected in function.kind.calls
        ]
        code = (
            "from importlib import import_module\n"
            f"print(sum(getattr(import_module(m), f)(*a) == e for m, f, a, e in {cases!r}), 'of {len(cases)}')"
        )
        script = f"told=$(PYTHONPATH=/workspace python3 -S -B -c \"$(cat <<'END'\n{code}\nEND\n)\" 2>&1 | tail -n 1)\n"
        script += f'echo "$told"; [ "$told" = "{len(cases)} of {len(cases)}" ]\n'
        name = hashlib.sha256(repr(self.files()).encode()).hexdigest()[:16]
        return Instance(f"tiny-{name}", self.report(), (), (), files=self.files(), eval_script=script)


def words_of(kind: Kind, held_out: bool) -> list[str]:
    """Returns the second parts of the names of functions of this kind, held out or not."""
    words = sorted(WORDS, key=lambda word: hashlib.sha256(f"{kind.name}_{word}".encode()).digest())
    return words[:HELD_OUT] if held_out else words[HELD_OUT:]


def draw(rng: random.Random, held_out: bool = False) -> Bug:
    """Draws a bug for training, or a held-out one, whose function and mutation are both held out."""
    wrong = rng.randrange(6)
    functions: list[Function] = []
    for place, kind in enumerate(rng.sample(KINDS, 6)):
        broken = place == wrong
        words = words_of(kind, held_out and broken)
        bodies = rng.choice(mutations(kind, held_out))
        variables = tuple(rng.sample(VARIABLES, kind.arity))
        functions.append(
            Function(kind, rng.choice(words), variables, rng.choice(bodies) if broken else kind.right)
        )
    return Bug(tuple(rng.sample(MODULES, 2)), tuple(functions), wrong)
