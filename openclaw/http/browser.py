"""Access of browsers to stored data, and the headers of responses to them.

Reading requires the admin key, in a header or as the login cookie; without an admin key, only local processes may read.
Changes are accepted from the page itself or from a program, not from other sites.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from urllib.parse import urlsplit

from starlette.requests import Request

from openclaw.errors import ClientError
from openclaw.http.auth import check_admin, local_user
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
"""Headers of every response to a browser; scripts and styles are loaded only from this server."""

COOKIE = "openclaw_page"
LOGIN_SECONDS = 12 * 3600
"""Seconds for which a login is valid."""


def check_reader(request: Request) -> None:
    """Raises ClientError (401, 403) unless the client may read stored data."""
    fetched = request.headers.get("sec-fetch-mode", "navigate") != "navigate"
    if fetched and request.headers.get("sec-fetch-site") == "cross-site":
        raise _cross_site()
    source = source_of(request)
    cookie = request.cookies.get(COOKIE, "")
    if source.admin_key is not None and is_login(cookie, source.admin_key, local_user(request)):
        return
    check_admin(request, source)


def check_change(request: Request) -> None:
    """Raises ClientError (401, 403) unless the client may change stored data."""
    check_same_origin(request)
    check_reader(request)


def check_same_origin(request: Request) -> None:
    """Raises ClientError (403) for cross-origin requests."""
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site", "same-origin")
    if site != "same-origin" or (origin is not None and _netloc(origin) != request.headers.get("host")):
        raise _cross_site()


def new_login(admin_key: str, user: int | None, now: float | None = None) -> str:
    """Returns the value of a login cookie: its expiry time, signed with the admin key.

    A browser sends a cookie to all ports of a host, so also to a page of another user of this machine. Therefore the
    cookie of a browser on this machine is valid only in requests of the same user.

    Args:
        user: user id of a client on this machine; None for others.
    """
    until = str(int((time.time() if now is None else now) + LOGIN_SECONDS))
    return f"{until}.{_signature(until, admin_key, user)}"


def is_login(value: str, admin_key: str, user: int | None) -> bool:
    """Returns whether a cookie is a valid login of this user that has not expired."""
    until, _, signature = value.partition(".")
    right = hmac.compare_digest(signature.encode(), _signature(until, admin_key, user).encode())
    return right and until.isdecimal() and int(until) > time.time()


def _signature(until: str, admin_key: str, user: int | None) -> str:
    text = f"page until {until} for user {'elsewhere' if user is None else user}"
    return hmac.new(admin_key.encode(), text.encode(), hashlib.sha256).hexdigest()


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _cross_site() -> ClientError:
    message = "requests from other web sites are rejected"
    return ClientError(message, code="forbidden", status=403, kind="permission_error")
