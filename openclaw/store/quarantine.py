"""Samples of updates that were rejected or undone: kept apart until somebody releases or deletes them."""

from __future__ import annotations

import time

from sqlalchemy import ColumnElement, Connection, insert, select, update

from openclaw.errors import StoreError
from openclaw.store import schema
from openclaw.store.database import Database, take_turns
from openclaw.store.rows import pack_json
from openclaw.types import DEFAULT_TRAINER, Json, SampleState, VersionStatus

DELETED = "quarantine_deleted"
"""Why a sample is dropped that was deleted from the quarantine."""
REJECTED, UNDONE = "rejected", "undone"
"""Why a sample is in quarantine: the gate rejected its update, or the update was undone with its turns."""


class QuarantineTable(Database):
    """leased or trained -> quarantined(reason) -> ready, or dropped."""

    def weights_rejected(
        self,
        rollout_id: int,
        version: int,
        parent: int | None,
        checksum: str | None,
        details: dict[str, Json],
        trainer: str = DEFAULT_TRAINER,
    ) -> int:
        """The update of `rollout_id` never goes live: its version is recorded with `details` (reason, stage,
        measurements), its samples are quarantined, in one transaction. Repeating it changes nothing.

        Returns:
            How many samples.

        Raises:
            StoreError: the number belongs to a version that went live.
        """
        table, sample, now = schema.weight_version, schema.sample.c, time.time()
        with self.transaction() as connection:
            take_turns(connection)
            mine = (table.c.trainer == trainer) & (table.c.version == version)
            status = connection.scalar(select(table.c.status).where(mine))
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

    def release_quarantine(self, version: int | None = None, trainer: str = DEFAULT_TRAINER) -> int:
        """Quarantined samples of a version (None: all of the trainer) are ready again. Returns how many."""
        free = {"state": str(SampleState.READY), "reason": None}
        return self._move(free, version, trainer)

    def delete_quarantine(self, version: int | None = None, trainer: str = DEFAULT_TRAINER) -> int:
        """The same samples are dropped, counted as `quarantine_deleted`; their turns stay. Returns how many."""
        dropped: dict[str, str | None] = {"state": str(SampleState.DROPPED), "reason": DELETED}
        return self._move(dropped, version, trainer)

    def quarantined(self, trainer: str = DEFAULT_TRAINER) -> dict[int, int]:
        """Quarantined samples by the last version that they were trained for."""
        sample, training = schema.sample.c, schema.training.c
        query = (
            select(sample.id, training.version)
            .where(training.sample_id == sample.id, training.trainer == trainer)
            .where(sample.state == str(SampleState.QUARANTINED))
            .order_by(training.version)
        )
        with self.reading() as connection:
            last = {row.id: row.version for row in connection.execute(query)}
        return {version: list(last.values()).count(version) for version in sorted(set(last.values()))}

    def _move(self, values: dict[str, str | None], version: int | None, trainer: str) -> int:
        sample, training = schema.sample.c, schema.training.c
        trained = select(training.sample_id).where(training.trainer == trainer)
        if version is not None:
            trained = trained.where(training.version == version)
        with self.transaction() as connection:
            take_turns(connection)
            which = (sample.state == str(SampleState.QUARANTINED)) & sample.id.in_(trained)
            return connection.execute(update(schema.sample).where(which).values(values)).rowcount


def quarantine(connection: Connection, which: ColumnElement[bool], reason: str) -> None:
    """Takes samples out of training until they are released or deleted."""
    kept = {"state": str(SampleState.QUARANTINED), "reason": reason}
    free = {"trainer": None, "rollout_id": None, "trained_version": None}
    connection.execute(update(schema.sample).where(which).values(kept | free))
