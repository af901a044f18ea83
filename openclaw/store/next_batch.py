"""Which ready samples a batch takes: the oldest, within every person's share, and without people who are held back."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection

from sqlalchemy import ColumnElement, Connection, func, select

from openclaw.store import schema
from openclaw.store.scores import others_than
from openclaw.store.shares import WINDOW_SECONDS, Person, bounded
from openclaw.types import SampleState

LOOKED_AT = 1000
"""Oldest ready samples among which those of a batch are found where one person's share is bounded."""
IS_READY = schema.sample.c.state == str(SampleState.READY)


def next_batch(
    connection: Connection,
    batch_size: int,
    trainer: str,
    share: float,
    apart: Collection[Person],
    lock: bool = False,
) -> list[int]:
    """Ids of ready samples, oldest first.

    Args:
        share: of what is learned, that one person may give where several teach.
        apart: people whose samples stay; they are no company for the others either.
        lock: for this transaction, without those that another has.
    """
    sample, turn = schema.sample.c, schema.turn.c
    first = select(sample.id).where(IS_READY).order_by(sample.created_at, sample.id)
    if apart:
        first = first.where(is_of_others(apart))
    ready = first.limit(batch_size if share >= 1 else LOOKED_AT)
    if lock:
        ready = ready.with_for_update(skip_locked=True)
    ids = list(connection.scalars(ready))
    if share >= 1 or not ids:
        return ids
    whose = select(sample.id, turn.person).where(turn.id == sample.turn_id, sample.id.in_(ids))
    people = {row.id: row.person for row in connection.execute(whose)}
    learned = {who: count for who, count in _learned(connection, trainer).items() if who not in apart}
    return bounded([(one, people[one]) for one in ids], learned, batch_size, share)


def is_of_others(apart: Collection[Person]) -> ColumnElement[bool]:
    """Of a sample: its turn is of nobody in `apart`."""
    turn = schema.turn.c
    return select(turn.id).where(turn.id == schema.sample.c.turn_id, others_than(apart)).exists()


def _learned(connection: Connection, trainer: str) -> dict[Person, int]:
    """By person: samples that are leased, and those trained within the window."""
    sample, turn, training = schema.sample.c, schema.turn.c, schema.training.c
    leased = select(turn.person, func.count()).where(
        turn.id == sample.turn_id, sample.state == str(SampleState.LEASED), sample.trainer == trainer
    )
    trained = select(turn.person, func.count()).where(
        turn.id == sample.turn_id,
        training.sample_id == sample.id,
        training.trainer == trainer,
        training.created_at >= time.time() - WINDOW_SECONDS,
    )
    found: Counter[Person] = Counter()
    for query in (leased, trained):
        for person, count in connection.execute(query.group_by(turn.person)):
            found[person] += count
    return dict(found)
