"""Hermes Agent (measured with 0.19.0), over /v1/chat/completions.

It sends no session id: conversations are recognised by their transcripts, housekeeping requests by their texts.
"""

from __future__ import annotations

from collections.abc import Mapping

from openclaw.clients.client import Client, Link, Own, OwnFile, SideMark


def entries(link: Link) -> Mapping[tuple[str, ...], object]:
    values = {
        "default": link.model.id,
        "provider": "custom",
        "base_url": link.base_url,
        "api_key": link.key,
        "context_length": link.model.context,
    }
    return {("model", name): value for name, value in values.items()}


HERMES = Client(
    name="hermes",
    own=(
        Own("[System: "),
        Own("[Your active task list was preserved across context compression]"),
        Own("[CONTEXT COMPACTION"),
        Own("You just executed tool calls but returned an empty response."),
    ),
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
    own_file=OwnFile(
        folder="~/.hermes",
        variables=(("HERMES_HOME", ""),),
        names=("config.yaml",),
        form="yaml",
        entries=entries,
        start="hermes",
        least_context=64_000,
        has_default=False,
    ),
)
