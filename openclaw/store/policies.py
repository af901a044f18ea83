"""SQL conditions for the turns of a trainer's policy: the base model, or one adapter.

A trainer named `NAME::ADAPTER` trains only that adapter; every other trainer trains the base model. An adapter's
answers therefore train neither the base model nor another adapter.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, func, select

from openclaw.store import schema
from openclaw.store.database import Database
from openclaw.types import ADAPTER_MARK, DEFAULT_TRAINER, SampleState, adapter_of, policy_of

_TURN = schema.turn.c


def is_of_trainer(trainer: str) -> ColumnElement[bool]:
    """Returns the SQL condition for turns answered by the trainer's policy."""
    adapter = adapter_of(trainer)
    if adapter is None:
        return ~_TURN.policy_id.contains(ADAPTER_MARK)
    ending = f"{ADAPTER_MARK}{adapter}"
    # not LIKE, which is case-insensitive in SQLite
    start = func.length(_TURN.policy_id) - len(ending) + 1
    return (func.length(_TURN.policy_id) > len(ending)) & (func.substr(_TURN.policy_id, start) == ending)


def is_sample_of_trainer(trainer: str) -> ColumnElement[bool]:
    """Returns the SQL condition for samples of turns answered by the trainer's policy."""
    return select(_TURN.id).where(_TURN.id == schema.sample.c.turn_id, is_of_trainer(trainer)).exists()


def is_wish_of_trainer(trainer: str) -> ColumnElement[bool]:
    """Returns the SQL condition for preferences stated after turns of the trainer's policy."""
    source_turn = select(_TURN.id).where(_TURN.id == schema.memory.c.turn_id)
    if adapter_of(trainer) is None:
        return ~source_turn.where(~is_of_trainer(trainer)).exists()
    return source_turn.where(is_of_trainer(trainer)).exists()


class PolicyTable:
    """Read-only queries about adapters."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def waiting(self) -> list[str]:
        """Returns the sorted names of adapters that have ready or leased samples."""
        sample = schema.sample.c
        states = [str(SampleState.READY), str(SampleState.LEASED)]
        query = (
            select(_TURN.policy_id)
            .where(
                _TURN.id == sample.turn_id, sample.state.in_(states), _TURN.policy_id.contains(ADAPTER_MARK)
            )
            .distinct()
        )
        with self._database.reading() as connection:
            adapters = {adapter_of(policy) for policy in connection.scalars(query)}
        return sorted(name for name in adapters if name)

    def keys_of(self, adapter: str) -> set[str]:
        """Returns the names of the keys that sent the stored turns of an adapter; turns without a key are ignored."""
        names = select(_TURN.key_name).where(
            is_of_trainer(policy_of(DEFAULT_TRAINER, adapter)), _TURN.key_name.is_not(None)
        )
        with self._database.reading() as connection:
            return set(connection.scalars(names.distinct()))
