"""The people's messages to OpenClaw in the end-to-end test, and the expected record of each model call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from openclaw.types import Turn, TurnState

_INTERNAL = "OPENCLAW_INTERNAL_CONTEXT"

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
"""Fifteen interleaved turns of three conversations through OpenClaw's gateway, with tools."""

AFTER_COMPACTION: tuple[Say, ...] = (("alice", "And what now?"), ("alice", "Thanks."))
AFTER_RESET: tuple[Say, ...] = (("bob", "a new start"), ("bob", "Good."))
LOCAL = ("hello from the command line", "RUN echo five")
"""Turns of `openclaw agent --local`, sent by two OpenClaws at the same time with the same text."""
CRON_TEXT = "look after the garden"
"""Text of a scheduled job of OpenClaw."""


@dataclass(frozen=True)
class Call:
    """A model call that must be stored: the beginning of the answer's text (or a tool's name), and its next state: a
    person's exact text (`exact`), or a part of a tool's result. next_state None: nothing follows."""

    answer: str
    next_state: str | None = None
    exact: bool = False

    def is_followed_by(self, text: str | None) -> bool:
        if self.next_state is None or text is None:
            return self.next_state is text
        return text == self.next_state if self.exact else self.next_state in text and _INTERNAL not in text


@dataclass
class Conversation:
    """The main turns of one conversation in order, as they must be stored.

    session_id: OpenClaw's. wrong_replies: what a person read that is not the answer. ends: a notice reports its end.
    """

    name: str
    session_id: str = ""
    calls: list[Call] = field(default_factory=list)
    wrong_replies: list[str] = field(default_factory=list)
    ends: bool = False

    def add_exchange(self, text: str, reply: str) -> None:
        """Records a person's message, which follows the last answer, and the reply to it."""
        if self.calls:
            self.calls[-1] = Call(self.calls[-1].answer, text, exact=True)
        word, _, rest = text.partition(" ")
        if word in ("RUN", "READ"):
            result = rest.removeprefix("echo ") if word == "RUN" else rest
            self.calls.append(Call({"RUN": "exec", "READ": "read"}[word], result))
            self.calls.append(Call("The tool answered:"))
        else:
            self.calls.append(Call("SLOW slow" if text == "SLOW" else f"You said: {text}"))
        if self.calls[-1].answer not in reply:
            self.wrong_replies.append(f"{self.name} said {text!r} and read {reply[:80]!r}")


def mismatches(talk: Conversation, turns: list[Turn]) -> list[str]:
    """Returns the differences between the calls that must be stored and the stored main turns. Empty: none."""
    if len(talk.calls) != len(turns):
        return [f"{talk.name}: {len(turns)} main turns are stored, {len(talk.calls)} calls were made"]
    lines = []
    for number, (call, turn) in enumerate(zip(talk.calls, turns, strict=True)):
        where = f"{talk.name}, turn {number}"
        if not _answer(turn.response_message).startswith(call.answer):
            lines.append(
                f"{where}: the answer is {_answer(turn.response_message)[:60]!r}, not {call.answer!r}"
            )
        next_text = None if turn.next_state is None else _text(turn.next_state)
        if not call.is_followed_by(next_text):
            lines.append(f"{where}: next state {next_text!r}, not {call.next_state!r}")
    if talk.ends and turns and turns[-1].state is not TurnState.EXPIRED:
        lines.append(f"{talk.name}: its end was not told, the last turn is {turns[-1].state}")
    return lines


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
