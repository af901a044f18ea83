"""Python functions as tools. They are the user's own code and run in this process, outside the sandbox."""

from __future__ import annotations

import asyncio
import inspect
import json
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Any

from slime.agents.protocol import Tool
from slime.agents.schemas import problem_of
from slime.errors import ConfigError
from slime.rollout.rm_hub.guard import UserThreads
from toolcall_rl.tools.toolset import CallLimits, Opened

_KINDS = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}
LONGEST_ERROR = 300


@dataclass(frozen=True)
class FunctionSource:
    """One function, called with a tool's arguments as keywords. Its result is shown as text if it is a string, else
    as JSON.

    Attributes:
        threads: threads that run the function; a hanging call occupies one.
    """

    function: Callable[..., object]
    tool: Tool
    limits: CallLimits = field(default_factory=CallLimits)
    threads: UserThreads = field(default_factory=lambda: UserThreads(8))

    async def tools(self) -> Sequence[Tool]:
        return [self.tool]

    def opened(self) -> Opened:
        return _Calls(self)


class _Calls:
    """The function within one episode, which has no state of its own."""

    def __init__(self, source: FunctionSource) -> None:
        self.source = source

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        running = self.source.threads.run(self.source.function, **arguments)
        try:
            result = await asyncio.wait_for(running, self.source.limits.seconds)
        except TimeoutError:
            return f"Error: {name} ran longer than {self.source.limits.seconds:g} s"
        except Exception as error:  # an error of the tool, which the model can correct
            return f"Error: {type(error).__name__}: {error}"[:LONGEST_ERROR]
        return result if isinstance(result, str) else json.dumps(result, default=str, ensure_ascii=False)

    async def close(self) -> None:
        """Does nothing: there is nothing to free."""


def tool_of(function: Callable[..., object], name: str, about: Mapping[str, Any]) -> Tool:
    """Returns the tool for a function, from its signature and docstring; `about` may override description and
    parameters.

    Raises:
        ConfigError: a parameter has no name or a type that JSON lacks; no call can satisfy the schema, or it does not
            match the function.
    """
    described = str(about.get("description") or inspect.getdoc(function) or "").strip()
    schema = about.get("parameters") or _schema(function, name)
    if problem := problem_of(schema) or _unlike(schema, function):
        raise ConfigError(f"tool {name}: no call can satisfy its parameters: {problem}")
    return Tool(name, described, schema)


def _unlike(schema: Mapping[str, Any], function: Callable[..., object]) -> str | None:
    """Returns why the function accepts no call that its schema allows; None if it accepts one."""
    parameters = inspect.signature(function).parameters
    required = set(schema.get("required", []))
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    if not takes_any and (strange := sorted(required - parameters.keys())):
        return f"they require {strange[0]}, which the function does not take"
    offered = required | schema.get("properties", {}).keys()
    for name, one in parameters.items():
        needed = one.default is one.empty and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
        if needed and offered and name not in offered and not schema.get("additionalProperties"):
            return f"the function needs {name}, which they do not contain"
    return None


def _schema(function: Callable[..., object], name: str) -> dict[str, Any]:
    hints = typing.get_type_hints(function)
    properties: dict[str, Any] = {}
    required = []
    for parameter in inspect.signature(function).parameters.values():
        kind = _kind(hints.get(parameter.name))
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) or kind is None:
            raise ConfigError(
                f"tool {name}: the parameter {parameter.name} needs a type that JSON has "
                f'({", ".join(one.__name__ for one in _KINDS)}), or give "parameters", a JSON schema'
            )
        properties[parameter.name] = {"type": kind}
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    return {"type": "object", "properties": properties, "required": required}


def _kind(hint: Any) -> str | None:
    """Returns JSON's name of a type; for `X | None`, that of X."""
    parts = [one for one in typing.get_args(hint) if one is not NoneType]
    if typing.get_origin(hint) in (typing.Union, UnionType) and len(parts) == 1:
        hint = parts[0]
    return _KINDS.get(typing.get_origin(hint) or hint)
