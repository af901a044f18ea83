"""People's preferences, added to their prompts until the weights have learned them: hints from complaints.

A complaint that only repeats what its own request asked for ("I asked for a list", after a question that ends with
"as a list, please") applies only to its turn. A message that both complains and asks something new counts as a
complaint.

A person's newest preferences are in their prompts from the judgement of the complaint until `hold` records the weight
version that follows them without it. A rollback before that version adds them again.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, delete, func, insert, or_, select, update

from openclaw.common.messages import last_said
from openclaw.common.wish_themes import repeats
from openclaw.store import schema
from openclaw.store.database import Database, take_turns
from openclaw.store.deletion import delete_wishes
from openclaw.store.people import is_of, others_than
from openclaw.store.policies import is_of_trainer, is_wish_of_trainer
from openclaw.store.quarantine import DELETED
from openclaw.store.rights import ADMINISTRATOR, Asker, usable
from openclaw.store.rows import pack_json, select_turns, turn_from_row, unpack_json
from openclaw.store.shares import Person
from openclaw.types import ADAPTER_MARK, DEFAULT_TRAINER, SampleState, Turn, VersionStatus, adapter_of

KEPT = 4
"""Most preferences in a person's prompts, the newest ones."""
LOOKED_AT = 256
"""Newest hints among which people's hints are searched."""
_FARTHEST = 8
"""Most consecutive complaints to skip when searching for the original request."""
_IN_WEIGHTS = (str(VersionStatus.LIVE), str(VersionStatus.SUPERSEDED))


