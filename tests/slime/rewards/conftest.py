"""A reward server on the loopback interface."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from slime.rollout.metrics import reward_failures


@pytest.fixture(autouse=True)
def no_failures() -> Iterator[None]:
    reward_failures.__init__()  # type: ignore[misc]
    yield


@pytest.fixture
def reward_server() -> Iterator[Any]:
    """f(status, body)...: queues answers (the last one repeats); `.url`, `.asked`."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        answers: list[tuple[int, str]]
        asked: list[dict[str, Any]]

    class Handler(BaseHTTPRequestHandler):
        server: Server

        def do_POST(self) -> None:
            self.server.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            answers = self.server.answers
            status, body = answers.pop(0) if len(answers) > 1 else answers[0]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            return

    server = Server(("127.0.0.1", 0), Handler)
    server.answers, server.asked = [(200, "1.0")], []
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()
