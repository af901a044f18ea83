"""Authentication: named keys for clients; for administration another key, or the local user."""

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
"""Domains that are never used for internet sites."""

RELAYED = frozenset({"forwarded", "via", "x-real-ip", "true-client-ip", "cf-connecting-ip"})
"""Headers that proxies add, besides x-forwarded-*."""


READING = ("GET", "HEAD", "OPTIONS")
INSIDE = "openclaw.inside"
"""Key of a request's scope that clients cannot set: the request comes from this process itself."""

_NO_HOST = frozenset("@/\\?#")


class Administered(Protocol):
    """Settings that may contain an administrator key."""

    @property
    def admin_key(self) -> str | None: ...


def key_name(headers: Mapping[str, str], settings: Settings) -> str | None:
    """Returns the name of the client key in a request's headers, "" for the one without a name; None if there is
    none. Every key is compared, each in constant time."""
    token = _token(_authorization(headers))
    matching = None
    for name, key in settings.client_keys:
        if hmac.compare_digest(token, key.encode()):
            matching = name
    return matching


def check_client(request: Request, settings: Settings) -> None:
    """Raises ClientError: 401 if client keys are set and the request has none; 403 for a web page of another site if
    none are set."""
    if settings.client_keys:
        if key_name(request.headers, settings) is None:
            raise _unauthorized("client key (SGLANG_API_KEY or OPENCLAW_API_KEYS)")
    else:
        _check_host(request, settings)
        if request.headers.get("origin") not in settings.cors_origin:
            _check_origin(request)


def check_admin(request: Request, settings: Administered) -> None:
    """Raises ClientError (401, 403; 429 after many wrong keys) unless the request has the admin key; if none is set,
    unless a local program of this server's user sent it directly."""
    if settings.admin_key is not None:
        if not is_admin_key(request, _token(_authorization(request.headers)), settings.admin_key):
            raise _unauthorized("admin key (OPENCLAW_ADMIN_KEY, or the text of admin.key in its run folder)")
        return
    relayed = any(name in RELAYED or name.startswith("x-forwarded-") for name in request.headers)
    asked = _asked_host(request)
    here = asked in LOOPBACK or _is_address(asked)  # otherwise another site may have pointed its name here
    if relayed or not here or not _is_own_user(request):
        message = (
            "without OPENCLAW_ADMIN_KEY only the server's own user may administer it, directly from this machine; "
            "set OPENCLAW_ADMIN_KEY to allow it with a key"
        )
        raise ClientError(message, code="forbidden", status=403, kind="permission_error")
    _check_origin(request)
    if request.method not in READING:
        _check_same_origin(request)


def is_admin_key(request: Request, token: bytes, key: str) -> bool:
    """Returns whether this is the admin key; counts wrong ones. Raises ClientError (429) after too many from the
    client's address."""
    if not token:
        return False
    guesses: Guesses = request.app.state.guesses
    address = request.client.host if request.client is not None else ""
    guesses.check(address)
    is_right = hmac.compare_digest(token, key.encode())
    if not is_right:
        guesses.count(address)
    return is_right


def _is_own_user(request: Request) -> bool:
    """Returns whether the client is a local process of this process's user; if the kernel cannot identify the user,
    whether it is local."""
    if request.scope.get(INSIDE) is True:
        return True
    client, server = request.scope.get("client"), request.scope.get("server")
    if client is None or client[0] not in LOOPBACK:
        return False
    if not peer.can_tell():
        return True
    return server is not None and peer.user_of(tuple(client), tuple(server)) == os.getuid()


def _check_same_origin(request: Request) -> None:
    """Rejects cross-origin requests of browsers, including other ports of this machine, on which any program may
    serve pages."""
    site = request.headers.get("sec-fetch-site", "none")
    origin = request.headers.get("origin")
    own = origin is None or origin.partition("//")[2] == request.headers.get("host")
    if site not in ("same-origin", "none") or not own:
        message = (
            "web pages of other addresses cannot administer this server without a key; set OPENCLAW_ADMIN_KEY"
        )
        raise ClientError(message, code="forbidden", status=403, kind="permission_error")


def _check_origin(request: Request) -> None:
    """Rejects browser requests to a gateway without keys, unless the page is from this machine or from the requested
    address itself; a host name could point here by DNS rebinding."""
    origin = request.headers.get("origin")
    if origin is None:
        return
    host = _host(origin)
    own = _asked_host(request)
    if host not in LOOPBACK and not (host == own and _is_address(own)):
        message = "web pages of other sites cannot use this server without a key; set SGLANG_API_KEY"
        raise ClientError(message, code="forbidden", status=403, kind="permission_error")


def _check_host(request: Request, settings: Settings) -> None:
    """Without a key, rejects a host name that could be pointed at this machine (DNS rebinding), which would let a
    page of that site in. Also rejects requests that a browser marks as cross-site."""
    asked = _asked_host(request)
    if not (asked and (is_own_name(asked) or asked in (name.lower() for name in settings.allowed_hosts))):
        message = (
            "the Host header is not a valid host name"
            if asked is None
            else f"a server without a key rejects the unknown host name {asked!r}: set SGLANG_API_KEY, or add the "
            "name to ALLOWED_HOSTS"
        )
        raise ClientError(message, code="forbidden", status=403, kind="permission_error")
    if request.headers.get("sec-fetch-site") == "cross-site" and "origin" not in request.headers:
        message = "web pages of other sites cannot use this server without a key; set SGLANG_API_KEY"
        raise ClientError(message, code="forbidden", status=403, kind="permission_error")


def is_own_name(host: str) -> bool:
    """Returns whether no internet site can have this name: an address, a name without a dot, or one of a local
    domain."""
    return (
        host in LOOPBACK or _is_address(host) or "." not in host.rstrip(".") or host.endswith(LOCAL_DOMAINS)
    )


def _asked_host(request: Request) -> str | None:
    """Returns the requested host name; None for an ambiguous Host header, which two programs could parse
    differently."""
    host = request.headers.get("host", "127.0.0.1")
    return None if set(host) & _NO_HOST else _host(f"//{host}")


def _host(url: str) -> str | None:
    """Returns the host of a URL; None if there is none, or if it is not a URL."""
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
    """Returns the Authorization header, or Anthropic's x-api-key as one."""
    header = headers.get("authorization")
    return header if header is not None else f"Bearer {headers.get('x-api-key', '')}"


def _token(authorization: str) -> bytes:
    scheme, _, token = authorization.partition(" ")
    return token.strip().encode() if scheme.lower() == "bearer" else b""


def _unauthorized(what: str) -> ClientError:
    message = (
        f"Incorrect API key provided, or none: send 'Authorization: Bearer KEY' with the server's {what}"
    )
    return ClientError(message, code="invalid_api_key", status=401, kind="authentication_error")
