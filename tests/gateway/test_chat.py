"""An OpenAI client talks to the gateway, streamed and not."""

from __future__ import annotations

from typing import Any

HELLO: list[Any] = [{"role": "user", "content": "hello"}]


def test_whole_answer_has_text_usage_and_session(gateway: Any) -> None:
    ids = gateway.says("the answer is 42.")
    answer = gateway.client.chat.completions.create(model="small-qwen3", messages=HELLO)
    assert answer.choices[0].message.content == "the answer is 42."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == len(ids)
    assert answer.usage.prompt_tokens == len(gateway.engine.requests[0]["input_ids"])
    assert answer.session_id == gateway.turn(answer.id).session_id


def test_streamed_answer_comes_in_pieces_with_usage_last(gateway: Any) -> None:
    gateway.says("hello there, how are you today?")
    gateway.engine.pause = 0.01
    stream = gateway.client.chat.completions.create(
        model="small-qwen3", messages=HELLO, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    pieces = [c.choices[0].delta.content for c in chunks if c.choices and c.choices[0].delta.content]
    assert "".join(pieces) == "hello there, how are you today?"
    assert len(pieces) > 3
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == len(gateway.engine.say)
