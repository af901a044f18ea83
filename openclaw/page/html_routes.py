"""Routes of the HTML views."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Coroutine
from typing import Any, get_args

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import RedirectResponse, Response

from openclaw.errors import ClientError, StoreError
from openclaw.gateway.chat_request import printable, whole
from openclaw.http.browser import HEADERS, check_reader
from openclaw.page.html import STATIC, page
from openclaw.page.notices import notices_of
from openclaw.page.versions import difference, on_disk, openings, versions
from openclaw.versions.comparison import relation
from openclaw.views.learning import learning, table
from openclaw.views.lessons import lessons
from openclaw.views.now import now
from openclaw.views.privacy import privacy
from openclaw.views.sessions import session, sessions
from openclaw.views.source import source_of
from openclaw.views.tokens import NAMES, By, known, runs, strip, tokens, values_of
from openclaw.views.turn import turn

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
RATING_NOTICES = {
    "judging": "Saved: your rating replaces the judge's score of this turn.",
    "waiting": "Saved: your hint is used when the next message of the conversation arrives.",
    "recorded": "Saved without effect: the rating is unchanged, or the turn is in training, was trained or was dropped.",
}
"""Notices about the effect of a rating, by the status of the feedback."""
CACHE_PERMANENTLY = "public, max-age=31536000, immutable"


class PageRoute(APIRoute):
    """A route whose errors are HTML pages; it redirects to the login if a key is missing."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def shown(request: Request) -> Response:
            try:
                return await handle(request)
            except ClientError as error:
                return _error(request, error)
            except StoreError as error:
                return page("error.html", 500, title="The store is not available", text=str(error), here="")

        return shown


router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.head("/")
@router.get("/")
async def get_now(request: Request) -> Response:
    check_reader(request)
    return page("now.html", **_common(request, "now"), now=await now(source_of(request)))


@router.get("/page/sessions")
async def get_sessions(request: Request, before: str = "") -> Response:
    check_reader(request)
    source = source_of(request)
    try:
        earlier = float(before) if before else None
    except ValueError:
        earlier = None
    about = _common(request, "sessions")
    return await source.in_thread(
        lambda: page(
            "sessions.html", **about, found=sessions(source.store, before=earlier), first=earlier is None
        )
    )


@router.get("/page/session")
async def get_session(request: Request, id: str, after: str = "") -> Response:
    check_reader(request)
    source, id_, after_index = (
        source_of(request),
        printable(id, "session"),
        whole(after, "after", -1, -1, 2**31),
    )
    about = _common(request, "sessions")
    return await source.in_thread(
        lambda: page(
            "session.html", **about, session=session(source.store, id_, after_index), first=after_index < 0
        )
    )


@router.get("/page/turn")
async def get_turn(request: Request, id: str, by: str = "", said: str = "") -> Response:
    check_reader(request)
    source, id_, about = source_of(request), printable(id, "turn"), _common(request, "sessions")

    def work() -> Response:
        records = tokens(source.store, source.tokenizer, id_)
        ways = known(records)
        way: By = by if by in get_args(By) and by in ways else (ways[0] if ways else "surprise")  # type: ignore[assignment]
        drawn = strip(records, way)
        return page(
            "turn.html",
            **about,
            turn=turn(source.store, id_),
            tokens=drawn,
            runs=runs(records, way, drawn),
            by=way,
            ways=ways,
            names=NAMES,
            found=records,
            has_values=values_of(records, way) is not None,
            on_disk=on_disk(source.store),
            said=RATING_NOTICES.get(said, ""),
        )

    return await source.in_thread(work)


@router.get("/page/learning")
async def get_learning(request: Request) -> Response:
    check_reader(request)
    source, about = source_of(request), _common(request, "learning")

    def work() -> Response:
        data = learning(source)
        return page("learning.html", **about, found=data, charts=table(data))

    return await source.in_thread(work)


@router.get("/page/versions")
async def get_versions(request: Request, note: str = "") -> Response:
    check_reader(request)
    listed, notice = await versions(request), notices_of(request).take(note)
    return page("versions.html", **_common(request, "versions"), found=listed, notice=notice)


@router.get("/page/version")
async def get_version(request: Request, n: str = "", after: str = "", note: str = "") -> Response:
    """Returns the page of one version: its training turns, its measurements and the possible actions."""
    check_reader(request)
    source, number = source_of(request), whole(n or "?", "n", 0, 0, 2**31)
    after_index = whole(after, "after", 0, 0, 2**62)
    learned = await source.in_thread(lambda: lessons(source.store, number, after_index))
    listed = await versions(request)
    one = next((one for one in listed["versions"] if one["version"] == number), None)
    if one is None:
        raise ClientError(
            f"version {number} is not among the newest versions that this page shows",
            code="not_found",
            status=404,
        )
    context = {"one": one, "learned": learned, "found": listed, "notice": notices_of(request).take(note)}
    return page("version.html", **_common(request, "versions"), **context)


@router.get("/page/versions/diff")
async def get_diff(request: Request, a: str = "", b: str = "") -> Response:
    check_reader(request)
    return await diff_page(request, whole(a or "?", "a", 0, 0, 2**31), whole(b or "?", "b", 0, 0, 2**31), [])


async def diff_page(request: Request, a: int, b: int, prompts: list[str]) -> Response:
    """Returns the page that compares two versions; with prompts, also the answers of both."""
    source, comparison = source_of(request), await difference(request, a, b, prompts)
    asked = prompts or await source.in_thread(lambda: openings(source.store))
    context = {
        "a": a,
        "b": b,
        "found": comparison,
        "relation": relation(a, b, comparison["common"]),
        "prompts": asked,
        "known": (await versions(request))["versions"],
    }
    return page("diff.html", **_common(request, "versions"), **context)


@router.get("/page/privacy")
async def get_privacy(request: Request, note: str = "") -> Response:
    check_reader(request)
    source, about = source_of(request), _common(request, "privacy")
    notice = notices_of(request).take(note)
    return await source.in_thread(lambda: page("privacy.html", **about, found=privacy(source), notice=notice))


@router.get("/page/static/{name:path}")
async def static(request: Request, name: str) -> Response:
    """Returns a static file. No login is needed, because static files contain no stored data."""
    path = (STATIC / name).resolve()
    kind = TYPES.get(path.suffix)
    if not path.is_relative_to(STATIC) or kind is None or not path.is_file():
        raise ClientError(f"there is no static file {name!r}", code="not_found", status=404)
    return Response(
        path.read_bytes(), headers={**HEADERS, "cache-control": CACHE_PERMANENTLY}, media_type=kind
    )


def _common(request: Request, here: str) -> dict[str, Any]:
    """Returns the template variables of every page."""
    source = source_of(request)
    return {
        "here": here,
        "model": source.model_name,
        "finished": source.gateway is None,
        "writable": source.writable and source.recorder is not None,
        "login": source.admin_key is not None,
    }


def _error(request: Request, error: ClientError) -> Response:
    if error.status == 401 and request.method == "GET" and "hx-request" not in request.headers:
        to = urllib.parse.quote(request.url.path + (f"?{request.url.query}" if request.url.query else ""))
        return RedirectResponse(f"/page/login?to={to}", 303, HEADERS)
    return page("error.html", error.status, title=f"Error {error.status}", text=str(error), here="")
