"""An invalid request gets an error in OpenAI's format, which names its field, and stores nothing."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from tests.fakes.running_gateway import RunningGateway, StartGateway

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": "hello"}, "messages"),
    ({"messages": ["hello"]}, "messages[0]"),
    ({"messages": [{"role": "poet", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"content": "x"}]}, "messages[0].role"),
    ({"messages": [*HELLO, {"role": "user"}]}, "messages[1].content"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "image_url": {}}]}]},
        "messages[0].content[0].text",
    ),
    (
        {"messages": [{"role": "assistant", "content": None, "tool_calls": [{}]}]},
        "messages[0].tool_calls[0].function",
    ),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"tools": "read"}, "tools"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"n": 99}, "n"),
    ({"tool_choice": {"type": "function"}}, "tool_choice"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_k": 1.5}, "top_k"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_completion_tokens": -3}, "max_completion_tokens"),
    ({"seed": "x"}, "seed"),
    ({"stop": [""]}, "stop"),
    ({"stop": {"a": 1}}, "stop"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"stream_options": []}, "stream_options"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 99}, "top_logprobs"),
    ({"logit_bias": [1]}, "logit_bias"),
    ({"response_format": {"type": "xml"}}, "response_format"),
    ({"presence_penalty": 9}, "presence_penalty"),
    ({"chat_template_kwargs": {"enable_thinking": "no"}}, "chat_template_kwargs.enable_thinking"),
    ({"model": 5}, "model"),
    ({"session_id": 5}, "session_id"),
    ({"session_id": "x" * 300}, "session_id"),
    ({"turn_type": "loud"}, "turn_type"),
    ({"user": ["me"]}, "user"),
]


def post(
    gateway: RunningGateway, body: Any, path: str = "/v1/chat/completions", **options: Any
) -> httpx.Response:
    response: httpx.Response = gateway.http.post(path, **({"json": body} | options))
    return response


def test_wrong_fields_are_named_and_nothing_is_stored(gateway: RunningGateway) -> None:
    gateway.says("hello")
    for body, param in WRONG:
        answer = post(gateway, body if "messages" in body or not body else {"messages": HELLO, **body})
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, param), (body, answer.text)
        assert param in error["message"] and error["type"] == "invalid_request_error"
    assert gateway.engine.requests == [] and gateway.store.status.counts()["turns"] == {}


@pytest.mark.parametrize(
    "data", [b"{not json", b"", b"[1]", b"\xff\xfe", b'"text"', b'{"messages": "\\ud800"}']
)
def test_a_body_that_is_not_a_json_object_is_rejected(gateway: RunningGateway, data: bytes) -> None:
    answer = post(gateway, None, json=None, content=data)
    assert answer.status_code == 400 and answer.json()["error"]["code"] in ("invalid_json", None)


def test_context_overflow_reports_both_lengths(gateway: RunningGateway) -> None:
    answer = post(gateway, {"messages": [{"role": "user", "content": "12 " * 3000}]})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", "messages")
    words = r"This model.s maximum context length is 2048 tokens\. However, your messages resulted in (?:at least )?(\d+)"
    found = re.match(words, error["message"])
    assert found and int(found[1]) > 2048


@pytest.mark.parametrize("words", ["12 " * 3000, "12 " * 300_000])
@pytest.mark.parametrize("stream", [True, False])
def test_overflow_errors_have_the_message_of_each_api(
    gateway: RunningGateway, words: str, stream: bool
) -> None:
    body = {"model": "small-qwen3", "stream": stream, "max_tokens": 50}
    said = {"messages": [{"role": "user", "content": words}]}
    answer = post(gateway, body | said)
    assert answer.status_code == 400 and "maximum context length is 2048 tokens" in answer.text
    answer = post(gateway, body | said, path="/v1/messages")
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
    found = re.fullmatch(r"prompt is too long: (\d+) tokens > 2048 maximum", error["message"])
    assert found and int(found[1]) > 2048
    answer = post(gateway, {"model": "small-qwen3", "stream": stream, "input": words}, path="/v1/responses")
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "context_length_exceeded"
    answer = post(gateway, {"model": "small-qwen3", "prompt": words}, path="/v1/completions")
    assert answer.status_code == 400 and "maximum context length is 2048 tokens" in answer.text


def test_an_answer_is_cut_at_the_end_of_the_context(gateway: RunningGateway) -> None:
    gateway.says("hello")
    assert post(gateway, {"messages": HELLO, "max_completion_tokens": 8192}).status_code == 200
    sent = gateway.engine.requests[0]
    assert sent["sampling_params"]["max_new_tokens"] == 2048 - len(sent["input_ids"])


def test_any_model_name_is_accepted_with_one_warning(
    gateway: RunningGateway, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        gateway.says("hello")
        answer = post(gateway, {"messages": HELLO, "model": "qwen3-4b\n"})
        assert answer.status_code == 200 and answer.json()["model"] == "small-qwen3"
    warnings = [one for one in caplog.records if "qwen3-4b" in one.getMessage()]
    assert len(warnings) == 1 and "\n" not in warnings[0].getMessage()


def test_unknown_model_is_not_found_if_names_are_strict(start_gateway: StartGateway) -> None:
    gateway = start_gateway(strict_model_name=True)
    answer = post(gateway, {"messages": HELLO, "model": "gpt-x"})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (404, "model", "model_not_found")
    assert "gpt-x" in error["message"] and "small-qwen3" in error["message"]


@pytest.mark.parametrize("key", ["", "Bearer wrong", "Basic secret-key", "secret-key", "Bearer ünicode"])
def test_wrong_key_is_unauthorized(keyed: RunningGateway, key: str) -> None:
    headers = {"Authorization": key.encode()}
    for method, path in (("POST", "/v1/chat/completions"), ("GET", "/v1/models"), ("GET", "/status")):
        answer = httpx.request(method, keyed.url + path, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")


def test_unknown_route_and_method_are_openai_errors(gateway: RunningGateway) -> None:
    assert gateway.http.get("/v1/nothing").json()["error"]["code"] == "not_found"
    assert gateway.http.get("/v1/chat/completions").status_code == 405


def test_unknown_fields_are_ignored(gateway: RunningGateway) -> None:
    gateway.says("hello")
    assert post(gateway, {"messages": HELLO, "store": False, "metadata": {"a": 1}}).status_code == 200


def test_an_unreadable_store_is_a_server_error(gateway: RunningGateway) -> None:
    gateway.says("hello")
    for file in gateway.buffer.iterdir():
        file.unlink()
    gateway.app.state.gateway.recorder.store.close()
    (gateway.buffer / "buffer.db").write_bytes(b"this is not a database" * 100)
    history = [*HELLO, {"role": "assistant", "content": "hello"}, *HELLO]
    answer = post(gateway, {"messages": history})
    assert answer.status_code == 500 and answer.json()["error"]["code"] == "store_error"
