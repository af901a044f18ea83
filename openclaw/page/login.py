"""The login of the page, if the server has an admin key: the key is entered once, then a cookie is used that scripts
cannot read."""

from __future__ import annotations

from urllib.parse import parse_qsl

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from openclaw.errors import ClientError
from openclaw.http.auth import is_admin_key
from openclaw.http.browser import COOKIE, HEADERS, PASS_SECONDS, check_same_origin, new_pass
from openclaw.page.html import page
from openclaw.page.html_routes import PageRoute
from openclaw.views.source import source_of

LONGEST_LOGIN = 8 << 10
"""Most bytes; small, because the client is not authenticated yet."""

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/page/login")
async def ask(request: Request, to: str = "/") -> Response:
    return page("login.html", to=_inside(to), wrong=False)


@router.post("/page/login")
async def login(request: Request) -> Response:
    """Handles the login. Raises ClientError: 403 for another site's form, 413 for a long one, 429 after many wrong
    keys."""
    check_same_origin(request)
    source, fields = source_of(request), await form(request, LONGEST_LOGIN)
    key, to = source.admin_key, _inside(fields.get("to", "/"))
    if key is None:
        return RedirectResponse(to, 303, HEADERS)
    if not is_admin_key(request, fields.get("key", "").encode(), key):
        return page("login.html", 401, to=to, wrong=True)
    answer = RedirectResponse(to, 303, HEADERS)
    secure = request.headers.get("x-forwarded-proto", request.url.scheme) == "https"
    answer.set_cookie(
        COOKIE, new_pass(key), PASS_SECONDS, path="/", httponly=True, samesite="strict", secure=secure
    )
    return answer


@router.post("/page/logout")
async def logout(request: Request) -> Response:
    """Handles the logout. Raises ClientError (403) for another site's form."""
    check_same_origin(request)
    answer = RedirectResponse("/page/login", 303, HEADERS)
    answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return answer


async def form(request: Request, longest: int | None = None) -> dict[str, str]:
    """Returns the fields of a URL-encoded form; of equal names the last. Raises ClientError (413) for more than
    `longest` bytes; without it, the body has the limit of every request."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if longest is not None and len(body) > longest:
            raise ClientError("this form is too long", code="request_too_large", status=413)
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


def _inside(to: str) -> str:
    """Returns a URL of this page; the start page for any other URL."""
    return to if to.startswith("/") and not to.startswith(("//", "/\\")) and to.isprintable() else "/"
