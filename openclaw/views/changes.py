"""Changes of stored data by an administrator: overrule the judge, delete, purge."""

from __future__ import annotations

import asyncio
from typing import Any

from openclaw.errors import ClientError
from openclaw.gateway.forgetting import PeopleToForget
from openclaw.store.rights import ADMINISTRATOR
from openclaw.views.source import ViewSource

Json = dict[str, Any]

LONGEST_HINT = 20_000
"""Most characters of a hint, as in /v1/feedback."""


async def overrule(source: ViewSource, completion_id: str, score: float | None, text: str) -> Json:
    """Stores an administrator's rating, which overrides the judge's score: `{"completion_id", "session_id", "status"}`.

    Raises ClientError (400, 404, 409).
    """
    recorder, text = source.changeable, text.strip()
    if score is None and not text:
        raise ClientError("select a rating, or write a hint: what should have been different", "score")
    if score is not None and not -1 <= score <= 1:
        raise ClientError("score must be a number from -1 to 1", "score")
    if len(text) > LONGEST_HINT:
        raise ClientError(f"text must be at most {LONGEST_HINT} characters long", "text")
    stored = await recorder.feedback(completion_id, None, score, text, ADMINISTRATOR)
    if stored is None:
        message = f"there is no recorded turn with completion_id {completion_id!r}"
        raise ClientError(message, "completion_id", "not_found", 404)
    return {
        "object": "feedback",
        "completion_id": stored.completion_id,
        "session_id": stored.session_id,
        "status": stored.status,
    }


async def delete_session(source: ViewSource, session_id: str) -> Json:
    """Deletes a session: `{"session_id", "deleted", "running"}`, see `Recorder.delete_session`. Raises ClientError (404,
    409)."""
    deleted, running = await source.changeable.delete_session(session_id)
    return _checked_deletion(
        {"session_id": session_id, "deleted": deleted, "running": running},
        f"there is no recorded session {session_id!r}",
    )


async def delete_person(source: ViewSource, person: str) -> Json:
    """Deletes all data of a person, see `PeopleToForget.forget`. Raises ClientError (404, 409)."""
    settings = None if source.gateway is None else source.gateway.settings
    people = PeopleToForget(source.changeable, source.run_dir, settings)
    done = await people.forget(person)
    if done is None:
        raise ClientError(f"there is no recorded data of person {person!r}", code="not_found", status=404)
    return done


async def forget(source: ViewSource, wish_id: int) -> None:
    """Deletes a preference. Raises ClientError (404, 409)."""
    if not await source.changeable.forget(wish_id, ADMINISTRATOR):
        raise ClientError(f"there is no preference with id {wish_id}", "wish", "not_found", 404)


async def purge(source: ViewSource, days: float) -> Json:
    """Deletes finished turns older than `days` in small transactions. Raises ClientError."""
    if not 0 <= days < 1e6:
        raise ClientError("retention_days must be a number of days, 0 or more", "retention_days")
    store = source.changeable.store
    return {"retention_days": days, "deleted": await asyncio.to_thread(store.deletion.purge, days)}


def _checked_deletion(result: Json, message: str) -> Json:
    if not any(result["deleted"].values()):
        raise ClientError(message, code="not_found", status=404)
    return result
