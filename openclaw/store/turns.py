"""Sessions and their turns.

A session is updated by every turn, and ended by the client or when idle; using it again reopens it. A turn is
recorded once, found again by its transcript, and answered once.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, and_, bindparam, func, insert, null, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from openclaw.errors import StoreError
from openclaw.store import schema
from openclaw.store.database import Database, slices
from openclaw.store.prepared import Prepared
from openclaw.store.rights import ADMINISTRATOR, Asker, may_use, owner_after, usable
from openclaw.store.rows import body_row, check_new_turn, pack_json, select_turns, turn_from_row, turn_row
from openclaw.types import ENVIRONMENT, Message, NewTurn, Session, Turn, TurnState


class SessionTable:
    """Sessions: persons, times, and the expiry of turns without a successor."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def touch(self, session_id: str, person: str | None = None) -> None:
        """Records that the session is in use (creates it, or reopens it if it was ended)."""
        with self._database.transaction() as connection:
            touch(connection, session_id, person, None, new_turns=0)

    def get(self, session_id: str) -> Session | None:
        with self._database.reading() as connection:
            row = (
                connection.execute(select(schema.session).where(schema.session.c.id == session_id))
                .mappings()
                .first()
            )
        return None if row is None else Session(**row)

    def end(self, session_id: str, asker: Asker = ADMINISTRATOR) -> int:
        """Ends a session on its client's request, as far as its turns are the asker's; an unknown one is no error.
        Returns the number of expired turns."""
        with self._database.transaction() as connection:
            return _end(connection, session_id, "session_done", time.time(), asker)

    def expire(self, ttl: float) -> int:
        """Ends every open session that was idle for more than `ttl` seconds. Returns their number."""
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

    def of_group(self, group_id: str, person: str | None = None, asker: Asker = ADMINISTRATOR) -> list[str]:
        """Returns sessions with a turn of the group, oldest first; only turns of `person`, if given, and of the
        asker."""
        turn = schema.turn.c
        query = select(turn.session_id, turn.created_at).where(turn.group_id == group_id)
        query = query.where(*_of(person), *usable(asker))
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(turn.created_at, turn.id)).all()
        return list(dict.fromkeys(row.session_id for row in rows))

    def listing(self, person: str | None = None) -> list[dict[str, Any]]:
        """Returns sessions without content, newest first: id, person, turns, times (Unix seconds); for a person those
        that they began or have a turn in. Raises StoreError."""
        session, turn = schema.session, schema.turn.c
        shown = [column for column in session.c if column is not session.c.key_name]
        query = select(*shown).order_by(session.c.last_seen.desc())
        if person is not None:
            theirs = select(turn.session_id).where(turn.person == person)
            query = query.where(or_(session.c.person == person, session.c.id.in_(theirs)))
        with self._database.reading() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]


def touch(
    connection: Connection, session_id: str, person: str | None, key_name: str | None, new_turns: int
) -> None:
    """Records that a session is in use, by whom, and the number of its new turns."""
    now = time.time()
    row = {"id": session_id, "person": person, "turns": new_turns, "created_at": now, "last_seen": now}
    _upsert(connection.dialect.name).run(connection, row | {"key_name": key_name})


@functools.cache
def _upsert(dialect: str) -> Prepared:
    insert = (postgresql if dialect == "postgresql" else sqlite).insert(schema.session)
    old, new = schema.session.c, insert.excluded
    changes = {
        "person": owner_after(old, new),
        "turns": old.turns + new.turns,
        "last_seen": new.last_seen,
        "ended_at": null(),
    }
    return Prepared(insert.on_conflict_do_update(index_elements=[old.id], set_=changes))


def _end(
    connection: Connection,
    session_id: str,
    reason: Literal["session_done", "session_idle"],
    now: float,
    asker: Asker = ADMINISTRATOR,
) -> int:
    """Ends a session for an asker. Turns of others stay, and a session that has any stays open until it is idle."""
    session, turn, conditions = schema.session.c, schema.turn.c, usable(asker)
    here = turn.session_id == session_id
    ended = update(schema.session).where(session.id == session_id, session.ended_at.is_(None))
    if conditions:
        ended = ended.where(~select(turn.id).where(here, ~and_(*conditions)).exists())
    connection.execute(ended.values(ended_at=now))
    expired = connection.execute(
        update(schema.turn)
        .where(here, turn.state == str(TurnState.CAPTURED), *conditions)
        .values(state=str(TurnState.EXPIRED), state_reason=reason)
    )
    return expired.rowcount


_DIGESTS_A_QUERY = 500
_LOOKED_AT = 20
"""Newest turns with a transcript that are checked for the asker, before a query for the asker's turns only."""

