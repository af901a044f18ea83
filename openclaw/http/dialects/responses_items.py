"""Response input items other than messages and function calls: tools run by the client, results of any tool, and
references to items of stored answers. Items that the model cannot read become placeholders."""

from __future__ import annotations

from typing import Any

from openclaw.common.messages import as_json, content_of, picture_or_text
from openclaw.gateway.chat_request import function_call

Json = dict[str, Any]

MOST_REFERENCES = 1000
"""Most stored answers that one request may refer to."""
_RUN_BY_CLIENTS = {
    "custom_tool_call": ("input",),
    "local_shell_call": ("action",),
    "shell_call": ("action",),
    "apply_patch_call": ("operation",),
    "computer_call": ("action",),
    "mcp_call": ("arguments",),
}
"""The fields of a call that describe its action, by item type."""
_RESULT = "_output"


def is_result(kind: str) -> bool:
    """Returns whether an item is a tool's result."""
    return kind.endswith(f"_call{_RESULT}")


def result_of(item: Json) -> Json:
    """Returns the message of a tool's result."""
    call_id = item.get("call_id") or item.get("id")
    return {"role": "tool", "tool_call_id": str(call_id), "content": _shown(item.get("output"))}


def own_result_of(item: Json) -> list[Json]:
    """Returns the message of a result inside the call item itself, as with MCP servers."""
    output = item.get("output") if item.get("output") is not None else item.get("error")
    return [] if output is None else [result_of({"call_id": item.get("id"), "output": output})]


def call_of(item: Json) -> Json | None:
    """Returns a call of a tool that the client ran, as a function call; None for another item."""
    kind = str(item["type"])
    if kind not in _RUN_BY_CLIENTS:
        return None
    name = item.get("name") if isinstance(item.get("name"), str) else kind.removesuffix("_call")
    fields = {field: item[field] for field in _RUN_BY_CLIENTS[kind] if item.get(field) is not None}
    arguments = fields.get("arguments", fields)
    return function_call(item.get("call_id") or item.get("id"), str(name), as_json(arguments))


def is_reference(item: object) -> bool:
    """Returns whether an item only refers to one of an earlier answer."""
    return isinstance(item, dict) and item.get("type") == "item_reference" and isinstance(item.get("id"), str)


def turn_of(item_id: str) -> str:
    """Returns the part of an item's id that names its turn."""
    return item_id.partition("_")[2].rpartition("_")[0]


def item_of(answer: Json, item_id: str) -> Json | None:
    """Returns the item of an answer with this id, numbered as in `ResponseEvents`; None if there is none."""
    prefix, number = item_id.partition("_")[0], item_id.rpartition("_")[2]
    reasoning, content = answer.get("reasoning_content"), answer.get("content")
    if prefix == "rs" and reasoning:
        return {"type": "reasoning", "content": [{"type": "reasoning_text", "text": reasoning}]}
    if prefix == "msg" and content:
        return {"role": "assistant", "content": content}
    calls = answer.get("tool_calls") or []
    at = int(number) - bool(reasoning) - bool(content) if number.isdecimal() and len(number) < 6 else -1
    if prefix != "fc" or not 0 <= at < len(calls):
        return None
    function = calls[at]["function"]
    return {"type": "function_call", "call_id": calls[at]["id"], **function}


def _shown(output: object) -> str | list[Json]:
    if isinstance(output, str):
        return output
    if isinstance(output, list) and all(isinstance(part, dict) for part in output):
        return content_of([picture_or_text(part) if "type" in part else as_json(part) for part in output])
    if isinstance(output, dict) and isinstance(output.get("type"), str):
        return content_of([picture_or_text(output)])
    return "" if output is None else as_json(output)
