"""The question to a judge, the same for every backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from openclaw.common.messages import LINE_BREAK, text_of
from openclaw.types import Message, Turn

NextStateRole = Literal["user", "tool"]


@dataclass(frozen=True, kw_only=True)
class JudgeQuestion:
    """Was this response what was wanted, seeing what followed?

    `next_state` is every message that followed the response; `role` is user when any of them is a user's,
    else tool. `messages` is the conversation before the response (backends with a model need not look at it).
    """

    response: str
    next_state: list[Message]
    role: NextStateRole
    messages: list[Message]

    @property
    def next_text(self) -> str:
        """The next state as one text."""
        return "\n\n".join(text_of(message, LINE_BREAK) for message in self.next_state)


def question_about(turn: Turn) -> JudgeQuestion:
    """The question about an answered turn. Tool calls of the response are part of its text."""
    next_state = turn.next_state or []
    calls = turn.response_message.get("tool_calls") or []
    called = [
        f"{call['function']['name']}({call['function']['arguments']})" for call in calls if "function" in call
    ]
    return JudgeQuestion(
        response="\n".join([text_of(turn.response_message, LINE_BREAK), *called]).strip(),
        next_state=next_state,
        role="user" if any(message.get("role") == "user" for message in next_state) else "tool",
        messages=turn.messages,
    )
