"""OpenTelemetry spans of answers, sent if OTEL_EXPORTER_OTLP_ENDPOINT is set.

Attributes follow the semantic conventions for generative AI,
https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/; additional ones begin with `openclaw.`. OpenTelemetry's
environment variables set headers, time-outs, sampling and the service name. Spans contain text of conversations only
if OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT is set. A background thread sends them; if the collector is
unreachable, spans are dropped, and requests are not delayed.
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
    """Returns the tracer; None if no collector is set, or (with a warning) if OpenTelemetry is not installed."""
    if not settings.otel_endpoint:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        log.warning(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, but %s is not installed, so no spans are sent: "
            "run pip install '.[otel]' in the repository",
            error.name,
        )
        return None
    default = Resource.create({"service.name": "openclaw-rl"})
    provider = TracerProvider(resource=default.merge(OTELResourceDetector().detect()))
    address = f"{settings.otel_endpoint.rstrip('/')}/v1/traces"
    exporter = OTLPSpanExporter(endpoint=address)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Spans(
        provider, exporter, settings.model_name, (settings.otel_content or "").lower() in WITH_CONTENT
    )


class Spans:
    """Creates one span per answer.

    Args:
        content: whether spans contain the messages.
    """

    def __init__(self, provider: TracerProvider, exporter: SpanExporter, model: str, content: bool) -> None:
        from opentelemetry.trace import SpanKind, StatusCode

        self._provider, self._exporter = provider, exporter
        self._tracer = provider.get_tracer("openclaw.gateway")
        self._kind, self._failed = SpanKind.CLIENT, StatusCode.ERROR
        self._model, self._content = model, content

    async def around(
        self, exchange: Exchange, run: Callable[[OnChunk], Awaitable[Completion]], on_chunk: OnChunk
    ) -> Completion:
        """Calls `run` inside a span, and returns its result. Exceptions of `run` are recorded and raised."""
        seconds_to_first: float | None = None

        async def timed(chunk: Chunk) -> None:
            nonlocal seconds_to_first
            if seconds_to_first is None:
                seconds_to_first = time.perf_counter() - began
            await on_chunk(chunk)

        attributes = self.request_attributes(exchange)
        name = f"{attributes['gen_ai.operation.name']} {self._model}"
        span = self._tracer.start_span(name, kind=self._kind, attributes=attributes)
        began = time.perf_counter()
        try:
            completion = await run(timed)
            span.set_attributes(self.answer_attributes(exchange, completion))
            return completion
        except BaseException as error:
            span.set_attribute("error.type", kind_of(error))
            span.set_status(self._failed)
            raise
        finally:
            span.set_attributes(token_attributes(exchange, seconds_to_first))
            span.end()

    def request_attributes(self, exchange: Exchange) -> Attributes:
        """Returns the attributes of a request."""
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

    def answer_attributes(self, exchange: Exchange, completion: Completion) -> Attributes:
        """Returns the attributes of a complete answer."""
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
        """Sends pending spans, for at most CLOSING_SECONDS."""
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(CLOSING_SECONDS)
        self._exporter.shutdown()  # no retries if the collector is unreachable


def token_attributes(exchange: Exchange, seconds_to_first: float | None) -> Attributes:
    """Returns the attributes of sampled tokens, which aborted answers have too."""
    attributes: Attributes = {"gen_ai.usage.output_tokens": len(exchange.generation.ids)}
    if spans := exchange.generation.spans:
        attributes["openclaw.weight_versions"] = [span[0] for span in spans]
    if seconds_to_first is not None:
        attributes["gen_ai.response.time_to_first_chunk"] = seconds_to_first
    return attributes


def kind_of(error: BaseException) -> str:
    """Returns the code of a client error, or the class name of another error."""
    code = error.code if isinstance(error, ClientError) else None
    return code or type(error).__name__


def message_of(message: Message) -> Attributes:
    """Returns a message in the format of the semantic conventions: a role and a list of parts."""
    parts: list[Attributes] = []
    if reasoning := message.get("reasoning_content"):
        parts.append({"type": "reasoning", "content": str(reasoning)})
    if message.get("role") == "tool":
        response = {"type": "tool_call_response", "id": message.get("tool_call_id")}
        return {"role": "tool", "parts": [{**response, "response": text_of(message)}]}
    if text := text_of(message):
        parts.append({"type": "text", "content": text})
    for call in message.get("tool_calls") or []:
        function = call.get("function", {})
        fields = {"name": function.get("name"), "arguments": function.get("arguments")}
        parts.append({"type": "tool_call", "id": call.get("id"), **fields})
    return {"role": str(message.get("role", "")), "parts": parts}


def as_json(value: object) -> str:
    """Returns a value as JSON text."""
    return json.dumps(value, ensure_ascii=False)
