"""Weight versions and their lineage: which is live, which were rejected or rolled back, and how people judged
each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, case, delete, func, insert, or_, select, update

from openclaw.errors import StoreError
from openclaw.store import schema
from openclaw.store.database import Database, slices, take_turns
from openclaw.store.quarantine import REJECTED, UNDONE, quarantine
from openclaw.store.rows import pack_json, unpack_json
from openclaw.store.samples import commit, release
from openclaw.store.shares import Person
from openclaw.types import (
    ADAPTER_MARK,
    DEFAULT_TRAINER,
    Json,
    SampleState,
    TurnState,
    VersionStatus,
    WeightVersion,
    adapter_of,
)

_SURVIVING = (str(VersionStatus.LIVE), str(VersionStatus.SUPERSEDED))


@dataclass(frozen=True)
class JudgedTurn:
    """A judged turn, for probation. `version`: the one that sampled its last token. `cut`: it was truncated by its
    length limit. `undone`: the version was rolled back. `person`: whose turn it is."""

    version: int
    score: float
    cut: bool
    undone: bool = False
    person: Person = None


class VersionTable:
    """Version numbers are never reused; a sample is trained once in the surviving lineage."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def live(self, trainer: str | None = None) -> int:
        """Returns the last live version of a trainer; None: of any trainer of the main model; 0 if there is none."""
        table = schema.weight_version.c
        query = select(table.version).where(table.status == str(VersionStatus.LIVE))
        condition = ~table.trainer.contains(ADAPTER_MARK) if trainer is None else table.trainer == trainer
        query = query.where(condition)
        with self._database.reading() as connection:
            return connection.scalar(query.order_by(table.activated_at.desc()).limit(1)) or 0

    def of_adapters(self) -> dict[str, int]:
        """Returns the live version of each trained adapter, by name."""
        table = schema.weight_version.c
        query = select(table.trainer, table.version).where(table.status == str(VersionStatus.LIVE))
        query = query.where(table.trainer.contains(ADAPTER_MARK)).order_by(table.trainer)
        with self._database.reading() as connection:
            return {adapter_of(trainer) or "": version for trainer, version in connection.execute(query)}

    def all(self, trainer: str = DEFAULT_TRAINER) -> list[WeightVersion]:
        """Returns every version of the trainer, by number."""
        table = schema.weight_version
        query = select(table).where(table.c.trainer == trainer).order_by(table.c.version)
        with self._database.reading() as connection:
            return [version_from_row(row) for row in connection.execute(query).mappings()]

    def weights_live(
        self,
        rollout_id: int,
        version: int,
        parent: int | None,
        restored: bool,
        checkpoint_path: str | None,
        checksum: str | None,
        trainer: str = DEFAULT_TRAINER,
        details: dict[str, Json] | None = None,
    ) -> None:
        """Records that every engine serves `version`: commits the lease of `rollout_id` (-1: none), in one
        transaction.

        restored: the trainer has (re)started from these weights. All other leases are released, versions that are not
        ancestors are rolled back, and samples trained only by those are ready again. details: measurements of the
        version. Repeating it with the same arguments changes nothing. Raises StoreError for a number already used
        otherwise.
        """
        with self._database.transaction() as connection:
            take_turns(connection)
            known = _known(connection, trainer, version)
            if known is None:
                row = {"trainer": trainer, "version": version, "parent": parent, "rollout_id": rollout_id}
                about = {"path": checkpoint_path, "checksum": checksum, "created_at": time.time()}
                candidate: dict[str, Json] = {"status": str(VersionStatus.CANDIDATE)}
                candidate |= {"details": pack_json(details)} if details else {}
                connection.execute(insert(schema.weight_version), row | about | candidate)
            else:
                _check_same(known, parent, rollout_id, restored)
            first_time = known is None or known["activated_at"] is None
            if first_time or restored:
                _activate(connection, trainer, version)
            if (
                restored
            ):  # a lease of this rollout id belongs to this version only if it was not committed before
                release(connection, rollout_id if first_time else None, trainer)
                _roll_back_all_but(connection, trainer, _lineage(connection, trainer, version))
                _resettle_samples(connection, trainer)
            if first_time and rollout_id >= 0:
                commit(connection, rollout_id, version, trainer)

    def roll_back(
        self,
        version: int,
        drop_turns: bool = False,
        reason: str = "",
        trainer: str = DEFAULT_TRAINER,
    ) -> list[int]:
        """Makes an older version live again; training continues from it. Leases end: a trainer that waits for a batch
        asks again.

        Versions that are not its ancestors are rolled back; samples trained only by those are ready again, or with
        `drop_turns` quarantined, so that they are not learned again. Repeating it changes nothing.

        Returns:
            The versions that were undone.

        Raises:
            StoreError: a version that was never live.
        """
        with self._database.transaction() as connection:
            take_turns(connection)
            known = _known(connection, trainer, version)
            if known is None or known["activated_at"] is None:
                raise StoreError(f"version {version} of {trainer} was never live and cannot be restored")
            lineage = _lineage(connection, trainer, version)
            undone = _alive(connection, trainer) - lineage
            _activate(connection, trainer, version)
            _roll_back_all_but(connection, trainer, lineage)
            if reason:
                _explain(connection, trainer, undone, reason)
            release(connection, None, trainer)
            _resettle_samples(connection, trainer, UNDONE if drop_turns else None)
        return sorted(undone)

    def forget(self, trainer: str) -> int:
        """Deletes all versions and dreams of a trainer; samples trained by them are ready again. Repeating it changes
        nothing.

        Returns:
            How many versions.
        """
        table, sample, training = schema.weight_version, schema.sample.c, schema.training
        trained = select(training.c.sample_id).where(training.c.trainer == trainer)
        in_training = sample.state.in_([str(SampleState.LEASED), str(SampleState.TRAINED)])
        held = (sample.trainer == trainer) & in_training
        quarantined = (sample.state == str(SampleState.QUARANTINED)) & sample.id.in_(trained)
        free = {"trainer": None, "rollout_id": None, "trained_version": None}
        ready = {**free, "state": str(SampleState.READY), "reason": None}
        with self._database.transaction() as connection:
            take_turns(connection)
            self._database.wipe_log()
            connection.execute(update(schema.sample).where(or_(held, quarantined)).values(ready))
            connection.execute(delete(training).where(training.c.trainer == trainer))
            connection.execute(delete(schema.dream).where(schema.dream.c.trainer == trainer))
            return connection.execute(delete(table).where(table.c.trainer == trainer)).rowcount

    def judged_count(self) -> int:
        """Returns the number of people's judged main turns."""
        with self._database.reading() as connection:
            return connection.scalar(_judged(func.count())) or 0

    def judged_turns(self, limit: int) -> list[JudgedTurn]:
        """Returns the newest `limit` of them, oldest first."""
        turn, body, judgement = schema.turn.c, schema.turn_body.c, schema.judgement.c
        query = _judged(turn.finish_reason, judgement.score, body.version_spans, turn.person)
        query = query.where(body.turn_id == turn.id).order_by(judgement.id.desc()).limit(limit)
        version = schema.weight_version.c
        undone = select(version.version).where(version.status == str(VersionStatus.ROLLED_BACK))
        with self._database.reading() as connection:
            gone = set(connection.scalars(undone))
            rows = connection.execute(query).all()
        judged = []
        for reason, score, packed, person in reversed(rows):
            spans = unpack_json(packed)
            last = spans[-1][0] if spans else 0
            judged.append(JudgedTurn(last, score, reason == "length", last in gone, person))
        return judged

    def learned_by(
        self, versions: Sequence[int], trainer: str = DEFAULT_TRAINER
    ) -> dict[int, dict[str, int]]:
        """Returns by version how many turns it learned from (`turns`), and how many were judged above (`good`) and
        below 0 (`bad`)."""
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
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        return {
            int(version): {"turns": turns, "good": good or 0, "bad": bad or 0}
            for version, turns, good, bad in rows
        }

    def weights_rejected(
        self,
        rollout_id: int,
        version: int,
        parent: int | None,
        checksum: str | None,
        details: dict[str, Json],
        trainer: str = DEFAULT_TRAINER,
    ) -> int:
        """Records that the update of `rollout_id` never goes live: stores its version with `details` (reason, stage,
        measurements) and quarantines its samples, in one transaction. Repeating it changes nothing.

        Returns:
            How many samples.

        Raises:
            StoreError: the number belongs to a version that went live.
        """
        table, sample, now = schema.weight_version, schema.sample.c, time.time()
        with self._database.transaction() as connection:
            take_turns(connection)
            condition = (table.c.trainer == trainer) & (table.c.version == version)
            status = connection.scalar(select(table.c.status).where(condition))
            if status not in (None, str(VersionStatus.REJECTED)):
                raise StoreError(f"version {version} of {trainer} is {status}: it cannot be rejected")
            if status is None:
                row = {"trainer": trainer, "version": version, "parent": parent, "rollout_id": rollout_id}
                about = {"checksum": checksum, "created_at": now, "details": pack_json(details)}
                rejected = {"status": str(VersionStatus.REJECTED)}
                connection.execute(insert(table), row | about | rejected)
            leased = (sample.trainer == trainer) & (sample.rollout_id == rollout_id)
            ids = list(
                connection.scalars(select(sample.id).where(leased, sample.state == str(SampleState.LEASED)))
            )
            if ids:
                entry = {"trainer": trainer, "version": version, "rollout_id": rollout_id, "created_at": now}
                connection.execute(insert(schema.training), [{"sample_id": id_, **entry} for id_ in ids])
                quarantine(connection, sample.id.in_(ids), REJECTED)
        return len(ids)


