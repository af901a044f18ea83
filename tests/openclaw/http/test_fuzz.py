"""Random requests to the routes of the OpenAPI document: no 5xx, no hang, no internal field."""

from __future__ import annotations

import json
import os
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fakes.running_gateway import RunningGateway

ROUTES = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
)
INTERNAL = ("input_ids", "sampling_params", "weight_version", "transcript_digest", "Traceback")
FEW = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "25")),
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
ROLE = st.sampled_from(["system", "developer", "user", "assistant", "tool", "poet"])
PART = st.fixed_dictionaries({"type": st.sampled_from(["text", "image_url"])}, optional={"text": st.text()})
BLOCKS = [
    "text",
    "refusal",
    "thinking",
    "redacted_thinking",
    "tool_use",
    "tool_result",
    "image",
    "input_text",
]
BLOCK = st.fixed_dictionaries(
    {"type": st.sampled_from(BLOCKS) | JSON},
    optional=dict.fromkeys(
        ("text", "refusal", "thinking", "name", "input", "content", "tool_use_id", "id"), JSON
    ),
)
ITEMS = ["message", "reasoning", "function_call", "function_call_output", "item_reference"]
MESSAGE = st.fixed_dictionaries(
    {
        "role": ROLE,
        "content": st.none() | st.text(max_size=20) | st.lists(PART | BLOCK, max_size=2) | JSON,
    },
    optional={
        "tool_calls": JSON, "tool_call_id": JSON, "reasoning_content": JSON, "name": JSON,
        "type": st.sampled_from(ITEMS), "summary": JSON, "arguments": JSON, "call_id": JSON, "output": JSON,
    },
)  # fmt: skip
FIELDS = (
    "temperature",
    "n",
    "stop",
    "tools",
    "tool_choice",
    "logit_bias",
    "response_format",
    "stream_options",
)
FIELDS += ("max_tokens", "logprobs", "top_logprobs", "chat_template_kwargs", "user", "session_id", "metadata")
FIELDS += (
    "system",
    "thinking",
    "instructions",
    "reasoning",
    "text",
    "prompt",
    "input",
    "parallel_tool_calls",
)
FIELDS += ("messages", "input", "previous_response_id", "train", "turn_type", "session_done", "seed", "top_k")
FIELDS += (
    "stop_sequences",
    "max_output_tokens",
    "echo",
    "model",
    "stream_options",
    "return_token_ids",
    "min_p",
)


def check(answer: httpx.Response) -> None:
    assert answer.status_code < 500, answer.text
    assert not any(name in answer.text for name in INTERNAL)
    if answer.status_code >= 400:
        assert json.loads(answer.text)["error"]["message"]


def send(gateway: RunningGateway, path: str, body: object) -> None:
    gateway.engine.say = gateway.engine.say or gateway.says("hello <think> there")
    with gateway.http as http:
        check(http.post(path, content=json.dumps(body).encode(), timeout=10))


@pytest.mark.parametrize("path", ROUTES)
def test_documented_requests_are_served_or_rejected_without_server_errors(
    gateway: RunningGateway, path: str
) -> None:
    schema = schemathesis.openapi.from_asgi("/openapi.json", gateway.app)

    @FEW
    @given(case=schema[path]["POST"].as_strategy())
    def fuzz(case: Any) -> None:
        if isinstance(case.body, dict | list):
            send(gateway, path, case.body)

    fuzz()


@pytest.mark.parametrize("path", ROUTES)
def test_unusual_messages_and_fields_are_served_or_rejected_without_server_errors(
    gateway: RunningGateway, path: str
) -> None:
    @FEW
    @given(
        messages=st.lists(MESSAGE, max_size=5),
        fields=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3),
        stream=st.booleans(),
    )
    def fuzz(messages: list[Any], fields: dict[str, Any], stream: bool) -> None:
        body = {"messages": messages, "input": messages, "prompt": "hi", "max_tokens": 9, "stream": stream}
        send(gateway, path, {**body, **fields})

    fuzz()


def test_the_document_describes_every_dialect(gateway: RunningGateway) -> None:
    document = gateway.http.get("/openapi.json").json()
    for path in ROUTES:
        operation = document["paths"][path]["post"]
        assert operation["requestBody"]["content"]["application/json"]["schema"]["properties"]
        assert {"200", "400", "401"} <= operation["responses"].keys()
