"""What a turn's person had asked for before anything was complained about: the request that its answer is about.

A complaint that asks for the same side of the form as its own request ("I asked for a list", behind a question that ends
with "as a list, please") repeats a wish of that request. It teaches its turn, and is no wish for all the others.
"""

from __future__ import annotations

from sqlalchemy import Connection, or_, select

from openclaw.common.messages import last_said
from openclaw.common.wish_themes import share_a_theme
from openclaw.store import schema
from openclaw.store.database import Database
from openclaw.store.rows import unpack_json

_FARTHEST = 8
"""Complaints in a row, at most, behind which a request is looked for."""


class RequestTable(Database):
    """What people asked for in so many words."""

    def request_of(self, turn_id: str) -> str:
        """The person's message that the turn answers, or the one before all complaints that led to the turn; "" where
        there is none."""
        with self.reading() as connection:
            return request_of(connection, turn_id)


def request_of(connection: Connection, turn_id: str) -> str:
    """See `RequestTable.request_of`."""
    turn, body = schema.turn.c, schema.turn_body.c
    query = select(turn.parent_id, body.messages).join(schema.turn_body, body.turn_id == turn.id)
    packed: bytes | None = None
    for _ in range(_FARTHEST):
        row = connection.execute(query.where(turn.id == turn_id)).one_or_none()
        if row is None:
            break
        parent, packed = row
        if parent is None or not _was_complained_about(connection, parent):
            break
        turn_id = parent
    return last_said(unpack_json(packed)) if packed else ""


def repeats_its_request(connection: Connection, turn_id: str, hint: str) -> bool:
    """Whether a hint about a turn speaks of the same side of an answer's form as the turn's request."""
    return share_a_theme(request_of(connection, turn_id), hint)


def _was_complained_about(connection: Connection, turn_id: str) -> bool:
    judgement = schema.judgement.c
    bad = or_(judgement.kind == "hint", judgement.score < 0)
    return (
        connection.scalar(select(judgement.id).where(judgement.turn_id == turn_id, bad).limit(1)) is not None
    )
