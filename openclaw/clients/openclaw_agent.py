"""The OpenClaw agent (measured with 2026.3.13 and 2026.9.6).

It adds a time stamp to user texts and a line about its runtime to the first one, and ends every request with a
message of internal context, which is missing from later requests. A failed request is repeated with its user text
wrapped. Its housekeeping (heartbeats, memory, summaries, subagents) uses the same route; without the plug-in it is
recognised only by its text. The texts change with versions; this file lists all of them.

Its settings are written into its own file: `openclaw/connect/entries.py`.
"""

from __future__ import annotations

import re

from openclaw.clients.client import Block, Client, Head, Own, SideMark, Tail

_STAMP = r"\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)? [A-Z][\w+:-]*\] ?"
_RUNTIME = "Runtime: agent="

OPENCLAW = Client(
    name="openclaw",
    noise=(
        Block("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>", "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"),
        Tail(_RUNTIME),
        Head(re.compile(_STAMP)),
        Head(re.compile(r"\[Queued user message from a previous active turn[^\]\n]*\]\n")),
        Tail("Continue the current task from the existing transcript, preserving completed work."),
    ),
    own=(Own("Continue where you left off. The previous model attempt failed"),),
    session_headers=("x-session-affinity", "session_id"),
    counted_headers=("x-client-request-id",),
    session_fields=("prompt_cache_key",),
    session_line=(_RUNTIME, re.compile(r"\bsessionId=([^\s|]+)")),
    side_marks=(
        SideMark("heartbeat", "last", "Follow the heartbeat monitor"),
        SideMark("heartbeat", "last", "Read HEARTBEAT.md"),
        SideMark("scheduled job", "last", "[cron:"),
        SideMark("memory flush", "last", "Pre-compaction memory flush"),
        SideMark("compaction", "system", "You are a context summarization assistant"),
        SideMark("subagent", "first", "[Subagent Context]"),
        SideMark("subagent result", "last", "A background task completed"),
        SideMark("message of another session", "last", "[Inter-session message]"),
    ),
)
