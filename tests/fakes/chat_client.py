"""An OpenAI client for a running gateway."""

from __future__ import annotations

from typing import Any

from tests.fakes.running_gateway import RunningGateway

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
MODEL = "small-qwen3"
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a.txt"}}\n</tool_call>'
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {"name": "read", "description": "reads", "parameters": {"type": "object"}},
    }
]


def ask(gateway: RunningGateway, **options: Any) -> Any:
    return gateway.client.chat.completions.create(**{"model": MODEL, "messages": HELLO, **options})


def streamed(gateway: RunningGateway, **options: object) -> list[Any]:
    return list(ask(gateway, stream=True, **options))


def text_of(chunks: list[Any], name: str = "content") -> str:
    return "".join(getattr(c.choices[0].delta, name, None) or "" for c in chunks if c.choices)


def finish_of(chunks: list[Any]) -> Any:
    return [c.choices[0].finish_reason for c in chunks if c.choices][-1]
