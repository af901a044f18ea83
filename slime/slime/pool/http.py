"""Code of the pool's and the router's servers: a handler is a coroutine from a JSON object to a JSON object."""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from slime.agents.wire import Json, Refusal
from slime.engines.json_http import BY_HAND
from slime.pool.keys import is_here

logger = logging.getLogger(__name__)
MAX_REQUEST_BYTES = 16 << 20
Handler = Callable[[Json], Awaitable[Json]]


def routes(
    posts: Mapping[str, Handler], gets: Mapping[str, Handler], key: str | None, only_here: bool = False
) -> list[Route]:
    """Returns routes for handlers. Every path but /healthz needs the key, if there is one. Requests of web pages are
    rejected.

    Args:
        only_here: the server listens on loopback, and rejects requests under an internet host name.
    """
    return [
        Route(path, _endpoint(path, handler, key, only_here), methods=[method])
        for method, handlers in (("POST", posts), ("GET", gets))
        for path, handler in handlers.items()
    ]


def _endpoint(
    path: str, handler: Handler, key: str | None, only_here: bool
) -> Callable[[Request], Awaitable[JSONResponse]]:
    async def answer(request: Request) -> JSONResponse:
        try:
            _check_program(request, only_here)
            if key is not None and path != "/healthz":
                _check_key(request.headers.get("authorization", ""), key)
            body = await _body(request) if request.method == "POST" else {}
            return JSONResponse(await handler(body))
        except Refusal as refusal:
            headers = {} if refusal.retry_after is None else {"Retry-After": f"{refusal.retry_after:g}"}
            return JSONResponse(refusal.body(), refusal.status, headers)
        except Exception as error:
            logger.exception("%s failed", path)
            return JSONResponse(
                {"ok": False, "code": "INTERNAL", "error": f"{type(error).__name__}: {error}"}, 500
            )

    return answer


def _check_program(request: Request, only_here: bool) -> None:
    """Raises Refusal for browser requests from web pages, and for a foreign host name that points to this machine."""
    headers = request.headers
    if headers.get("origin") is not None or headers.get("sec-fetch-site") not in BY_HAND:
        raise Refusal(403, "FORBIDDEN", "pools reject requests from web pages")
    host = urlsplit(f"//{headers.get('host', '')}").hostname
    if only_here and not is_here(host or ""):
        raise Refusal(
            403,
            "FORBIDDEN",
            f"the Host header {host!r} is not an address of this pool: use its IP address or localhost",
        )
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method == "POST" and kind != "application/json":
        raise Refusal(415, "BAD_REQUEST", "requests need Content-Type: application/json")


def _check_key(authorization: str, key: str) -> None:
    if not hmac.compare_digest(authorization.encode(), f"Bearer {key}".encode()):
        raise Refusal(
            401,
            "WRONG_KEY",
            "the request needs the pool's key as Authorization: Bearer; it is in the pool's --key-file, or in the file "
            "that the pool printed when it started",
        )


async def _body(request: Request) -> Json:
    data = b""
    async for part in request.stream():
        data += part
        if len(data) > MAX_REQUEST_BYTES:
            raise Refusal(413, "TOO_LARGE", f"a request may have at most {MAX_REQUEST_BYTES} bytes")
    try:
        content = json.loads(data or b"{}")
    except ValueError as error:
        raise Refusal(400, "BAD_REQUEST", f"the request is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise Refusal(400, "BAD_REQUEST", "the request must be a JSON object")
    return content
