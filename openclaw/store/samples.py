"""Table of training samples. A training step leases a batch of them, and commits the lease when its weights are live;
otherwise the lease is released.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection
from typing import TypeVar

from sqlalchemy import ColumnElement, Connection, and_, func, insert, select, update

from openclaw.errors import StoreError
from openclaw.store import schema
from openclaw.store.database import Database, lock_transaction, slices
from openclaw.store.people import not_of_people
from openclaw.store.pictures import urls_of
from openclaw.store.policies import is_sample_of_trainer
from openclaw.store.rows import select_turns, turn_from_row, unpack_json, unpack_teacher
from openclaw.store.shares import WINDOW_SECONDS, Person, bounded
from openclaw.types import DEFAULT_TRAINER, SampleRecord, SampleState

T = TypeVar("T")

STALE = "stale"
"""Drop reason of samples whose tokens are all older than the oldest allowed weight version."""
LOOKED_AT = 1000
"""Number of oldest ready samples from which a batch is selected if a person's share is limited."""
_FREE = {"state": str(SampleState.READY), "trainer": None, "rollout_id": None, "trained_version": None}


class SampleTable:
    """Samples and their states: ready -> leased(rollout_id) -> trained(version).

    A lease belongs to a trainer and a rollout id. A trainer sees only samples of its policy, see `policies`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def ready_count(self, excluded: Collection[Person] = (), trainer: str = DEFAULT_TRAINER) -> int:
        """Returns the number of ready samples, except those of the people in `excluded`."""
        return self._ready(func.count(), excluded, trainer) or 0

    def oldest_ready_at(
        self, excluded: Collection[Person] = (), trainer: str = DEFAULT_TRAINER
    ) -> float | None:
        """Returns when the oldest ready sample was created, in Unix seconds, or None if no sample is ready. Samples of
        the people in `excluded` are ignored."""
        return self._ready(func.min(schema.sample.c.created_at), excluded, trainer)

    def leasable_count(
        self,
        batch_size: int,
        trainer: str = DEFAULT_TRAINER,
        share: float = 1.0,
        excluded: Collection[Person] = (),
    ) -> int:
        """Returns the number of samples that `lease` would take now, at most `batch_size`."""
        with self._database.reading() as connection:
            return len(_next_batch(connection, batch_size, trainer, share, excluded))

    def lease(
        self,
        rollout_id: int,
        batch_size: int,
        trainer: str = DEFAULT_TRAINER,
        share: float = 1.0,
        excluded: Collection[Person] = (),
    ) -> list[SampleRecord]:
        """Leases up to `batch_size` ready samples for one training step, and returns them, oldest first.

        A repeated call with the same rollout id returns the same samples.

        Args:
            share: largest fraction (0 to 1) of the samples from one person, if several people teach; see `shares`.
            excluded: people whose samples stay ready.

        Raises:
            StoreError: the rollout is already trained.
        """
        sample = schema.sample.c
        with self._database.transaction() as connection:
            lock_transaction(connection)
            conditions = _of_lease(trainer, rollout_id)
            ids = list(
                connection.scalars(
                    select(sample.id).where(*conditions, sample.state == str(SampleState.LEASED))
                )
            )
            if not ids:
                trained = connection.scalar(select(sample.trained_version).where(*conditions).limit(1))
                if trained is not None:
                    raise StoreError(
                        f"rollout {rollout_id} of {trainer} is already trained, as version {trained}"
                    )
                ids = _next_batch(connection, batch_size, trainer, share, excluded, lock=True)
                lease = {"state": str(SampleState.LEASED), "trainer": trainer, "rollout_id": rollout_id}
                connection.execute(update(schema.sample).where(sample.id.in_(ids)).values(lease))
        return self.get(ids)

    def has_lease(self, rollout_id: int, trainer: str = DEFAULT_TRAINER) -> bool:
        """Returns whether this rollout has leased samples, or was trained on them."""
        with self._database.reading() as connection:
            query = select(schema.sample.c.id).where(*_of_lease(trainer, rollout_id)).limit(1)
            return connection.scalar(query) is not None

    def has_update_in_flight(
        self, trainer: str = DEFAULT_TRAINER, before_rollout_id: int | None = None
    ) -> bool:
        """Returns whether the trainer has leased samples, of any rollout or of earlier ones: an update that is neither
        live nor rejected."""
        sample = schema.sample.c
        leased = (sample.state == str(SampleState.LEASED)) & (sample.trainer == trainer)
        if before_rollout_id is not None:
            leased &= sample.rollout_id < before_rollout_id
        with self._database.reading() as connection:
            return connection.scalar(select(sample.id).where(leased).limit(1)) is not None

    def commit_lease(self, rollout_id: int, version: int, trainer: str = DEFAULT_TRAINER) -> int:
        """Marks the leased samples of a rollout as trained by `version`. Returns their number.

        Returns 0 if the lease was committed before, or there is none. Raises StoreError if the rollout was committed
        as another version.
        """
        with self._database.transaction() as connection:
            lock_transaction(connection)
            return commit(connection, rollout_id, version, trainer)

    def release_leases(self, except_rollout_id: int | None = None, trainer: str = DEFAULT_TRAINER) -> int:
        """Releases all leases of the trainer, except that of one rollout. Returns the number of released samples."""
        with self._database.transaction() as connection:
            lock_transaction(connection)
            return release(connection, except_rollout_id, trainer)

    def drop_stale(self, oldest_version: int, trainer: str = DEFAULT_TRAINER) -> int:
        """Drops the ready samples whose tokens are all older than `oldest_version`. Returns their number."""
        sample, body = schema.sample.c, schema.turn_body.c
        ready = (
            select(sample.id, body.version_spans)
            .where(_is_ready(trainer), body.turn_id == sample.turn_id)
            .with_for_update(of=schema.sample)
        )
        with self._database.transaction() as connection:
            stale = [
                row.id
                for row in connection.execute(ready)
                if max((version for version, _, _ in unpack_json(row.version_spans)), default=oldest_version)
                < oldest_version
            ]
            dropped = {**_FREE, "state": str(SampleState.DROPPED), "reason": STALE}
            for ids in slices(stale):
                connection.execute(update(schema.sample).where(sample.id.in_(ids)).values(dropped))
        return len(stale)

    def get(self, ids: list[int]) -> list[SampleRecord]:
        """Returns the samples with these ids and their turns, in the order of the ids' values."""
        sample = schema.sample
        with self._database.reading() as connection:
            rows = (
                connection.execute(select(sample).where(sample.c.id.in_(ids)).order_by(sample.c.id))
                .mappings()
                .all()
            )
            query = select_turns(schema.turn.c.id.in_([row["turn_id"] for row in rows]))
            turns = {row["id"]: turn_from_row(row) for row in connection.execute(query).mappings()}
            urls = urls_of(connection, turns.values())
        return [
            SampleRecord(
                id=row["id"],
                turn=turns[row["turn_id"]],
                reward=unpack_json(row["reward"]),
                loss_mask=None if row["loss_mask"] is None else list(row["loss_mask"]),
                metadata=unpack_json(row["extra"]),
                **unpack_teacher(row["teacher"]),
                state=SampleState(row["state"]),
                reason=row["reason"],
                created_at=row["created_at"],
                trainer=row["trainer"],
                rollout_id=row["rollout_id"],
                trained_version=row["trained_version"],
                pictures={one.sha256: urls[one.sha256] for one in turns[row["turn_id"]].pictures},
            )
            for row in rows
        ]

    def of_turn(self, turn_id: str) -> SampleRecord | None:
        """Returns the sample of a turn, or None if the turn is not judged yet."""
        with self._database.reading() as connection:
            query = select(schema.sample.c.id).where(schema.sample.c.turn_id == turn_id)
            return next(iter(self.get(list(connection.scalars(query)))), None)

    def learned_before(
        self,
        rollout_id: int,
        count: int,
        trainer: str = DEFAULT_TRAINER,
        excluded: Collection[Person] = (),
    ) -> list[SampleRecord]:
        """Returns the newest `count` samples that the trainer used in rollouts before `rollout_id`, oldest first.

        Samples of rejected or undone versions, and of the people in `excluded`, are omitted.
        """
        sample = schema.sample.c
        is_in_weights = sample.state.in_([str(SampleState.LEASED), str(SampleState.TRAINED)])
        query = (
            select(sample.id)
            .where(sample.trainer == trainer, sample.rollout_id < rollout_id, is_in_weights)
            .where(is_sample_of_trainer(trainer))
            .order_by(sample.id.desc())
            .limit(count)
        )
        if excluded:
            query = query.where(_is_of_others(excluded))
        with self._database.reading() as connection:
            ids = list(connection.scalars(query))
        return self.get(ids)

    def _ready(self, aggregate: ColumnElement[T], excluded: Collection[Person], trainer: str) -> T | None:
        query = select(aggregate).select_from(schema.sample).where(_is_ready(trainer))
        with self._database.reading() as connection:
            return connection.scalar(query.where(_is_of_others(excluded)) if excluded else query)


