"""The login of the page, if the server has an admin key: the key once, then a cookie that scripts cannot read."""

from __future__ import annotations

import hmac
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from openclaw.http.browser import COOKIE, HEADERS, PASS_SECONDS, check_same_origin, new_pass
from openclaw.page.html import page
from openclaw.page.html_routes import PageRoute
from openclaw.views.source import source_of

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/page/login")
async def ask(request: Request, to: str = "/") -> Response:
    return page("login.html", to=_inside(to), wrong=False)


@router.post("/page/login")
async def login(request: Request) -> Response:
    """Raises ClientError (403) for another site's form."""
    check_same_origin(request)
    source, given = source_of(request), await form(request)
    key, to = source.admin_key, _inside(given.get("to", "/"))
    if key is None:
        return RedirectResponse(to, 303, HEADERS)
    if not hmac.compare_digest(given.get("key", "").encode(), key.encode()):
        return page("login.html", 401, to=to, wrong=True)
    answer = RedirectResponse(to, 303, HEADERS)
    secure = request.headers.get("x-forwarded-proto", request.url.scheme) == "https"
    answer.set_cookie(
        COOKIE, new_pass(key), PASS_SECONDS, path="/", httponly=True, samesite="strict", secure=secure
    )
    return answer


@router.post("/page/logout")
async def logout(request: Request) -> Response:
    """Raises ClientError (403) for another site's form."""
    check_same_origin(request)
    answer = RedirectResponse("/page/login", 303, HEADERS)
    answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return answer


async def form(request: Request) -> dict[str, str]:
    """The fields of a form as browsers send it by default; of equal names the last."""
    return dict(parse_qsl((await request.body()).decode("utf-8", "replace"), keep_blank_values=True))


def _inside(to: str) -> str:
    """An address of this page; the start for any other."""
    return to if to.startswith("/") and not to.startswith(("//", "/\\")) and to.isprintable() else "/"
