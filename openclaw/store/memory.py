"""Memory: people's preferences, which are added to their prompts until the weights have learned them.

A preference is the hint that a judge derived from a complaint. A complaint that only repeats its own request ("I asked
for a list", after "..., as a list, please") applies only to its turn and makes no preference. A message that both
complains and asks something new counts as a complaint.

A preference is added to the person's prompts from its judgement until `hold` records a weight version that follows it
without the reminder. A rollback before that version adds it again. Only the newest preferences are added.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, delete, func, insert, or_, select, update

from openclaw.common.messages import last_user_text
from openclaw.common.wish_themes import repeats
from openclaw.store import schema
from openclaw.store.database import Database, lock_transaction
from openclaw.store.deletion import delete_wishes
from openclaw.store.people import is_of, not_of_people
from openclaw.store.policies import is_of_trainer, is_wish_of_trainer
from openclaw.store.quarantine import DELETED
from openclaw.store.rights import ADMINISTRATOR, Asker, usable
from openclaw.store.rows import pack_json, select_turns, turn_from_row, unpack_json
from openclaw.store.shares import Person
from openclaw.types import ADAPTER_MARK, DEFAULT_TRAINER, SampleState, Turn, VersionStatus, adapter_of

KEPT = 4
"""Most preferences in a prompt."""
LOOKED_AT = 256
"""Number of newest hints, of all people, that are searched for stated preferences."""
_FARTHEST = 8
"""Most consecutive complaints that are skipped to find the original request."""
_IN_WEIGHTS = (str(VersionStatus.LIVE), str(VersionStatus.SUPERSEDED))


@dataclass(frozen=True, kw_only=True)
class Wish:
    """One stored preference.

    Attributes:
        key_name: name of the key that sent the turn.
        turn_id: turn whose judgement contains the preference; it is deleted with that turn.
        created_at: Unix seconds.
        held_by: version that was tested to follow the preference without a reminder; None for no version.
        held_at: time of that test, Unix seconds.
        in_prompt: whether the preference may be added to prompts now.
        details: test results, see `openclaw.gateway.canaries`.
    """

    id: int
    person: str
    key_name: str | None
    turn_id: str
    text: str
    created_at: float
    held_by: int | None
    held_at: float | None
    in_prompt: bool
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Statement:
    """A preference that a person stated after a turn.

    Attributes:
        at: time of the judgement, Unix seconds.
        turn_id: the turn after which it was stated.
    """

    text: str
    at: float
    turn_id: str


class MemoryTable:
    """Stored preferences, and queries for the preferences in hints."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def remembered(
        self,
        person: str,
        most: int = KEPT,
        asker: Asker = ADMINISTRATOR,
        trainer: str = DEFAULT_TRAINER,
    ) -> list[Wish]:
        """Returns the preferences that are added to a person's prompts, oldest first.

        Args:
            person: name of the person.
            most: largest number of preferences; the newest are returned.
            asker: sender of the request; preferences that it may not access are omitted.
            trainer: trainer of the policy that answers.
        """
        memory = schema.memory.c
        conditions = (*usable(asker, schema.memory), is_wish_of_trainer(trainer))
        newest = select(schema.memory).where(memory.person == person, *conditions, _is_in_prompt(trainer))
        with self._database.reading() as connection:
            rows = connection.execute(newest.order_by(memory.id.desc()).limit(most)).mappings().all()
        return [_wish(row, in_prompt=True) for row in reversed(rows)]

    def wishes(self, person: str | None = None, limit: int = 200, asker: Asker = ADMINISTRATOR) -> list[Wish]:
        """Returns the preferences that the asker may access, including learned ones, newest first.

        Args:
            person: return only this person's preferences; None for all people.
            limit: largest number of preferences.
        """
        memory = schema.memory.c
        query = select(schema.memory, _is_in_prompt().label("in_prompt"))
        query = query.where(*usable(asker, schema.memory))
        if person is not None:
            query = query.where(memory.person == person)
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(memory.id.desc()).limit(limit)).mappings().all()
        return [_wish(row, bool(row["in_prompt"])) for row in rows]

    def asked_for(
        self,
        turn_ids: Sequence[str],
        people: int,
        each: int,
        excluded: Collection[Person] = (),
        trainer: str = DEFAULT_TRAINER,
    ) -> dict[Person, list[str]]:
        """Returns the latest preferences of several people, by person.

        A preference is the longest hint of a turn. Hints that repeat their own request are omitted, as are turns whose
        sample is quarantined or was deleted from quarantine. The person who stated a preference last is the last key;
        preferences are ordered from oldest to newest.

        Args:
            turn_ids: only judgements up to the last one of these turns count.
            people: largest number of people; those who stated a preference last are returned.
            each: largest number of preferences of a person; the newest are returned.
            excluded: people to omit.
            trainer: trainer whose policy answered the turns.
        """
        of_trainer = is_of_trainer(trainer)
        by_person = self._stated(people, each, _judged_until(turn_ids), not_of_people(excluded), of_trainer)
        return {person: [one.text for one in statements] for person, statements in by_person.items()}

    def asked_by(
        self,
        turn_ids: Sequence[str],
        each: int,
        people: Collection[Person],
        trainer: str = DEFAULT_TRAINER,
    ) -> dict[Person, list[Statement]]:
        """Returns the same as `asked_for`, for these people only, with the time and turn of each preference."""
        of_trainer = is_of_trainer(trainer)
        return self._stated(len(people), each, _judged_until(turn_ids), is_of(people), of_trainer)

    def asked_last(
        self, people: int, each: int = KEPT, trainer: str | None = None
    ) -> dict[Person, list[Statement]]:
        """Returns the same as `asked_for`, up to the newest judgement, with the time and turn of each preference.

        Args:
            trainer: None for turns of all policies.
        """
        conditions = [] if trainer is None else [is_of_trainer(trainer)]
        return self._stated(people, each, *conditions)

    def _stated(
        self, people: int, each: int, *conditions: ColumnElement[bool]
    ) -> dict[Person, list[Statement]]:
        judgement, turn, sample = schema.judgement.c, schema.turn.c, schema.sample.c
        in_quarantine = or_(sample.state == str(SampleState.QUARANTINED), sample.reason == DELETED)
        query = (
            select(turn.id, turn.person, judgement.hints, judgement.created_at)
            .join(schema.turn, turn.id == judgement.turn_id)
            .join(schema.sample, sample.turn_id == turn.id)
            .where(judgement.kind == "hint", func.coalesce(~in_quarantine, True), *conditions)
            .order_by(judgement.id.desc())
            .limit(LOOKED_AT)
        )
        by_person: dict[Person, list[Statement]] = {}
        with self._database.reading() as connection:
            for turn_id, person, packed, at in connection.execute(query).all():
                hint = max(unpack_json(packed), key=len, default="")
                statements = by_person.get(person, [])
                has_room = len(statements) < each and (person in by_person or len(by_person) < people)
                is_new = hint and hint not in [one.text for one in statements]
                if has_room and is_new and not repeats(request_of(connection, turn_id), hint):
                    by_person[person] = [Statement(hint, at, turn_id), *statements]
        return dict(reversed(by_person.items()))

    def forget(self, wish_id: int, person: str | None = None, asker: Asker = ADMINISTRATOR) -> bool:
        """Deletes a preference, with the hints, feedback, samples and dreams of every turn after which the person stated
        the same. The turns stay.

        Returns False if there is no such preference, it is of another person than `person`, or the asker may not
        access it.
        """
        memory = schema.memory.c
        condition = and_(memory.id == wish_id, *usable(asker, schema.memory))
        if person is not None:
            condition &= memory.person == person
        with self._database.transaction() as connection:
            row = connection.execute(
                select(memory.person, memory.turn_id, memory.text).where(condition)
            ).first()
            if row is None:
                return False
            lock_transaction(connection)
            self._database.wipe_pages()
            turn_ids = {row.turn_id, *_turns_asking_for(connection, row.person, unpack_json(row.text), asker)}
            delete_wishes(connection, sorted(turn_ids))
            connection.execute(delete(schema.memory).where(condition))
        return True

    def hold(self, wish_id: int, version: int, details: dict[str, Any]) -> bool:
        """Records that `version` follows the preference without a reminder, and the test results. Returns False if the
        preference was deleted."""
        return self._note(wish_id, held_by=version, held_at=time.time(), details=pack_json(details))

    def note(self, wish_id: int, details: dict[str, Any]) -> bool:
        """Stores test results that do not show that the preference is learned. Returns False if the preference was
        deleted."""
        return self._note(wish_id, details=pack_json(details))

    def _note(self, wish_id: int, **values: Any) -> bool:
        with self._database.transaction() as connection:
            statement = update(schema.memory).where(schema.memory.c.id == wish_id)
            return bool(connection.execute(statement.values(**values)).rowcount)

    def waiting(self, trainer: str = DEFAULT_TRAINER, limit: int = 200) -> list[Wish]:
        """Returns the preferences of all people that are added to prompts of the trainer's policy, newest first."""
        query = select(schema.memory).where(is_wish_of_trainer(trainer), _is_in_prompt(trainer))
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(schema.memory.c.id.desc()).limit(limit)).mappings().all()
        return [_wish(row, in_prompt=True) for row in rows]

    def canary_turns(
        self, person: str, limit: int, asker: Asker = ADMINISTRATOR, trainer: str = DEFAULT_TRAINER
    ) -> list[Turn]:
        """Returns the first turns of a person's conversations with the trainer's policy, newest first, at most `limit`.
        Canary tests send their prompts again."""
        turn = schema.turn.c
        conditions = (
            turn.person == person,
            turn.turn_type == "main",
            turn.parent_id.is_(None),
            is_of_trainer(trainer),
        )
        query = select_turns(*conditions, *usable(asker))
        query = query.where(turn.state.not_in(["aborted", "untrainable", "imported"]))
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(turn.created_at.desc()).limit(limit)).mappings()
            return [turn_from_row(row) for row in rows]

    def request_of(self, turn_id: str) -> str:
        """Returns the person's original request for a turn: the message that it answers, or the one before a series of
        complaints. Returns "" if there is none, or the series is longer than `_FARTHEST`."""
        with self._database.reading() as connection:
            return request_of(connection, turn_id)


