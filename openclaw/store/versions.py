"""Table of weight versions: their lineage, their status (live, rejected, rolled back ...), and the scores of their
answers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, case, delete, func, insert, or_, select, update

from openclaw.errors import StoreError
from openclaw.store import schema
from openclaw.store.database import Database, lock_transaction, slices
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
    """The score of a main turn, for probation of its version.

    Attributes:
        version: weight version that sampled the last token.
        score: -1 to 1.
        cut: whether the answer was truncated at its length limit.
        undone: whether the version was rolled back.
        person: person of the turn.
    """

    version: int
    score: float
    cut: bool
    undone: bool = False
    person: Person = None


class VersionTable:
    """Weight versions by trainer.

    Version numbers are never reused. In the lineage of the live version, each sample is trained at most once.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def live(self, trainer: str | None = None) -> int:
        """Returns the live version of a trainer; 0 if there is none.

        Args:
            trainer: None for the base model: the version that went live last, of any of its trainers.
        """
        table = schema.weight_version.c
        query = select(table.version).where(table.status == str(VersionStatus.LIVE))
        condition = ~table.trainer.contains(ADAPTER_MARK) if trainer is None else table.trainer == trainer
        query = query.where(condition)
        with self._database.reading() as connection:
            return connection.scalar(query.order_by(table.activated_at.desc()).limit(1)) or 0

    def of_adapters(self) -> dict[str, int]:
        """Returns the live version of each trained adapter, by adapter name."""
        table = schema.weight_version.c
        query = select(table.trainer, table.version).where(table.status == str(VersionStatus.LIVE))
        query = query.where(table.trainer.contains(ADAPTER_MARK)).order_by(table.trainer)
        with self._database.reading() as connection:
            return {adapter_of(trainer) or "": version for trainer, version in connection.execute(query)}

    def all(self, trainer: str = DEFAULT_TRAINER) -> list[WeightVersion]:
        """Returns all versions of the trainer, ordered by number."""
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
        """Records that every engine serves `version`, and commits the lease of its rollout in the same transaction.

        A repeated call with the same arguments changes nothing.

        Args:
            rollout_id: rollout whose samples the version was trained on; -1 for none.
            parent: version from which it was trained.
            restored: whether the trainer has started from these weights. Then all other leases are released, versions
                that are not ancestors are rolled back, and samples trained only by those are ready again.
            checkpoint_path: folder of the weights.
            checksum: checksum of the weights.
            details: measurements of the version.

        Raises:
            StoreError: the number is already used by another version.
        """
        with self._database.transaction() as connection:
            lock_transaction(connection)
            known = _stored(connection, trainer, version)
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
            if restored:
                # a lease of this rollout belongs to this version only if the version was not live before
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
        """Makes an older version live again, from which training then continues. Returns the undone versions, sorted.

        All other versions except its ancestors are rolled back, and all leases are released. Samples trained only by
        the rolled back versions are ready again. A repeated call changes nothing.

        Args:
            drop_turns: quarantine these samples instead, so that they are not trained again.
            reason: stored in the details of the undone versions.

        Raises:
            StoreError: the version was never live.
        """
        with self._database.transaction() as connection:
            lock_transaction(connection)
            known = _stored(connection, trainer, version)
            if known is None or known["activated_at"] is None:
                raise StoreError(f"version {version} of {trainer} was never live and cannot be restored")
            lineage = _lineage(connection, trainer, version)
            undone = _surviving(connection, trainer) - lineage
            _activate(connection, trainer, version)
            _roll_back_all_but(connection, trainer, lineage)
            if reason:
                _explain(connection, trainer, undone, reason)
            release(connection, None, trainer)
            _resettle_samples(connection, trainer, UNDONE if drop_turns else None)
        return sorted(undone)

    def forget(self, trainer: str) -> int:
        """Deletes all versions and dreams of a trainer. Returns the number of deleted versions.

        Samples trained by them are ready again.
        """
        table, sample, training = schema.weight_version, schema.sample.c, schema.training
        trained = select(training.c.sample_id).where(training.c.trainer == trainer)
        in_training = sample.state.in_([str(SampleState.LEASED), str(SampleState.TRAINED)])
        used = (sample.trainer == trainer) & in_training
        quarantined = (sample.state == str(SampleState.QUARANTINED)) & sample.id.in_(trained)
        no_lease = {"trainer": None, "rollout_id": None, "trained_version": None}
        ready = {**no_lease, "state": str(SampleState.READY), "reason": None}
        with self._database.transaction() as connection:
            lock_transaction(connection)
            self._database.wipe_log()
            connection.execute(update(schema.sample).where(or_(used, quarantined)).values(ready))
            connection.execute(delete(training).where(training.c.trainer == trainer))
            connection.execute(delete(schema.dream).where(schema.dream.c.trainer == trainer))
            return connection.execute(delete(table).where(table.c.trainer == trainer)).rowcount

    def judged_count(self) -> int:
        """Returns the number of judged main turns from clients (imported turns do not count)."""
        with self._database.reading() as connection:
            return connection.scalar(_judged(func.count())) or 0

    def judged_turns(self, limit: int) -> list[JudgedTurn]:
        """Returns the scores of the newest `limit` judged main turns from clients, oldest first."""
        turn, body, judgement = schema.turn.c, schema.turn_body.c, schema.judgement.c
        query = _judged(turn.finish_reason, judgement.score, body.version_spans, turn.person)
        query = query.where(body.turn_id == turn.id).order_by(judgement.id.desc()).limit(limit)
        version = schema.weight_version.c
        undone = select(version.version).where(version.status == str(VersionStatus.ROLLED_BACK))
        with self._database.reading() as connection:
            undone_versions = set(connection.scalars(undone))
            rows = connection.execute(query).all()
        judged = []
        for reason, score, packed, person in reversed(rows):
            spans = unpack_json(packed)
            last = spans[-1][0] if spans else 0
            judged.append(JudgedTurn(last, score, reason == "length", last in undone_versions, person))
        return judged

    def learned_by(
        self, versions: Sequence[int], trainer: str = DEFAULT_TRAINER
    ) -> dict[int, dict[str, int]]:
        """Returns, by version, the number of turns that it was trained on: {"turns": all, "good": with a score above 0,
        "bad": with a score below 0}."""
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
        """Records that the gate rejected the update of a rollout, and quarantines its samples. Returns their number.

        A repeated call changes nothing.

        Args:
            details: reason, stage and measurements, stored with the version.

        Raises:
            StoreError: the version was live.
        """
        table, sample, now = schema.weight_version, schema.sample.c, time.time()
        with self._database.transaction() as connection:
            lock_transaction(connection)
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


