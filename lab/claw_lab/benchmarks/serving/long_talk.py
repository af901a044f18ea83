"""Builds a conversation as OpenClaw has it, for benchmarks: half of it are system prompt and tools, half old turns;
texts have time stamps, and tools are called."""

from __future__ import annotations

from typing import Any

TEXT = "The quick brown fox jumps over the lazy dog, and then it takes a long rest. "
HISTORY_TOKENS = 10_000
CHARACTERS_A_TOKEN = 2.2
"""Characters for each token of TEXT with the tiny model's tokenizer, measured; the exact length of the history is
printed."""
INTERNAL_CONTEXT = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nnone\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"


def long_talk() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns (messages, tools): a history of HISTORY_TOKENS that ends with an answer."""
    half = int(HISTORY_TOKENS * CHARACTERS_A_TOKEN / 2)
    prose = TEXT * (half // len(TEXT))
    tools = [
        {
            "type": "function",
            "function": {
                "name": f"tool_{n}",
                "description": prose[: half // 40],
                "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
            },
        }
        for n in range(10)
    ]
    talk: list[dict[str, Any]] = [{"role": "system", "content": prose[: half // 2]}]
    for n in range(20):
        talk.append({"role": "user", "content": f"[Sat 2026-11-21 02:{n:02} UTC] {n} " + prose[: half // 60]})
        call = {
            "id": f"call{n}",
            "type": "function",
            "function": {"name": "tool_1", "arguments": '{"path": "a"}'},
        }
        talk.append({"role": "assistant", "content": None, "tool_calls": [call]})
        talk.append({"role": "tool", "tool_call_id": f"call{n}", "content": prose[: half // 60]})
        talk.append({"role": "assistant", "content": prose[: half // 60]})
    return talk, tools