def _alive(connection: Connection, trainer: str) -> set[int]:
    table = schema.weight_version.c
    query = select(table.version).where(table.trainer == trainer, table.status.in_(_SURVIVING))
    return set(connection.scalars(query))


def _explain(connection: Connection, trainer: str, undone: set[int], reason: str) -> None:
    """Adds the reason to the details of undone versions."""
    table = schema.weight_version
    for version in undone:
        known = _known(connection, trainer, version)
        assert known is not None
        details = {} if known["details"] is None else unpack_json(known["details"])
        condition = (table.c.trainer == trainer) & (table.c.version == version)
        explanation = pack_json({**details, "undone": reason})
        connection.execute(update(table).where(condition).values(details=explanation))


def _known(connection: Connection, trainer: str, version: int) -> RowMapping | None:
    table = schema.weight_version
    query = select(table).where(table.c.trainer == trainer, table.c.version == version).with_for_update()
    return connection.execute(query).mappings().first()


def _check_same(known: RowMapping, parent: int | None, rollout_id: int, restored: bool) -> None:
    name = f"version {known['version']} of {known['trainer']}"
    if parent is not None and known["parent"] is not None and parent != known["parent"]:
        raise StoreError(
            f"{name} is already stored with parent {known['parent']}, not {parent}: numbers are never reused"
        )
    if restored:
        return
    if rollout_id != known["rollout_id"]:
        raise StoreError(
            f"{name} is already stored with rollout {known['rollout_id']}, not {rollout_id}: numbers are never reused"
        )
    if known["status"] in (str(VersionStatus.ROLLED_BACK), str(VersionStatus.REJECTED)):
        raise StoreError(
            f"{name} is {known['status']}: only a trainer that was restored to it can make it live again"
        )


