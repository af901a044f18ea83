"""Authentication: named keys for clients; the administrator has another key, or is the server's own user."""

from __future__ import annotations

import hmac
import ipaddress
import os
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import urlsplit

from starlette.requests import Request

from claw_base import peer
from openclaw.errors import ClientError
from openclaw.http.limits import Guesses
from openclaw.settings import LOOPBACK, Settings

LOCAL_DOMAINS = (".localhost", ".local", ".internal", ".lan", ".home.arpa")
"""Top-level domains of local networks; they never resolve to internet sites."""

PROXY_HEADERS = frozenset({"forwarded", "via", "x-real-ip", "true-client-ip", "cf-connecting-ip"})
"""Headers that proxies add, in addition to x-forwarded-*."""


READING = ("GET", "HEAD", "OPTIONS")
INSIDE = "openclaw.inside"
"""Key in the ASGI scope of requests that this process sends to itself; clients cannot set it."""

_NO_HOST = frozenset("@/\\?#")


class Administered(Protocol):
    """Settings that may contain an administrator key."""

    @property
    def admin_key(self) -> str | None: ...


def key_name(headers: Mapping[str, str], settings: Settings) -> str | None:
    """Returns the name of the client key in the headers, "" for the key without a name, None without a valid key.

    The time does not depend on the keys: all are compared, each in constant time.
    """
    token = _token(_authorization(headers))
    matching = None
    for name, key in settings.client_keys:
        if hmac.compare_digest(token, key.encode()):
            matching = name
    return matching


def check_client(request: Request, settings: Settings) -> None:
    """Raises ClientError unless the client may use the API.

    401: client keys are set, and the request has none of them. 403: no keys are set, and the request comes from a web
    page of another site or has an unknown host name.
    """
    if settings.client_keys:
        if key_name(request.headers, settings) is None:
            raise _unauthorized("client key (SGLANG_API_KEY or OPENCLAW_API_KEYS)")
    else:
        _check_host(request, settings)
        if request.headers.get("origin") not in settings.cors_origin:
            _check_origin(request)


def check_admin(request: Request, settings: Administered) -> None:
    """Raises ClientError unless the request comes from the administrator.

    With an admin key set: 401 without it, 429 after many wrong ones. Without one: 403 unless a local program of the
    server's own user sent the request directly.
    """
    if settings.admin_key is not None:
        if not is_admin_key(request, _token(_authorization(request.headers)), settings.admin_key):
            raise _unauthorized(
                "admin key (OPENCLAW_ADMIN_KEY, or the content of admin.key in its run folder)"
            )
        return
    relayed = any(name in PROXY_HEADERS or name.startswith("x-forwarded-") for name in request.headers)
    asked = _asked_host(request)
    here = asked in LOOPBACK or _is_address(asked)  # another host name may be DNS rebinding
    if relayed or not here or not _is_own_user(request):
        message = (
            "without OPENCLAW_ADMIN_KEY, only programs of the server's own user on its machine may use /admin; set "
            "OPENCLAW_ADMIN_KEY to allow other clients with this key"
        )
        raise ClientError(message, code="forbidden", status=403, kind="permission_error")
    _check_origin(request)
    if request.method not in READING:
        _check_same_origin(request)


def is_admin_key(request: Request, token: bytes, key: str) -> bool:
    """Returns whether a token is the admin key, and counts wrong tokens.

    Raises ClientError (429) after too many wrong tokens from the address of the client, or from the same user if the
    client is on this machine.
    """
    if not token:
        return False
    guesses: Guesses = request.app.state.guesses
    address, user = request.client.host if request.client is not None else "", local_user(request)
    guesses.check(address, user)
    is_right = hmac.compare_digest(token, key.encode())
    if not is_right:
        guesses.count(address, user)
    return is_right


def local_user(request: Request) -> int | None:
    """Returns the user id of a client on this machine; None for a client elsewhere, or if the kernel cannot identify
    the user."""
    client, server = request.scope.get("client"), request.scope.get("server")
    if client is None or server is None or client[0] not in LOOPBACK or not peer.can_identify_users():
        return None
    return peer.user_of(tuple(client), tuple(server))