def commit(connection: Connection, rollout_id: int, version: int, trainer: str) -> int:
    """Does the work of `SampleTable.commit_lease` in an open transaction."""
    sample = schema.sample.c
    conditions = _of_lease(trainer, rollout_id)
    other = connection.scalar(
        select(sample.trained_version).where(*conditions, sample.trained_version != version).limit(1)
    )
    if other is not None:
        raise StoreError(f"rollout {rollout_id} of {trainer} is already trained, as version {other}")
    leased = list(
        connection.scalars(select(sample.id).where(*conditions, sample.state == str(SampleState.LEASED)))
    )
    if not leased:
        return 0
    now = time.time()
    entry = {"trainer": trainer, "version": version, "rollout_id": rollout_id, "created_at": now}
    connection.execute(insert(schema.training), [{"sample_id": id_, **entry} for id_ in leased])
    done = {"state": str(SampleState.TRAINED), "trained_version": version}
    connection.execute(update(schema.sample).where(sample.id.in_(leased)).values(done))
    return len(leased)


def release(connection: Connection, except_rollout_id: int | None, trainer: str) -> int:
    """Does the work of `SampleTable.release_leases` in an open transaction."""
    sample = schema.sample.c
    where = [sample.trainer == trainer, sample.state == str(SampleState.LEASED)]
    if except_rollout_id is not None:
        where.append(sample.rollout_id != except_rollout_id)
    return connection.execute(update(schema.sample).where(*where).values(_FREE)).rowcount


