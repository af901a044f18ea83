"""Goose, over /v1/chat/completions."""

from __future__ import annotations

from openclaw.clients.client import Client, Own, SideMark

_FIRST = "Here are the first few user messages:"
_SUMMARY = "Please summarize the conversation history provided in the system prompt."

GOOSE = Client(
    name="goose",
    own=(
        Own("You MUST call the `"),
        Own("Your context was compacted."),
        Own("The task has been retried."),
        Own(_FIRST),
        Own(_SUMMARY),
    ),
    side_marks=(
        SideMark("title", "last", _FIRST),
        SideMark("title", "system", "Reply with only a description in four words or less"),
        SideMark("compaction", "last", _SUMMARY),
    ),
)
