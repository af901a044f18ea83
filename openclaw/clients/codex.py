"""Codex CLI (measured with 0.169.0), over /v1/responses.

Its thread is the conversation: a fork of it has an id of its own. What kind of request it is stands in the metadata of
the turn; the surroundings (folder, date) come as texts of the user.
"""

from __future__ import annotations

from openclaw.clients.client import Block, Client, HeaderMark

_METADATA = "x-codex-turn-metadata"

CODEX = Client(
    name="codex",
    noise=(Block("<environment_context>", "</environment_context>"),),
    session_headers=("thread-id", "session-id"),
    side_headers=(
        HeaderMark(_METADATA, main=("turn",), part="request_kind"),
        HeaderMark(_METADATA, main=("user",), part="thread_source"),
        HeaderMark("x-openai-subagent"),
    ),
)
