"""What is in a store, without content: sessions, people; and a copy of it for safekeeping."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from openclaw.errors import StoreError
from openclaw.store import copies, schema
from openclaw.store.rollout_store import RolloutStore

Rows = list[dict[str, Any]]


def sessions(store: RolloutStore, person: str | None = None) -> Rows:
    """Sessions, the newest first: id, person, turns, times (Unix seconds). Raises StoreError."""
    session = schema.session
    query = select(session).order_by(session.c.last_seen.desc())
    with store.reading() as connection:
        found = connection.execute(query if person is None else query.where(session.c.person == person))
        return [dict(row) for row in found.mappings()]


def people(store: RolloutStore) -> Rows:
    """Who is known by name, with the number of their turns and the time of the last one. Raises StoreError."""
    turn = schema.turn.c
    query = (
        select(turn.person, func.count().label("turns"), func.max(turn.created_at).label("last_seen"))
        .where(turn.person.is_not(None))
        .group_by(turn.person)
        .order_by(turn.person)
    )
    with store.reading() as connection:
        return [dict(row) for row in connection.execute(query).mappings()]


def backup(folder: Path, file: Path) -> dict[str, int]:
    """A whole copy of a SQLite store, while it is written too; readable by its owner alone. Returns its size.

    Raises:
        StoreError: the file is there already, or cannot be written.
    """
    if file.exists():
        raise StoreError(f"{file} is there already: give a new name")
    return {"bytes": copies.copy(folder / "buffer.db", file)}
