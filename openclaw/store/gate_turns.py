"""Stored answers that a candidate is compared on: those that people liked, old and new, and the newest of all."""

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
"""Newest liked turns among which some are picked."""
NEW = 50
"""So many of them count as new."""
_TRAINABLE = (TurnState.CAPTURED, TurnState.ANSWERED, TurnState.JUDGED, TurnState.EXPIRED)


class GateTurnTable:
    """Reads only; nothing here changes a turn."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def liked(
        self, count: int, excluded: Collection[Person] = (), trainer: str = DEFAULT_TRAINER
    ) -> list[Turn]:
        """Up to `count` main turns of the trainer's policy whose last judgement is above 0: half from all of the
        newest 2,000, half from the newest 50; one a session, and of one person at most half. Turns in quarantine are
        left out: after a rollback without some turns, the gate must not require them. Turns that the people in
        `excluded` liked are left out too.

        The choice follows from the ids alone, so that it changes little from one call to the next.
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
        """The newest main turns with log-probs of the trainer's policy, newest first."""
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
    """Chooses turns in the order of their hashes: one for each session, and at most `most` for each person. Turns
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
