"""Samples of rejected or undone updates: excluded from training until they are released or deleted."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, select, update

from openclaw.store import schema
from openclaw.store.database import Database, take_turns
from openclaw.types import DEFAULT_TRAINER, SampleState

DELETED = "quarantine_deleted"
"""Reason of samples that were dropped from the quarantine."""
REJECTED, UNDONE = "rejected", "undone"
"""Why a sample is quarantined: the gate rejected its update, or the update was undone with its turns."""


class QuarantineTable:
    """leased or trained -> quarantined(reason) -> ready, or dropped."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def release(self, version: int | None = None, trainer: str = DEFAULT_TRAINER) -> int:
        """Makes the quarantined samples of a version (None: all of the trainer) ready again. Returns their number."""
        free = {"state": str(SampleState.READY), "reason": None}
        return self._move(free, version, trainer)

    def delete(self, version: int | None = None, trainer: str = DEFAULT_TRAINER) -> int:
        """Drops the same samples, counted as `quarantine_deleted`; their turns stay. Returns their number."""
        dropped: dict[str, str | None] = {"state": str(SampleState.DROPPED), "reason": DELETED}
        return self._move(dropped, version, trainer)

    def counts(self, trainer: str = DEFAULT_TRAINER) -> dict[int, int]:
        """Returns quarantined samples by the last version that they were trained for."""
        sample, training = schema.sample.c, schema.training.c
        query = (
            select(sample.id, training.version)
            .where(training.sample_id == sample.id, training.trainer == trainer)
            .where(sample.state == str(SampleState.QUARANTINED))
            .order_by(training.version)
        )
        with self._database.reading() as connection:
            last = {row.id: row.version for row in connection.execute(query)}
        return {version: list(last.values()).count(version) for version in sorted(set(last.values()))}

    def _move(self, values: dict[str, str | None], version: int | None, trainer: str) -> int:
        sample, training = schema.sample.c, schema.training.c
        trained = select(training.sample_id).where(training.trainer == trainer)
        if version is not None:
            trained = trained.where(training.version == version)
        with self._database.transaction() as connection:
            take_turns(connection)
            which = (sample.state == str(SampleState.QUARANTINED)) & sample.id.in_(trained)
            return connection.execute(update(schema.sample).where(which).values(values)).rowcount


def quarantine(connection: Connection, which: ColumnElement[bool], reason: str) -> None:
    """Takes samples out of training until they are released or deleted."""
    kept = {"state": str(SampleState.QUARANTINED), "reason": reason}
    free = {"trainer": None, "rollout_id": None, "trained_version": None}
    connection.execute(update(schema.sample).where(which).values(kept | free))
