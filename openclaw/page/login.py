"""The login of the page, for servers with an admin key.

The key is entered once; afterwards a cookie is sent that scripts cannot read.
"""

from __future__ import annotations

from urllib.parse import parse_qsl

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from openclaw.errors import ClientError
from openclaw.http.auth import is_admin_key, local_user
from openclaw.http.browser import COOKIE, HEADERS, LOGIN_SECONDS, check_same_origin, new_login
from openclaw.page.html import page
from openclaw.page.html_routes import PageRoute
from openclaw.views.source import source_of

LONGEST_LOGIN = 8 << 10
"""Most bytes of the login form; small, because the client is not authenticated yet."""

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/page/login")
async def ask(request: Request, to: str = "/") -> Response:
    """Returns the login form."""
    return page("login.html", to=_local_path(to), wrong=False)


@router.post("/page/login")
async def login(request: Request) -> Response:
    """Sets the login cookie. Raises ClientError: 403 for a form of another site, 413 for a long one, 429 after many
    wrong keys."""
    check_same_origin(request)
    source, fields = source_of(request), await form(request, LONGEST_LOGIN)
    key, to = source.admin_key, _local_path(fields.get("to", "/"))
    if key is None:
        return RedirectResponse(to, 303, HEADERS)
    if not is_admin_key(request, fields.get("key", "").encode(), key):
        return page("login.html", 401, to=to, wrong=True)
    answer = RedirectResponse(to, 303, HEADERS)
    secure = request.headers.get("x-forwarded-proto", request.url.scheme) == "https"
    cookie = new_login(key, local_user(request))
    answer.set_cookie(
        COOKIE, cookie, LOGIN_SECONDS, path="/", httponly=True, samesite="strict", secure=secure
    )
    return answer


@router.post("/page/logout")
async def logout(request: Request) -> Response:
    """Deletes the login cookie. Raises ClientError (403) for a form of another site."""
    check_same_origin(request)
    answer = RedirectResponse("/page/login", 303, HEADERS)
    answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return answer


async def form(request: Request, longest: int | None = None) -> dict[str, str]:
    """Returns the fields of a URL-encoded form; of fields with the same name, the last.

    Raises ClientError (413) if the body is longer than `longest` bytes. Without `longest`, only the limit for all
    requests applies.
    """
    body = bytearray()
    async for part in request.stream():
        body += part
        if longest is not None and len(body) > longest:
            raise ClientError(
                f"the form is longer than {longest} bytes", code="request_too_large", status=413
            )
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


def _local_path(to: str) -> str:
    """Returns the path if it is on this server, else "/": the login must not redirect to other sites."""
    return to if to.startswith("/") and not to.startswith(("//", "/\\")) and to.isprintable() else "/"
