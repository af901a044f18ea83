"""The turns of sessions with what trains them, for a trainer that is on another machine than the store."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, select

from openclaw.store import schema
from openclaw.store.database import Database
from openclaw.store.rows import select_turns, turn_from_row
from openclaw.types import Turn


class TrajectoryTable(Database):
    """Whole turns by session or group."""

    def sessions_of_group(self, group_id: str, person: str | None = None) -> list[str]:
        """Sessions with a turn of the group, the oldest first; only those of `person`, if given."""
        turn = schema.turn.c
        query = select(turn.session_id, turn.created_at).where(turn.group_id == group_id, *_of(person))
        with self.reading() as connection:
            rows = connection.execute(query.order_by(turn.created_at, turn.id)).all()
        return list(dict.fromkeys(row.session_id for row in rows))

    def turns_of_sessions(
        self, session_ids: Sequence[str], most: int, person: str | None = None
    ) -> tuple[dict[str, list[Turn]], list[str]]:
        """Turns by session, in order, and the sessions that are left: whole sessions are read until they have `most`
        turns together, at least one. Only turns of `person`, if given."""
        turn = schema.turn.c
        found: dict[str, list[Turn]] = {}
        left = list(session_ids)
        read = 0
        while left and read < most:
            mine = select_turns(turn.session_id == left[0], *_of(person))
            with self.reading() as connection:
                rows = connection.execute(mine.order_by(turn.turn_index, turn.created_at)).mappings().all()
            found[left.pop(0)] = [turn_from_row(row) for row in rows]
            read += len(rows)
        return found, left


def _of(person: str | None) -> list[ColumnElement[bool]]:
    turn = schema.turn.c
    return [] if person is None else [turn.person == person]
