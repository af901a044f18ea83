"""From sampled ids to the streamed text of a client, and to the stored turn."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fakes.chat_client import CALL, TOOLS, ask, finish_of, streamed, text_of
from tests.fakes.running_gateway import RunningGateway


def test_streamed_answer_comes_in_pieces_with_usage_last(gateway: RunningGateway) -> None:
    gateway.says("hello there, how are you today?")
    gateway.engine.pause, gateway.engine.chunk = 0.01, 1
    chunks = streamed(gateway, stream_options={"include_usage": True})
    assert text_of(chunks) == "hello there, how are you today?"
    assert len([c for c in chunks if c.choices and c.choices[0].delta.content]) > 4
    assert chunks[0].choices[0].delta.role == "assistant"
    assert finish_of(chunks) == "stop"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == len(gateway.engine.say)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
def test_unicode_line_separators_do_not_split_events(gateway: RunningGateway, path: str) -> None:
    text = "one\u2028two\u2029three\u0085four"
    gateway.says(text)
    asked = "input" if path.endswith("responses") else "messages"
    body = {asked: [{"role": "user", "content": "hello"}], "max_tokens": 50, "stream": True}
    if asked == "input":
        body["max_output_tokens"] = body.pop("max_tokens")
    with gateway.http.stream("POST", path, json=body) as answer:
        events = [line[6:] for line in answer.iter_lines() if line.startswith("data: {")]
    assert answer.status_code == 200 and all(json.loads(event) for event in events)
    assert any(json.dumps("\u2028")[1:-1] in event for event in events)
    stored = gateway.store.status.counts()["turns"]
    assert stored == {"captured": 1}


def test_sampled_ids_are_stored_even_if_their_text_encodes_differently(gateway: RunningGateway) -> None:
    tokenizer = gateway.tokenizer
    ids = [tokenizer.encode(letter)[0] for letter in "hello there"] + [tokenizer.token_id("<|im_end|>")]
    assert ids[:-1] != tokenizer.encode("hello there")
    gateway.engine.say = ids
    answer = ask(gateway, extra_body={"return_token_ids": True})
    turn = gateway.turn(answer.id)
    assert answer.choices[0].message.content == "hello there"
    assert turn.completion_ids == ids == answer.choices[0].token_ids
    assert turn.prompt_ids == gateway.engine.requests[0]["input_ids"] == answer.prompt_token_ids
    assert turn.completion_log_probs == answer.choices[0].token_log_probs
    assert len(set(turn.completion_log_probs)) > 1 and turn.version_spans == [(3, 0, len(ids))]


def test_the_streamed_ids_equal_the_stored_ones(gateway: RunningGateway) -> None:
    gateway.says("<think>\nhow\n</think>\n\nhello there, 你好 🦀!")
    chunks = streamed(gateway, extra_body={"return_token_ids": True})
    ids = [token for c in chunks for token in c.choices[0].token_ids]
    turn = gateway.turn(chunks[0].id)
    assert ids == turn.completion_ids == gateway.engine.say
    assert [p for c in chunks for p in c.choices[0].token_log_probs] == turn.completion_log_probs
    assert chunks[0].prompt_token_ids == turn.prompt_ids


@pytest.mark.parametrize("chunk", [1, 2, 7, 1000])
def test_reasoning_is_streamed_in_its_own_field(gateway: RunningGateway, chunk: int) -> None:
    gateway.says("<think>\nthe user said hello\n</think>\n\nhello there")
    gateway.engine.chunk = chunk
    chunks = streamed(gateway)
    assert text_of(chunks, "reasoning_content") == "the user said hello"
    assert text_of(chunks) == "hello there"


@pytest.mark.parametrize("chunk", [1, 5, 1000])
def test_tool_calls_are_streamed_name_first_then_arguments(gateway: RunningGateway, chunk: int) -> None:
    gateway.says(f"let me see\n{CALL}\n{CALL}")
    gateway.engine.chunk = chunk
    chunks = streamed(gateway, tools=TOOLS, tool_choice="auto")
    pieces = [call for c in chunks for call in c.choices[0].delta.tool_calls or []]
    starts = [call for call in pieces if call.id]
    assert [(call.index, call.function.name, call.type) for call in starts] == [
        (0, "read", "function"),
        (1, "read", "function"),
    ]
    for index in (0, 1):
        arguments = [call.function.arguments for call in pieces if call.index == index]
        assert json.loads("".join(arguments)) == {"path": "a.txt"}
    assert text_of(chunks) == "let me see" and finish_of(chunks) == "tool_calls"
    assert "reads" in gateway.tokenizer.decode(gateway.engine.requests[0]["input_ids"])


@pytest.mark.parametrize("missing", [2, 3, 4])
def test_tool_call_cut_by_length_is_never_complete(gateway: RunningGateway, missing: int) -> None:
    limit = len(gateway.says(CALL)) - missing
    chunks = streamed(gateway, tools=TOOLS, max_tokens=limit)
    calls = [call for c in chunks for call in c.choices[0].delta.tool_calls or []]
    assert calls == [] and text_of(chunks).startswith("<tool_call>") and finish_of(chunks) == "length"
    whole = ask(gateway, tools=TOOLS, max_tokens=limit).choices[0]
    assert whole.message.tool_calls is None and whole.finish_reason == "length"


def test_a_truncated_answer_has_finish_reason_length(gateway: RunningGateway) -> None:
    gateway.says("hello there, how are you today?")
    answer = ask(gateway, max_completion_tokens=2)
    assert answer.choices[0].finish_reason == "length" and answer.usage.completion_tokens == 2
    assert gateway.turn(answer.id).finish_reason == "length"


@pytest.mark.parametrize("stop", ["are", "how are", "\n"])
def test_a_stop_string_is_never_shown(gateway: RunningGateway, stop: str) -> None:
    text = "hello there, how are you" if stop != "\n" else "hello\n"
    gateway.engine.say = gateway.tokenizer.encode(text)
    gateway.engine.finish, gateway.engine.chunk = {"type": "stop", "matched": stop}, 1
    chunks = streamed(gateway, stop=[stop])
    assert gateway.engine.requests[0]["sampling_params"]["stop"] == [stop]
    assert text_of(chunks).rstrip() == text[: text.index(stop)].rstrip()
    assert finish_of(chunks) == "stop"


def test_text_that_only_starts_like_a_stop_string_is_shown(gateway: RunningGateway) -> None:
    gateway.says("hello there")
    assert text_of(streamed(gateway, stop="there, friend")) == "hello there"


def test_many_clients_at_once_each_get_their_answer(gateway: RunningGateway) -> None:
    gateway.says("hello there")
    gateway.engine.pause = 0.002

    def one(index: int) -> str:
        return text_of(streamed(gateway, messages=[{"role": "user", "content": f"hello {index}"}]))

    with ThreadPoolExecutor(12) as pool:
        assert set(pool.map(one, range(36))) == {"hello there"}
    assert gateway.store.status.counts()["turns"] == {"captured": 36}
