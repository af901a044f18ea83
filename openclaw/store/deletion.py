"""Deletes turns, sessions and people, with all data derived from them.

On SQLite, freed space is overwritten with zeros, and the copy made before a migration is deleted. Weights that were
trained on the deleted data do not change.
"""

from __future__ import annotations

import time
from collections import Counter

from sqlalchemy import ColumnElement, Connection, Delete, Select, Table, delete, func, or_, select, update

from openclaw.errors import StoreError
from openclaw.store import copies, schema
from openclaw.store.database import Database, lock_transaction, slices
from openclaw.store.pictures import delete_of
from openclaw.store.rights import of_person
from openclaw.types import USER_JUDGE, SampleState, TurnState

PURGE_BATCH = 500
"""Most turns that `purge` deletes in one transaction, so that other writers do not wait long."""

_SETTLED = [SampleState.TRAINED, SampleState.DROPPED, SampleState.QUARANTINED]
_ENDED = [
    TurnState.SIDE,
    TurnState.ABORTED,
    TurnState.UNTRAINABLE,
    TurnState.EXPIRED,
    TurnState.IMPORTED,
]
_SECONDS_A_DAY = 86400.0


class Deletion:
    """Deletes sessions, people and old turns."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def delete_session(self, session_id: str) -> dict[str, int]:
        """Deletes a session with its turns, judgements, feedback, samples and their training history.

        A trainer that has already loaded a batch still trains on it; the deleted samples are not recorded as trained.

        Returns:
            The number of deleted rows by kind: {"sessions", "turns", "judgements", "feedback", "samples",
            "trainings"}. All are 0 for an unknown session.
        """
        session, turn = schema.session.c, schema.turn.c
        with self._database.transaction() as connection:
            lock_transaction(connection)
            deleted = self._delete(connection, turn.session_id == session_id)
            sessions = delete(schema.session).where(session.id == session_id)
            deleted["sessions"] = connection.execute(sessions).rowcount
        return deleted

    def delete_person(self, person: str) -> dict[str, int]:
        """Deletes all turns of a person and the sessions that the person began. Returns the same as `delete_session`.

        If such a session has turns of other people, the session and these turns stay, without the person's name.
        """
        session, turn = schema.session.c, schema.turn.c
        with self._database.transaction() as connection:
            lock_transaction(connection)
            # also if there are no rows: a process may have been killed between deleting and wiping them
            self._database.wipe_pages()
            deleted = self._delete(connection, of_person(person))
            others = select(turn.person).where(turn.session_id == session.id)
            next_person = others.order_by(turn.turn_index, turn.created_at).limit(1).scalar_subquery()
            sessions = delete(schema.session).where(session.person == person, ~others.exists())
            deleted["sessions"] = connection.execute(sessions).rowcount
            shared = update(schema.session).where(session.person == person)
            connection.execute(shared.values(person=next_person))
        return deleted

    def purge(self, retention_days: float) -> dict[str, int]:
        """Deletes finished turns older than `retention_days`, and ended sessions without turns.

        A turn is finished if its sample is trained, dropped or quarantined, or if it is expired, side, aborted,
        untrainable, or imported without a next state. Other turns are never deleted by age. A deleted sample is not
        trained again after a rollback.

        Returns:
            The same as `delete_session`.

        Raises:
            StoreError: `retention_days` is negative.
        """
        if not retention_days >= 0:
            raise StoreError(f"--retention-days must be 0 or more, not {retention_days}")
        before = time.time() - retention_days * _SECONDS_A_DAY
        total: Counter[str] = Counter(sessions=0, turns=0, judgements=0, feedback=0, samples=0, trainings=0)
        while True:
            with self._database.transaction() as connection:
                lock_transaction(connection)
                ids = list(connection.scalars(_old_turns(before)))
                deleted = self._delete(connection, schema.turn.c.id.in_(ids))
                deleted["sessions"] = connection.execute(_empty_sessions(before)).rowcount
            total.update(deleted)
            if len(ids) < PURGE_BATCH:
                break
        return dict(total)

    def _delete(self, connection: Connection, condition: ColumnElement[bool]) -> dict[str, int]:
        turn = schema.turn
        query = select(turn.c.id, turn.c.session_id).where(condition).with_for_update()
        rows = connection.execute(query).all()
        counts: Counter[str] = Counter(dict.fromkeys(("judgements", "feedback", "samples", "trainings"), 0))
        if rows:
            self._database.wipe_log()
            copies.forget(connection)
        for ids in slices([row.id for row in rows]):
            counts.update(_delete_derived(connection, ids))
            counts["judgements"] += _drop(connection, schema.judgement, schema.judgement.c.turn_id.in_(ids))
            _drop(connection, schema.memory, schema.memory.c.turn_id.in_(ids))
            _drop(connection, schema.turn_body, schema.turn_body.c.turn_id.in_(ids))
            delete_of(connection, ids)
            _drop(connection, turn, turn.c.id.in_(ids))
        for sessions in slices(sorted({row.session_id for row in rows})):
            remaining = select(func.count()).where(turn.c.session_id == schema.session.c.id).scalar_subquery()
            counted = update(schema.session).where(schema.session.c.id.in_(sessions))
            connection.execute(counted.values(turns=remaining))
        return {"sessions": 0, "turns": len(rows), **counts}


def delete_wishes(connection: Connection, turn_ids: list[str]) -> None:
    """Deletes the hints, samples, feedback and dreams of these turns; the turns stay.

    Judgements made from feedback are deleted too, because they repeat its text.
    """
    judgement = schema.judgement.c
    for ids in slices(turn_ids):
        _delete_derived(connection, ids)
        has_preference = or_(judgement.kind == "hint", judgement.judge == USER_JUDGE)
        _drop(connection, schema.judgement, judgement.turn_id.in_(ids) & has_preference)


def _delete_derived(connection: Connection, ids: list[str]) -> Counter[str]:
    """Deletes the samples, feedback and dreams of turns. Returns the number of deleted rows by kind."""
    sample, dream = schema.sample, schema.dream.c
    samples = list(connection.scalars(select(sample.c.id).where(sample.c.turn_id.in_(ids))))
    trainings = _drop(connection, schema.training, schema.training.c.sample_id.in_(samples))
    _drop(connection, schema.token_record, schema.token_record.c.sample_id.in_(samples))
    _drop(connection, schema.dream, or_(dream.turn_id.in_(ids), dream.other_turn_id.in_(ids)))
    feedback = _drop(connection, schema.feedback, schema.feedback.c.turn_id.in_(ids))
    dropped = _drop(connection, sample, sample.c.id.in_(samples))
    return Counter(trainings=trainings, feedback=feedback, samples=dropped)


def _drop(connection: Connection, table: Table, condition: ColumnElement[bool]) -> int:
    return connection.execute(delete(table).where(condition)).rowcount


def _old_turns(before: float) -> Select[tuple[str]]:
    turn, sample = schema.turn.c, schema.sample.c
    in_use = select(sample.id).where(sample.turn_id == turn.id, sample.state.not_in(_SETTLED))
    judged = (turn.state == str(TurnState.JUDGED)) & (turn.judged_at < before) & ~in_use.exists()
    ended = turn.state.in_(_ENDED) & (turn.created_at < before)
    return select(turn.id).where(judged | ended).limit(PURGE_BATCH)


def _empty_sessions(before: float) -> Delete:
    session, turn = schema.session.c, schema.turn.c
    has_turns = select(turn.id).where(turn.session_id == session.id)
    return delete(schema.session).where(
        session.ended_at.is_not(None), session.last_seen < before, ~has_turns.exists()
    )
