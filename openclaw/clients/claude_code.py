"""Claude Code (measured with 2.1.197), over /v1/messages.

It puts reminders around what a person or tool wrote, and sends its subagents and its housekeeping (titles, notes,
summaries of pages) under the session of the conversation. Housekeeping comes without tools, but for the summary of a long
talk.
"""

from __future__ import annotations

from openclaw.clients.client import Block, Client, HeaderMark, SideMark

SESSION = "x-claude-code-session-id"

CLAUDE_CODE = Client(
    name="claude",
    noise=(Block("<system-reminder>", "</system-reminder>"),),
    session_headers=(SESSION,),
    side_headers=(HeaderMark("x-claude-code-agent-id"),),
    offers_tools=SESSION,
    side_marks=(
        SideMark("compaction", "last", "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools."),
        SideMark("compaction", "last", "Your task is to create a detailed summary of"),
    ),
)