def _is_own_user(request: Request) -> bool:
    """Returns whether the client is a local process of this process's user.

    If the kernel cannot identify the user, every local process counts.
    """
    if request.scope.get(INSIDE) is True:
        return True
    client = request.scope.get("client")
    if client is None or client[0] not in LOOPBACK:
        return False
    return not peer.can_identify_users() or local_user(request) == os.getuid()


def _check_same_origin(request: Request) -> None:
    """Raises ClientError (403) for cross-origin requests of browsers.

    Other ports of this machine are other origins, because any program may serve pages there.
    """
    site = request.headers.get("sec-fetch-site", "none")
    origin = request.headers.get("origin")
    own = origin is None or origin.partition("//")[2] == request.headers.get("host")
    if site not in ("same-origin", "none") or not own:
        message = "web pages of other origins cannot use /admin without a key; set OPENCLAW_ADMIN_KEY"
        raise ClientError(message, code="forbidden", status=403, kind="permission_error")


def _check_origin(request: Request) -> None:
    """Raises ClientError (403) for requests that pages of other sites send to a gateway without keys.

    Pages of this machine are allowed, and pages of the requested address if it is an IP address: a host name could be
    DNS rebinding.
    """
    origin = request.headers.get("origin")
    if origin is None:
        return
    host = _host(origin)
    own = _asked_host(request)
    if host not in LOOPBACK and not (host == own and _is_address(own)):
        message = "web pages of other sites cannot use this server without a key; set SGLANG_API_KEY"
        raise ClientError(message, code="forbidden", status=403, kind="permission_error")


def _check_host(request: Request, settings: Settings) -> None:
    """Raises ClientError (403) for a host name that could resolve to this machine by DNS rebinding.

    Also for requests that a browser marks as cross-site. Only for gateways without keys.
    """
    asked = _asked_host(request)
    if not (asked and (is_own_name(asked) or asked in (name.lower() for name in settings.allowed_hosts))):
        message = (
            "the Host header is not a valid host name"
            if asked is None
            else f"unknown host name {asked!r}: add it to ALLOWED_HOSTS, or set SGLANG_API_KEY to require a key"
        )
        raise ClientError(message, code="forbidden", status=403, kind="permission_error")
    if request.headers.get("sec-fetch-site") == "cross-site" and "origin" not in request.headers:
        message = "web pages of other sites cannot use this server without a key; set SGLANG_API_KEY"
        raise ClientError(message, code="forbidden", status=403, kind="permission_error")


def is_own_name(host: str) -> bool:
    """Returns whether no internet site can have this host name.

    True for IP addresses, names without a dot, and names in local domains.
    """
    return (
        host in LOOPBACK or _is_address(host) or "." not in host.rstrip(".") or host.endswith(LOCAL_DOMAINS)
    )


def _asked_host(request: Request) -> str | None:
    """Returns the requested host name; None if the Host header could be parsed in different ways."""
    host = request.headers.get("host", "127.0.0.1")
    return None if set(host) & _NO_HOST else _host(f"//{host}")


def _host(url: str) -> str | None:
    """Returns the host of a URL; None if it has none or is invalid."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _is_address(host: str | None) -> bool:
    try:
        ipaddress.ip_address(host or "")
    except ValueError:
        return False
    return True


def _authorization(headers: Mapping[str, str]) -> str:
    """Returns the Authorization header; without one, the x-api-key header of Anthropic clients as a bearer token."""
    header = headers.get("authorization")
    return header if header is not None else f"Bearer {headers.get('x-api-key', '')}"


def _token(authorization: str) -> bytes:
    scheme, _, token = authorization.partition(" ")
    return token.strip().encode() if scheme.lower() == "bearer" else b""


def _unauthorized(what: str) -> ClientError:
    # It begins as OpenAI's does, because litellm and others match these words.
    message = (
        f"Incorrect API key provided, or none: send 'Authorization: Bearer KEY' with the server's {what}"
    )
    return ClientError(message, code="invalid_api_key", status=401, kind="authentication_error")
