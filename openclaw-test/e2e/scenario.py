"""What people say to OpenClaw in the end-to-end test, and what the server must make of each model call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from openclaw.records import Turn

Say = tuple[str, str]

SCRIPT: tuple[Say, ...] = (
    ("alice", "hello, I am alice"),
    ("bob", "hello, I am bob"),
    ("alice", "RUN echo one"),
    ("carol", "hello, I am carol"),
    ("bob", "READ notes.txt"),
    ("alice", "No, that is wrong."),
    ("alice", "SLOW"),
    ("carol", "RUN echo two"),
    ("bob", "Thanks, that is right."),
    ("carol", "READ missing.txt"),
    ("alice", "RUN echo three"),
    ("bob", "SLOW"),
    ("carol", "Great, thank you."),
    ("alice", "Perfect."),
    ("bob", "RUN echo four"),
)
"""Fifteen turns of three conversations through OpenClaw's gateway, with tools, between one another."""

AFTER_COMPACTION: tuple[Say, ...] = (("alice", "And what now?"), ("alice", "Thanks."))
AFTER_RESET: tuple[Say, ...] = (("bob", "a new start"), ("bob", "Good."))
LOCAL: tuple[Say, ...] = (("dave", "hello from the command line"), ("dave", "RUN echo five"))
"""Turns of `openclaw agent --local`."""


@dataclass(frozen=True)
class Call:
    """A model call that must be stored: a beginning of the answer's text (or a tool's name), and a part of what followed.

    next_state None: nothing follows.
    """

    answer: str
    next_state: str | None = None


@dataclass
class Expected:
    """The main turns of one conversation in order."""

    calls: list[Call] = field(default_factory=list)

    def said(self, text: str) -> None:
        """A person said this: it is what followed the last answer."""
        if self.calls:
            self.calls[-1] = Call(self.calls[-1].answer, text)
        word, _, rest = text.partition(" ")
        if word in ("RUN", "READ"):
            result = rest.removeprefix("echo ") if word == "RUN" else rest
            self.calls.append(Call({"RUN": "exec", "READ": "read"}[word], result))
            self.calls.append(Call("The tool answered:"))
        else:
            self.calls.append(Call("SLOW slow" if text == "SLOW" else f"You said: {text}"))


def mismatches(name: str, expected: Expected, turns: list[Turn]) -> list[str]:
    """What differs between the calls that must be stored and the main turns that are. Empty: nothing."""
    if len(expected.calls) != len(turns):
        return [f"{name}: {len(turns)} main turns are stored, {len(expected.calls)} calls were made"]
    found = []
    for number, (call, turn) in enumerate(zip(expected.calls, turns, strict=True)):
        where = f"{name}, turn {number}"
        if not _answer(turn.response_message).startswith(call.answer):
            found.append(
                f"{where}: the answer is {_answer(turn.response_message)[:60]!r}, not {call.answer!r}"
            )
        next_text = None if turn.next_state is None else _text(turn.next_state)
        if (call.next_state is None) != (next_text is None) or (call.next_state or "") not in (
            next_text or ""
        ):
            found.append(f"{where}: next state {next_text!r}, not {call.next_state!r}")
        if next_text is not None and "OPENCLAW_INTERNAL_CONTEXT" in next_text:
            found.append(f"{where}: OpenClaw's internal context is in the next state")
    return found


def _answer(message: dict[str, Any]) -> str:
    calls = message.get("tool_calls")
    return str(calls[0]["function"]["name"]) if calls else str(message.get("content") or "")


def _text(messages: list[dict[str, Any]]) -> str:
    parts = []
    for message in messages:
        content = message.get("content") or ""
        parts.append(
            content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
        )
    return "\n".join(parts)
