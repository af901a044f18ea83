"""LibreChat, over /v1/chat/completions. It can send its conversation's id: instructions/clients.md has the setting."""

from __future__ import annotations

from openclaw.clients.client import Client, Own, SideMark

_HOUSEKEEPING = {
    "title": (
        "Provide a concise, 5-word-or-less title",
        "Please generate a concise, 5-word-or-less title",
        "Analyze this conversation and provide:",
    ),
    "summary": (
        "Summarize only the new lines into the current summary.",
        "Summarize the conversation by integrating new lines into the current summary.",
    ),
    "memory": ("The following memory tools are available.", "You are a memory agent."),
}

LIBRECHAT = Client(
    name="librechat",
    own=tuple(Own(begins) for texts in _HOUSEKEEPING.values() for begins in texts),
    side_marks=tuple(
        SideMark(what, "last", begins) for what, texts in _HOUSEKEEPING.items() for begins in texts
    ),
)
