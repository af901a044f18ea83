"""Lets web pages of configured origins use the API from a browser."""

from __future__ import annotations

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

API = ("/v1/", "/sessions/")
"""Routes available to such pages; administration and this server's own page are not."""


class Cors:
    """Middleware for cross-origin requests. Answers preflight requests for pages of these origins, and adds the
    headers to responses."""

    def __init__(self, app: ASGIApp, origins: tuple[str, ...]) -> None:
        self._app = app
        self._open = CORSMiddleware(
            app, allow_origins=origins, allow_methods=("GET", "POST"), allow_headers=("*",), max_age=600
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_api = scope["type"] == "http" and scope["path"].startswith(API)
        await (self._open if is_api else self._app)(scope, receive, send)
