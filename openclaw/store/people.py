"""Read-only queries about people: the scores of their turns, used for trust, and their names."""

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
    """A non-zero score of a turn.

    Attributes:
        person: person of the turn.
        score: -1 to 1.
        feedback_text: text of the person's feedback; None if a judge scored the turn.
    """

    judgement_id: int
    turn_id: str
    person: Person
    score: float
    feedback_text: str | None


class PeopleTable:
    """Scores by person, and the named people."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def scores_of(self, people: Collection[Person], upto: int, each: int) -> list[Score]:
        """Returns the newest `each` scores of each of these people, oldest first.

        Args:
            upto: row id of the newest judgement that counts.
        """
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
                    text = _text_of(row.votes) if row.judge == USER_JUDGE else None
                    scores.append(Score(row.id, row.turn_id, row.person, row.score, text))
        return sorted(scores, key=lambda score: score.judgement_id)

    def several_scored(self, upto: int) -> bool:
        """Returns whether turns of at least two people have scores. All unnamed people count as one.

        Args:
            upto: row id of the newest judgement that counts.
        """
        judgement, person = schema.judgement.c, schema.turn.c.person
        scored = select(person).join(schema.judgement, schema.turn.c.id == judgement.turn_id)
        query = scored.where(*_IS_SCORED, judgement.id <= upto)
        with self._database.reading() as connection:
            # cheap with the index: whether there are turns of two people at all, scored or not
            first_name, last_name = connection.execute(select(func.min(person), func.max(person))).one()
            unnamed = connection.execute(select(person).where(person.is_(None)).limit(1)).first()
            if first_name == last_name and (unnamed is None or first_name is None):
                return False
            first = connection.execute(query.order_by(judgement.id).limit(1)).first()
            if first is None:
                return False
            return connection.execute(query.where(not_of_people([first.person])).limit(1)).first() is not None

    def waiting(self) -> set[Person]:
        """Returns the people who have ready samples."""
        sample, turn = schema.sample.c, schema.turn.c
        query = select(turn.person).join(schema.sample, sample.turn_id == turn.id)
        with self._database.reading() as connection:
            return set(connection.scalars(query.where(sample.state == str(SampleState.READY)).distinct()))

    def scores_before(self, turn_id: str, limit: int) -> list[float]:
        """Returns up to `limit` non-zero scores of earlier turns by the same person and the same policy, newest first.

        Turns are ordered by their judgements, whose order never changes. All unnamed people count as one.
        """
        judgement, turn = schema.judgement.c, schema.turn.c
        own = select(func.max(judgement.id)).where(judgement.turn_id == turn_id, judgement.kind == "eval")
        with self._database.reading() as connection:
            query_of_turn = select(turn.person, turn.policy_id).where(turn.id == turn_id)
            if (row := connection.execute(query_of_turn).first()) is None:
                return []
            person, policy = row
            same_person = turn.person.is_(None) if person is None else turn.person == person
            query = (
                select(judgement.score)
                .join(schema.turn, turn.id == judgement.turn_id)
                .where(judgement.kind == "eval", judgement.score != 0, same_person, is_of_trainer(policy))
                .where(judgement.id < own.scalar_subquery())
                .order_by(judgement.id.desc())
                .limit(limit)
            )
            return list(connection.scalars(query))

    def listing(self) -> list[dict[str, Any]]:
        """Returns {"person", "turns", "last_seen"} of each named person, by name; `last_seen` in Unix seconds."""
        turn = schema.turn.c
        query = (
            select(turn.person, func.count().label("turns"), func.max(turn.created_at).label("last_seen"))
            .where(turn.person.is_not(None))
            .group_by(turn.person)
            .order_by(turn.person)
        )
        with self._database.reading() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]


def not_of_people(people: Collection[Person]) -> ColumnElement[bool]:
    """Returns the SQL condition for turns of all people except these."""
    person, names = schema.turn.c.person, [one for one in people if one is not None]
    named = or_(person.is_(None), person.not_in(names)) if names else true()
    return named & person.is_not(None) if None in people else named


def is_of(people: Collection[Person]) -> ColumnElement[bool]:
    """Returns the SQL condition for turns of these people."""
    person, names = schema.turn.c.person, [one for one in people if one is not None]
    named = person.in_(names)
    return or_(named, person.is_(None)) if None in people else named


def _text_of(votes: bytes) -> str:
    return "\n".join(vote["text"] for vote in unpack_json(votes) if vote.get("text"))
