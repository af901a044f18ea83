"""Spans for an OpenTelemetry collector: conventional names, no content, and none if disabled."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openclaw.gateway.spans import message_of, spans_of
from openclaw.settings import Settings, load_settings
from tests.fakes.collector import Collector, collector
from tests.fakes.running_gateway import RunningGateway, StartGateway

CLIENT, ERROR = 3, 2
ASK = {"messages": [{"role": "user", "content": "what is 2+2?"}], "session_id": "s1", "temperature": 0.5}


@pytest.fixture
def collecting() -> Iterator[Collector]:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra otel is not installed")
    with collector() as found:
        yield found


def sent(gateway: RunningGateway, collecting: Collector) -> list[dict[str, Any]]:
    """Returns all spans, after pending ones were sent."""
    gateway.app.state.gateway.spans.close()
    return collecting.spans


def test_an_answer_is_a_span_with_conventional_names_and_without_text(
    start_gateway: StartGateway, collecting: Collector
) -> None:
    gateway = start_gateway(otel_endpoint=collecting.url, served_model_name="tiny")
    ids = gateway.says("It is 4.")
    answer = gateway.http.post("/v1/chat/completions", json={**ASK, "max_tokens": 50}).json()
    [span] = sent(gateway, collecting)
    found = span["attributes"]
    assert (span["name"], span["kind"], span["status"], collecting.service) == (
        "chat tiny",
        CLIENT,
        0,
        "openclaw-rl",
    )
    assert found["gen_ai.operation.name"] == "chat" and found["gen_ai.provider.name"] == "openclaw"
    assert found["gen_ai.request.model"] == found["gen_ai.response.model"] == "tiny"
    assert found["gen_ai.conversation.id"] == "s1" and found["gen_ai.response.id"] == answer["id"]
    assert found["gen_ai.usage.input_tokens"] == answer["usage"]["prompt_tokens"]
    assert found["gen_ai.usage.output_tokens"] == len(ids)
    assert found["gen_ai.request.temperature"] == 0.5 and found["gen_ai.request.max_tokens"] == 50
    assert found["gen_ai.response.finish_reasons"] == ["stop"]
    assert 0 <= found["gen_ai.response.time_to_first_chunk"] <= span["seconds"]
    assert "It is 4" not in json.dumps(found) and "2+2" not in json.dumps(found)


def test_every_attribute_name_follows_the_conventions(
    start_gateway: StartGateway, collecting: Collector
) -> None:
    names = pytest.importorskip("opentelemetry.semconv._incubating.attributes.gen_ai_attributes")
    known = {value for value in vars(names).values() if isinstance(value, str)} | {"error.type"}
    gateway = start_gateway(otel_endpoint=collecting.url, otel_content="true")
    gateway.says("It is 4.")
    gateway.http.post("/v1/chat/completions", json={**ASK, "stop": ["Z"], "seed": 1, "top_p": 0.9})
    [span] = sent(gateway, collecting)
    assert {name for name in span["attributes"] if not name.startswith("openclaw.")} - known == set()


def test_messages_are_in_a_span_only_if_enabled(start_gateway: StartGateway, collecting: Collector) -> None:
    gateway = start_gateway(otel_endpoint=collecting.url, otel_content="SPAN_ONLY")
    gateway.says("It is 4.")
    gateway.http.post("/v1/chat/completions", json=ASK)
    [span] = sent(gateway, collecting)
    said = json.loads(span["attributes"]["gen_ai.input.messages"])
    assert said == [{"role": "user", "parts": [{"type": "text", "content": "what is 2+2?"}]}]
    [answer] = json.loads(span["attributes"]["gen_ai.output.messages"])
    assert answer == {
        "role": "assistant", "parts": [{"type": "text", "content": "It is 4."}], "finish_reason": "stop",
    }  # fmt: skip


def test_a_failed_answer_is_a_span_with_its_error(start_gateway: StartGateway, collecting: Collector) -> None:
    gateway = start_gateway(otel_endpoint=collecting.url, request_timeout=0.2)
    gateway.says("It is 4.")
    gateway.engine.pause = 5.0
    assert gateway.http.post("/v1/chat/completions", json=ASK).status_code == 504
    [span] = sent(gateway, collecting)
    assert span["status"] == ERROR and span["attributes"]["error.type"] == "timeout"


def test_an_unreachable_collector_delays_no_request(start_gateway: StartGateway) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra otel is not installed")
    gateway = start_gateway(otel_endpoint="http://127.0.0.1:9")
    gateway.says("It is 4.")
    assert gateway.http.post("/v1/chat/completions", json=ASK).status_code == 200


def test_without_a_collector_no_span_is_created(start_gateway: StartGateway) -> None:
    assert start_gateway().app.state.gateway.spans is None


def test_without_the_packages_serving_continues_and_the_log_names_them(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    settings = Settings(model_path=str(model), backend="embedded", otel_endpoint="http://127.0.0.1:4318")
    with caplog.at_level(logging.WARNING):
        assert spans_of(settings) is None
    assert "pip install '.[otel]'" in caplog.text


def test_the_endpoint_is_the_variable_of_opentelemetry(model: Path) -> None:
    named = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
    arguments = ["--model-path", str(model), "--backend", "embedded"]
    assert load_settings(arguments, named).otel_endpoint == "http://collector:4318"
    assert load_settings(arguments, {}).otel_endpoint is None


def test_reasoning_calls_and_tool_results_are_message_parts() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    asked = {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call]}
    assert message_of(asked)["parts"] == [
        {"type": "reasoning", "content": "hm"},
        {"type": "tool_call", "id": "c1", "name": "add", "arguments": "{}"},
    ]
    result = {"role": "tool", "tool_call_id": "c1", "content": "4"}
    assert message_of(result)["parts"] == [{"type": "tool_call_response", "id": "c1", "response": "4"}]
