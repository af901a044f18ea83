"""Stored answers for the gate's comparison of a candidate: liked ones, old and new, and the newest ones."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Sequence

from sqlalchemy import RowMapping, select

from openclaw.store import schema
from openclaw.store.database import Database
from openclaw.store.people import others_than
from openclaw.store.policies import is_of_trainer
from openclaw.store.rows import select_turns, turn_from_row
from openclaw.store.shares import Person
from openclaw.types import DEFAULT_TRAINER, SampleState, Turn, TurnState

LOOKED_AT = 2000
"""Number of newest liked turns to select from."""
NEW = 50
"""Number of them that count as new."""
_TRAINABLE = (TurnState.CAPTURED, TurnState.ANSWERED, TurnState.JUDGED, TurnState.EXPIRED)


class GateTurnTable:
    """Read-only queries for the gate's turns."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def liked(
        self, count: int, excluded: Collection[Person] = (), trainer: str = DEFAULT_TRAINER
    ) -> list[Turn]:
        """Returns up to `count` main turns of the trainer's policy whose last judgement is above 0: half from the
        newest 2,000, half from the newest 50; one a session, and at most half of one person. Quarantined turns are
        excluded: after a rollback that dropped turns, the gate must not require them. Turns liked by people in
        `excluded` are omitted too.

        The selection depends only on the ids, so it changes little between calls.
        """
        turn, judgement, sample = schema.turn.c, schema.judgement.c, schema.sample.c
        put_away = select(sample.id).where(
            sample.turn_id == turn.id, sample.state == str(SampleState.QUARANTINED)
        )
        query = (
            select(turn.id, turn.session_id, turn.person, judgement.score)
            .where(judgement.turn_id == turn.id, judgement.kind == "eval", turn.turn_type == "main")
            .where(turn.source == "gateway", turn.state == str(TurnState.JUDGED), ~put_away.exists())
            .where(is_of_trainer(trainer))
            .order_by(judgement.id.desc())
            .limit(LOOKED_AT)
        )
        if excluded:
            query = query.where(others_than(excluded))
        with self._database.reading() as connection:
            rows = [row for row in connection.execute(query).mappings() if row["score"] > 0]
            choice = _Choice(max(1, count // 2))
            choice.take(rows[:NEW], count // 2)
            choice.take(rows, count)
            chosen = choice.ids
            chosen_rows = connection.execute(select_turns(schema.turn.c.id.in_(chosen))).mappings()
            return sorted((turn_from_row(row) for row in chosen_rows), key=lambda one: chosen.index(one.id))

    def newest(self, count: int, trainer: str = DEFAULT_TRAINER) -> list[Turn]:
        """Returns the newest main turns of the trainer's policy that have log-probs, newest first."""
        turn = schema.turn.c
        condition = (turn.turn_type == "main") & turn.state.in_([str(state) for state in _TRAINABLE])
        condition &= is_of_trainer(trainer)
        query = (
            select_turns(condition, turn.source == "gateway").order_by(turn.created_at.desc()).limit(count)
        )
        with self._database.reading() as connection:
            turns = [turn_from_row(row) for row in connection.execute(query).mappings()]
        return [one for one in turns if one.completion_log_probs and one.unsampled is None]


class _Choice:
    """Selects turns in the order of their hashes: one for each session, and at most `most` for each person. Turns
    without a person have no such limit."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.ids: list[str] = []
        self.sessions: set[str] = set()
        self.people: Counter[str] = Counter()

    def take(self, rows: Sequence[RowMapping], count: int) -> None:
        """Adds turns until `count` are chosen in all."""
        for row in sorted(rows, key=lambda row: hashlib.sha256(row["id"].encode()).digest()):
            session, person = row["session_id"], row["person"]
            if len(self.ids) >= count:
                return
            if session in self.sessions or (person is not None and self.people[person] >= self.most):
                continue
            self.ids.append(row["id"])
            self.sessions.add(session)
            self.people.update([person] if person is not None else [])
