"""Several answers to a request, required calls, and structured answers."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.fakes.running_gateway import RunningGateway

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a.txt"}}\n</tool_call>'


def tool(name: str) -> Any:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def ask(gateway: RunningGateway, **options: Any) -> Any:
    asked = {"model": "small-qwen3", "messages": HELLO, **options}
    return gateway.client.chat.completions.create(**asked)


def test_several_answers_are_turns_of_one_session(gateway: RunningGateway) -> None:
    ids = gateway.says("hello there")
    answer = ask(gateway, n=3, seed=5, logprobs=True)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert {choice.message.content for choice in answer.choices} == {"hello there"}
    assert all(choice.logprobs.content for choice in answer.choices)
    assert answer.usage.completion_tokens == 3 * len(ids)
    assert sorted(r["sampling_params"]["sampling_seed"] for r in gateway.engine.requests) == [5, 6, 7]
    assert gateway.store.status.counts()["turns"] == {"captured": 3}
    assert gateway.turn(answer.id).session_id == answer.session_id


def test_several_answers_are_streamed_by_index(gateway: RunningGateway) -> None:
    gateway.says("hello there")
    gateway.engine.chunk, gateway.engine.pause = 1, 0.005
    chunks = list(ask(gateway, n=2, stream=True, stream_options={"include_usage": True}))
    for index in (0, 1):
        mine = [c.choices[0] for c in chunks if c.choices and c.choices[0].index == index]
        assert mine[0].delta.role == "assistant" and mine[-1].finish_reason == "stop"
        assert "".join(choice.delta.content or "" for choice in mine) == "hello there"
    assert len({c.id for c in chunks}) == 1 and chunks[-1].usage.completion_tokens > 2


def test_several_answers_fail_together_if_the_engine_rejects_one(gateway: RunningGateway) -> None:
    gateway.engine.refuse = "no room"
    with pytest.raises(openai.BadRequestError, match="no room"):
        ask(gateway, n=3)
    assert gateway.store.status.counts()["turns"] == {}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "read"}}])
@pytest.mark.parametrize("stream", [True, False])
def test_a_forced_call_is_started_in_the_prompt(gateway: RunningGateway, choice: Any, stream: bool) -> None:
    gateway.engine.say = gateway.tokenizer.encode(' {"path": "a.txt"}}\n</tool_call><|im_end|>')
    tools = [tool("read")] if choice == "required" else [tool("write"), tool("read")]
    answer = ask(gateway, tools=tools, tool_choice=choice, stream=stream)
    prompt = gateway.tokenizer.decode(gateway.engine.requests[0]["input_ids"])
    assert prompt.endswith('</think>\n\n<tool_call>\n{"name": "read", "arguments":')
    if stream:
        pieces = [call for c in answer for call in c.choices[0].delta.tool_calls or []]
        name, arguments = pieces[0].function.name, "".join(call.function.arguments for call in pieces)
    else:
        assert answer.choices[0].finish_reason == "tool_calls"
        function = answer.choices[0].message.tool_calls[0].function
        name, arguments = function.name, function.arguments
        turn = gateway.turn(answer.id)
        assert turn.completion_ids == gateway.engine.say
        assert turn.prompt_ids == gateway.engine.requests[0]["input_ids"] and turn.state == "captured"
    assert name == "read" and json.loads(arguments) == {"path": "a.txt"}


def test_a_required_call_lets_the_model_choose_among_several_tools(gateway: RunningGateway) -> None:
    gateway.engine.say = gateway.tokenizer.encode('write", "arguments": {}}\n</tool_call><|im_end|>')
    answer = ask(gateway, tools=[tool("read"), tool("write")], tool_choice="required")
    prompt = gateway.tokenizer.decode(gateway.engine.requests[0]["input_ids"])
    assert prompt.endswith('<tool_call>\n{"name": "')
    assert answer.choices[0].message.tool_calls[0].function.name == "write"


def test_forcing_an_unknown_tool_is_rejected(gateway: RunningGateway) -> None:
    for tools in (None, [tool("write")]):
        with pytest.raises(openai.BadRequestError, match="tool_choice"):
            ask(gateway, tools=tools, tool_choice={"type": "function", "function": {"name": "read"}})


@pytest.mark.parametrize("chunk", [1, 1000])
def test_without_parallel_calls_the_answer_ends_after_the_first_call(
    gateway: RunningGateway, chunk: int
) -> None:
    ids = gateway.says(f"{CALL}\n{CALL}\n{CALL}")
    gateway.engine.chunk, gateway.engine.pause = chunk, 0.003
    answer = ask(gateway, tools=[tool("read")], parallel_tool_calls=False)
    assert len(answer.choices[0].message.tool_calls) == 1
    assert answer.choices[0].finish_reason == "tool_calls"
    turn = gateway.turn(answer.id)
    assert turn.completion_ids == ids[: len(turn.completion_ids)] and turn.state == "captured"
    if chunk == 1:
        assert len(turn.completion_ids) < len(ids) / 2
        gateway.wait_for(lambda: gateway.engine.aborted)


def test_an_engine_without_grammars_is_reported_for_structured_answers(gateway: RunningGateway) -> None:
    gateway.engine.refuse = "sampling_params.json_schema: unknown"
    with pytest.raises(openai.BadRequestError, match="cannot enforce the schema") as caught:
        ask(gateway, response_format={"type": "json_object"})
    assert caught.value.param == "response_format"


def test_a_grammar_is_passed_to_the_engine_and_recorded_in_the_turn(gateway: RunningGateway) -> None:
    gateway.says("{}")
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    answer = ask(gateway, response_format=form)
    assert json.loads(gateway.engine.requests[0]["sampling_params"]["json_schema"]) == schema
    assert gateway.turn(answer.id).unsampled == "grammar"


def test_an_answer_that_follows_a_schema_has_no_reasoning_before_it(gateway: RunningGateway) -> None:
    gateway.says("{}")
    ask(gateway, response_format={"type": "json_object"})
    prompt = gateway.tokenizer.decode(gateway.engine.requests[0]["input_ids"])
    assert prompt.endswith("<think>\n\n</think>\n\n")


@pytest.mark.parametrize("stream", [True, False])
def test_with_tools_a_call_need_not_follow_the_schema(gateway: RunningGateway, stream: bool) -> None:
    gateway.engine.say = gateway.tokenizer.encode(f"{CALL}<|im_end|>")
    answer = ask(gateway, tools=[tool("read")], response_format={"type": "json_object"}, stream=stream)
    if stream:
        calls = [call for chunk in answer for call in chunk.choices[0].delta.tool_calls or []]
    else:
        calls = answer.choices[0].message.tool_calls
    assert calls and len(gateway.engine.requests) == 1
    assert "json_schema" not in gateway.engine.requests[0]["sampling_params"]


@pytest.mark.parametrize("stream", [True, False])
def test_with_tools_an_answer_that_is_no_call_is_sampled_again_with_the_schema(
    gateway: RunningGateway, stream: bool
) -> None:
    ids = gateway.says('{"a": 1}')
    gateway.engine.chunk, gateway.engine.pause = 1, 0.003
    answer = ask(gateway, tools=[tool("read")], response_format={"type": "json_object"}, stream=stream)
    if stream:
        chunks = list(answer)
        text, name = "".join(chunk.choices[0].delta.content or "" for chunk in chunks), chunks[0].id
    else:
        text, name = answer.choices[0].message.content, answer.id
    assert text == '{"a": 1}'
    first, second = gateway.engine.requests
    assert "json_schema" not in first["sampling_params"] and "json_schema" in second["sampling_params"]
    assert first["input_ids"] == second["input_ids"]
    turn = gateway.turn(name)
    assert turn.completion_ids == ids and turn.unsampled == "grammar"


def test_a_required_call_is_not_restricted_by_the_schema_of_the_text(gateway: RunningGateway) -> None:
    gateway.engine.say = gateway.tokenizer.encode('{"path": "a.txt"}}\n</tool_call><|im_end|>')
    form = {"type": "json_object"}
    answer = ask(gateway, tools=[tool("read")], tool_choice="required", response_format=form)
    assert answer.choices[0].message.tool_calls
    assert "json_schema" not in gateway.engine.requests[0]["sampling_params"]


def test_bias_and_penalties_reach_the_engine_and_are_recorded_in_the_turn(gateway: RunningGateway) -> None:
    gateway.says("hello")
    answer = ask(gateway, logit_bias={"5": -100}, presence_penalty=0.5, frequency_penalty=0)
    sent = gateway.engine.requests[0]["sampling_params"]
    assert sent["logit_bias"] == {"5": -100} and sent["presence_penalty"] == 0.5
    assert "frequency_penalty" not in sent and gateway.turn(answer.id).unsampled == "logit_bias"


@pytest.mark.parametrize("fields", [{"reasoning_effort": "none"}, {"enable_thinking": False}])
def test_reasoning_is_disabled_by_the_fields_that_clients_send(
    gateway: RunningGateway, fields: dict[str, Any]
) -> None:
    gateway.says("hello")
    ask(gateway, extra_body=fields)
    ask(gateway, extra_body={"reasoning_effort": "high"})
    prompts = [gateway.tokenizer.decode(one["input_ids"]) for one in gateway.engine.requests]
    assert prompts[0].endswith("</think>\n\n") and not prompts[1].endswith("</think>\n\n")


@pytest.mark.parametrize(
    "field",
    [
        {"reasoning_effort": "huge"},
        {"enable_thinking": "no"},
        {"ignore_eos": True},
        {"min_tokens": 5},
        {"stop_token_ids": [5]},
        {"continue_final_message": True},
        {"prompt_logprobs": 1},
        {"echo": True},
        {"guided_json": {"type": "object"}},
    ],
)
def test_unsupported_options_are_rejected_by_name(gateway: RunningGateway, field: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(gateway, extra_body=field)
    assert caught.value.param == next(iter(field))
    gateway.says("hello")
    assert ask(gateway, extra_body=dict.fromkeys(field)).choices[0].message.content == "hello"


def test_unknown_template_options_have_no_effect(gateway: RunningGateway) -> None:
    gateway.says("hello")
    ask(gateway, extra_body={"chat_template_kwargs": {"enable_thinking": False, "mood": "merry"}})
    prompt = gateway.tokenizer.decode(gateway.engine.requests[0]["input_ids"])
    assert prompt.endswith("<think>\n\n</think>\n\n")


@pytest.mark.parametrize("route", ["responses", "messages"])
@pytest.mark.parametrize("field", [{"guided_json": {"type": "object"}}, {"min_tokens": 5}])
def test_other_apis_reject_the_option_by_name(
    gateway: RunningGateway, route: str, field: dict[str, Any]
) -> None:
    asked: dict[str, Any] = (
        {"input": "hello"} if route == "responses" else {"messages": HELLO, "max_tokens": 5}
    )
    answer = gateway.http.post(f"/v1/{route}", json={**asked, **field})
    assert answer.status_code == 400 and next(iter(field)) in answer.json()["error"]["message"]
