"""Access of browsers: who may read and change stored data, and response headers.

Reading needs the admin key, as a header or as the login cookie; if none is set, only this machine may read. Changes
are accepted from the page itself or from a program: requests that another site triggers are rejected.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from urllib.parse import urlsplit

from starlette.requests import Request

from openclaw.errors import ClientError
from openclaw.http.auth import check_admin
from openclaw.views.source import source_of

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Headers of every response for browsers: only this server's files may be loaded and run."""

COOKIE = "openclaw_page"
PASS_SECONDS = 12 * 3600
"""Seconds for which a login is valid."""


def check_reader(request: Request) -> None:
    """Raises ClientError (401, 403) unless the request may read stored data."""
    fetched = request.headers.get("sec-fetch-mode", "navigate") != "navigate"
    if fetched and request.headers.get("sec-fetch-site") == "cross-site":
        raise _foreign()
    source = source_of(request)
    if source.admin_key is not None and is_pass(request.cookies.get(COOKIE, ""), source.admin_key):
        return
    check_admin(request, source)


def check_change(request: Request) -> None:
    """Like `check_reader`; also rejects cross-origin requests. Raises ClientError (401, 403)."""
    check_same_origin(request)
    check_reader(request)


def check_same_origin(request: Request) -> None:
    """Raises ClientError (403) for cross-origin requests."""
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site", "same-origin")
    if site != "same-origin" or (origin is not None and _netloc(origin) != request.headers.get("host")):
        raise _foreign()


def new_pass(admin_key: str, now: float | None = None) -> str:
    """Returns the login cookie: its expiry time, signed with the key."""
    until = str(int((time.time() if now is None else now) + PASS_SECONDS))
    return f"{until}.{_signature(until, admin_key)}"


def is_pass(value: str, admin_key: str) -> bool:
    """Returns whether a cookie is a valid login."""
    until, _, signature = value.partition(".")
    right = hmac.compare_digest(signature.encode(), _signature(until, admin_key).encode())
    return right and until.isdecimal() and int(until) > time.time()


def _signature(until: str, admin_key: str) -> str:
    return hmac.new(admin_key.encode(), f"page until {until}".encode(), hashlib.sha256).hexdigest()


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _foreign() -> ClientError:
    message = "requests from other web sites are rejected"
    return ClientError(message, code="forbidden", status=403, kind="permission_error")