def _activate(connection: Connection, trainer: str, version: int) -> None:
    table = schema.weight_version
    of_trainer = table.c.trainer == trainer
    live = table.c.status == str(VersionStatus.LIVE)
    connection.execute(update(table).where(of_trainer, live).values(status=str(VersionStatus.SUPERSEDED)))
    now_live = {"status": str(VersionStatus.LIVE), "activated_at": time.time()}
    connection.execute(update(table).where(of_trainer, table.c.version == version).values(now_live))


def _lineage(connection: Connection, trainer: str, version: int) -> set[int]:
    """Returns the version and its ancestors."""
    table = schema.weight_version.c
    query = select(table.version, table.parent).where(table.trainer == trainer)
    parents = {row.version: row.parent for row in connection.execute(query)}
    chain: set[int] = set()
    at: int | None = version
    while at is not None and at not in chain:
        chain.add(at)
        at = parents.get(at)
    return chain


def _roll_back_all_but(connection: Connection, trainer: str, lineage: set[int]) -> None:
    """Rolls back all other versions. A run of a day has tens of thousands of versions, of which few change here."""
    table = schema.weight_version
    of_trainer = table.c.trainer == trainer
    known = connection.execute(select(table.c.version, table.c.status).where(of_trainer)).all()
    for inside, kept, become in (
        (True, (VersionStatus.LIVE, VersionStatus.SUPERSEDED), VersionStatus.SUPERSEDED),
        (False, (VersionStatus.REJECTED, VersionStatus.ROLLED_BACK), VersionStatus.ROLLED_BACK),
    ):
        changed = [
            row.version for row in known if (row.version in lineage) is inside and row.status not in kept
        ]
        for numbers in slices(changed):
            moved = update(table).where(of_trainer, table.c.version.in_(numbers))
            connection.execute(moved.values(status=str(become)))