def _turns_asking_for(connection: Connection, person: str, wish: str, asker: Asker) -> list[str]:
    """Returns the ids of a person's turns with this hint."""
    judgement, turn = schema.judgement.c, schema.turn.c
    hinted = select(turn.id, judgement.hints).join(schema.judgement, judgement.turn_id == turn.id)
    hinted = hinted.where(judgement.kind == "hint", turn.person == person, *usable(asker))
    return [turn_id for turn_id, packed in connection.execute(hinted) if wish in unpack_json(packed)]


def _judged_until(turn_ids: Sequence[str]) -> ColumnElement[bool]:
    """Returns the SQL condition for judgements up to the last one of these turns."""
    judgement = schema.judgement.c
    last = select(func.max(judgement.id)).where(judgement.turn_id.in_(list(turn_ids)))
    return judgement.id <= last.scalar_subquery()


def remember(connection: Connection, turn_id: str, hints: Sequence[str], now: float) -> None:
    """Stores the longest hint of a turn as a preference of its person.

    If the preference is stored already, it becomes the newest one and is added to prompts again. Nothing is stored if
    the request opted out of memory or names no person, or if all hints repeat their own request.
    """
    memory, turn, body = schema.memory.c, schema.turn.c, schema.turn_body.c
    query = select(turn.person, turn.key_name, turn.policy_id)
    query = query.join(schema.turn_body, body.turn_id == turn.id)
    query = query.where(turn.id == turn_id, body.memory.is_not(None), turn.person.is_not(None))
    row_of_turn = connection.execute(query).first()
    if row_of_turn is None:
        return
    person, key_name, policy = row_of_turn
    request = request_of(connection, turn_id)
    new = [hint for hint in hints if not repeats(request, hint)]
    if not new:
        return
    text = pack_json(max(new, key=len))
    conditions = usable(Asker(key_name, person), schema.memory) if key_name is not None else []
    conditions = [*conditions, is_wish_of_trainer(policy)]
    connection.execute(delete(schema.memory).where(memory.person == person, memory.text == text, *conditions))
    row = {"person": person, "key_name": key_name, "turn_id": turn_id, "text": text, "created_at": now}
    connection.execute(insert(schema.memory), row)


