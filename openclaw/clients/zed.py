"""Zed's agent, over /v1/chat/completions."""

from __future__ import annotations

from openclaw.clients.client import Client, Own, SideMark

_TITLE = "Generate a concise 3-7 word title for this conversation"
_SUMMARY = "Generate a detailed summary of this conversation."

ZED = Client(
    name="zed",
    own=(Own("Continue where you left off", whole=True), Own(_TITLE), Own(_SUMMARY)),
    side_marks=(SideMark("title", "last", _TITLE), SideMark("summary", "last", _SUMMARY)),
)
