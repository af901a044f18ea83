"""Table of the answers that the model sampled for dreaming.

They are stored so that a restart does not sample them again, and a batch can be reproduced. There are four kinds:

* `dream`: answer to an everyday prompt that contains a person's preference.
* `look`: answer to such a prompt without the preference; it measures how far the preference is learned.
* `fact`: answer to a question whose correct answer is known, with or without the preference.
* `anchor`: answer to a prompt that itself specifies a form, or that asks for another kind of text. It belongs to no
  person, so it stays when a person is deleted.

Exports omit all of them, because they can be sampled again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import ColumnElement, RowMapping, insert, select

from openclaw.store import schema
from openclaw.store.database import Database, slices
from openclaw.store.rows import pack_ids, pack_json, unpack_ids, unpack_json
from openclaw.store.shares import Person

DreamKind = Literal["dream", "look", "fact", "anchor"]


@dataclass(frozen=True, kw_only=True)
class Dream:
    """One sampled answer.

    Attributes:
        item: id of the built-in prompt.
        theme: form that an anchor's prompt asks for, see `openclaw.dreaming.anchors`; "" for a dream.
        prompt_ids: [P] token ids of the prompt without the preference.
        taught_ids: [Q] token ids of the teacher's prompt, with the preference; equal to prompt_ids for an anchor.
        completion_ids: [T] token ids sampled after taught_ids.
        gain: dream and look: log p(answer | prompt with preference) - log p(answer | prompt without), in nats, at
            sampling time; fact: 1 if the answer is correct, else 0; anchor: None.
        version: weight version that sampled the answer.
        wish: the preference.
        turn_ids: the one or two turns after which the person stated the preference.
        rollout_id: rollout for which the answer was sampled.
    """

    kind: DreamKind
    item: str
    prompt_ids: list[int]
    taught_ids: list[int]
    completion_ids: list[int]
    version: int
    theme: str = ""
    gain: float | None = None
    person: Person = None
    wish: str | None = None
    turn_ids: tuple[str, ...] = ()
    rollout_id: int = -1
    id: int = 0


class DreamTable:
    """Sampled answers by trainer and model (tokenizer, chat template and its options), oldest first."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def keep(self, trainer: str, model: str, rollout_id: int, dreams: Sequence[Dream]) -> int:
        """Stores the answers sampled for a rollout, except those with a deleted turn. Returns their number."""
        now, turn = time.time(), schema.turn.c
        with self._database.transaction() as connection:
            turn_ids = sorted({id_ for one in dreams for id_ in one.turn_ids})
            existing = {
                id_
                for ids in slices(turn_ids)
                for id_ in connection.scalars(select(turn.id).where(turn.id.in_(ids)).with_for_update())
            }
            rows = [
                _row(one) | {"trainer": trainer, "model": model, "rollout_id": rollout_id, "created_at": now}
                for one in dreams
                if existing.issuperset(one.turn_ids)
            ]
            if rows:
                connection.execute(insert(schema.dream), rows)
        return len(rows)

    def known(self, trainer: str, model: str, kind: DreamKind, upto: int) -> list[Dream]:
        """Returns the answers of a kind sampled for rollouts up to `upto`, inclusive."""
        return self._read(trainer, model, kind, upto)

    def of_wish(
        self, trainer: str, model: str, person: Person, wish: str, upto: int, kind: DreamKind = "dream"
    ) -> list[Dream]:
        """Returns the answers for one preference of a person, for rollouts up to `upto`, inclusive."""
        return self._read(trainer, model, kind, upto, _is_of(person), schema.dream.c.wish == pack_json(wish))

    def _read(
        self, trainer: str, model: str, kind: DreamKind, upto: int, *conditions: ColumnElement[bool]
    ) -> list[Dream]:
        dream = schema.dream.c
        query = select(schema.dream).where(
            dream.trainer == trainer,
            dream.model == model,
            dream.kind == kind,
            dream.rollout_id <= upto,
            *conditions,
        )
        with self._database.reading() as connection:
            return [_dream(row) for row in connection.execute(query.order_by(dream.id)).mappings()]

    def wishes_of(self, trainer: str, model: str, person: Person, before: int) -> list[str]:
        """Returns a person's preferences that have dreams of rollouts before `before`."""
        dream = schema.dream.c
        query = select(dream.wish).where(
            dream.trainer == trainer, dream.model == model, dream.kind == "dream", dream.rollout_id < before
        )
        with self._database.reading() as connection:
            return [
                unpack_json(packed) for packed in connection.scalars(query.where(_is_of(person)).distinct())
            ]

    def was_sampled(self, trainer: str, model: str, rollout_id: int) -> bool:
        """Returns whether answers were sampled for this rollout. Anchors do not count: they are sampled earlier, while
        the trainer waits for the rollout."""
        dream = schema.dream.c
        query = select(dream.id).where(
            dream.trainer == trainer,
            dream.model == model,
            dream.rollout_id == rollout_id,
            dream.kind != "anchor",
        )
        with self._database.reading() as connection:
            return connection.scalar(query.limit(1)) is not None


def _is_of(person: Person) -> ColumnElement[bool]:
    is_named: ColumnElement[bool] = schema.dream.c.person == person
    return schema.dream.c.person.is_(None) if person is None else is_named


def _row(one: Dream) -> dict[str, object]:
    first, second = (*one.turn_ids, None, None)[:2]
    return {
        "kind": one.kind,
        "item": one.item,
        "theme": one.theme,
        "person": one.person,
        "wish": None if one.wish is None else pack_json(one.wish),
        "turn_id": first,
        "other_turn_id": second,
        "prompt_ids": pack_ids(one.prompt_ids),
        "taught_ids": pack_ids(one.taught_ids),
        "completion_ids": pack_ids(one.completion_ids),
        "gain": one.gain,
        "version": one.version,
    }


def _dream(row: RowMapping) -> Dream:
    return Dream(
        **{
            name: row[name]
            for name in ("id", "kind", "item", "theme", "person", "gain", "version", "rollout_id")
        },
        wish=None if row["wish"] is None else unpack_json(row["wish"]),
        turn_ids=tuple(id_ for id_ in (row["turn_id"], row["other_turn_id"]) if id_ is not None),
        prompt_ids=unpack_ids(row["prompt_ids"]),
        taught_ids=unpack_ids(row["taught_ids"]),
        completion_ids=unpack_ids(row["completion_ids"]),
    )
