"""LiteLLM's proxy."""

from __future__ import annotations

from openclaw.clients.client import Client, Model


def settings(base_url: str, model: Model, key: str) -> str:
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


LITELLM = Client(name="litellm", settings=settings)