def _of_lease(trainer: str, rollout_id: int) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return schema.sample.c.trainer == trainer, schema.sample.c.rollout_id == rollout_id


def _next_batch(
    connection: Connection,
    batch_size: int,
    trainer: str,
    share: float,
    excluded: Collection[Person],
    lock: bool = False,
) -> list[int]:
    """Returns the ids of the samples of the next batch, oldest first.

    Args:
        share: largest fraction (0 to 1) of the samples from one person, if several people teach.
        excluded: people who are ignored, also when counting how many people teach.
        lock: whether to lock the rows for this transaction; rows locked by another transaction are skipped.
    """
    sample, turn = schema.sample.c, schema.turn.c
    first = select(sample.id).where(_is_ready(trainer)).order_by(sample.created_at, sample.id)
    if excluded:
        first = first.where(_is_of_others(excluded))
    ready = first.limit(batch_size if share >= 1 else LOOKED_AT)
    if lock:
        ready = ready.with_for_update(skip_locked=True)
    ids = list(connection.scalars(ready))
    if share >= 1 or not ids:
        return ids
    persons = select(sample.id, turn.person).where(turn.id == sample.turn_id, sample.id.in_(ids))
    person_of = {row.id: row.person for row in connection.execute(persons)}
    counts = _learned(connection, trainer).items()
    learned = {person: count for person, count in counts if person not in excluded}
    return bounded([(id_, person_of[id_]) for id_ in ids], learned, batch_size, share)


def _is_ready(trainer: str) -> ColumnElement[bool]:
    """Returns the SQL condition for ready samples of the trainer's policy."""
    return and_(schema.sample.c.state == str(SampleState.READY), is_sample_of_trainer(trainer))


def _is_of_others(excluded: Collection[Person]) -> ColumnElement[bool]:
    """Returns the SQL condition for samples of turns by people who are not in `excluded`."""
    turn = schema.turn.c
    return select(turn.id).where(turn.id == schema.sample.c.turn_id, not_of_people(excluded)).exists()


def _learned(connection: Connection, trainer: str) -> dict[Person, int]:
    """Returns, by person, the number of samples that are leased or were trained within `WINDOW_SECONDS`."""
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
    counts: Counter[Person] = Counter()
    for query in (leased, trained):
        for person, count in connection.execute(query.group_by(turn.person)):
            counts[person] += count
    return dict(counts)
