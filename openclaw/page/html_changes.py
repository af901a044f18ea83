"""Routes of the forms that change data; the forms work with and without JavaScript."""

from __future__ import annotations

import urllib.parse

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from openclaw.errors import ClientError
from openclaw.forget.answer import as_lines, still_running
from openclaw.gateway.chat_request import whole
from openclaw.http.browser import HEADERS, check_change
from openclaw.page.html import page
from openclaw.page.html_routes import PageRoute, diff_page
from openclaw.page.login import form
from openclaw.page.notices import Notice, notices_of
from openclaw.page.versions import pin, pinned, roll_back, rollback_text, settle_quarantine, versions
from openclaw.views import changes
from openclaw.views.again import again
from openclaw.views.source import source_of

router = APIRouter(route_class=PageRoute, include_in_schema=False)

VERDICTS = {"good": 1.0, "bad": -1.0, "none": 0.0}


@router.post("/page/turn/verdict")
async def verdict(request: Request) -> Response:
    """Stores the rating of a turn, which overrides the judge's score."""
    check_change(request)
    fields = await form(request)
    id_ = fields.get("id", "")
    score = VERDICTS.get(fields.get("verdict", ""))
    answer = await changes.overrule(source_of(request), id_, score, fields.get("hint", ""))
    return _to("/page/turn", id=id_, said=answer["status"], fragment="judged")


@router.post("/page/turn/again")
async def try_again(request: Request) -> Response:
    """Answers a stored prompt again; returns the new answer next to the stored one.

    For htmx the response is an HTML fragment, else a page.
    """
    check_change(request)
    fields = await form(request)
    version = whole(fields["version"], "version", 0, 0, 2**31) if fields.get("version") else None
    result = await again(source_of(request), fields.get("id", ""), version)
    whole_page = "hx-request" not in request.headers
    return page("again.html", found=result, whole=whole_page)


@router.post("/page/versions/rollback")
async def rollback(request: Request) -> Response:
    """Rolls back to a version. The notice on the next page has a button that undoes it."""
    check_change(request)
    fields = await form(request)
    version = whole(fields.get("version", "") or "?", "version", 0, 0, 2**31)
    live = (await versions(request))["live"]
    answer = await roll_back(request, version, fields.get("drop_turns") == "1")
    was = None if live == version else live
    return _to("/page/versions", note=_note(request, rollback_text(version, answer), was))


@router.post("/page/versions/quarantine")
async def quarantine(request: Request) -> Response:
    """Releases the quarantined turns of a version for training (`then=release`), or drops them (`then=delete`)."""
    check_change(request)
    fields = await form(request)
    version = whole(fields.get("version", "") or "?", "version", 0, 0, 2**31)
    count = await settle_quarantine(request, version, fields.get("then") == "release")
    message = f"Done for {count} turn{'' if count == 1 else 's'}."
    return _to("/page/version", n=str(version), note=_note(request, message))


@router.post("/page/versions/pin")
async def pin_version(request: Request) -> Response:
    """Pins the version of the form, which pauses training; without a version, unpins."""
    check_change(request)
    fields = await form(request)
    version = whole(fields["version"], "version", 0, 0, 2**31) if fields.get("version") else None
    answer = await pin(request, version)
    return _to("/page/versions", note=_note(request, pinned(version, answer)))


@router.post("/page/versions/diff")
async def answers_side_by_side(request: Request) -> Response:
    """Returns the page that compares two versions, with their answers to the prompts of the form."""
    check_change(request)
    fields = await form(request)
    a, b = (whole(fields.get(name, "") or "?", name, 0, 0, 2**31) for name in ("a", "b"))
    prompts = [line.strip() for line in fields.get("prompts", "").splitlines() if line.strip()]
    return await diff_page(request, a, b, prompts)


@router.post("/page/privacy/delete")
async def delete(request: Request) -> Response:
    """Deletes a session, a person's data, or old turns."""
    check_change(request)
    fields, source = await form(request), source_of(request)
    _check_confirmed(fields)
    if fields.get("session"):
        answer = await changes.delete_session(source, fields["session"])
    elif fields.get("person"):
        answer = await changes.delete_person(source, fields["person"])
        return _to("/page/privacy", note=_note(request, "; ".join(as_lines(answer)) + "."))
    else:
        days = whole(fields.get("days", "") or "?", "days", 0, 0, 100_000)
        answer = await changes.purge(source, float(days))
    note = f"Deleted: {answer['deleted']['turns']} turns."
    if running := answer.get("running"):
        note = f"{note} {still_running(running)}."
    return _to("/page/privacy", note=_note(request, note))


@router.post("/page/privacy/forget")
async def forget(request: Request) -> Response:
    """Deletes a preference, so that it is not added to further prompts."""
    check_change(request)
    fields = await form(request)
    await changes.forget(source_of(request), whole(fields.get("wish", "") or "?", "wish", 0, 0, 2**31 - 1))
    return _to("/page/privacy")


def _check_confirmed(fields: dict[str, str]) -> None:
    """Raises ClientError (400) if the check box of the form is not ticked."""
    if fields.get("sure") != "1":
        raise ClientError("tick the check box to confirm: this cannot be undone", "sure")


def _note(request: Request, text: str, was: int | None = None) -> str:
    return notices_of(request).leave(Notice(text, was))


def _to(path: str, fragment: str = "", **query: str) -> Response:
    address = f"{path}?{urllib.parse.urlencode(query)}"
    return RedirectResponse(f"{address}#{fragment}" if fragment else address, 303, HEADERS)
