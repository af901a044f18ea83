"""People: scores of their turns in the order of the judgements, used for trust, and their names."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, func, or_, select, true

from openclaw.store import schema
from openclaw.store.database import Database, slices
from openclaw.store.policies import is_of_trainer
from openclaw.store.rows import unpack_json
from openclaw.store.shares import Person
from openclaw.types import USER_JUDGE, SampleState

_IS_SCORED = (schema.judgement.c.kind == "eval", schema.judgement.c.score != 0)


@dataclass(frozen=True)
class Score:
    """A judgement other than 0. `feedback_text`: text of a person's feedback; None if a judge scored the next
    message."""

    judgement_id: int
    turn_id: str
    person: Person
    score: float
    feedback_text: str | None


class PeopleTable:
    """Scores by person, and the people known by name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def scores_of(self, people: Collection[Person], upto: int, each: int) -> list[Score]:
        """Returns the newest `each` scores of each of these people among the judgements up to `upto`, oldest
        first."""
        judgement, turn = schema.judgement.c, schema.turn.c
        newest = func.row_number().over(partition_by=turn.person, order_by=judgement.id.desc())
        scores: list[Score] = []
        with self._database.reading() as connection:
            for part in slices(list(people)):
                ranked = (
                    select(
                        judgement.id, judgement.turn_id, judgement.score, judgement.judge, judgement.votes,
                        turn.person, newest.label("place"),
                    )
                    .join(schema.turn, turn.id == judgement.turn_id)
                    .where(*_IS_SCORED, judgement.id <= upto, is_of(part))
                    .subquery()
                )  # fmt: skip
                query = select(ranked).where(ranked.c.place <= each).order_by(ranked.c.id)
                for row in connection.execute(query):
                    comment = _words(row.votes) if row.judge == USER_JUDGE else None
                    scores.append(Score(row.id, row.turn_id, row.person, row.score, comment))
        return sorted(scores, key=lambda score: score.judgement_id)

    def several_scored(self, upto: int) -> bool:
        """Returns whether at least two people have scored turns among the judgements up to `upto`; all turns without
        a name count as one person's."""
        judgement, person = schema.judgement.c, schema.turn.c.person
        scored = select(person).join(schema.judgement, schema.turn.c.id == judgement.turn_id)
        query = scored.where(*_IS_SCORED, judgement.id <= upto)
        with self._database.reading() as connection:
            ends = connection.execute(select(func.min(person), func.max(person))).one()
            nameless = connection.execute(select(person).where(person.is_(None)).limit(1)).first()
            if ends[0] == ends[1] and (nameless is None or ends[0] is None):
                return False
            first = connection.execute(query.order_by(judgement.id).limit(1)).first()
            if first is None:
                return False
            return connection.execute(query.where(others_than([first.person])).limit(1)).first() is not None

    def waiting(self) -> set[Person]:
        """Returns the people whose samples are ready."""
        sample, turn = schema.sample.c, schema.turn.c
        query = select(turn.person).join(schema.sample, sample.turn_id == turn.id)
        with self._database.reading() as connection:
            return set(connection.scalars(query.where(sample.state == str(SampleState.READY)).distinct()))

    def scores_before(self, turn_id: str, limit: int) -> list[float]:
        """Returns the last non-zero scores that the person of a turn gave to its policy before this turn, newest
        first.

        The order is that of the judgements, which never changes. Turns that name no person count as one person's.
        """
        judgement, turn = schema.judgement.c, schema.turn.c
        own = select(func.max(judgement.id)).where(judgement.turn_id == turn_id, judgement.kind == "eval")
        with self._database.reading() as connection:
            whose = select(turn.person, turn.policy_id).where(turn.id == turn_id)
            if (row := connection.execute(whose).first()) is None:
                return []
            person, policy = row
            same = turn.person.is_(None) if person is None else turn.person == person
            query = (
                select(judgement.score)
                .join(schema.turn, turn.id == judgement.turn_id)
                .where(judgement.kind == "eval", judgement.score != 0, same, is_of_trainer(policy))
                .where(judgement.id < own.scalar_subquery())
                .order_by(judgement.id.desc())
                .limit(limit)
            )
            return list(connection.scalars(query))

    def listing(self) -> list[dict[str, Any]]:
        """Returns the named people with the number of their turns and the time of the last one. Raises StoreError."""
        turn = schema.turn.c
        query = (
            select(turn.person, func.count().label("turns"), func.max(turn.created_at).label("last_seen"))
            .where(turn.person.is_not(None))
            .group_by(turn.person)
            .order_by(turn.person)
        )
        with self._database.reading() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]


def others_than(people: Collection[Person]) -> ColumnElement[bool]:
    """Returns the condition for turns of all other people."""
    person, names = schema.turn.c.person, [one for one in people if one is not None]
    named = or_(person.is_(None), person.not_in(names)) if names else true()
    return named & person.is_not(None) if None in people else named


def is_of(people: Collection[Person]) -> ColumnElement[bool]:
    """Returns the condition for turns of these people."""
    person, names = schema.turn.c.person, [one for one in people if one is not None]
    named = person.in_(names)
    return or_(named, person.is_(None)) if None in people else named


def _words(votes: bytes) -> str:
    return "\n".join(vote["text"] for vote in unpack_json(votes) if vote.get("text"))