# built once, because these run for every answer of the gateway
_KNOWN = Prepared(select(schema.turn.c.id).where(schema.turn.c.completion_id == bindparam("completion")))
_LAST_INDEX = Prepared(
    select(func.max(schema.turn.c.turn_index)).where(schema.turn.c.session_id == bindparam("session"))
)
_NEWEST = Prepared(
    select(
        schema.turn.c.id,
        schema.turn.c.session_id,
        schema.turn.c.key_name,
        schema.turn.c.person,
        schema.turn.c.state,
    )
    .where(
        schema.turn.c.transcript_digest == bindparam("digest"), schema.turn.c.created_at >= bindparam("since")
    )
    .order_by(schema.turn.c.created_at.desc())
    .limit(_LOOKED_AT)
)
_STATE = Prepared(select(schema.turn.c.state).where(schema.turn.c.id == bindparam("of")).with_for_update())
_STATE_NOW = Prepared(select(schema.turn.c.state).where(schema.turn.c.id == bindparam("of")))
_GIVE = Prepared(
    update(schema.turn_body)
    .where(schema.turn_body.c.turn_id == bindparam("of"), schema.turn_body.c.next_state.is_(None))
    .values(next_state=bindparam("given"))
)
_ANSWERED = Prepared(
    update(schema.turn)
    .where(schema.turn.c.id == bindparam("of"), schema.turn.c.source != ENVIRONMENT)
    .values(state=str(TurnState.ANSWERED), answered_at=bindparam("now"))
)
_TURN = Prepared(select_turns(schema.turn.c.id == bindparam("turn")))
_INSERT_TURN = Prepared(insert(schema.turn))
_INSERT_BODY = Prepared(insert(schema.turn_body))


