"""Quarantine: samples of rejected or undone updates, excluded from training until they are released or deleted."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, select, update

from openclaw.store import schema
from openclaw.store.database import Database, lock_transaction
from openclaw.types import DEFAULT_TRAINER, SampleState

DELETED = "quarantine_deleted"
"""Drop reason of samples that were deleted from quarantine."""
REJECTED, UNDONE = "rejected", "undone"
"""Reasons for quarantine: the gate rejected the update, or a rollback with `drop_turns` undid it."""


class QuarantineTable:
    """Releases and deletes quarantined samples: leased or trained -> quarantined(reason) -> ready or dropped."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def release(self, version: int | None = None, trainer: str = DEFAULT_TRAINER) -> int:
        """Makes the quarantined samples of a version ready again. Returns their number.

        Args:
            version: None for all versions of the trainer.
        """
        free = {"state": str(SampleState.READY), "reason": None}
        return self._move(free, version, trainer)

    def delete(self, version: int | None = None, trainer: str = DEFAULT_TRAINER) -> int:
        """Drops the quarantined samples of a version with reason `quarantine_deleted`. Returns their number.

        Their turns are not deleted.

        Args:
            version: None for all versions of the trainer.
        """
        dropped: dict[str, str | None] = {"state": str(SampleState.DROPPED), "reason": DELETED}
        return self._move(dropped, version, trainer)

    def counts(self, trainer: str = DEFAULT_TRAINER) -> dict[int, int]:
        """Returns the number of quarantined samples by the last version that trained on them."""
        sample, training = schema.sample.c, schema.training.c
        query = (
            select(sample.id, training.version)
            .where(training.sample_id == sample.id, training.trainer == trainer)
            .where(sample.state == str(SampleState.QUARANTINED))
            .order_by(training.version)
        )
        with self._database.reading() as connection:
            last_version = {row.id: row.version for row in connection.execute(query)}
        versions = list(last_version.values())
        return {version: versions.count(version) for version in sorted(set(versions))}

    def _move(self, values: dict[str, str | None], version: int | None, trainer: str) -> int:
        sample, training = schema.sample.c, schema.training.c
        trained = select(training.sample_id).where(training.trainer == trainer)
        if version is not None:
            trained = trained.where(training.version == version)
        with self._database.transaction() as connection:
            lock_transaction(connection)
            condition = (sample.state == str(SampleState.QUARANTINED)) & sample.id.in_(trained)
            return connection.execute(update(schema.sample).where(condition).values(values)).rowcount


def quarantine(connection: Connection, condition: ColumnElement[bool], reason: str) -> None:
    """Quarantines all samples that match a SQL condition, and clears their lease."""
    state = {"state": str(SampleState.QUARANTINED), "reason": reason}
    no_lease = {"trainer": None, "rollout_id": None, "trained_version": None}
    connection.execute(update(schema.sample).where(condition).values(state | no_lease))
