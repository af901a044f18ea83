"""Read-only queries for the stored turns with which the gate tests a candidate."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Sequence

from sqlalchemy import RowMapping, select

from openclaw.store import schema
from openclaw.store.database import Database
from openclaw.store.people import not_of_people
from openclaw.store.policies import is_of_trainer
from openclaw.store.rows import select_turns, turn_from_row
from openclaw.store.shares import Person
from openclaw.types import DEFAULT_TRAINER, SampleState, Turn, TurnState

LOOKED_AT = 2000
"""Number of newest judged turns from which liked turns are selected."""
NEW = 50
"""Number of newest liked turns from which the first half is selected."""
_TRAINABLE = (TurnState.CAPTURED, TurnState.ANSWERED, TurnState.JUDGED, TurnState.EXPIRED)


class GateTurnTable:
    """Selects turns with good scores, and the newest turns."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def liked(
        self, count: int, excluded: Collection[Person] = (), trainer: str = DEFAULT_TRAINER
    ) -> list[Turn]:
        """Returns up to `count` main turns with a score above 0, answered by the trainer's policy.

        The first half is selected from the newest `NEW` such turns, the rest from those among the newest `LOOKED_AT`
        judged turns. At most one turn is from each session, and half of all from each person. Quarantined turns are
        omitted: the gate must not require answers that a rollback discarded. Turns are selected by a hash of their
        ids, so the selection changes little between calls.

        Args:
            excluded: people whose turns are omitted.
        """
        turn, judgement, sample = schema.turn.c, schema.judgement.c, schema.sample.c
        quarantined = select(sample.id).where(
            sample.turn_id == turn.id, sample.state == str(SampleState.QUARANTINED)
        )
        query = (
            select(turn.id, turn.session_id, turn.person, judgement.score)
            .where(judgement.turn_id == turn.id, judgement.kind == "eval", turn.turn_type == "main")
            .where(turn.source == "gateway", turn.state == str(TurnState.JUDGED), ~quarantined.exists())
            .where(is_of_trainer(trainer))
            .order_by(judgement.id.desc())
            .limit(LOOKED_AT)
        )
        if excluded:
            query = query.where(not_of_people(excluded))
        with self._database.reading() as connection:
            rows = [row for row in connection.execute(query).mappings() if row["score"] > 0]
            selection = _Selection(max(1, count // 2))
            selection.add(rows[:NEW], count // 2)
            selection.add(rows, count)
            ids = selection.ids
            selected = connection.execute(select_turns(schema.turn.c.id.in_(ids))).mappings()
            return sorted((turn_from_row(row) for row in selected), key=lambda one: ids.index(one.id))

    def newest(self, count: int, trainer: str = DEFAULT_TRAINER) -> list[Turn]:
        """Returns the main turns with log-probs among the newest `count`, answered by the trainer's policy, newest
        first."""
        turn = schema.turn.c
        condition = (turn.turn_type == "main") & turn.state.in_([str(state) for state in _TRAINABLE])
        condition &= is_of_trainer(trainer)
        query = (
            select_turns(condition, turn.source == "gateway").order_by(turn.created_at.desc()).limit(count)
        )
        with self._database.reading() as connection:
            turns = [turn_from_row(row) for row in connection.execute(query).mappings()]
        return [one for one in turns if one.completion_log_probs and one.unsampled is None]


class _Selection:
    """Selects turns in the order of their hashes: at most one of each session, and at most `most` of each named
    person."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.ids: list[str] = []
        self.sessions: set[str] = set()
        self.people: Counter[str] = Counter()

    def add(self, rows: Sequence[RowMapping], count: int) -> None:
        """Adds turns until `count` are selected in total."""
        for row in sorted(rows, key=lambda row: hashlib.sha256(row["id"].encode()).digest()):
            session, person = row["session_id"], row["person"]
            if len(self.ids) >= count:
                return
            if session in self.sessions or (person is not None and self.people[person] >= self.most):
                continue
            self.ids.append(row["id"])
            self.sessions.add(session)
            self.people.update([person] if person is not None else [])
