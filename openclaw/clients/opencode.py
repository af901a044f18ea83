"""opencode (measured with 1.18.33), over /v1/chat/completions.

It sends the session id in this server's header (X-Session-Id), also in requests for titles and summaries.
"""

from __future__ import annotations

from collections.abc import Mapping

from openclaw.clients.client import Client, HeaderMark, Link, OwnFile, SideMark


def entries(link: Link) -> Mapping[tuple[str, ...], object]:
    provider, model = ("provider", link.provider), link.model
    known = (*provider, "models", model.id)
    settings_by_path: dict[tuple[str, ...], object] = {
        (*provider, "npm"): "@ai-sdk/openai-compatible",
        (*provider, "name"): "OpenClaw-RL",
        (*provider, "options", "baseURL"): link.base_url,
        (*provider, "options", "apiKey"): link.key,
        (*known, "name"): model.id,
        (*known, "tool_call"): True,
        (*known, "limit", "context"): model.context,
        (*known, "limit", "output"): min(model.max_tokens, model.context // 2),
    }
    if link.default:
        settings_by_path[("model",)] = settings_by_path[("small_model",)] = f"{link.provider}/{model.id}"
    return settings_by_path


OPENCODE = Client(
    name="opencode",
    side_headers=(HeaderMark("x-parent-session-id"),),
    side_marks=(
        SideMark("title", "system", "You are a title generator."),
        SideMark("compaction", "system", "You are a context summarization agent."),
        SideMark("summary", "system", "Summarize what was done in this conversation."),
    ),
    own_file=OwnFile(
        folder="~/.config/opencode",
        variables=(("OPENCODE_CONFIG_DIR", ""), ("XDG_CONFIG_HOME", "opencode")),
        names=("opencode.json", "opencode.jsonc"),
        form="json",
        entries=entries,
        start="opencode",
        least_context=8_000,
    ),
)