@dataclass(frozen=True, kw_only=True)
class Wish:
    """One remembered preference.

    Attributes:
        key_name: of the key that made that turn.
        turn_id: whose judgement it is from; it is deleted with that turn.
        held_by: the version that was found to do it unasked; None: none was.
        in_prompt: whether it may stand in prompts now.
        details: what the canaries found, see `openclaw.gateway.canaries`.
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
    """A preference that a person stated. `at`: time of the judgement; `turn_id`: the turn after which it was
    written."""

    text: str
    at: float
    turn_id: str


class MemoryTable:
    """People's preferences, newest last."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def remembered(
        self,
        person: str,
        most: int = KEPT,
        asker: Asker = ADMINISTRATOR,
        trainer: str = DEFAULT_TRAINER,
    ) -> list[Wish]:
        """Returns the preferences in a person's prompts to the trainer's policy, for this asker, oldest first."""
        memory = schema.memory.c
        conditions = (*usable(asker, schema.memory), is_wish_of_trainer(trainer))
        newest = select(schema.memory).where(memory.person == person, *conditions, _is_in_prompt(trainer))
        with self._database.reading() as connection:
            rows = connection.execute(newest.order_by(memory.id.desc()).limit(most)).mappings().all()
        return [_wish(row, in_prompt=True) for row in reversed(rows)]

    def wishes(self, person: str | None = None, limit: int = 200, asker: Asker = ADMINISTRATOR) -> list[Wish]:
        """Returns the newest preferences visible to the asker, including learned ones, of one person or of all;
        newest first."""
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
        """Returns people's latest preferences for the trainer's policy, up to the judgements of these turns.

        A preference is the longest hint of a turn. Hints that repeat their own request, and turns whose samples are
        or were deleted from quarantine, are omitted.

        Args:
            turn_ids: turns whose judgements are the newest to count.
            people: number of people, those who asked last; ordered, the last is the one who asked last.
            each: number of wishes of a person, the newest ones; ordered, oldest first.
            excluded: people to leave out.
        """
        of_trainer = is_of_trainer(trainer)
        statements = self._asked(people, each, _judged_with(turn_ids), others_than(excluded), of_trainer)
        return {person: [statement.text for statement in wishes] for person, wishes in statements.items()}

    def asked_by(
        self,
        turn_ids: Sequence[str],
        each: int,
        people: Collection[Person],
        trainer: str = DEFAULT_TRAINER,
    ) -> dict[Person, list[Statement]]:
        """Like `asked_for`, for these people only, with the turn after which each preference was written."""
        of_trainer = is_of_trainer(trainer)
        return self._asked(len(people), each, _judged_with(turn_ids), is_of(people), of_trainer)

    def asked_last(
        self, people: int, each: int = KEPT, trainer: str | None = None
    ) -> dict[Person, list[Statement]]:
        """Like `asked_for`, up to the newest judgement, with the time of each preference; `trainer` None: for any
        policy."""
        limits = [] if trainer is None else [is_of_trainer(trainer)]
        return self._asked(people, each, *limits)

    def _asked(self, people: int, each: int, *limits: ColumnElement[bool]) -> dict[Person, list[Statement]]:
        judgement, turn, sample = schema.judgement.c, schema.turn.c, schema.sample.c
        taken_out = or_(sample.state == str(SampleState.QUARANTINED), sample.reason == DELETED)
        query = (
            select(turn.id, turn.person, judgement.hints, judgement.created_at)
            .join(schema.turn, turn.id == judgement.turn_id)
            .join(schema.sample, sample.turn_id == turn.id)
            .where(judgement.kind == "hint", func.coalesce(~taken_out, True), *limits)
            .order_by(judgement.id.desc())
            .limit(LOOKED_AT)
        )
        by_person: dict[Person, list[Statement]] = {}
        with self._database.reading() as connection:
            for turn_id, person, packed, at in connection.execute(query).all():
                hint = max(unpack_json(packed), key=len, default="")
                statements = by_person.get(person, [])
                room = len(statements) < each and (person in by_person or len(by_person) < people)
                may_stand = hint and hint not in [one.text for one in statements] and room
                if may_stand and not repeats(request_of(connection, turn_id), hint):
                    by_person[person] = [Statement(hint, at, turn_id), *statements]
        return dict(reversed(by_person.items()))

    def forget(self, wish_id: int, person: str | None = None, asker: Asker = ADMINISTRATOR) -> bool:
        """Deletes one preference with its dreams, and the hints, feedback and sample of each turn after which the
        person asked for the same. The turns stay. Returns False if there is none, or it is not `person`'s or the
        asker's."""
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
            take_turns(connection)
            self._database.wipe_pages()
            turn_ids = {row.turn_id, *_turns_asking_for(connection, row.person, unpack_json(row.text), asker)}
            delete_wishes(connection, sorted(turn_ids))
            connection.execute(delete(schema.memory).where(condition))
        return True

    def hold(self, wish_id: int, version: int, details: dict[str, Any]) -> bool:
        """Records that this version follows the preference by itself, with the test results. Returns False if the
        preference was deleted."""
        return self._note(wish_id, held_by=version, held_at=time.time(), details=pack_json(details))

    def note(self, wish_id: int, details: dict[str, Any]) -> bool:
        """Stores test results so far. Returns False if the preference was deleted."""
        return self._note(wish_id, details=pack_json(details))

    def _note(self, wish_id: int, **values: Any) -> bool:
        with self._database.transaction() as connection:
            statement = update(schema.memory).where(schema.memory.c.id == wish_id)
            return bool(connection.execute(statement.values(**values)).rowcount)

    def waiting(self, trainer: str = DEFAULT_TRAINER, limit: int = 200) -> list[Wish]:
        """Returns the newest preferences in prompts to the trainer's policy, newest first."""
        query = select(schema.memory).where(is_wish_of_trainer(trainer), _is_in_prompt(trainer))
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(schema.memory.c.id.desc()).limit(limit)).mappings().all()
        return [_wish(row, in_prompt=True) for row in rows]

    def canary_turns(
        self, person: str, limit: int, asker: Asker = ADMINISTRATOR, trainer: str = DEFAULT_TRAINER
    ) -> list[Turn]:
        """Returns the newest first turns of a person's conversations with the trainer's policy: their prompts can be
        used again."""
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
        """Returns the message that the turn answers, or the one before all complaints that led to the turn; "" if
        there is none, or more complaints than `_FARTHEST`."""
        with self._database.reading() as connection:
            return request_of(connection, turn_id)


