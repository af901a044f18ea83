"""The list of all known clients."""

from __future__ import annotations

from openclaw.clients.aider import AIDER
from openclaw.clients.claude_code import CLAUDE_CODE
from openclaw.clients.client import Clients
from openclaw.clients.cline import CLINE
from openclaw.clients.codex import CODEX
from openclaw.clients.copied_settings import CONTINUE, LITELLM, OPEN_WEBUI, OPENAI
from openclaw.clients.gemini_cli import GEMINI_CLI
from openclaw.clients.goose import GOOSE
from openclaw.clients.hermes import HERMES
from openclaw.clients.librechat import LIBRECHAT
from openclaw.clients.openclaw_agent import OPENCLAW
from openclaw.clients.opencode import OPENCODE
from openclaw.clients.openhands import OPENHANDS
from openclaw.clients.pi import PI
from openclaw.clients.zed import ZED

CLIENTS = Clients(
    (
        *(OPENCLAW, CLAUDE_CODE, CODEX, HERMES, OPENCODE, OPENAI, LITELLM, CONTINUE, OPEN_WEBUI),
        *(CLINE, OPENHANDS, GEMINI_CLI, AIDER, ZED, GOOSE, LIBRECHAT, PI),
    ),
)
