"""Shared code of slime's engine servers: parses bodies, reports errors, writes JSON and events, paces chunks.

It imports only packages that are also installed with vLLM.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive

from claw_base import peer
from slime.engines.requests import RequestError, WeightsError, explain

SERVER_OPTIONS: dict[str, Any] = {
    "access_log": False,
    # seconds; longer than clients keep idle connections, so that they never reuse a closed one
    "timeout_keep_alive": 75,
    "timeout_graceful_shutdown": 2,
    "proxy_headers": False,  # proxy headers are not trusted
}
"""Options of uvicorn."""
SECONDS_PER_STREAM = 0.001
LOOPBACK = ("127.0.0.1", "::1")
BY_HAND = (None, "none")
"""Values of `Origin` and `Sec-Fetch-Site` sent by programs, and for an engine's address typed into a
browser."""
TOKENS_THAT_DOUBLE = 256

Body = TypeVar("Body", bound=BaseModel)
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class JsonHttp:
    """Requests and responses of one server. `loads` and `dumps` are functions of its JSON library."""

    loads: Callable[[bytes], Any]
    dumps: Callable[[Any], bytes]

    def routes(self, post: Mapping[str, Handler], get: Mapping[str, Handler]) -> list[Route]:
        """Returns routes by path. Errors in requests to a route of `post` become error responses.

        Requests from web pages and from other users of this machine are rejected, because engines require no
        key.
        """
        peer.can_identify_users()
        routes = [(path, self._guarded(handler), "POST") for path, handler in post.items()]
        routes += [(path, handler, "GET") for path, handler in get.items()]
        return [Route(path, self._for_programs(handler), methods=[kind]) for path, handler, kind in routes]

    async def parse(self, request: Request, kind: type[Body]) -> Body:
        """Parses the body as `kind`; an empty body counts as {}. Raises RequestError."""
        raw = await request.body()
        try:
            content = self.loads(raw) if raw else {}
        except ValueError as error:
            raise RequestError(f"the body is not JSON: {error}") from error
        try:
            return kind.model_validate(content)
        except ValidationError as error:
            raise RequestError(explain(error)) from error

    def answer(self, body: dict[str, Any], status: int = 200) -> Response:
        return Response(self.dumps(body), status, media_type="application/json")

    def event(self, body: dict[str, Any]) -> bytes:
        """Returns one server-sent event."""
        return b"data: " + self.dumps(body) + b"\n\n"

    def _for_programs(self, handler: Handler) -> Handler:
        async def route(request: Request) -> Response:
            headers = request.headers
            if headers.get("origin") is not None or headers.get("sec-fetch-site") not in BY_HAND:
                return self.answer(
                    {"success": False, "message": "engines reject requests from web pages"}, 403
                )
            if is_other_user(request):
                message = "engines reject requests from other users of their machine, except root"
                return self.answer({"success": False, "message": message}, 403)
            return await handler(request)

        return route

    def _guarded(self, handler: Handler) -> Handler:
        async def route(request: Request) -> Response:
            try:
                return await handler(request)
            except RequestError as error:
                code = {} if error.code is None else {"code": error.code}
                if request.url.path == "/generate":
                    return self.answer({"error": {"message": str(error), **code}}, error.status)
                return self.answer({"success": False, "message": str(error), **code}, error.status)
            except WeightsError as error:
                return self.answer({"success": False, "message": str(error)}, 400)

        return route


def is_other_user(request: Request) -> bool:
    """Returns whether a request comes from a local process of another user, except root.

    Returns False if that is unknown, and for other machines, which the listening address excludes.
    """
    client, server = request.scope.get("client"), request.scope.get("server")
    if client is None or server is None or client[0] not in LOOPBACK or not peer.can_identify_users():
        return False
    return peer.user_of(tuple(client), tuple(server)) not in (os.getuid(), 0)


DONE = b"data: [DONE]\n\n"
"""The event that ends a stream."""


def pause_after_chunk(streams: int, tokens: int) -> float:
    """Returns the pause after a chunk in seconds while `streams` are open; it grows with the answer's
    `tokens`.

    Chunks are cumulative: sending fewer loses nothing, and saves JSON processing in engine and client.
    """
    return SECONDS_PER_STREAM * streams * (1 + tokens / TOKENS_THAT_DOUBLE)


async def disconnected(receive: Receive) -> None:
    """Returns once the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
