"""Schema migrations: new databases get the current schema, older ones are migrated, newer ones are rejected."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlalchemy import Column, Connection, Float, Integer, LargeBinary, String, func, insert, inspect, select

from openclaw.errors import StoreError
from openclaw.store.copies import keep_before_migration
from openclaw.store.schema import (
    SCHEMA_VERSION,
    dream,
    memory,
    metadata,
    picture,
    schema_version,
    token_record,
    turn_picture,
)

if TYPE_CHECKING:
    from alembic.operations import Operations


def _add_judge_attempts(connection: Connection) -> None:
    _operations(connection).add_column(
        "turn", Column("judge_attempts", Integer, nullable=False, server_default="0")
    )


def _add_feedback_and_imports(connection: Connection) -> None:
    operations = _operations(connection)
    operations.add_column("turn", Column("source", String, nullable=False, server_default="gateway"))
    operations.create_index("turn_person", "turn", ["person"])
    operations.create_table(
        "feedback",
        Column("id", Integer, primary_key=True),
        Column("turn_id", String, nullable=False, index=True),
        Column("score", Float),
        Column("text", LargeBinary, nullable=False),
        Column("created_at", Float, nullable=False),
    )


def _add_teachers(connection: Connection) -> None:
    _operations(connection).add_column("sample", Column("teacher", LargeBinary))


def _add_index_of_oldest_sample(connection: Connection) -> None:
    _operations(connection).create_index("sample_oldest", "sample", ["state", "created_at", "id"])


def _add_token_records(connection: Connection) -> None:
    token_record.create(connection)


def _add_version_details(connection: Connection) -> None:
    _operations(connection).add_column("weight_version", Column("details", LargeBinary))


def _add_groups(connection: Connection) -> None:
    operations = _operations(connection)
    operations.add_column("turn", Column("group_id", String))
    operations.add_column("turn", Column("task_id", String))
    operations.create_index("turn_group", "turn", ["group_id"])
    operations.add_column("feedback", Column("scope", String, nullable=False, server_default="turn"))


def _add_memory(connection: Connection) -> None:
    _operations(connection).add_column("turn_body", Column("memory", LargeBinary))
    memory.create(connection)


def _add_dreams(connection: Connection) -> None:
    dream.create(connection)


def _add_key_names(connection: Connection) -> None:
    """Adds `key_name`. It is null in existing rows, because their keys are unknown."""
    for table in ("session", "turn", "memory"):
        columns = {column["name"] for column in inspect(connection).get_columns(table)}
        # `_add_memory` creates the memory table with the current schema
        if "key_name" not in columns:
            _operations(connection).add_column(table, Column("key_name", String))


def _add_pictures(connection: Connection) -> None:
    _operations(connection).add_column("turn_body", Column("pictures", LargeBinary))
    picture.create(connection)
    turn_picture.create(connection)


MIGRATIONS: dict[int, Callable[[Connection], None]] = {
    2: _add_judge_attempts,
    3: _add_feedback_and_imports,
    4: _add_teachers,
    5: _add_index_of_oldest_sample,
    6: _add_token_records,
    7: _add_version_details,
    8: _add_groups,
    9: _add_memory,
    10: _add_dreams,
    11: _add_key_names,
    12: _add_pictures,
}
"""By schema version: the migration from the previous version, as Alembic operations that every database supports."""


def prepare_schema(connection: Connection) -> None:
    """Creates or migrates the tables, in the caller's transaction. A SQLite file is copied before a migration.

    Raises:
        StoreError: the schema is newer than this program, a SQLite file contains triggers or views, or the disk is too
            full for the copy.
    """
    _reject_triggers(connection)
    stored_version = _stored_version(connection)
    if stored_version == SCHEMA_VERSION:
        return
    if stored_version > SCHEMA_VERSION:
        raise StoreError(
            f"the rollout store has schema version {stored_version}, but this program supports only up to"
            f" {SCHEMA_VERSION}: update the program, or use another --rl-buffer-dir"
        )
    if stored_version == 0:
        metadata.create_all(connection)
    else:
        keep_before_migration(connection, stored_version)
    for version in range(stored_version + 1, SCHEMA_VERSION + 1) if stored_version else ():
        MIGRATIONS[version](connection)
    connection.execute(insert(schema_version).values(version=SCHEMA_VERSION, applied_at=time.time()))


def _reject_triggers(connection: Connection) -> None:
    """Raises StoreError if a SQLite file contains triggers or views.

    They run as part of this program's statements. In a file from another person they could keep deleted data, or
    change the owner of turns.
    """
    if connection.dialect.name != "sqlite":
        return
    programs = connection.exec_driver_sql(
        "SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'view')"
    )
    if (first := programs.first()) is not None:
        raise StoreError(
            f"the rollout store contains the {first[0]} {first[1]!r}, which this program never creates: use a database"
            " that you trust"
        )


def _operations(connection: Connection) -> Operations:
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    return Operations(MigrationContext.configure(connection))


def _stored_version(connection: Connection) -> int:
    if not inspect(connection).has_table(schema_version.name):
        return 0
    return int(connection.scalar(select(func.max(schema_version.c.version))) or 0)
