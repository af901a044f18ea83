"""Clients that need nothing but their settings, which a person copies: OpenAI's SDK, LiteLLM, Continue, Open WebUI."""

from __future__ import annotations

import json

from openclaw.clients.client import Client, Model


def _openai(base_url: str, model: Model, key: str) -> str:
    return f"""\
# any OpenAI SDK, through its own variables; name a session with the header X-Session-Id, or let the server find it
export OPENAI_BASE_URL={base_url}
export OPENAI_API_KEY={key}
python - <<'END'
from openai import OpenAI
answer = OpenAI().chat.completions.create(model="{model.id}", messages=[{{"role": "user", "content": "hi"}}])
print(answer.choices[0].message.content)
END
"""


def _litellm(base_url: str, model: Model, key: str) -> str:
    key = "os.environ/SGLANG_API_KEY" if key.startswith("$") else key
    return f"""\
# config.yaml of LiteLLM's proxy
model_list:
  - model_name: {model.id}
    litellm_params:
      model: openai/{model.id}
      api_base: {base_url}
      api_key: {key}
"""


def _continue(base_url: str, model: Model, key: str) -> str:
    key = "${{ secrets.SGLANG_API_KEY }}" if key.startswith("$") else key
    return f"""\
# ~/.continue/config.yaml, under models:
  - name: {model.id} (OpenClaw-RL)
    provider: openai
    model: {model.id}
    apiBase: {base_url}
    apiKey: {key}
    defaultCompletionOptions:
      contextLength: {model.context}
      maxTokens: {model.max_tokens}
"""


def _open_webui(base_url: str, model: Model, key: str) -> str:
    shown = json.dumps(base_url)
    return f"""\
# Open WebUI, before it starts for the first time; later: Admin Settings, Connections, OpenAI API, {shown}
export OPENAI_API_BASE_URL={base_url}
export OPENAI_API_KEY={key}
export ENABLE_FORWARD_USER_INFO_HEADERS=False
"""


OPENAI = Client(name="openai", settings=_openai)
LITELLM = Client(name="litellm", settings=_litellm)
CONTINUE = Client(name="continue", settings=_continue)
OPEN_WEBUI = Client(name="open-webui", settings=_open_webui)
