"""Clients whose settings a user copies by hand: OpenAI's SDK, LiteLLM, Continue, Open WebUI."""

from __future__ import annotations

import json

from openclaw.clients.client import Before, Client, Model, Own, SideMark


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
_TITLE = "Given the following... please reply with a title for the chat"
CONTINUE = Client(
    name="continue",
    settings=_continue,
    befores=(Before("", "Use the above code to answer the following question."),),
    own=(
        Own(_TITLE),
        Own("Tool output for ", tool=True),
        Own("The user accepted the edit."),
        Own("The user rejected the edit."),
    ),
    side_marks=(SideMark("title", "last", _TITLE),),
)
_TASKS = ("Generate ", "Suggest ", "Analyze the chat history", "You are an autocompletion system")
OPEN_WEBUI = Client(
    name="open-webui",
    settings=_open_webui,
    session_headers=("x-openwebui-chat-id",),
    befores=(Before("### Task:\nRespond to the user query using the provided context", "</context>"),),
    own=(
        Own("Query: History:\n"),
        Own("Your task is to reflect the speaker's likely facial expression"),
        Own("You have been provided with a set of responses from various models"),
    ),
    side_marks=(
        *(SideMark("task", "last", f"### Task:\n{begins}") for begins in _TASKS),
        SideMark("tools", "last", "Query: History:\n"),
    ),
)
