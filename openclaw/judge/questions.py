"""The question to a judge, how much of a text is read, and the score of its votes: the same for every backend."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from openclaw.common.messages import LINE_BREAK, text_of
from openclaw.types import Message, Turn, Vote

NextStateRole = Literal["user", "tool"]
END_CHARACTERS = 3_000
"""Characters that are read at the beginning and at the end of a text. People's comments and the exit status of tools
are found there."""
RUN_CHARACTERS = 40
"""Of white space, or of one character again and again."""
_RUN = re.compile(rf"(\s{{{RUN_CHARACTERS}}})\s+|((.)\3{{{RUN_CHARACTERS - 1}}})\3+", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class JudgeQuestion:
    """The question whether a response was wanted, given its next state.

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


def bounded(text: str) -> str:
    """The text as the rules read it: without its middle if it is very long, and with long runs cut short."""
    if len(text) > 2 * END_CHARACTERS:
        text = f"{text[:END_CHARACTERS]}\n{text[-END_CHARACTERS:]}"
    return _RUN.sub(lambda run: run[1] or run[2], text)


def majority_score(votes: Sequence[Vote], threshold: float = 0.0) -> float:
    """The score most valid votes agree on: 1.0, -1.0 or 0.0.

    A vote without a score is not valid. 0.0 for a tie, for no valid vote, and when the majority's share of
    the valid votes is below `threshold` (0 to 1).
    """
    counts = Counter(vote.score for vote in votes if vote.score is not None)
    if not counts:
        return 0.0
    (score, most), *others = counts.most_common(2)
    if others and others[0][1] == most:
        return 0.0
    return float(score) if most / counts.total() >= threshold else 0.0
