"""Tables of sessions and turns.

A session is ended by its client, or when it is idle; another turn reopens it. A turn is stored once, and gets its next
state once. A later request finds it by the digest of its transcript.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, and_, bindparam, func, insert, null, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from openclaw.common.messages import Picture
from openclaw.errors import StoreError
from openclaw.store import schema
from openclaw.store.database import Database, Prepared, slices
from openclaw.store.pictures import keep
from openclaw.store.rights import ADMINISTRATOR, Asker, may_use, owner_after, usable
from openclaw.store.rows import body_row, check_new_turn, pack_json, select_turns, turn_from_row, turn_row
from openclaw.types import ENVIRONMENT, Message, NewTurn, Session, Turn, TurnState


class SessionTable:
    """Sessions, and the expiry of their turns that have no next state."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def touch(self, session_id: str, person: str | None = None) -> None:
        """Records that a session is in use: creates it, or reopens it if it was ended."""
        with self._database.transaction() as connection:
            touch(connection, session_id, person, None, new_turns=0)

    def get(self, session_id: str) -> Session | None:
        """Returns a session, or None if it is not stored."""
        with self._database.reading() as connection:
            row = (
                connection.execute(select(schema.session).where(schema.session.c.id == session_id))
                .mappings()
                .first()
            )
        return None if row is None else Session(**row)

    def end(self, session_id: str, asker: Asker = ADMINISTRATOR) -> int:
        """Ends a session on request of a client. Returns the number of turns that expire.

        Turns that the asker may not access are unchanged. An unknown session is not an error.
        """
        with self._database.transaction() as connection:
            return _end(connection, session_id, "session_done", time.time(), asker)

    def expire(self, ttl: float) -> int:
        """Ends all sessions that were idle for more than `ttl` seconds. Returns their number."""
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
        """Returns the ids of the sessions with a turn of a group, oldest first.

        Only turns that the asker may access count, and only those of `person` unless it is None.
        """
        turn = schema.turn.c
        query = select(turn.session_id, turn.created_at).where(turn.group_id == group_id)
        query = query.where(*_is_of(person), *usable(asker))
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(turn.created_at, turn.id)).all()
        return list(dict.fromkeys(row.session_id for row in rows))

    def listing(self, person: str | None = None) -> list[dict[str, Any]]:
        """Returns the rows of all sessions, most recently used first: id, person, number of turns, times in Unix seconds.

        Args:
            person: return only sessions that this person began or has a turn in.
        """
        session, turn = schema.session, schema.turn.c
        columns = [column for column in session.c if column is not session.c.key_name]
        query = select(*columns).order_by(session.c.last_seen.desc())
        if person is not None:
            with_turns = select(turn.session_id).where(turn.person == person)
            query = query.where(or_(session.c.person == person, session.c.id.in_(with_turns)))
        with self._database.reading() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]


def touch(
    connection: Connection, session_id: str, person: str | None, key_name: str | None, new_turns: int
) -> None:
    """Records that a session is in use by a person and a key, and adds `new_turns` to the number of its turns."""
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
    """Ends a session for an asker. Returns the number of turns that expire.

    Turns that the asker may not access are unchanged; a session with such turns stays open until it is idle.
    """
    session, turn, conditions = schema.session.c, schema.turn.c, usable(asker)
    in_session = turn.session_id == session_id
    ended = update(schema.session).where(session.id == session_id, session.ended_at.is_(None))
    if conditions:
        ended = ended.where(~select(turn.id).where(in_session, ~and_(*conditions)).exists())
    connection.execute(ended.values(ended_at=now))
    expired = connection.execute(
        update(schema.turn)
        .where(in_session, turn.state == str(TurnState.CAPTURED), *conditions)
        .values(state=str(TurnState.EXPIRED), state_reason=reason)
    )
    return expired.rowcount


_DIGESTS_PER_QUERY = 500
_LOOKED_AT = 20
"""Number of newest turns with a transcript whose access rights are checked in Python, before a query with the rights
as SQL conditions."""

