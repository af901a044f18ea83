"""One request in each API through its own client library, and the library's view of the answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.fakes.running_gateway import RunningGateway

Json = dict[str, Any]
MODEL = "small-qwen3"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


@dataclass(frozen=True)
class Answer:
    """A client's view of an answer. `calls`: (name, arguments) that it would execute; `back`: messages that it sends
    back; `fulfilled`: whether the answer reports that a required call is missing."""

    id: str
    text: str
    calls: list[tuple[str, Any]]
    reason: str
    back: list[Json]
    fulfilled: bool


Ask = Callable[..., Answer]


def chat(
    gateway: RunningGateway, talk: list[Json], stream: bool, forced: str | None = None, most: int = 500
) -> Answer:
    tools = [
        {"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in ("weather", "time")
    ]
    asked: Json = {"model": MODEL, "messages": talk, "tools": tools, "max_tokens": most}
    if forced:
        asked["tool_choice"] = {"type": "function", "function": {"name": forced}}
    client = gateway.client
    fulfilled = True
    if stream:
        with client.chat.completions.stream(**asked) as events:
            for event in events:
                if event.type == "chunk" and event.chunk.choices:
                    fulfilled = getattr(event.chunk.choices[0], "tool_choice_fulfilled", fulfilled)
            answer: Any = events.current_completion_snapshot
    else:
        answer = client.chat.completions.create(**asked)
        fulfilled = getattr(answer.choices[0], "tool_choice_fulfilled", True)
    choice = answer.choices[0]
    calls = [
        (call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls or []
    ]
    back = {"role": "assistant", "content": choice.message.content}
    if calls:
        back["tool_calls"] = [call.model_dump() for call in choice.message.tool_calls]
    return Answer(answer.id, choice.message.content or "", calls, choice.finish_reason, [back], fulfilled)


def responses(
    gateway: RunningGateway, talk: list[Json], stream: bool, forced: str | None = None, most: int = 500
) -> Answer:
    tools = [{"type": "function", "name": name, "parameters": SCHEMA} for name in ("weather", "time")]
    asked: Json = {"model": MODEL, "input": talk, "tools": tools, "max_output_tokens": most}
    asked["reasoning"] = {"effort": "none"}
    if forced:
        asked["tool_choice"] = {"type": "function", "name": forced}
    client = gateway.client
    if stream:
        events = list(client.responses.create(**asked, stream=True))
        answer: Any = events[-1].response
        opened = [event.item.id for event in events if event.type == "response.output_item.added"]
        done = [event.item.id for event in events if event.type == "response.output_item.done"]
        assert opened == done == [item.id for item in answer.output]
    else:
        answer = client.responses.create(**asked)
    calls = [
        (item.name, json.loads(item.arguments)) for item in answer.output if item.type == "function_call"
    ]
    reason = answer.incomplete_details.reason if answer.incomplete_details else answer.status
    back = [item.model_dump(exclude_none=True) for item in answer.output]
    fulfilled = getattr(answer, "tool_choice_fulfilled", True)
    return Answer(answer.id, answer.output_text, calls, reason, back, fulfilled)


def messages(
    gateway: RunningGateway, talk: list[Json], stream: bool, forced: str | None = None, most: int = 500
) -> Answer:
    import anthropic  # 3,000 modules, for the process that runs these tests

    tools: Any = [{"name": name, "input_schema": SCHEMA} for name in ("weather", "time")]
    asked: Json = {"model": MODEL, "messages": talk, "tools": tools, "max_tokens": most}
    if forced:
        asked["tool_choice"] = {"type": "tool", "name": forced}
    client = anthropic.Anthropic(base_url=gateway.url, api_key="secret-key", max_retries=0)
    fulfilled = True
    if stream:
        with client.messages.stream(**asked) as events:
            for event in events:
                if event.type == "message_delta":
                    fulfilled = getattr(event.delta, "tool_choice_fulfilled", True)
            answer: Any = events.get_final_message()
    else:
        answer = client.messages.create(**asked)
        fulfilled = getattr(answer, "tool_choice_fulfilled", True)
    calls = [(block.name, block.input) for block in answer.content if block.type == "tool_use"]
    text = "".join(block.text for block in answer.content if block.type == "text")
    back = {"role": "assistant", "content": [block.model_dump() for block in answer.content]}
    return Answer(answer.id, text, calls, answer.stop_reason, [back], fulfilled)


DIALECTS: dict[str, Ask] = {"chat": chat, "responses": responses, "messages": messages}
STOPPED = {"chat": "stop", "responses": "completed", "messages": "end_turn"}
CUT = {"chat": "length", "responses": "max_output_tokens", "messages": "max_tokens"}
CALLED = {"chat": "tool_calls", "responses": "completed", "messages": "tool_use"}
