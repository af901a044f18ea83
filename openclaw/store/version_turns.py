"""Judged turns with the version that wrote them, in the order in which they were judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, case, func, select

from openclaw.store import schema
from openclaw.store.database import Database
from openclaw.store.rows import unpack_json
from openclaw.store.shares import Person
from openclaw.types import DEFAULT_TRAINER, TurnState, VersionStatus


@dataclass(frozen=True)
class JudgedTurn:
    """`version`: that wrote its last token. `cut`: it ended by its length. `undone`: the version was rolled back.
    `person`: whose turn it is."""

    version: int
    score: float
    cut: bool
    undone: bool = False
    person: Person = None


class VersionTurnTable(Database):
    """Reads only."""

    def judged_count(self) -> int:
        """Judged main turns of people, all there are."""
        with self.reading() as connection:
            return connection.scalar(_judged(func.count())) or 0

    def judged_turns(self, limit: int) -> list[JudgedTurn]:
        """The newest `limit` of them, oldest first."""
        turn, body, judgement = schema.turn.c, schema.turn_body.c, schema.judgement.c
        query = _judged(turn.finish_reason, judgement.score, body.version_spans, turn.person)
        query = query.where(body.turn_id == turn.id).order_by(judgement.id.desc()).limit(limit)
        version = schema.weight_version.c
        undone = select(version.version).where(version.status == str(VersionStatus.ROLLED_BACK))
        with self.reading() as connection:
            gone = set(connection.scalars(undone))
            rows = connection.execute(query).all()
        found = []
        for reason, score, packed, person in reversed(rows):
            spans = unpack_json(packed)
            last = spans[-1][0] if spans else 0
            found.append(JudgedTurn(last, score, reason == "length", last in gone, person))
        return found

    def learned_by(
        self, versions: Sequence[int], trainer: str = DEFAULT_TRAINER
    ) -> dict[int, dict[str, int]]:
        """By version: how many turns it learned from (`turns`), judged above (`good`) and below 0 (`bad`)."""
        training, sample, judgement = schema.training.c, schema.sample.c, schema.judgement.c
        query = (
            select(
                training.version,
                func.count(),
                func.sum(case((judgement.score > 0, 1), else_=0)),
                func.sum(case((judgement.score < 0, 1), else_=0)),
            )
            .join(schema.sample, sample.id == training.sample_id)
            .outerjoin(schema.judgement, (judgement.turn_id == sample.turn_id) & (judgement.kind == "eval"))
            .where(training.trainer == trainer, training.version.in_(set(versions)))
            .group_by(training.version)
        )
        with self.reading() as connection:
            rows = connection.execute(query).all()
        return {
            int(version): {"turns": turns, "good": good or 0, "bad": bad or 0}
            for version, turns, good, bad in rows
        }


def _judged(*what: Any) -> Select[Any]:
    turn, judgement = schema.turn.c, schema.judgement.c
    return select(*what).where(
        judgement.turn_id == turn.id,
        judgement.kind == "eval",
        turn.state == str(TurnState.JUDGED),
        turn.source == "gateway",
        turn.turn_type == "main",
    )
