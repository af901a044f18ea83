"""Parses a pickle as data, without importing or calling anything that it names.

A pickle is a program for a small stack machine. This parser supports the opcodes of plain values and objects,
and represents an object by its class name, arguments and state.
"""

from __future__ import annotations

import pickle
import pickletools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple


class Name(NamedTuple):
    """The name of a class or function in a pickle."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False, slots=True)
class Named:
    """An object in a pickle: its constructor, the arguments, and its state (None: no state)."""

    kind: Name
    arguments: tuple[object, ...] = ()
    state: object = None


def read_pickle(data: bytes, allowed: Collection[Name]) -> object:
    """Returns the value of a pickle: None, bool, int, float, str, bytes, tuple, list, dict, `Name` and
    `Named`.

    Args:
        allowed: names that the pickle may contain.

    Raises:
        UnpicklingError: it contains another name, is corrupt, or has an unsupported opcode.
    """
    machine = _Machine(allowed)
    try:
        for operation, argument, _ in pickletools.genops(data):
            if operation.name == "STOP":
                return machine.stack.pop()
            step = STEPS.get(operation.name)
            if step is None:
                raise pickle.UnpicklingError(f"opcode {operation.name} is not allowed in a checkpoint")
            step(machine, argument)
    except (IndexError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise pickle.UnpicklingError(f"corrupt pickle ({type(error).__name__}: {error})") from error
    raise pickle.UnpicklingError("truncated pickle: no STOP opcode")


class _Machine:
    def __init__(self, allowed: Collection[Name]) -> None:
        self.allowed = allowed
        self.stack: list[object] = []
        self.below: list[list[object]] = []
        self.memo: dict[int, object] = {}

    def push(self, value: object) -> None:
        self.stack.append(value)

    def mark(self) -> None:
        self.below.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[object]:
        items, self.stack = self.stack, self.below.pop()
        return items

    def last(self, number: int) -> None:
        """Replaces the last `number` values on the stack by a tuple of them."""
        if len(self.stack) < number:
            raise IndexError("the stack has too few values")
        self.stack[-number:] = [tuple(self.stack[-number:])]

    def name(self, module: object, name: object) -> None:
        if not (isinstance(module, str) and isinstance(name, str)):
            raise TypeError("a name is not a string")
        qualified = Name(module, name)
        if qualified not in self.allowed:
            raise pickle.UnpicklingError(f"{qualified} is not allowed in a checkpoint")
        self.push(qualified)

    def stack_name(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.name(module, name)

    def make(self) -> None:
        """REDUCE and NEWOBJ: records the call without making it."""
        arguments, kind = self.stack.pop(), self.stack.pop()
        if not (isinstance(kind, Name) and isinstance(arguments, tuple)):
            raise TypeError("only named classes can create objects")
        self.push({} if kind == ORDERED_DICT and not arguments else Named(kind, arguments))

    def build(self) -> None:
        state, owner = self.stack.pop(), self.stack[-1]
        if not isinstance(owner, Named):
            raise TypeError("only objects can have a state")
        owner.state = state

    def append(self, values: list[object]) -> None:
        owner = self.stack[-1]
        if not isinstance(owner, list):
            raise TypeError("cannot append to a value that is not a list")
        owner.extend(values)

    def set(self, values: list[object]) -> None:
        owner = self.stack[-1]
        if not isinstance(owner, dict) or len(values) % 2:
            raise TypeError("cannot set items of a value that is not a dictionary")
        for key, value in zip(values[::2], values[1::2], strict=True):
            # Hashing nested tuples would use as much of the C stack as the pickle specifies.
            if not isinstance(key, str | int | Named):
                raise TypeError(f"{type(key).__name__} as a dictionary key")
            owner[key] = value

    def pair(self) -> list[object]:
        value, key = self.stack.pop(), self.stack.pop()
        return [key, value]

    def store(self, place: object) -> None:
        assert isinstance(place, int)
        self.memo[place] = self.stack[-1]

    def fetch(self, place: object) -> None:
        assert isinstance(place, int)
        self.push(self.memo[place])


ORDERED_DICT = Name("collections", "OrderedDict")
Step = Callable[[_Machine, object], None]
# fmt: off
VALUES = (
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "UNICODE",
    "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8",
)
# fmt: on
STEPS: dict[str, Step] = {
    "PROTO": lambda machine, _: None,
    "FRAME": lambda machine, _: None,
    **{name: lambda machine, value: machine.push(value) for name in VALUES},
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "MARK": lambda machine, _: machine.mark(),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.since_mark())),
    "TUPLE1": lambda machine, _: machine.last(1),
    "TUPLE2": lambda machine, _: machine.last(2),
    "TUPLE3": lambda machine, _: machine.last(3),
    "APPEND": lambda machine, _: machine.append([machine.stack.pop()]),
    "APPENDS": lambda machine, _: machine.append(machine.since_mark()),
    "SETITEM": lambda machine, _: machine.set(machine.pair()),
    "SETITEMS": lambda machine, _: machine.set(machine.since_mark()),
    "PUT": lambda machine, place: machine.store(place),
    "BINPUT": lambda machine, place: machine.store(place),
    "LONG_BINPUT": lambda machine, place: machine.store(place),
    "MEMOIZE": lambda machine, _: machine.store(len(machine.memo)),
    "GET": lambda machine, place: machine.fetch(place),
    "BINGET": lambda machine, place: machine.fetch(place),
    "LONG_BINGET": lambda machine, place: machine.fetch(place),
    "GLOBAL": lambda machine, name: machine.name(*str(name).split(" ", 1)),
    "STACK_GLOBAL": lambda machine, _: machine.stack_name(),
    "REDUCE": lambda machine, _: machine.make(),
    "NEWOBJ": lambda machine, _: machine.make(),
    "BUILD": lambda machine, _: machine.build(),
}
