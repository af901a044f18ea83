"""Anthropic's client with the gateway; its turns are stored and matched like all others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.fakes.running_gateway import RunningGateway

if TYPE_CHECKING:
    import anthropic

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a.txt"}}\n</tool_call>'
TOOLS: list[Any] = [{"name": "read", "description": "reads", "input_schema": {"type": "object"}}]


def client(gateway: RunningGateway) -> anthropic.Anthropic:
    import anthropic  # 3,000 modules, for the process that runs these tests

    return anthropic.Anthropic(base_url=gateway.url, api_key="secret-key", max_retries=0)


def ask(gateway: RunningGateway, **options: Any) -> Any:
    asked = {"model": "small-qwen3", "messages": HELLO, "max_tokens": 200, **options}
    return client(gateway).messages.create(**asked)


def streamed(gateway: RunningGateway, **options: Any) -> Any:
    asked = {"model": "small-qwen3", "messages": HELLO, "max_tokens": 200, **options}
    with client(gateway).messages.stream(**asked) as stream:
        for _ in stream:
            pass
        return stream.get_final_message()


@pytest.mark.parametrize("how", [ask, streamed])
def test_reasoning_text_and_a_call_are_content_blocks(gateway: RunningGateway, how: Any) -> None:
    gateway.says(f"<think>\nso\n</think>\n\nlet me see\n{CALL}")
    gateway.engine.chunk = 1
    answer = how(gateway, tools=TOOLS, thinking={"type": "enabled", "budget_tokens": 1024})
    assert [block.type for block in answer.content] == ["thinking", "text", "tool_use"]
    assert answer.content[0].thinking == "so" and answer.content[1].text == "let me see"
    assert (answer.content[2].name, answer.content[2].input) == ("read", {"path": "a.txt"})
    assert answer.stop_reason == "tool_use" and answer.usage.output_tokens == len(gateway.engine.say)
    turn = gateway.turn(answer.id)
    assert turn.completion_ids == gateway.engine.say and turn.state == "captured"


def test_a_conversation_is_one_session_and_each_turn_answers_the_last(gateway: RunningGateway) -> None:
    gateway.says(CALL)
    first = ask(gateway, tools=TOOLS, system="be kind")
    talk = [*HELLO, {"role": "assistant", "content": first.content}]
    result = {"type": "tool_result", "tool_use_id": first.content[0].id, "content": "42"}
    talk.append({"role": "user", "content": [result, {"type": "text", "text": "and?"}]})
    gateway.says("done")
    second = ask(gateway, tools=TOOLS, system=[{"type": "text", "text": "be kind"}], messages=talk)
    turn = gateway.turn(second.id)
    assert turn.parent_id == gateway.turn(first.id).id and second.session_id == first.session_id
    told = gateway.wait_for(lambda: gateway.turn(first.id).next_state)
    assert [(message["role"], message["content"]) for message in told] == [("tool", "42"), ("user", "and?")]
    prompt = gateway.tokenizer.decode(gateway.engine.requests[1]["input_ids"])
    assert "<tool_response>\n42\n</tool_response>" in prompt and "be kind" in prompt


def test_without_a_thinking_request_the_model_does_not_reason(gateway: RunningGateway) -> None:
    gateway.says("hello")
    ask(gateway)
    prompt = gateway.tokenizer.decode(gateway.engine.requests[0]["input_ids"])
    assert prompt.endswith("<think>\n\n</think>\n\n")


@pytest.mark.parametrize("how", [ask, streamed])
def test_a_truncated_call_is_not_a_tool_block(gateway: RunningGateway, how: Any) -> None:
    limit = len(gateway.says(f"let me see\n{CALL}")) - 3
    answer = how(gateway, tools=TOOLS, max_tokens=limit)
    assert [block.type for block in answer.content] == ["text"] and answer.stop_reason == "max_tokens"


@pytest.mark.parametrize("how", [ask, streamed])
def test_the_matched_stop_sequence_is_reported(gateway: RunningGateway, how: Any) -> None:
    gateway.engine.say = gateway.tokenizer.encode("hello there")
    gateway.engine.finish = {"type": "stop", "matched": "there"}
    answer = how(gateway, stop_sequences=["there"])
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "there")
    assert answer.content[0].text.strip() == "hello"


def test_a_tool_call_can_be_required(gateway: RunningGateway) -> None:
    gateway.engine.say = gateway.tokenizer.encode(' {"path": "b"}}\n</tool_call><|im_end|>')
    answer = ask(gateway, tools=TOOLS, tool_choice={"type": "any", "disable_parallel_tool_use": True})
    assert answer.content[0].input == {"path": "b"}


@pytest.mark.parametrize("field", ["output_config", "output_format"])
def test_a_format_of_the_answer_reaches_the_engine_as_a_schema(gateway: RunningGateway, field: str) -> None:
    schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
    form = {"type": "json_schema", "schema": schema}
    gateway.says('{"title": "Tea"}')
    body = {field: {"effort": "high", "format": form} if field == "output_config" else form}
    answer = ask(gateway, extra_body=body)
    assert json.loads(answer.content[0].text) == {"title": "Tea"}
    assert json.loads(gateway.engine.requests[0]["sampling_params"]["json_schema"]) == schema


def test_tokens_are_counted_without_an_answer(gateway: RunningGateway) -> None:
    count = client(gateway).messages.count_tokens(model="small-qwen3", messages=HELLO, tools=TOOLS)
    gateway.says("hi")
    assert ask(gateway, tools=TOOLS).usage.input_tokens == count.input_tokens


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"messages": [{"role": "poet", "content": "x"}]}, "role"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "text"),
        ({"messages": [{"role": "user", "content": 5}]}, "content"),
        ({"tools": [{"type": "custom"}]}, "name"),
        ({"tool_choice": {"type": "tool", "name": "fly"}, "tools": TOOLS}, "fly"),
        ({"thinking": {"type": "deep"}}, "thinking"),
        ({"extra_body": {"output_config": {"format": {"type": "xml"}}}}, "output_config.format"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)
def test_errors_have_anthropics_format(gateway: RunningGateway, options: dict[str, Any], word: str) -> None:
    import anthropic

    with pytest.raises(anthropic.BadRequestError, match=word) as caught:
        ask(gateway, **options)
    assert caught.value.body["type"] == "error"  # type: ignore[index]
    assert caught.value.body["error"]["type"] == "invalid_request_error"  # type: ignore[index]


def test_a_wrong_key_has_its_status_and_another_model_name_is_accepted(
    keyed: RunningGateway,
) -> None:
    import anthropic

    wrong = anthropic.Anthropic(base_url=keyed.url, api_key="other", max_retries=0)
    with pytest.raises(anthropic.AuthenticationError):
        wrong.messages.create(model="small-qwen3", messages=HELLO, max_tokens=5)
    keyed.says("hello")
    assert ask(keyed, model="claude-x").model == "small-qwen3"


def test_events_have_anthropics_order(gateway: RunningGateway) -> None:
    gateway.says("hello there")
    body = {"messages": HELLO, "max_tokens": 50, "stream": True}
    lines = gateway.http.post("/v1/messages", json=body).text.split("\n")
    names = [line[7:] for line in lines if line.startswith("event: ")]
    assert names[:2] == ["message_start", "content_block_start"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    datas = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert [data["type"] for data in datas] == names


@pytest.mark.parametrize("value", ["1" * 40, r'"\ud800"', "[" * 300 + "]" * 300])
def test_a_call_with_unusual_json_is_answered(gateway: RunningGateway, value: str) -> None:
    gateway.says(f'<tool_call>\n{{"arguments": {{"a": {value}}}, "name": "read"}}\n</tool_call>')
    tools = [{"name": "read", "input_schema": {"type": "object"}}]
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 1500, "tools": tools}
    for stream in (False, True):
        answer = gateway.http.post("/v1/messages", json={**body, "stream": stream})
        assert answer.status_code == 200 and "tool_use" in answer.text
    assert gateway.store.status.counts()["turns"] == {"captured": 2}


def test_a_prefilled_answer_is_rejected_not_ignored(gateway: RunningGateway) -> None:
    begun = [*HELLO, {"role": "assistant", "content": "The answer is"}]
    for path, status in (("/v1/messages", 400), ("/v1/messages/count_tokens", 200)):
        assert gateway.http.post(path, json={"messages": begun, "max_tokens": 5}).status_code == status
