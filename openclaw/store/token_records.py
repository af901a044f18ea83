"""Table of token records: values of a training step for every token of a sample.

A record contains advantages, log-probs and the effect of hints, but no text. The page shows them to explain what a
version learned. A record is deleted with its sample, or when it is older than the `MOST_SAMPLES` newest samples.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy import delete, func, insert, select

from claw_base.run_folder.token_record_files import all_files
from openclaw.store import schema
from openclaw.store.database import Database, slices
from openclaw.store.rows import pack_json, unpack_json

log = logging.getLogger(__name__)

MOST_SAMPLES = 20_000
"""Number of newest samples whose records are kept."""


class TokenRecordTable:
    """Token records, one per sample, from the last step that trained on it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def keep(self, records: Iterable[dict[str, Any]]) -> int:
        """Stores records `{"sample", "turn_id", "rollout_id", "version", ...}`. Returns the number of stored records.

        A record is ignored unless its sample exists and belongs to that turn.
        """
        sample, table = schema.sample.c, schema.token_record
        by_sample = {int(one["sample"]): one for one in records if isinstance(one.get("sample"), int)}
        now = time.time()
        with self._database.transaction() as connection:
            valid_ids = []
            for ids in slices(list(by_sample)):
                samples = connection.execute(select(sample.id, sample.turn_id).where(sample.id.in_(ids)))
                valid_ids += [row.id for row in samples if by_sample[row.id].get("turn_id") == row.turn_id]
            for ids in slices(valid_ids):
                connection.execute(delete(table).where(table.c.sample_id.in_(ids)))
            if valid_ids:
                packed = [
                    {"sample_id": id_, "data": pack_json(_without_id(by_sample[id_])), "created_at": now}
                    for id_ in valid_ids
                ]
                connection.execute(insert(table), packed)
                newest = connection.scalar(select(func.max(table.c.sample_id))) or 0
                connection.execute(delete(table).where(table.c.sample_id <= newest - MOST_SAMPLES))
        return len(valid_ids)

    def of_turn(self, turn_id: str) -> dict[str, Any] | None:
        """Returns the record of a turn's sample; None if the sample was not trained on, or its record was deleted."""
        table, sample = schema.token_record.c, schema.sample.c
        query = select(table.data).join_from(schema.token_record, schema.sample, table.sample_id == sample.id)
        with self._database.reading() as connection:
            data = connection.scalar(query.where(sample.turn_id == turn_id))
        return None if data is None else dict(unpack_json(data))

    def take(self, run_dir: Path) -> int:
        """Moves the trainer's record files from the run folder into the store. Returns the number of stored records.

        Unreadable files are deleted.
        """
        count = 0
        for path in all_files(run_dir):
            try:
                records = [orjson.loads(line) for line in path.read_bytes().splitlines()]
                count += self.keep(one for one in records if isinstance(one, dict))
            except (OSError, orjson.JSONDecodeError) as error:
                log.warning("cannot read the token records in %s, deleting the file: %s", path.name, error)
            path.unlink(missing_ok=True)
        return count


def _without_id(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "sample"}
