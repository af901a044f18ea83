"""opencode (measured with 1.18.33), over /v1/chat/completions.

It names the session as this server does (X-Session-Id), in the requests for titles and summaries too.
"""

from __future__ import annotations

from openclaw.clients.client import Client, HeaderMark, SideMark

OPENCODE = Client(
    name="opencode",
    side_headers=(HeaderMark("x-parent-session-id"),),
    side_marks=(
        SideMark("title", "system", "You are a title generator."),
        SideMark("compaction", "system", "You are a context summarization agent."),
        SideMark("summary", "system", "Summarize what was done in this conversation."),
    ),
)
