"""Read-only queries for the rollouts and weight versions that were trained on a person's turns."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, func, select

from openclaw.store import schema
from openclaw.store.database import Database
from openclaw.store.rights import of_person
from openclaw.types import ADAPTER_MARK, VersionStatus, adapter_of

_SURVIVING = (str(VersionStatus.LIVE), str(VersionStatus.SUPERSEDED))


@dataclass(frozen=True)
class Influence:
    """The surviving versions of one model or adapter that were trained on a person's turns.

    Attributes:
        adapter: name of the trained adapter; None for the base model.
        turns: number of the person's turns in their training data.
        first: first such version.
        before: version from which `first` was trained.
        versions: number of surviving versions from `first` on.
        others: number of turns of other people in the training data of these versions.
    """

    adapter: str | None
    turns: int
    first: int
    before: int
    versions: int
    others: int


class InfluenceTable:
    """Queries of the training history by person."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def is_known(self, person: str, adapter: str | None = None) -> bool:
        """Returns whether there are turns or sessions of a person, or versions of the person's own adapter."""
        session, version = schema.session.c, schema.weight_version.c
        own_turn = select(schema.turn.c.id).where(of_person(person)).limit(1)
        own_session = select(session.id).where(session.person == person).limit(1)
        trainers = select(version.trainer).where(version.trainer.contains(ADAPTER_MARK)).distinct()
        with self._database.reading() as connection:
            if any(connection.scalar(query) is not None for query in (own_turn, own_session)):
                return True
            return adapter is not None and adapter in map(adapter_of, connection.scalars(trainers))

    def of(self, person: str) -> list[Influence]:
        """Returns the influence of a person on each model and adapter, sorted by trainer."""
        training = schema.training.c
        with self._database.reading() as connection:
            rows = connection.execute(
                _trained(person, training.trainer, training.version, training.sample_id)
            )
            by_trainer: dict[str, list[tuple[int, int]]] = defaultdict(list)
            for trainer, version, sample_id in rows:
                by_trainer[trainer].append((version, sample_id))
            influences = [
                _influence(connection, person, trainer, pairs)
                for trainer, pairs in sorted(by_trainer.items())
            ]
        return [one for one in influences if one is not None]

    def rollouts_of(self, person: str, adapter: str | None = None) -> list[int]:
        """Returns the sorted ids of the rollouts whose files may contain text of a person.

        These are all rollouts of the same policies since the person's first turn, because any of them may train an
        earlier turn again.

        Args:
            adapter: the person's own adapter, all of whose rollouts are returned.
        """
        turn, sample = schema.turn.c, schema.sample.c
        policies = select(turn.policy_id, func.min(turn.created_at)).where(of_person(person))
        leased = select(sample.rollout_id).join(schema.turn, turn.id == sample.turn_id)
        leased = leased.where(of_person(person), sample.rollout_id.is_not(None))
        rollouts: set[int] = set()
        with self._database.reading() as connection:
            rollouts.update(connection.scalars(leased))
            for policy, since in connection.execute(policies.group_by(turn.policy_id)).all():
                rollouts |= _rollouts(connection, adapter_of(policy), since)
            if adapter is not None:
                rollouts |= _rollouts(connection, adapter, 0.0)
        return sorted(one for one in rollouts if one >= 0)


def _trained(person: str, *columns: Any) -> Select[Any]:
    """Returns a query for these columns of the training history of a person's turns."""
    training, sample = schema.training.c, schema.sample.c
    query = select(*columns).select_from(schema.training)
    query = query.join(schema.sample, sample.id == training.sample_id)
    return query.join(schema.turn, schema.turn.c.id == sample.turn_id).where(of_person(person))


def _influence(
    connection: Connection, person: str, trainer: str, pairs: list[tuple[int, int]]
) -> Influence | None:
    """Returns the person's influence on the versions of a trainer; None if no surviving version was trained on it.

    Args:
        pairs: (version, sample id) of each training on the person's turns.
    """
    table, training = schema.weight_version.c, schema.training.c
    query = select(table.version, table.parent).where(table.trainer == trainer, table.status.in_(_SURVIVING))
    parents: dict[int, int | None] = dict(connection.execute(query).tuples().all())
    surviving = [(version, sample_id) for version, sample_id in pairs if version in parents]
    if not surviving:
        return None
    first = min(version for version, _ in surviving)
    affected = [version for version in parents if version >= first]
    own = {sample_id for _, sample_id in pairs}
    query = select(training.version, training.sample_id).where(
        training.trainer == trainer, training.version >= first
    )
    others = {sample_id for version, sample_id in connection.execute(query) if version in parents} - own
    turns = len({sample_id for _, sample_id in surviving})
    return Influence(adapter_of(trainer), turns, first, parents[first] or 0, len(affected), len(others))


def _rollouts(connection: Connection, adapter: str | None, since: float) -> set[int]:
    """Returns the rollouts of an adapter's trainers, or (None) of the base model's, since a time in Unix seconds."""
    rollouts: set[int] = set()
    for table in (schema.training.c, schema.weight_version.c):
        query = select(table.trainer, table.rollout_id).where(table.created_at >= since).distinct()
        is_of_adapter = table.trainer.contains(ADAPTER_MARK)
        query = query.where(~is_of_adapter if adapter is None else is_of_adapter)
        rollouts.update(id_ for trainer, id_ in connection.execute(query) if adapter_of(trainer) == adapter)
    return rollouts
