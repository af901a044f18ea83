"""Open WebUI."""

from __future__ import annotations

import json

from openclaw.clients.client import Client, Model


def settings(base_url: str, model: Model, key: str) -> str:
    shown = json.dumps(base_url)
    return f"""\
# Open WebUI, before it starts for the first time; later: Admin Settings, Connections, OpenAI API, {shown}
export OPENAI_API_BASE_URL={base_url}
export OPENAI_API_KEY={key}
export ENABLE_FORWARD_USER_INFO_HEADERS=False
"""


OPEN_WEBUI = Client(name="open-webui", settings=settings)
