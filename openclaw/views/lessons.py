"""The turns that a version was trained on, with their judgements."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from openclaw.errors import ClientError
from openclaw.store import RolloutStore, schema
from openclaw.types import DEFAULT_TRAINER
from openclaw.views.sessions import TURNS_A_PAGE, judgements, select_turns, shown_turn

Json = dict[str, Any]

NOTHING = {"turns": 0, "good": 0, "bad": 0}


def lessons(store: RolloutStore, number: int, after: int = 0, limit: int = TURNS_A_PAGE) -> Json:
    """Returns `{"version", "turns", "good", "bad", "data": [...], "next": after of the next page or None}`.

    `data` has the turns in storage order, as in a session, each with its `session_id`. For a rejected version these are
    the turns of the rejected training step. Replayed turns are not included.

    Raises:
        ClientError: there is no such version (404).
    """
    training, sample = schema.training.c, schema.sample.c
    query = select_turns().add_columns(sample.id.label("sample_id"))
    selected_turns = (
        select(training.sample_id)
        .where(training.trainer == DEFAULT_TRAINER, training.version == number, training.sample_id > after)
        .order_by(training.sample_id)
        .limit(limit + 1)
    )
    with store.database.reading() as connection:
        if number not in {one.version for one in store.versions.all()}:
            raise ClientError(f"there is no version {number}", "version", "not_found", 404)
        ids = list(connection.scalars(selected_turns))
        rows = (
            connection.execute(query.where(sample.id.in_(ids[:limit])).order_by(sample.id)).mappings().all()
        )
        judged = judgements(connection, [row["id"] for row in rows])
    turns = [{"session_id": row["session_id"], **shown_turn(row, judged[row["id"]])} for row in rows]
    counted = store.versions.learned_by([number]).get(number, NOTHING)
    further = ids[limit - 1] if len(ids) > limit else None
    return {"object": "lessons", "version": number, **counted, "data": turns, "next": further}
