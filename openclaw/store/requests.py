"""What a turn's person had asked for before anything was complained about: the request that its answer is about.

A complaint that is about nothing but what its own request asked for ("I asked for a list", behind a question that
ends with "as a list, please") repeats a wish of that request. It teaches its turn, and is no wish for all the others. A
message that complains and asks for something new at once counts as a complaint.
"""

from __future__ import annotations

from sqlalchemy import Connection, and_, or_, select

from openclaw.common.messages import last_said
from openclaw.store import schema
from openclaw.store.database import Database
from openclaw.store.rows import unpack_json

_FARTHEST = 8
"""Complaints in a row, at most, behind which a request is looked for."""


class RequestTable(Database):
    """What people asked for in so many words."""

    def request_of(self, turn_id: str) -> str:
        """The person's message that the turn answers, or the one before all complaints that led to the turn; "" where
        there is none, or there are more complaints than `_FARTHEST`."""
        with self.reading() as connection:
            return request_of(connection, turn_id)


def request_of(connection: Connection, turn_id: str) -> str:
    """See `RequestTable.request_of`."""
    turn, body = schema.turn.c, schema.turn_body.c
    for _ in range(_FARTHEST + 1):
        parent = connection.scalar(select(turn.parent_id).where(turn.id == turn_id))
        if parent is None or not _was_complained_about(connection, parent):
            packed = connection.scalar(select(body.messages).where(body.turn_id == turn_id))
            return last_said(unpack_json(packed)) if packed else ""
        turn_id = parent
    return ""


def _was_complained_about(connection: Connection, turn_id: str) -> bool:
    """Whether it was scored as bad, or a hint was found: every turn of a method with hints has a judgement about them."""
    judgement = schema.judgement.c
    hinted = and_(judgement.kind == "hint", judgement.score > 0)
    bad = or_(hinted, and_(judgement.kind == "eval", judgement.score < 0))
    return (
        connection.scalar(select(judgement.id).where(judgement.turn_id == turn_id, bad).limit(1)) is not None
    )
