"""Converts the tools of a response's request to chat functions, and their calls to the client's names.

Codex groups functions in namespaces: the model sees each as `namespace__name`. Tools that run on OpenAI's servers
(web_search and others) are not available: they are omitted from the prompt and logged once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from openclaw.common.messages import warn_tool_left_out
from openclaw.gateway.chat_request import wrong

Json = dict[str, Any]
BETWEEN = "__"


def chat_tools(tools: object) -> list[Json] | None:
    """Returns the tools of a chat request. Raises ClientError."""
    if tools is None:
        return None
    if not isinstance(tools, list):
        raise wrong("tools", "a list")
    return [{"type": "function", "function": _chat_function(*one)} for one in _functions(tools)]


def namespaces(tools: object) -> dict[str, tuple[str, str]]:
    """Returns (namespace, name) of each function that has a namespace, by the name that the model sees."""
    functions = _functions(tools) if isinstance(tools, list) else ()
    return {joined(space, tool["name"]): (space, tool["name"]) for tool, space, _ in functions if space}


def joined(namespace: object, name: str) -> str:
    """Returns a function's name as the model sees it."""
    return f"{namespace}{BETWEEN}{name}" if isinstance(namespace, str) and namespace else name


def _functions(tools: list[Any]) -> Iterator[tuple[Json, str, str]]:
    """Yields (function, its namespace or "", its position for errors). Raises ClientError."""
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        kind = tool.get("type") if isinstance(tool, dict) else None
        if not isinstance(kind, str):
            raise wrong(where, "an object with a type")
        if kind == "function":
            yield _named(tool, where), "", where
        elif kind == "namespace":
            space, members = tool.get("name"), tool.get("tools")
            if not isinstance(space, str) or not isinstance(members, list):
                raise wrong(where, "a namespace with a name and tools")
            for number, member in enumerate(members):
                inner = f"{where}.tools[{number}]"
                if isinstance(member, dict) and member.get("type") == "function":
                    yield _named(member, inner), space, inner
        else:
            warn_tool_left_out(kind[:60])


def _named(tool: Json, where: str) -> Json:
    if not isinstance(tool.get("name"), str):
        raise wrong(f"{where}.name", "a string")
    return tool


def _chat_function(tool: Json, namespace: str, where: str) -> Json:
    kept = {name: tool[name] for name in ("description", "parameters") if tool.get(name) is not None}
    return {"name": joined(namespace, tool["name"]), **kept}