# prepared, because they run for every answer of the gateway
_ID_OF_COMPLETION = Prepared(
    select(schema.turn.c.id).where(schema.turn.c.completion_id == bindparam("completion"))
)
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
_LOCK_STATE = Prepared(
    select(schema.turn.c.state).where(schema.turn.c.id == bindparam("turn")).with_for_update()
)
_STATE = Prepared(select(schema.turn.c.state).where(schema.turn.c.id == bindparam("turn")))
_SET_NEXT_STATE = Prepared(
    update(schema.turn_body)
    .where(schema.turn_body.c.turn_id == bindparam("turn"), schema.turn_body.c.next_state.is_(None))
    .values(next_state=bindparam("new_messages"))
)
_SET_ANSWERED = Prepared(
    update(schema.turn)
    .where(schema.turn.c.id == bindparam("turn"), schema.turn.c.source != ENVIRONMENT)
    .values(state=str(TurnState.ANSWERED), answered_at=bindparam("now"))
)
_TURN = Prepared(select_turns(schema.turn.c.id == bindparam("turn")))
_INSERT_TURN = Prepared(insert(schema.turn))
_INSERT_BODY = Prepared(insert(schema.turn_body))


class TurnTable:
    """Turns, from capture to their next state: captured -> answered. Other states are set when a turn is stored."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, turn: NewTurn, pictures: Mapping[str, Picture] | None = None) -> Turn:
        """Stores a turn and updates its session. Returns the stored turn.

        If there is a turn with the same `completion_id`, that turn is returned unchanged.

        Args:
            pictures: those in its prompt, by the SHA-256 of their bytes; stored ones may be missing.

        Raises:
            StoreError: a new turn cannot have this state, or ids, log-probs and version spans are inconsistent,
                or a picture is missing.
        """
        check_new_turn(turn)
        body = body_row(turn)
        with self._database.transaction() as connection:
            if _ID_OF_COMPLETION.value(connection, {"completion": turn.completion_id}) is not None:
                return _stored(connection, turn.completion_id)
            touch(connection, turn.session_id, turn.person, turn.key_name, new_turns=1)
            index = self.next_index(turn.session_id) if turn.turn_index is None else turn.turn_index
            _INSERT_TURN.run(connection, turn_row(turn, index))
            _INSERT_BODY.run(connection, body)
            keep(connection, turn, pictures or {})
        return Turn(**{**vars(turn), "turn_index": index})

    def is_stored(self, turn_id: str) -> bool:
        """Returns whether the turn is stored."""
        with self._database.reading() as connection:
            return _STATE.value(connection, {"turn": turn_id}) is not None

    def stored_among(self, turn_ids: Collection[str]) -> set[str]:
        """Returns the ids of these turns that are stored."""
        stored: set[str] = set()
        with self._database.reading() as connection:
            for ids in slices(list(turn_ids)):
                stored.update(connection.scalars(select(schema.turn.c.id).where(schema.turn.c.id.in_(ids))))
        return stored

    def get(self, turn_id: str) -> Turn | None:
        """Returns a turn by its id, or None if it is not stored."""
        with self._database.reading() as connection:
            return _one_turn(connection, schema.turn.c.id == turn_id)

    def get_by_completion(self, completion_id: str) -> Turn | None:
        """Returns a turn by its completion id, or None if it is not stored."""
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
        """Returns the stored turn whose transcript digest comes first in `digests`; None if no digest is stored.

        Of several turns with that digest, the newest is returned.

        Args:
            digests: digests of the prefixes of a history, longest first.
            session_id: search only in this session; None for all.
            since: search only turns created at or after this time, in Unix seconds.
            asker: search only turns that it may access.
            recent: turns by id, as they were stored; only the state of such a turn is read from the database.
        """
        with self._database.reading() as connection:
            newest = _newest(connection, digests[0], session_id, since, asker) if digests else None
            if newest is not None:
                turn_id, state = newest
                cached = None if recent is None else recent.get(turn_id)
                return _turn(connection, turn_id) if cached is None else replace(cached, state=state)
            turn, conditions = schema.turn.c, usable(asker)
            for start in range(0, len(digests), _DIGESTS_PER_QUERY):
                part = digests[start : start + _DIGESTS_PER_QUERY]
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
        """Returns the newest main turn of a session without a next state that the asker may access; None if there is
        none."""
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
        """Returns the index of a session's next turn; 0 for a new session."""
        with self._database.reading() as connection:
            last = _LAST_INDEX.value(connection, {"session": session_id})
        return 0 if last is None else int(last) + 1

    def answer(self, turn_id: str, next_state: list[Message]) -> bool:
        """Sets the next state of a captured or imported turn. Returns False if the turn is in another state.

        A turn of an environment stays captured: it gets its reward as feedback, and no judge scores it by its next
        state. Raises StoreError for an unknown turn.
        """
        with self._database.transaction() as connection:
            state = turn_state(connection, turn_id)
            if state not in (TurnState.CAPTURED, TurnState.IMPORTED):
                return False
            if not _SET_NEXT_STATE.run(connection, {"new_messages": pack_json(next_state), "turn": turn_id}):
                return False
            _SET_ANSWERED.run(connection, {"now": time.time(), "turn": turn_id})
        return True

    def of_sessions(
        self,
        session_ids: Sequence[str],
        most: int,
        person: str | None = None,
        asker: Asker = ADMINISTRATOR,
    ) -> tuple[dict[str, list[Turn]], list[str]]:
        """Returns the turns of the first sessions, by session and in order, and the ids of the sessions not loaded.

        Complete sessions are loaded until they have at least `most` turns together.

        Args:
            person: load only turns of this person; None for all.
            asker: load only turns that it may access.
        """
        turn = schema.turn.c
        turns: dict[str, list[Turn]] = {}
        remaining = list(session_ids)
        loaded = 0
        while remaining and loaded < most:
            query = select_turns(turn.session_id == remaining[0], *_is_of(person), *usable(asker))
            with self._database.reading() as connection:
                rows = connection.execute(query.order_by(turn.turn_index, turn.created_at)).mappings().all()
            turns[remaining.pop(0)] = [turn_from_row(row) for row in rows]
            loaded += len(rows)
        return turns, remaining

    def get_many(self, turn_ids: Sequence[str]) -> dict[str, Turn]:
        """Returns the stored turns with these ids, by id."""
        turns: dict[str, Turn] = {}
        with self._database.reading() as connection:
            for ids in slices(list(turn_ids)):
                rows = connection.execute(select_turns(schema.turn.c.id.in_(ids))).mappings()
                turns |= {row["id"]: turn_from_row(row) for row in rows}
        return turns


def turn_state(connection: Connection, turn_id: str) -> str:
    """Returns the state of a turn, whose row is locked until the transaction ends. Raises StoreError for an unknown
    turn."""
    state = _LOCK_STATE.value(connection, {"turn": turn_id})
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
    """Returns id and state of the newest turn with this transcript digest; None if it is not one of the `_LOOKED_AT`
    newest. Called first with the longest prefix, which usually matches."""
    for row in _NEWEST.rows(connection, {"digest": digest, "since": since}):
        in_session = session_id is None or row["session_id"] == session_id
        if in_session and may_use(asker, row["key_name"], row["person"]):
            return str(row["id"]), TurnState(row["state"])
    return None


def _turn(connection: Connection, turn_id: str) -> Turn | None:
    row = next(_TURN.rows(connection, {"turn": turn_id}), None)
    return None if row is None else turn_from_row(row)


def _is_of(person: str | None) -> list[ColumnElement[bool]]:
    """Returns the SQL conditions for turns of a person; none for None."""
    turn = schema.turn.c
    return [] if person is None else [turn.person == person]
