"""The answer of one exchange: deltas in, an assistant message out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from openclaw.engine.generation import Increment
from openclaw.formats.deltas import CallArguments, CallStart, Delta, TextDelta
from openclaw.formats.stop_strings import StopStrings
from openclaw.types import Message


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one step of the engine adds to the answer: deltas for the client and the tokens behind them."""

    deltas: list[Delta]
    increment: Increment | None


class Completion:
    """The answer as the client reads it, growing. `one_call`: it ends with its first tool call."""

    def __init__(self, stop: StopStrings, one_call: bool = False) -> None:
        self._stop = stop
        self._one_call = one_call
        self._call: CallStart | None = None
        self._arguments: list[str] = []
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.tool_calls: list[dict[str, Any]] = []
        self.finish_reason: str = ""

    @property
    def has_enough(self) -> bool:
        """Whether nothing that could still come would be passed on."""
        return self._one_call and bool(self.tool_calls)

    def add(self, deltas: list[Delta]) -> list[Delta]:
        """Take deltas in; returns those that the client may see now."""
        return [delta for delta in self._stop.filter(deltas) if self._note(delta)]

    def finish(self, matched: int | str | None) -> list[Delta]:
        """Text that was held back because a stop string might have begun in it."""
        held = self._stop.finish(matched if isinstance(matched, str) else None)
        return [delta for delta in held if self._note(delta)]

    def complete(self, reason: str) -> None:
        self.finish_reason = "tool_calls" if self.tool_calls and reason == "stop" else reason

    def message(self) -> Message:
        """The assistant message that a client will send back."""
        content = "".join(self.content)
        message: Message = {
            "role": "assistant",
            "content": content if content or not self.tool_calls else None,
        }
        if self.reasoning:
            message["reasoning_content"] = "".join(self.reasoning)
        if self.tool_calls:
            message["tool_calls"] = self.tool_calls
        return message

    def _note(self, delta: Delta) -> bool:
        """False for what comes after the only call that is wanted."""
        if self.has_enough:
            return False
        if isinstance(delta, TextDelta):
            (self.content if delta.kind == "content" else self.reasoning).append(delta.text)
        elif isinstance(delta, CallStart):
            self._call, self._arguments = delta, []
        elif isinstance(delta, CallArguments):
            self._arguments.append(delta.text)
        elif delta.complete and self._call is not None:
            function = {"name": self._call.name, "arguments": "".join(self._arguments)}
            self.tool_calls.append({"id": self._call.id, "type": "function", "function": function})
        return True
