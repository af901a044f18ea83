"""The Responses API: items and events, continued answers, and stored turns."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest

from tests.fakes.running_gateway import RunningGateway, StartGateway

CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a.txt"}}\n</tool_call>'
TOOLS: list[Any] = [{"type": "function", "name": "read", "parameters": {"type": "object"}, "strict": False}]


def ask(gateway: RunningGateway, **options: Any) -> Any:
    return gateway.client.responses.create(**{"model": "small-qwen3", "input": "hello", **options})


def streamed(gateway: RunningGateway, **options: Any) -> Any:
    with gateway.client.responses.stream(**{"model": "small-qwen3", "input": "hello", **options}) as stream:
        return [event.response for event in stream if hasattr(event, "response")][-1]


@pytest.mark.parametrize("how", [ask, streamed])
def test_reasoning_text_and_a_call_are_items(gateway: RunningGateway, how: Any) -> None:
    gateway.says(f"<think>\nso\n</think>\n\nlet me see\n{CALL}")
    gateway.engine.chunk = 1
    answer = how(gateway, tools=TOOLS)
    assert [item.type for item in answer.output] == ["reasoning", "message", "function_call"]
    assert answer.output[0].content[0].text == "so" and answer.output_text == "let me see"
    call = answer.output[2]
    assert call.name == "read" and json.loads(call.arguments) == {"path": "a.txt"} and call.call_id
    assert answer.status == "completed" and answer.usage.output_tokens == len(gateway.engine.say)
    turn = gateway.turn(answer.id)
    assert turn.completion_ids == gateway.engine.say and turn.state == "captured"


def test_a_response_continues_an_earlier_one(gateway: RunningGateway) -> None:
    gateway.says(CALL)
    first = ask(gateway, tools=TOOLS, instructions="be kind")
    gateway.says("done")
    output = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "42"}
    second = ask(gateway, tools=TOOLS, input=[output], previous_response_id=first.id)
    turn = gateway.turn(second.id)
    assert turn.parent_id == gateway.turn(first.id).id and second.session_id == first.session_id
    assert gateway.wait_for(lambda: gateway.turn(first.id).next_state)[0]["content"] == "42"
    prompt = gateway.tokenizer.decode(gateway.engine.requests[1]["input_ids"])
    assert "<tool_response>\n42\n</tool_response>" in prompt and "be kind" not in prompt


def test_a_history_sent_as_items_is_matched_to_its_session(gateway: RunningGateway) -> None:
    gateway.says(f"<think>\nso\n</think>\n\nlet me see\n{CALL}")
    first = ask(gateway, tools=TOOLS)
    items: list[Any] = [{"role": "user", "content": "hello"}]
    items += [item.model_dump(exclude_none=True) for item in first.output]
    items.append({"type": "function_call_output", "call_id": first.output[2].call_id, "output": "42"})
    items.append({"role": "user", "content": [{"type": "input_text", "text": "and?"}]})
    gateway.says("done")
    second = ask(gateway, tools=TOOLS, input=items)
    assert gateway.turn(second.id).parent_id == gateway.turn(first.id).id
    assert len(gateway.turn(second.id).messages) == 4


@pytest.mark.parametrize("how", [ask, streamed])
def test_a_truncated_call_is_not_an_output_item(gateway: RunningGateway, how: Any) -> None:
    limit = len(gateway.says(f"let me see\n{CALL}")) - 3
    answer = how(gateway, tools=TOOLS, max_output_tokens=limit)
    assert [item.type for item in answer.output] == ["message"]
    assert answer.status == "incomplete" and answer.incomplete_details.reason == "max_output_tokens"


def test_events_are_numbered_and_in_order(gateway: RunningGateway) -> None:
    gateway.says("hello there")
    events = list(ask(gateway, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    names = [event.type.removeprefix("response.") for event in events]
    assert names[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert names[-4:] == ["output_text.done", "content_part.done", "output_item.done", "completed"]


def test_reasoning_effort_none_disables_reasoning(gateway: RunningGateway) -> None:
    gateway.says("hello")
    ask(gateway, reasoning={"effort": "none"})
    prompt = gateway.tokenizer.decode(gateway.engine.requests[0]["input_ids"])
    assert prompt.endswith("<think>\n\n</think>\n\n")


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"input": []}, "input"),
        ({"input": [{"type": 5}]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"text": "x"}]}]}, "input[0].content"),
        ({"tools": [{"name": "read"}]}, "tools[0]"),
        ({"background": True}, "background"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"instructions": 5}, "instructions"),
    ],
)
def test_invalid_fields_are_reported_by_name(
    gateway: RunningGateway, options: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(gateway, **options)
    assert caught.value.param == param and gateway.engine.requests == []


def test_includes_of_absent_items_are_accepted(gateway: RunningGateway) -> None:
    gateway.says("hello")
    assert ask(gateway, include=["reasoning.encrypted_content"], top_logprobs=0).output_text == "hello"


def test_a_previous_response_that_is_not_stored_is_not_found(
    gateway: RunningGateway, start_gateway: StartGateway
) -> None:
    for one in (gateway, start_gateway(enable_rl_intercept=False, rl_buffer_dir=None)):
        with pytest.raises(
            openai.NotFoundError, match="Previous response with id 'resp_x' not found"
        ) as raised:
            ask(one, previous_response_id="resp_x")
        assert raised.value.code == "previous_response_not_found"


def test_another_persons_response_cannot_be_continued(start_gateway: StartGateway) -> None:
    gateway = start_gateway(api_keys="ada=key-a,bob=key-b")
    gateway.says("hi")

    def said(key: str, **more: object) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.post(f"{gateway.url}/v1/responses", json={"input": "hello", **more}, headers=headers)

    first = said("key-a").json()["id"]
    assert said("key-b", previous_response_id=first).status_code == 404
    assert said("key-a", previous_response_id=first).status_code == 200


def test_refusals_of_another_model_are_parsed_as_text(gateway: RunningGateway) -> None:
    gateway.says("hi")
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not."}]}
    history = [{"role": "user", "content": "hello"}, refusal, {"role": "user", "content": "why?"}]
    for path, field in (("/v1/responses", "input"), ("/v1/chat/completions", "messages")):
        answer = gateway.http.post(path, json={field: history})
        assert answer.status_code == 200
        assert "I will not." in gateway.tokenizer.decode(gateway.turn(answer.json()["id"]).prompt_ids)
