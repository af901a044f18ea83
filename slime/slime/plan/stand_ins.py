"""Stand-ins for missing packages, so that flags can be parsed before anything is installed.

A plug-in declares its flags in a module that also imports pydantic, SQLAlchemy or torch. Reading the flags needs none
of them. `install` replaces every missing package by a module whose attributes can be called, subclassed and used as
decorators or in annotations. Code that really uses one fails with an error other than ConfigError.
"""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Base:
    """Base class that replaces a class of such a package."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__()

    def __init__(self, *words: object, **options: object) -> None:
        pass


class StandIn:
    """Any function, class or value of a missing package."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return StandIn()

    def __call__(self, *words: Any, **options: Any) -> Any:
        """Returns the decorated object if used as a decorator."""
        if len(words) == 1 and not options and callable(words[0]) and not isinstance(words[0], StandIn):
            return words[0]
        return self

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        first = next(base for base in bases if isinstance(base, StandIn))
        return (_Base,) if first is self else ()

    def __getitem__(self, item: object) -> StandIn:
        return self

    def _combined(self, other: object = None) -> StandIn:
        return self

    # query conditions, unions in annotations, and sizes
    __or__ = __ror__ = __and__ = __rand__ = __add__ = __radd__ = __sub__ = __rsub__ = _combined
    __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = __invert__ = _combined
    __lt__ = __le__ = __gt__ = __ge__ = _combined

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __instancecheck__(self, instance: object) -> bool:
        return False

    def __subclasscheck__(self, cls: type) -> bool:
        return False


class StandInModule(ModuleType):
    """A missing package, or a module of one."""

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return "0"
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return StandIn()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module of the packages `only`, or of all packages that no earlier finder has found."""

    def __init__(self, only: Sequence[str] = ()) -> None:
        self.only = only

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = fullname.partition(".")[0]
        if self.only:
            return ModuleSpec(fullname, self, is_package=True) if package in self.only else None
        # the standard library itself tries modules of other systems, and of Jython
        if package in sys.stdlib_module_names or package == "org":
            return None
        known = sys.modules.get(package)
        if known is not None and not isinstance(known, StandInModule):
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StandInModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def install() -> None:
    """Makes missing packages import as stand-ins in this process."""
    sys.meta_path.append(_Finder())


def replace(*packages: str) -> None:
    """Makes these packages import as stand-ins in this process, installed or not."""
    sys.meta_path.insert(0, _Finder(packages))


def is_stand_in(module: object) -> bool:
    return isinstance(module, StandInModule)
