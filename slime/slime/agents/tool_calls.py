"""Tool calls in a sampled text: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, the format of Qwen's and
Hermes' templates."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slime.agents.protocol import Message, Tool, ToolCall
from slime.agents.schemas import complaints
from slime.errors import ClawError

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_CALL = re.compile(f"{OPEN}(.*?){CLOSE}", re.DOTALL)


class CallError(ClawError):
    """An invalid call; the message is for the model."""


class CallFormat:
    """The syntax of a model's calls, and the reply to an invalid call. A track with its own markup overrides both."""

    def calls(self, text: str, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
        """Returns the calls of a turn, in order; none in a final answer. Raises CallError."""
        return calls_in(text, tools)

    def complaint(self, error: CallError) -> list[Message]:
        """Returns the messages for the model."""
        return [{"role": "tool", "content": f"Error: {error}"}]


def calls_in(text: str, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
    """Returns the calls of a turn, in order; none in a final answer.

    Raises:
        CallError: a call is truncated, is not JSON, names no tool, or violates the tool's schema.
    """
    if OPEN not in text:
        return ()
    texts = _CALL.findall(text)
    if len(texts) != text.count(OPEN):
        raise CallError(f"a tool call does not end with {CLOSE}")
    return tuple(_call(body, {tool.name: tool for tool in tools}) for body in texts)


def _call(body: str, tools: Mapping[str, Tool]) -> ToolCall:
    call = _json(body)
    if not isinstance(call, dict) or not isinstance(call.get("arguments"), dict):
        raise CallError('a tool call is {"name": ..., "arguments": {...}}')
    name = call.get("name")
    if not isinstance(name, str) or name not in tools:
        raise CallError(f"there is no tool {name!r}; tools: {', '.join(tools) or 'none'}")
    if complaint := next(complaints(call["arguments"], tools[name].parameters), None):
        raise CallError(f"{name}: {complaint}")
    return ToolCall(name, call["arguments"])


def _json(body: str) -> Any:
    """Parses JSON. Raises CallError for invalid JSON, or values that no tool can get (NaN, lone surrogates)."""
    try:
        value = json.loads(body, strict=False)  # models write unescaped line ends in code
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError as error:
        raise CallError("the tool call holds half of a character (a lone surrogate)") from error
    except ValueError as error:
        raise CallError(f"the tool call is not JSON: {error}") from error
    except RecursionError as error:
        raise CallError("the tool call is not JSON: it is too deep") from error
    return value


def loose_calls(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (name, arguments) of all parsable calls in a text, whatever tools exist."""
    for body in _CALL.findall(text):
        try:
            call = json.loads(body, strict=False)
            yield str(call["name"]), dict(call["arguments"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
