"""Every place where a user's own function runs: its flag, its calls and their time, and its check.

`HOOKS` is the only list of them. The parser, the documentation table and `python -m slime.contracts` read it. Callers
of a hook load it with `load_hook`, which rejects a function that does not accept the arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from slime.errors import ConfigError
from slime.hooks.call import Call, Hook
from slime.hooks.table import HOOKS
from slime.plugins import load_attr

__all__ = ["HOOKS", "Call", "Hook", "call_of", "load_hook", "load_hooks", "load_path", "optional_keywords"]


def load_hook(args: object, name: str) -> Any:
    """Returns the function (or class) given by the flag of this name; None if the flag is not set.

    Raises:
        ConfigError: it cannot be loaded, or has the wrong signature.
    """
    hooks = load_hooks(args, name)
    return hooks[0] if hooks else None


def load_hooks(args: object, name: str) -> list[Any]:
    """Returns all hooks of a repeatable flag, in order."""
    value = vars(args).get(name) or []
    return [load_path(name, path) for path in (value if isinstance(value, list) else [value])]


def load_path(name: str, path: str) -> Any:
    """Returns the object at `path`, checked as the hook of the flag `name`; for paths in samples."""
    hook = HOOKS[name]
    function = load_attr(path, hook.attr)
    call_of(hook, function, path)
    return function


def call_of(hook: Hook, function: Callable[..., object], path: str) -> Call:
    """Returns the call signature that `function` accepts.

    Raises:
        ConfigError: it accepts none; the message lists the expected calls and its own signature.
    """
    if not callable(function):
        raise ConfigError(f"{hook.flag} {path} is a {type(function).__name__}, not a function")
    for call in hook.calls:
        if call.accepted_by(function):
            return call
    expected = " or ".join(call.text for call in hook.calls)
    kind = "is async and has" if inspect.iscoroutinefunction(function) else "has"
    raise ConfigError(f"{hook.flag} {path} {kind} parameters {_parameters(function)}; it must be {expected}")


def optional_keywords(call: Call, function: Callable[..., object]) -> set[str]:
    """Returns the bracketed keywords of `call` that `function` accepts."""
    parameters = inspect.signature(function).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    names = {name.strip("[]") for name in call.keywords if name.startswith("[")}
    return names if takes_all else names & set(parameters)


def _parameters(function: Callable[..., object]) -> str:
    try:
        names = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return "that are not known"
    return f"({', '.join(names)})"