class TurnTable:
    """captured -> answered; side, aborted, untrainable, imported as recorded."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, turn: NewTurn) -> Turn:
        """Stores a turn and updates its session. A repeated `completion_id` returns the stored turn.

        Raises StoreError for a state that a new turn cannot have, and for a captured turn with inconsistent ids,
        log-probs and version spans.
        """
        check_new_turn(turn)
        body = body_row(turn)
        with self._database.transaction() as connection:
            if _KNOWN.value(connection, {"completion": turn.completion_id}) is not None:
                return _stored(connection, turn.completion_id)
            touch(connection, turn.session_id, turn.person, turn.key_name, new_turns=1)
            index = self.next_index(turn.session_id) if turn.turn_index is None else turn.turn_index
            _INSERT_TURN.run(connection, turn_row(turn, index))
            _INSERT_BODY.run(connection, body)
        return Turn(**{**vars(turn), "turn_index": index})

    def is_stored(self, turn_id: str) -> bool:
        """Returns whether there is such a turn."""
        with self._database.reading() as connection:
            return _STATE_NOW.value(connection, {"of": turn_id}) is not None

    def get(self, turn_id: str) -> Turn | None:
        with self._database.reading() as connection:
            return _one_turn(connection, schema.turn.c.id == turn_id)

    def get_by_completion(self, completion_id: str) -> Turn | None:
        with self._database.reading() as connection:
            return _one_turn(connection, schema.turn.c.completion_id == completion_id)

    def find_by_digest(
        self,
        digests: Sequence[str],
        session_id: str | None = None,
        since: float = 0.0,
        asker: Asker = ADMINISTRATOR,
        recent: Mapping[str, Turn] | None = None,
    ) -> Turn | None:
        """Returns the stored turn whose transcript digest comes first in `digests` (longest prefix first); of several
        with that digest, the newest. Only turns of `session_id`, if given, created at or after `since` (Unix
        seconds), that the asker may access. Of a turn in `recent`, as recorded, only the state is read."""
        with self._database.reading() as connection:
            newest = _newest(connection, digests[0], session_id, since, asker) if digests else None
            if newest is not None:
                turn_id, state = newest
                known = None if recent is None else recent.get(turn_id)
                return _turn(connection, turn_id) if known is None else replace(known, state=state)
            turn, conditions = schema.turn.c, usable(asker)
            for start in range(0, len(digests), _DIGESTS_A_QUERY):
                part = digests[start : start + _DIGESTS_A_QUERY]
                query = select(turn.id, turn.transcript_digest).where(
                    turn.transcript_digest.in_(part), turn.created_at >= since, *conditions
                )
                if session_id is not None:
                    query = query.where(turn.session_id == session_id)
                ids_by_digest = {
                    digest: id_ for id_, digest in connection.execute(query.order_by(turn.created_at))
                }
                first = next((digest for digest in part if digest in ids_by_digest), None)
                if first is not None:
                    return _turn(connection, ids_by_digest[first])
        return None

    def last_main(self, session_id: str, asker: Asker = ADMINISTRATOR) -> Turn | None:
        """Returns the newest main turn of a session that waits for its next state, and that the asker may access."""
        turn = schema.turn.c
        query = (
            select(turn.id)
            .where(
                turn.session_id == session_id, turn.turn_type == "main", turn.state == str(TurnState.CAPTURED)
            )
            .where(*usable(asker))
        )
        with self._database.reading() as connection:
            turn_id = connection.scalar(
                query.order_by(turn.turn_index.desc(), turn.created_at.desc()).limit(1)
            )
            return None if turn_id is None else _one_turn(connection, turn.id == turn_id)

    def next_index(self, session_id: str) -> int:
        """Returns the index of the session's next turn; 0 for a new session."""
        with self._database.reading() as connection:
            last = _LAST_INDEX.value(connection, {"session": session_id})
        return 0 if last is None else int(last) + 1

    def answer(self, turn_id: str, next_state: list[Message]) -> bool:
        """Sets the next state of a captured or imported turn. Returns False and changes nothing for any other turn
        (answered already, expired, side, aborted, ...). A turn of an environment stays captured: its reward comes as
        feedback, and is not judged by its next state. Raises StoreError for an unknown turn."""
        with self._database.transaction() as connection:
            state = turn_state(connection, turn_id)
            if state not in (TurnState.CAPTURED, TurnState.IMPORTED):
                return False
            if not _GIVE.run(connection, {"given": pack_json(next_state), "of": turn_id}):
                return False
            _ANSWERED.run(connection, {"now": time.time(), "of": turn_id})
        return True

    def of_sessions(
        self,
        session_ids: Sequence[str],
        most: int,
        person: str | None = None,
        asker: Asker = ADMINISTRATOR,
    ) -> tuple[dict[str, list[Turn]], list[str]]:
        """Returns turns by session, in order, and the remaining sessions: whole sessions are loaded until they have
        `most` turns together, at least one. Only turns of `person`, if given, and of the asker."""
        turn = schema.turn.c
        turns: dict[str, list[Turn]] = {}
        left = list(session_ids)
        read = 0
        while left and read < most:
            query = select_turns(turn.session_id == left[0], *_of(person), *usable(asker))
            with self._database.reading() as connection:
                rows = connection.execute(query.order_by(turn.turn_index, turn.created_at)).mappings().all()
            turns[left.pop(0)] = [turn_from_row(row) for row in rows]
            read += len(rows)
        return turns, left

    def get_many(self, turn_ids: Sequence[str]) -> dict[str, Turn]:
        """Returns turns with all their stored data, by id."""
        turns: dict[str, Turn] = {}
        with self._database.reading() as connection:
            for ids in slices(list(turn_ids)):
                rows = connection.execute(select_turns(schema.turn.c.id.in_(ids))).mappings()
                turns |= {row["id"]: turn_from_row(row) for row in rows}
        return turns


def turn_state(connection: Connection, turn_id: str) -> str:
    """Returns the state of a turn, locked until the transaction ends. Raises StoreError for an unknown turn."""
    state = _STATE.value(connection, {"of": turn_id})
    if state is None:
        raise StoreError(f"no turn {turn_id} in the store")
    return str(state)


def _stored(connection: Connection, completion_id: str) -> Turn:
    row = connection.execute(select_turns(schema.turn.c.completion_id == completion_id)).mappings().one()
    return turn_from_row(row)


def _one_turn(connection: Connection, *where: object) -> Turn | None:
    row = connection.execute(select_turns(*where)).mappings().first()  # type: ignore[arg-type]
    return None if row is None else turn_from_row(row)


def _newest(
    connection: Connection, digest: str, session_id: str | None, since: float, asker: Asker
) -> tuple[str, TurnState] | None:
    """Returns id and state of the newest turn with this transcript; usually the longest transcript matches."""
    for row in _NEWEST.rows(connection, {"digest": digest, "since": since}):
        here = session_id is None or row["session_id"] == session_id
        if here and may_use(asker, row["key_name"], row["person"]):
            return str(row["id"]), TurnState(row["state"])
    return None


def _turn(connection: Connection, turn_id: str) -> Turn | None:
    row = next(_TURN.rows(connection, {"turn": turn_id}), None)
    return None if row is None else turn_from_row(row)


def _of(person: str | None) -> list[ColumnElement[bool]]:
    turn = schema.turn.c
    return [] if person is None else [turn.person == person]
