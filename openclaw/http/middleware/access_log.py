"""One line a request in the log: method, path, status, time, tokens, session. No content, no query, no key, no person."""

from __future__ import annotations

import logging
import time
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("openclaw.access")

QUIET = ("/healthz", "/readyz", "/health", "/metrics", "/status", "/v1/turns/", "/admin/", "/static/")
"""Paths that programs ask all the time: logged at level debug."""
LEFT = 499
"""The client went away before an answer began."""
_KEY = "openclaw.access"


@dataclass
class Access:
    """What a route tells of a request while it runs."""

    session: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0


def access_of(scope: MutableMapping[str, Any]) -> Access:
    """Of a request that the log passes on; of any other, one that nobody reads."""
    found = scope.get(_KEY)
    return found if isinstance(found, Access) else Access()


class AccessLog:
    """Middleware, outermost: refusals of the others are logged too."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        level = logging.DEBUG if scope.get("path", "").startswith(QUIET) else logging.INFO
        if scope["type"] != "http" or not log.isEnabledFor(level):
            await self.app(scope, receive, send)
            return
        access, status, began = Access(), LEFT, time.perf_counter()

        async def told(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app({**scope, _KEY: access}, receive, told)
        except Exception:
            status = 500
            raise
        finally:
            log.log(level, "%s", _line(scope, status, time.perf_counter() - began, access))


def _line(scope: Scope, status: int, seconds: float, access: Access) -> str:
    words = [scope["method"], quote(scope["path"]), str(status), f"{1000 * seconds:.0f}ms"]
    if access.session:
        words += [
            f"prompt={access.prompt_tokens}",
            f"completion={access.completion_tokens}",
            f"session={quote(access.session, safe=':@+,')}",
        ]
    return " ".join(words)