def _resettle_samples(connection: Connection, trainer: str, quarantined: str | None = None) -> None:
    """Updates states: a sample is trained if and only if a version of the surviving lineage trained it; others are
    ready again, or quarantined for the given reason."""
    sample, training, version = schema.sample, schema.training, schema.weight_version
    survivors = (
        select(training.c.version)
        .join_from(
            training,
            version,
            (version.c.trainer == training.c.trainer) & (version.c.version == training.c.version),
        )
        .where(
            training.c.sample_id == sample.c.id,
            training.c.trainer == trainer,
            version.c.status.in_(_SURVIVING),
        )
    )
    moved = (sample.c.state == str(SampleState.TRAINED)) & (sample.c.trainer == trainer)
    lost = {"state": str(SampleState.READY), "trainer": None, "rollout_id": None, "trained_version": None}
    if quarantined is not None:
        quarantine(connection, moved & ~survivors.exists(), quarantined)
    connection.execute(update(sample).where(moved, ~survivors.exists()).values(lost))
    last = survivors.with_only_columns(func.max(training.c.version)).scalar_subquery()
    rollout = survivors.with_only_columns(training.c.rollout_id).order_by(training.c.version.desc()).limit(1)
    kept = {"state": str(SampleState.TRAINED), "reason": None, "trainer": trainer, "trained_version": last}
    # quarantined samples too: their version may be live again
    others = (SampleState.READY, SampleState.LEASED, SampleState.QUARANTINED)
    untrained = sample.c.state.in_([str(state) for state in others])
    connection.execute(
        update(sample)
        .where(untrained | moved, survivors.exists())
        .values(kept | {"rollout_id": rollout.scalar_subquery()})
    )


def version_from_row(row: RowMapping) -> WeightVersion:
    fields = {name: value for name, value in row.items() if name not in ("id", "status", "details")}
    details = {} if row["details"] is None else unpack_json(row["details"])
    return WeightVersion(**fields, status=VersionStatus(row["status"]), details=details)


def _judged(*what: Any) -> Select[Any]:
    turn, judgement = schema.turn.c, schema.judgement.c
    return select(*what).where(
        judgement.turn_id == turn.id,
        judgement.kind == "eval",
        turn.state == str(TurnState.JUDGED),
        turn.source == "gateway",
        turn.turn_type == "main",
    )
