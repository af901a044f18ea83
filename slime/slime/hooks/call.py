"""A hook: its flag, the signatures that it accepts, and how these are distinguished."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Call:
    """One way in which slime calls a hook.

    Attributes:
        text: the call as documents print it.
        positional, keywords: names of the arguments; a keyword in brackets is left out if the hook does not accept it.
        by_name: the hook is recognised by its parameters having these names (several calls share one flag).
        may_wait: the hook may be an async function.
    """

    text: str
    positional: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    by_name: bool = False
    may_wait: bool = False

    def accepted_by(self, function: Callable[..., object]) -> bool:
        """Returns whether `function` can be called in this way; True if its parameters are unknown."""
        if not self.may_wait and inspect.iscoroutinefunction(function):
            return False
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            return not self.by_name
        if self.by_name:
            return self._has_names(signature)
        keywords = {name: None for name in self.keywords if not name.startswith("[")}
        try:
            signature.bind(*self.positional, **keywords)
        except TypeError:
            return False
        return True

    def _has_names(self, signature: inspect.Signature) -> bool:
        parameters = signature.parameters.values()
        fixed = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        required = {p.name for p in parameters if p.default is p.empty and p.kind not in fixed}
        return self.positional[0] in signature.parameters and required <= set(self.positional)


@dataclass(frozen=True)
class Hook:
    """One row of the table.

    Attributes:
        name: field of the arguments; its flag is the same with dashes.
        calls: the ways in which it may be written.
        called: when slime calls it.
        attr: the attribute that is used if a file is named without one.
        repeatable: the flag may be given several times; the hooks run in that order.
        refused: why no training backend that exists can call it; None if it acts.
    """

    name: str
    calls: tuple[Call, ...]
    called: str
    attr: str
    repeatable: bool = False
    refused: str | None = None

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def texts(self) -> str:
        return "; or ".join(f"`{call.text}`" for call in self.calls)
