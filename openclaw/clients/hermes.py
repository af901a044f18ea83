"""Hermes Agent (measured with 0.19.0), over /v1/chat/completions.

It names no session: its conversations are found by their transcripts. Its housekeeping is told by its texts.
"""

from __future__ import annotations

from openclaw.clients.client import Client, SideMark

HERMES = Client(
    name="hermes",
    side_marks=(
        SideMark("title", "system", "Generate a short, descriptive title (3-7 words) for a conversation"),
        SideMark(
            "subagent", "system line", "You are a focused subagent working on a specific delegated task."
        ),
        SideMark("goal", "system", "You are a strict judge evaluating whether an autonomous agent has"),
        SideMark("review of commands", "system", "You are a security reviewer for an AI coding agent."),
        SideMark("advisor", "system", "You are a reference advisor in a Mixture of Agents (MoA) process."),
        SideMark("memory", "last", "Review the conversation above and consider saving to memory"),
        SideMark("skills", "last", "Review the conversation above and update"),
        SideMark("compaction", "last", "You are a summarization agent creating a context checkpoint."),
        SideMark("scheduled job", "last", "[IMPORTANT: You are running as a scheduled cron job."),
    ),
)