def _is_in_prompt(trainer: str | None = None) -> ColumnElement[bool]:
    """Returns the SQL condition for preferences that no surviving version has learned.

    Args:
        trainer: an adapter's trainer: only its versions count; another trainer: only versions of the base model; None:
            versions of all trainers.
    """
    memory, version = schema.memory.c, schema.weight_version.c
    learned = select(version.id).where(version.version == memory.held_by, version.status.in_(_IN_WEIGHTS))
    if trainer is not None:
        of_adapter = version.trainer.contains(ADAPTER_MARK)
        learned = learned.where(~of_adapter if adapter_of(trainer) is None else version.trainer == trainer)
    return or_(memory.held_by.is_(None), ~learned.exists())


def _wish(row: RowMapping, in_prompt: bool) -> Wish:
    names = ("id", "person", "key_name", "turn_id", "created_at", "held_by", "held_at")
    fields = {name: row[name] for name in names}
    details = {} if row["details"] is None else dict(unpack_json(row["details"]))
    return Wish(**fields, text=unpack_json(row["text"]), in_prompt=in_prompt, details=details)


def request_of(connection: Connection, turn_id: str) -> str:
    """Does the work of `MemoryTable.request_of` with an open connection."""
    turn, body = schema.turn.c, schema.turn_body.c
    for _ in range(_FARTHEST + 1):
        parent = connection.scalar(select(turn.parent_id).where(turn.id == turn_id))
        if parent is None or not _was_complained_about(connection, parent):
            packed = connection.scalar(select(body.messages).where(body.turn_id == turn_id))
            return last_user_text(unpack_json(packed)) if packed else ""
        turn_id = parent
    return ""


def _was_complained_about(connection: Connection, turn_id: str) -> bool:
    """Returns whether a turn has a score below 0, or a hint."""
    judgement = schema.judgement.c
    # methods that use hints store a hint judgement for every turn; its score is above 0 if there is a hint
    hinted = and_(judgement.kind == "hint", judgement.score > 0)
    bad = or_(hinted, and_(judgement.kind == "eval", judgement.score < 0))
    return (
        connection.scalar(select(judgement.id).where(judgement.turn_id == turn_id, bad).limit(1)) is not None
    )
