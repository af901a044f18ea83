"""POST /v1/feedback: a score or text for one answer, or a reward for a whole session."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from openclaw.errors import ClientError
from openclaw.gateway.caller import asker_named
from openclaw.gateway.chat_request import number, parse_body, string
from openclaw.gateway.gateway import Gateway
from openclaw.gateway.recorder import Recorder
from openclaw.http.auth import check_client
from openclaw.store.rights import Asker

router = APIRouter()

THUMBS = {"up": 1.0, "down": -1.0}
MAX_TEXT = 20_000


@dataclass(frozen=True)
class FeedbackRequest:
    """The validated body of a feedback request.

    `score`: -1 (bad) to 1 (good), None if there is only a text. `discount`: factor of a session's reward for each turn
    before the last, None if the feedback is about one answer.
    """

    completion_id: str | None
    session_id: str | None
    score: float | None
    text: str
    discount: float | None

    @classmethod
    def of(cls, body: dict[str, Any]) -> FeedbackRequest:
        """Returns the validated body. Raises ClientError, which names the invalid field."""
        word = cls(
            _id(body, "completion_id"), _id(body, "session_id"), _score(body),
            (string(body, "text") or "").strip(), _discount(body),
        )  # fmt: skip
        if word.discount is not None:
            word.check_session()
        if word.completion_id is None and word.session_id is None:
            raise ClientError("completion_id or session_id is required", "completion_id")
        if word.score is None and not word.text:
            raise ClientError("one of score, thumbs and text is required", "score")
        if len(word.text) > MAX_TEXT:
            raise ClientError(f"text must be at most {MAX_TEXT} characters long", "text")
        return word

    def check_session(self) -> None:
        """Raises ClientError if a field does not apply to a whole session."""
        if self.session_id is None:
            raise ClientError('session_id is required with "scope": "session"', "session_id")
        if self.completion_id is not None:
            message = 'completion_id and "scope": "session" exclude each other: remove one of them'
            raise ClientError(message, "completion_id")
        if self.score is None:
            raise ClientError('score or thumbs is required with "scope": "session"', "score")


@router.post("/v1/feedback")
async def feedback(request: Request) -> Response:
    """Stores a score or a text for one answer, or for a whole session.

    The body is `{"completion_id" and/or "session_id", "score": -1..1 or "thumbs": "up"|"down", "text"}`. A session id
    alone refers to the last main turn of the session. With `"scope": "session"` every main turn gets a score: the one k
    turns before the last gets score * discount ** k (`"discount"`: 0 to 1, default 1). `user` names the person, as in
    chat requests. Raises ClientError (404) if the turn does not exist or belongs to another key.
    """
    gateway: Gateway = request.app.state.gateway
    check_client(request, gateway.settings)
    body = parse_body(await request.body())
    word = FeedbackRequest.of(body)
    if gateway.recorder is None:
        message = "this server does not record turns, so it cannot store feedback"
        raise ClientError(message, code="not_recording", status=409)
    asker = asker_named(request.headers, body, gateway.settings)
    if asker.claims:
        message = f"this key cannot give feedback for user {string(body, 'user')!r}"
        raise ClientError(message, "user", "not_found", 404)
    if word.discount is not None:
        return await _reward_session(gateway.recorder, word, asker)
    stored = await gateway.recorder.feedback(
        completion_id=word.completion_id,
        session_id=word.session_id,
        score=word.score,
        text=word.text,
        asker=asker,
    )
    if stored is None:
        where = " and ".join(
            f"{name} {value!r}"
            for name, value in (("completion_id", word.completion_id), ("session_id", word.session_id))
            if value
        )
        param = "completion_id" if word.completion_id else "session_id"
        raise ClientError(f"there is no recorded answer with {where}", param, "not_found", 404)
    answer = {
        "object": "feedback",
        "completion_id": stored.completion_id,
        "session_id": stored.session_id,
        "status": stored.status,
    }
    return Response(orjson.dumps(answer), media_type="application/json")


async def _reward_session(recorder: Recorder, word: FeedbackRequest, asker: Asker) -> Response:
    assert word.session_id is not None and word.score is not None and word.discount is not None  # checked
    rewards = await recorder.reward_session(word.session_id, word.score, word.text, word.discount, asker)
    if not rewards:
        message = f"there is no recorded answer with session_id {word.session_id!r}"
        raise ClientError(message, "session_id", "not_found", 404)
    answer = {"object": "feedback", "scope": "session", "session_id": word.session_id}
    return Response(
        orjson.dumps(answer | {"turns": [asdict(reward) for reward in rewards]}),
        media_type="application/json",
    )


def _discount(body: dict[str, Any]) -> float | None:
    """Returns the discount factor of a session reward; None if the feedback is about one turn."""
    scope = string(body, "scope") or "turn"
    if scope not in ("turn", "session"):
        raise ClientError(f"scope must be turn or session, got {scope!r}", "scope")
    discount = number(body, "discount", 0, 1)
    if scope == "turn":
        if discount is not None:
            raise ClientError('discount is only allowed with "scope": "session"', "discount")
        return None
    return 1.0 if discount is None else discount


def _score(body: dict[str, Any]) -> float | None:
    score, thumbs = body.get("score"), body.get("thumbs")
    if score is not None and thumbs is not None:
        raise ClientError("score and thumbs exclude each other: remove one of them", "thumbs")
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
        raise ClientError(f"{name} must contain only printable characters", name)
    return value
