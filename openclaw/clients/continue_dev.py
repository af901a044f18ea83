"""Continue, in an editor."""

from __future__ import annotations

from openclaw.clients.client import Client, Model


def settings(base_url: str, model: Model, key: str) -> str:
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


CONTINUE = Client(name="continue", settings=settings)