def _surviving(connection: Connection, trainer: str) -> set[int]:
    """Returns the versions that are live or superseded."""
    table = schema.weight_version.c
    query = select(table.version).where(table.trainer == trainer, table.status.in_(_SURVIVING))
    return set(connection.scalars(query))


def _explain(connection: Connection, trainer: str, undone: set[int], reason: str) -> None:
    """Adds the reason to the details of undone versions."""
    table = schema.weight_version
    for version in undone:
        row = _stored(connection, trainer, version)
        assert row is not None
        details = {} if row["details"] is None else unpack_json(row["details"])
        condition = (table.c.trainer == trainer) & (table.c.version == version)
        explanation = pack_json({**details, "undone": reason})
        connection.execute(update(table).where(condition).values(details=explanation))


def _stored(connection: Connection, trainer: str, version: int) -> RowMapping | None:
    table = schema.weight_version
    query = select(table).where(table.c.trainer == trainer, table.c.version == version).with_for_update()
    return connection.execute(query).mappings().first()


def _check_same(known: RowMapping, parent: int | None, rollout_id: int, restored: bool) -> None:
    name = f"version {known['version']} of {known['trainer']}"
    if parent is not None and known["parent"] is not None and parent != known["parent"]:
        raise StoreError(
            f"{name} is already stored with parent {known['parent']}, not {parent}: version numbers are never reused"
        )
    if restored:
        return
    if rollout_id != known["rollout_id"]:
        raise StoreError(
            f"{name} is already stored with rollout {known['rollout_id']}, not {rollout_id}: version numbers are never"
            " reused"
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
    lineage: set[int] = set()
    ancestor: int | None = version
    while ancestor is not None and ancestor not in lineage:
        lineage.add(ancestor)
        ancestor = parents.get(ancestor)
    return lineage


def _roll_back_all_but(connection: Connection, trainer: str, lineage: set[int]) -> None:
    """Marks the versions in `lineage` as superseded unless they are live, and all others as rolled back.

    Only rows that change are updated: a run of a day has tens of thousands of versions.
    """
    table = schema.weight_version
    of_trainer = table.c.trainer == trainer
    rows = connection.execute(select(table.c.version, table.c.status).where(of_trainer)).all()
    for in_lineage, unchanged, new_status in (
        (True, (VersionStatus.LIVE, VersionStatus.SUPERSEDED), VersionStatus.SUPERSEDED),
        (False, (VersionStatus.REJECTED, VersionStatus.ROLLED_BACK), VersionStatus.ROLLED_BACK),
    ):
        changed = [
            row.version
            for row in rows
            if (row.version in lineage) is in_lineage and row.status not in unchanged
        ]
        for numbers in slices(changed):
            changing = update(table).where(of_trainer, table.c.version.in_(numbers))
            connection.execute(changing.values(status=str(new_status)))


def _resettle_samples(connection: Connection, trainer: str, quarantined: str | None = None) -> None:
    """Updates the states of samples after versions changed status.

    A sample is trained if and only if a surviving version trained on it. Other trained samples are ready again, or
    quarantined if `quarantined` is a reason.
    """
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
    trained = (sample.c.state == str(SampleState.TRAINED)) & (sample.c.trainer == trainer)
    as_ready = {"state": str(SampleState.READY), "trainer": None, "rollout_id": None, "trained_version": None}
    if quarantined is not None:
        quarantine(connection, trained & ~survivors.exists(), quarantined)
    connection.execute(update(sample).where(trained, ~survivors.exists()).values(as_ready))
    last = survivors.with_only_columns(func.max(training.c.version)).scalar_subquery()
    rollout = survivors.with_only_columns(training.c.rollout_id).order_by(training.c.version.desc()).limit(1)
    as_trained = {
        "state": str(SampleState.TRAINED),
        "reason": None,
        "trainer": trainer,
        "trained_version": last,
    }
    # quarantined samples too: their version may be live again
    others = (SampleState.READY, SampleState.LEASED, SampleState.QUARANTINED)
    untrained = sample.c.state.in_([str(state) for state in others])
    connection.execute(
        update(sample)
        .where(untrained | trained, survivors.exists())
        .values(as_trained | {"rollout_id": rollout.scalar_subquery()})
    )


def version_from_row(row: RowMapping) -> WeightVersion:
    """Returns the weight version of a row."""
    fields = {name: value for name, value in row.items() if name not in ("id", "status", "details")}
    details = {} if row["details"] is None else unpack_json(row["details"])
    return WeightVersion(**fields, status=VersionStatus(row["status"]), details=details)


def _judged(*columns: Any) -> Select[Any]:
    """Returns a query for these columns of judged main turns from clients."""
    turn, judgement = schema.turn.c, schema.judgement.c
    return select(*columns).where(
        judgement.turn_id == turn.id,
        judgement.kind == "eval",
        turn.state == str(TurnState.JUDGED),
        turn.source == "gateway",
        turn.turn_type == "main",
    )
