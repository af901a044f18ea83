"""POST /v1/feedback: a person's score or text on an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from openclaw.errors import ClientError
from openclaw.gateway.caller import person_named
from openclaw.gateway.fields import parse_body, string
from openclaw.gateway.gateway import Gateway
from openclaw.http.auth import check_client, key_name
from openclaw.settings import Settings

router = APIRouter()

THUMBS = {"up": 1.0, "down": -1.0}
MAX_TEXT = 20_000
NOBODY = ""
"""No person has this name, so that only turns without one match."""


@dataclass(frozen=True)
class Word:
    """The checked body. score: -1 (bad) to 1 (good), None if there is only a text."""

    completion_id: str | None
    session_id: str | None
    score: float | None
    text: str

    @classmethod
    def of(cls, body: dict[str, Any]) -> Word:
        """Raises ClientError that names the wrong field."""
        word = cls(
            _id(body, "completion_id"), _id(body, "session_id"), _score(body),
            (string(body, "text") or "").strip(),
        )  # fmt: skip
        if word.completion_id is None and word.session_id is None:
            raise ClientError("completion_id or session_id must say which answer is meant", "completion_id")
        if word.score is None and not word.text:
            raise ClientError("score, thumbs or text must be given", "score")
        if len(word.text) > MAX_TEXT:
            raise ClientError(f"text must be at most {MAX_TEXT} characters long", "text")
        return word


@router.post("/v1/feedback")
async def feedback(request: Request) -> Response:
    """`{"completion_id" and/or "session_id", "score": -1..1 or "thumbs": "up"|"down", "text"}`.

    With a session alone its last main turn is meant. `user` names the person, as in requests. 404 when there is no
    such turn, or it is another person's.
    """
    gateway: Gateway = request.app.state.gateway
    check_client(request, gateway.settings)
    body = parse_body(await request.body())
    word = Word.of(body)
    if gateway.recorder is None:
        message = "this server records no turns, so there is nothing that feedback could be about"
        raise ClientError(message, code="not_recording", status=409)
    told = await gateway.recorder.feedback(
        completion_id=word.completion_id,
        session_id=word.session_id,
        score=word.score,
        text=word.text,
        person=_judge_named(request, gateway.settings, body),
    )
    if told is None:
        where = " and ".join(
            f"{name} {value!r}"
            for name, value in (("completion_id", word.completion_id), ("session_id", word.session_id))
            if value
        )
        param = "completion_id" if word.completion_id else "session_id"
        raise ClientError(f"there is no recorded answer of {where}", param, "not_found", 404)
    found = {
        "object": "feedback",
        "completion_id": told.completion_id,
        "session_id": told.session_id,
        "status": told.status,
    }
    return Response(orjson.dumps(found), media_type="application/json")


def _judge_named(request: Request, settings: Settings, body: dict[str, Any]) -> str | None:
    """Whose turns may be meant. Where keys have names, a key judges what it saw: its own turns and those of people that
    it names, not those of another key; one without a name judges what nobody's name is on. Raises ClientError."""
    person, own = person_named(request.headers, body), key_name(request.headers, settings)
    names = {name for name, _ in settings.client_keys if name}
    if not names:
        return person
    if person in names and person != own:
        raise ClientError(f"this key does not speak for {person!r}", "user", "not_found", 404)
    return person or NOBODY


def _score(body: dict[str, Any]) -> float | None:
    score, thumbs = body.get("score"), body.get("thumbs")
    if score is not None and thumbs is not None:
        raise ClientError("score and thumbs say the same: give one of them", "thumbs")
    if thumbs is not None:
        if thumbs not in ("up", "down"):
            raise ClientError("thumbs must be up or down", "thumbs")
        return THUMBS[thumbs]
    if score is None:
        return None
    if isinstance(score, bool) or not isinstance(score, int | float) or not -1 <= score <= 1:
        raise ClientError("score must be a number from -1 to 1", "score")
    return float(score)


def _id(body: dict[str, Any], name: str) -> str | None:
    value = string(body, name) or None
    if value is not None and not value.isprintable():
        raise ClientError(f"{name} must be printable", name)
    return value
