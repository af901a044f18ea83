"""The question for a judge, limits on text lengths, and the score from votes; shared by all backends."""

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
"""Characters examined at the beginning and at the end of a text. Users' comments and exit statuses of tools are
there."""
RUN_CHARACTERS = 40
"""Longest run of white space or of one repeated character that is kept."""
_RUN = re.compile(rf"(\s{{{RUN_CHARACTERS}}})\s+|((.)\3{{{RUN_CHARACTERS - 1}}})\3+", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class JudgeQuestion:
    """The question whether a response was what the user wanted, given its next state.

    `next_state` is every message that followed the response; `role` is user when any of them is a user's, else tool.
    `messages` is the conversation before the response, which backends may ignore.
    """

    response: str
    next_state: list[Message]
    role: NextStateRole
    messages: list[Message]

    @property
    def next_text(self) -> str:
        """Returns the next state as one text."""
        return "\n\n".join(text_of(message, LINE_BREAK) for message in self.next_state)


def question_about(turn: Turn) -> JudgeQuestion:
    """Returns the question about an answered turn. Tool calls of the response are part of its text."""
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
    """Returns the text as examined by rules: without the middle of a very long text, and with long runs shortened."""
    if len(text) > 2 * END_CHARACTERS:
        text = f"{text[:END_CHARACTERS]}\n{text[-END_CHARACTERS:]}"
    return _RUN.sub(lambda run: run[1] or run[2], text)


def majority_score(votes: Sequence[Vote], threshold: float = 0.0) -> float:
    """Returns the score of the majority of valid votes: 1.0, -1.0 or 0.0.

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