def _turns_asking_for(connection: Connection, person: str, wish: str, asker: Asker) -> list[str]:
    judgement, turn = schema.judgement.c, schema.turn.c
    hinted = select(turn.id, judgement.hints).join(schema.judgement, judgement.turn_id == turn.id)
    hinted = hinted.where(judgement.kind == "hint", turn.person == person, *usable(asker))
    return [turn_id for turn_id, packed in connection.execute(hinted) if wish in unpack_json(packed)]


def _judged_with(turn_ids: Sequence[str]) -> ColumnElement[bool]:
    """Returns the condition for judgements up to those of these turns."""
    judgement = schema.judgement.c
    last = select(func.max(judgement.id)).where(judgement.turn_id.in_(list(turn_ids)))
    return judgement.id <= last.scalar_subquery()


def remember(connection: Connection, turn_id: str, hints: Sequence[str], now: float) -> None:
    """Stores the longest hint of a turn for its person; a repeated one becomes the newest, and is added to prompts
    again. Hints that repeat their own request are omitted; nothing is stored if the turn opted out of memory."""
    memory, turn, body = schema.memory.c, schema.turn.c, schema.turn_body.c
    may = select(turn.person, turn.key_name, turn.policy_id)
    may = may.join(schema.turn_body, body.turn_id == turn.id)
    may = may.where(turn.id == turn_id, body.memory.is_not(None), turn.person.is_not(None))
    whose = connection.execute(may).first()
    if whose is None:
        return
    person, key_name, policy = whose
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
    """Returns the condition for preferences that are not recorded as learned by any version of an adapter's trainer,
    or (None) of any other trainer."""
    memory, version = schema.memory.c, schema.weight_version.c
    holds = select(version.id).where(version.version == memory.held_by, version.status.in_(_IN_WEIGHTS))
    if trainer is not None:
        of_adapter = version.trainer.contains(ADAPTER_MARK)
        holds = holds.where(~of_adapter if adapter_of(trainer) is None else version.trainer == trainer)
    return or_(memory.held_by.is_(None), ~holds.exists())


def _wish(row: RowMapping, in_prompt: bool) -> Wish:
    names = ("id", "person", "key_name", "turn_id", "created_at", "held_by", "held_at")
    known = {name: row[name] for name in names}
    details = {} if row["details"] is None else dict(unpack_json(row["details"]))
    return Wish(**known, text=unpack_json(row["text"]), in_prompt=in_prompt, details=details)


def request_of(connection: Connection, turn_id: str) -> str:
    """Returns the person's message that the turn answers, see `MemoryTable.request_of`."""
    turn, body = schema.turn.c, schema.turn_body.c
    for _ in range(_FARTHEST + 1):
        parent = connection.scalar(select(turn.parent_id).where(turn.id == turn_id))
        if parent is None or not _was_complained_about(connection, parent):
            packed = connection.scalar(select(body.messages).where(body.turn_id == turn_id))
            return last_said(unpack_json(packed)) if packed else ""
        turn_id = parent
    return ""


def _was_complained_about(connection: Connection, turn_id: str) -> bool:
    """Returns whether a turn was scored as bad, or has a hint: with methods that use hints, every turn has a
    judgement about them."""
    judgement = schema.judgement.c
    hinted = and_(judgement.kind == "hint", judgement.score > 0)
    bad = or_(hinted, and_(judgement.kind == "eval", judgement.score < 0))
    return (
        connection.scalar(select(judgement.id).where(judgement.turn_id == turn_id, bad).limit(1)) is not None
    )
