"""Sessions: touched by every turn, ended by the client or by idleness. A session used again is open again."""

from __future__ import annotations

import functools
import time
from typing import Any, Literal

from sqlalchemy import Connection, Insert, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from openclaw.store import schema
from openclaw.store.database import Database
from openclaw.types import Session, TurnState


class SessionTable:
    """Sessions: who, when, and the expiry of turns that nothing followed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def touch(self, session_id: str, person: str | None = None) -> None:
        """Note that the session is in use (made when new, reopened when ended)."""
        with self._database.transaction() as connection:
            touch(connection, session_id, person, new_turns=0)

    def get(self, session_id: str) -> Session | None:
        with self._database.reading() as connection:
            row = (
                connection.execute(select(schema.session).where(schema.session.c.id == session_id))
                .mappings()
                .first()
            )
        return None if row is None else Session(**row)

    def end(self, session_id: str) -> int:
        """End a session on its client's request; an unknown one is no error. Returns the turns that expired."""
        with self._database.transaction() as connection:
            return _end(connection, session_id, "session_done", time.time())

    def expire(self, ttl: float) -> int:
        """End every open session that was idle for more than `ttl` seconds. Returns how many."""
        now = time.time()
        session = schema.session.c
        idle = select(session.id).where(session.ended_at.is_(None), session.last_seen < now - ttl)
        with self._database.reading() as connection:
            if connection.execute(idle.limit(1)).first() is None:
                return 0
        with self._database.transaction() as connection:
            ids = list(connection.scalars(idle))
            for session_id in ids:
                _end(connection, session_id, "session_idle", now)
        return len(ids)

    def of_group(self, group_id: str, person: str | None = None) -> list[str]:
        """Sessions with a turn of the group, the oldest first; only those of `person`, if given."""
        turn = schema.turn.c
        query = select(turn.session_id, turn.created_at).where(turn.group_id == group_id)
        if person is not None:
            query = query.where(turn.person == person)
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(turn.created_at, turn.id)).all()
        return list(dict.fromkeys(row.session_id for row in rows))

    def listing(self, person: str | None = None) -> list[dict[str, Any]]:
        """Sessions without content, the newest first: id, person, turns, times (Unix seconds). Raises StoreError."""
        session = schema.session
        query = select(session).order_by(session.c.last_seen.desc())
        with self._database.reading() as connection:
            found = connection.execute(query if person is None else query.where(session.c.person == person))
            return [dict(row) for row in found.mappings()]


def touch(connection: Connection, session_id: str, person: str | None, new_turns: int) -> None:
    """Note that a session is in use, and how many turns it has got."""
    now = time.time()
    row = {"id": session_id, "person": person, "turns": new_turns, "created_at": now, "last_seen": now}
    connection.execute(_upsert(connection.dialect.name), row)


@functools.cache
def _upsert(dialect: str) -> Insert:
    insert = (postgresql if dialect == "postgresql" else sqlite).insert(schema.session)
    old, new = schema.session.c, insert.excluded
    changes = {
        "person": func.coalesce(new.person, old.person),
        "turns": old.turns + new.turns,
        "last_seen": new.last_seen,
        "ended_at": None,
    }
    upsert: Insert = insert.on_conflict_do_update(index_elements=[old.id], set_=changes)
    return upsert


def _end(
    connection: Connection, session_id: str, reason: Literal["session_done", "session_idle"], now: float
) -> int:
    connection.execute(
        update(schema.session)
        .where(schema.session.c.id == session_id, schema.session.c.ended_at.is_(None))
        .values(ended_at=now)
    )
    expired = connection.execute(
        update(schema.turn)
        .where(schema.turn.c.session_id == session_id, schema.turn.c.state == str(TurnState.CAPTURED))
        .values(state=str(TurnState.EXPIRED), state_reason=reason)
    )
    return expired.rowcount
