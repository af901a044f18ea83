"""Any OpenAI SDK, through its own variables."""

from __future__ import annotations

from openclaw.clients.client import Client, Model


def settings(base_url: str, model: Model, key: str) -> str:
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


OPENAI = Client(name="openai", settings=settings)
