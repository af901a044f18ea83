"""OpenTelemetry spans of answers; off unless OTEL_EXPORTER_OTLP_ENDPOINT is set.

Names follow the semantic conventions for generative AI,
https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/; other names begin with `openclaw.`. OpenTelemetry's
own variables set headers, timeouts, sampling and the service's name. Spans do not contain conversation text, unless
OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT is set. A thread sends them. If the collector is unreachable, spans
are dropped and requests do not wait.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from openclaw.common.messages import text_of
from openclaw.errors import ClientError
from openclaw.gateway.exchange import Chunk, Completion, Exchange, OnChunk
from openclaw.settings import Settings
from openclaw.types import Message

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger(__name__)

PROVIDER = "openclaw"
CLOSING_SECONDS = 2.0
WITH_CONTENT = ("1", "true", "yes", "on", "span_only", "span_and_event")
SAMPLING = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "max_new_tokens": "gen_ai.request.max_tokens",
    "sampling_seed": "gen_ai.request.seed",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
}
Attributes = dict[str, Any]


def spans_of(settings: Settings) -> Spans | None:
    """Returns the tracer; None if no collector is set, or if OpenTelemetry is not installed, which is logged."""
    if not settings.otel_endpoint:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        log.warning(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, but %s is not installed: no spans are sent. "
            "Install it in this repository: pip install '.[otel]'",
            error.name,
        )
        return None
    own = Resource.create({"service.name": "openclaw-rl"})
    provider = TracerProvider(resource=own.merge(OTELResourceDetector().detect()))
    address = f"{settings.otel_endpoint.rstrip('/')}/v1/traces"
    exporter = OTLPSpanExporter(endpoint=address)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Spans(
        provider, exporter, settings.model_name, (settings.otel_content or "").lower() in WITH_CONTENT
    )


class Spans:
    """Creates a span for each answer. `content`: include the messages."""

    def __init__(self, provider: TracerProvider, exporter: SpanExporter, model: str, content: bool) -> None:
        from opentelemetry.trace import SpanKind, StatusCode

        self._provider, self._exporter = provider, exporter
        self._tracer = provider.get_tracer("openclaw.gateway")
        self._kind, self._failed = SpanKind.CLIENT, StatusCode.ERROR
        self._model, self._content = model, content

    async def around(
        self, exchange: Exchange, run: Callable[[OnChunk], Awaitable[Completion]], on_chunk: OnChunk
    ) -> Completion:
        """Runs `run` inside a span, and returns or raises the same."""
        first: float | None = None

        async def noting(chunk: Chunk) -> None:
            nonlocal first
            if first is None:
                first = time.perf_counter() - began
            await on_chunk(chunk)

        asked = self.asked(exchange)
        name = f"{asked['gen_ai.operation.name']} {self._model}"
        span = self._tracer.start_span(name, kind=self._kind, attributes=asked)
        began = time.perf_counter()
        try:
            completion = await run(noting)
            span.set_attributes(self.answered(exchange, completion))
            return completion
        except BaseException as error:
            span.set_attribute("error.type", kind_of(error))
            span.set_status(self._failed)
            raise
        finally:
            span.set_attributes(sampled(exchange, first))
            span.end()

    def asked(self, exchange: Exchange) -> Attributes:
        """Returns attributes of the request."""
        request, turn = exchange.request, exchange.turn
        raw = any(one.get("format") == "raw" for one in request.messages)
        attributes: Attributes = {
            "gen_ai.operation.name": "text_completion" if raw else "chat",
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.request.model": request.model or self._model,
            "gen_ai.conversation.id": turn.session_id,
            "gen_ai.usage.input_tokens": len(turn.prompt_ids),
            "openclaw.turn_type": turn.turn_type,
        }
        attributes |= {name: turn.sampling[key] for key, name in SAMPLING.items() if key in turn.sampling}
        if request.stop:
            attributes["gen_ai.request.stop_sequences"] = request.stop
        if self._content:
            attributes["gen_ai.input.messages"] = as_json([message_of(one) for one in request.messages])
        return attributes

    def answered(self, exchange: Exchange, completion: Completion) -> Attributes:
        """Returns attributes of the answer."""
        attributes: Attributes = {
            "gen_ai.response.id": exchange.turn.completion_id,
            "gen_ai.response.model": exchange.model or self._model,
            "gen_ai.response.finish_reasons": [completion.finish_reason],
        }
        if self._content:
            message = {**message_of(completion.message()), "finish_reason": completion.finish_reason}
            attributes["gen_ai.output.messages"] = as_json([message])
        return attributes

    def close(self) -> None:
        """Sends pending spans within CLOSING_SECONDS."""
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(CLOSING_SECONDS)
        self._exporter.shutdown()  # no retries if the collector is unreachable


def sampled(exchange: Exchange, first: float | None) -> Attributes:
    """Returns attributes that aborted answers have too; `first`: seconds to the first part."""
    attributes: Attributes = {"gen_ai.usage.output_tokens": len(exchange.generation.ids)}
    if spans := exchange.generation.spans:
        attributes["openclaw.weight_versions"] = [span[0] for span in spans]
    if first is not None:
        attributes["gen_ai.response.time_to_first_chunk"] = first
    return attributes


def kind_of(error: BaseException) -> str:
    """Returns an error type of low cardinality."""
    code = error.code if isinstance(error, ClientError) else None
    return code or type(error).__name__


def message_of(message: Message) -> Attributes:
    """Returns a message in the conventions' format: a role, and parts."""
    parts: list[Attributes] = []
    if thought := message.get("reasoning_content"):
        parts.append({"type": "reasoning", "content": str(thought)})
    if message.get("role") == "tool":
        response = {"type": "tool_call_response", "id": message.get("tool_call_id")}
        return {"role": "tool", "parts": [{**response, "response": text_of(message)}]}
    if text := text_of(message):
        parts.append({"type": "text", "content": text})
    for call in message.get("tool_calls") or []:
        called = call.get("function", {})
        about = {"name": called.get("name"), "arguments": called.get("arguments")}
        parts.append({"type": "tool_call", "id": call.get("id"), **about})
    return {"role": str(message.get("role", "")), "parts": parts}


def as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
