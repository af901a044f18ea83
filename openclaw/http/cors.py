"""CORS: web pages of the configured origins may use the API from a browser."""

from __future__ import annotations

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

API = ("/v1/", "/sessions/")
"""Prefixes of the routes available to these pages; administration and the page are excluded."""


class Cors:
    """Middleware that answers CORS preflight requests of the configured origins, and adds CORS headers to responses."""

    def __init__(self, app: ASGIApp, origins: tuple[str, ...]) -> None:
        self._app = app
        self._open = CORSMiddleware(
            app, allow_origins=origins, allow_methods=("GET", "POST"), allow_headers=("*",), max_age=600
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_api = scope["type"] == "http" and scope["path"].startswith(API)
        await (self._open if is_api else self._app)(scope, receive, send)
