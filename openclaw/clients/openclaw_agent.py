"""The OpenClaw agent (measured with 2026.3.13 and 2026.9.6).

It stamps user texts with the time, ends the first one with a line on its runtime, and closes every request
with a message of internal context that is gone from the history of the next one. A request that failed comes
again with its user text wrapped. Its own housekeeping (heartbeats, memory, summaries, subagents) comes over the same
route; without a plug-in only the text identifies it. Marks of side turns drift by version: this is their one place.

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
