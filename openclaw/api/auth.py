"""Who may ask: one key for clients, another for administration. Keys are compared in constant time."""

from __future__ import annotations

import hmac

from starlette.requests import Request

from openclaw.errors import ClientError
from openclaw.settings import LOOPBACK, Settings


def check_client(request: Request, settings: Settings) -> None:
    """Raises ClientError (401) unless the request has the client key, if one is set."""
    if settings.api_key is not None and not _has_key(request, settings.api_key):
        raise _unauthorized("SGLANG_API_KEY")


def check_admin(request: Request, settings: Settings) -> None:
    """Raises ClientError (401) unless the request has the admin key; without one set, unless it comes from
    this machine."""
    if settings.admin_key is not None:
        if not _has_key(request, settings.admin_key):
            raise _unauthorized("OPENCLAW_ADMIN_KEY")
    elif request.client is None or request.client.host not in LOOPBACK:
        message = "administration is open to this machine only; set OPENCLAW_ADMIN_KEY to allow it with a key"
        raise ClientError(message, code="forbidden", status=403, kind="permission_error")


def _has_key(request: Request, key: str) -> bool:
    given = request.headers.get("authorization", "")
    scheme, _, token = given.partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), key.encode())


def _unauthorized(variable: str) -> ClientError:
    message = f"missing or wrong key: send 'Authorization: Bearer KEY' with the server's {variable}"
    return ClientError(message, code="invalid_api_key", status=401, kind="authentication_error")
