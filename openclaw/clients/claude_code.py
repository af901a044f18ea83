"""Claude Code (measured with 2.1.197), over /v1/messages.

It wraps reminders around texts of users and tools, and sends subagents and housekeeping (titles, notes, page
summaries) under the conversation's session. Housekeeping has no tools, except the summary of a long conversation.
"""

from __future__ import annotations

from collections.abc import Mapping

from openclaw.clients.client import Block, Client, HeaderMark, Link, OwnFile, SideMark

SESSION = "x-claude-code-session-id"


def entries(link: Link) -> Mapping[tuple[str, ...], object]:
    """Returns its settings: one address and one model for everything; context and answer lengths are limited to the
    model's."""
    model = link.model
    values = {
        "ANTHROPIC_BASE_URL": link.base_url.removesuffix("/v1"),
        "ANTHROPIC_AUTH_TOKEN": link.key,
        "ANTHROPIC_MODEL": model.id,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": model.id,
        "ANTHROPIC_SMALL_FAST_MODEL": model.id,
        "CLAUDE_CODE_SUBAGENT_MODEL": model.id,
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(min(model.max_tokens, model.context // 2)),
        "CLAUDE_CODE_AUTO_COMPACT_WINDOW": str(model.context),
    }
    return {("env", name): value for name, value in values.items()}


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
    own_file=OwnFile(
        folder="~/.claude",
        variables=(("CLAUDE_CONFIG_DIR", ""),),
        names=("settings.json",),
        form="json",
        entries=entries,
        start="claude",
        least_context=16_000,
        has_default=False,
    ),
)
