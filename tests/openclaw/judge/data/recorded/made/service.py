"""The local HTTP service that recorded commands call, with made-up replies."""

from __future__ import annotations

import contextlib
import json
import time
from http.server import BaseHTTPRequestHandler
from typing import Any

REPLIES: dict[str, tuple[int, dict[str, Any]]] = {
    "/ok": (200, {"status": "ok", "items": [{"id": 1, "name": "apple"}], "error": None}),
    "/health": (200, {"healthy": True, "errors": [], "failed_checks": 0}),
    "/orders": (201, {"id": 1183, "state": "created"}),
    "/private": (401, {"status": 401, "message": "Missing or invalid access token"}),
    "/missing": (404, {"status": 404, "title": "Not Found", "detail": "no such resource"}),
    "/limited": (429, {"error": {"code": "rate_limited", "message": "Too many requests, try again in 30 s"}}),
    "/broken": (500, {"error": "Internal Server Error", "request": "b1946ac9"}),
}


class Replies(BaseHTTPRequestHandler):
    """A service that knows REPLIES; any other path answers late."""

    def do_GET(self) -> None:
        status, body = REPLIES.get(self.path, (200, {}))
        if self.path not in REPLIES:
            time.sleep(5)
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        with contextlib.suppress(BrokenPipeError):
            self.wfile.write(data)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def version_string(self) -> str:
        return "nginx"

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: standard error is the recorder's."""
