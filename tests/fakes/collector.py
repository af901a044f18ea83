"""An OpenTelemetry collector: receives OTLP over HTTP as protobuf, and stores the spans."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


@dataclass
class Collector:
    """`spans`: `{"name", "kind", "status", "seconds", "attributes"}`, in order of arrival; `service`: name of the
    sender."""

    url: str = ""
    service: str = ""
    spans: list[dict[str, Any]] = field(default_factory=list)

    def take(self, body: bytes) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.service = _plain(resource.resource.attributes)["service.name"]
            self.spans += [
                {
                    "name": span.name,
                    "kind": span.kind,
                    "status": span.status.code,
                    "seconds": (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
                    "attributes": _plain(span.attributes),
                }
                for scope in resource.scope_spans
                for span in scope.spans
            ]


@contextlib.contextmanager
def collector() -> Iterator[Collector]:
    """Yields a collector on a free port."""
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            assert self.path == "/v1/traces" and self.headers["content-type"] == "application/x-protobuf"
            if self.headers.get("content-encoding") == "gzip":
                import gzip

                body = gzip.decompress(body)
            found.take(body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Prints nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()


def _plain(attributes: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in attributes}


def _value(given: Any) -> Any:
    kind = given.WhichOneof("value")
    value = getattr(given, kind)
    return [_value(one) for one in value.values] if kind == "array_value" else value
