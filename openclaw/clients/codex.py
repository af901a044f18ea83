"""Codex CLI (measured with 0.169.0), over /v1/responses.

Its thread is the conversation; a fork of a thread has its own id. The metadata of a turn contains the kind of
request; its environment (folder, date) is sent as user texts.
"""

from __future__ import annotations

from collections.abc import Mapping

from openclaw.clients.client import Block, Client, HeaderMark, Link, OwnFile

_METADATA = "x-codex-turn-metadata"


def entries(link: Link) -> Mapping[tuple[str, ...], object]:
    provider = ("model_providers", link.provider)
    settings_by_path: dict[tuple[str, ...], object] = {
        (*provider, "name"): "OpenClaw-RL",
        (*provider, "base_url"): link.base_url,
        (*provider, "wire_api"): "responses",
        (*provider, "experimental_bearer_token"): link.key,
    }
    if link.default:
        settings_by_path[("model",)] = link.model.id
        settings_by_path[("model_provider",)] = link.provider
        settings_by_path[("model_context_window",)] = link.model.context
    return settings_by_path


CODEX = Client(
    name="codex",
    noise=(Block("<environment_context>", "</environment_context>"),),
    session_headers=("thread-id", "session-id"),
    side_headers=(
        HeaderMark(_METADATA, main=("turn",), part="request_kind"),
        HeaderMark(_METADATA, main=("user",), part="thread_source"),
        HeaderMark("x-openai-subagent"),
    ),
    own_file=OwnFile(
        folder="~/.codex",
        variables=(("CODEX_HOME", ""),),
        names=("config.toml",),
        form="toml",
        entries=entries,
        start="codex",
        least_context=8_000,
    ),
)
