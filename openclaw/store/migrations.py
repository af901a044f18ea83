"""Schema versions: a new database gets the current schema, an older one is migrated, a newer one is rejected."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlalchemy import Column, Connection, Float, Integer, LargeBinary, String, func, insert, inspect, select

from openclaw.errors import StoreError
from openclaw.store.copies import keep_before_migration
from openclaw.store.schema import SCHEMA_VERSION, dream, memory, metadata, schema_version, token_record

if TYPE_CHECKING:
    from alembic.operations import Operations


def _count_judge_attempts(connection: Connection) -> None:
    _operations(connection).add_column(
        "turn", Column("judge_attempts", Integer, nullable=False, server_default="0")
    )


def _take_feedback_and_imports(connection: Connection) -> None:
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


def _keep_teachers(connection: Connection) -> None:
    _operations(connection).add_column("sample", Column("teacher", LargeBinary))


def _find_the_oldest_sample(connection: Connection) -> None:
    _operations(connection).create_index("sample_oldest", "sample", ["state", "created_at", "id"])


def _keep_token_records(connection: Connection) -> None:
    token_record.create(connection)


def _keep_measurements(connection: Connection) -> None:
    _operations(connection).add_column("weight_version", Column("details", LargeBinary))


def _group_turns(connection: Connection) -> None:
    operations = _operations(connection)
    operations.add_column("turn", Column("group_id", String))
    operations.add_column("turn", Column("task_id", String))
    operations.create_index("turn_group", "turn", ["group_id"])
    operations.add_column("feedback", Column("scope", String, nullable=False, server_default="turn"))


def _remember_wishes(connection: Connection) -> None:
    _operations(connection).add_column("turn_body", Column("memory", LargeBinary))
    memory.create(connection)


def _keep_dreams(connection: Connection) -> None:
    dream.create(connection)


def _name_keys(connection: Connection) -> None:
    """Adds the column; existing rows keep null, because their keys are unknown."""
    for table in ("session", "turn", "memory"):
        known = {column["name"] for column in inspect(connection).get_columns(table)}
        # `_remember_wishes` creates the memory table with the current schema
        if "key_name" not in known:
            _operations(connection).add_column(table, Column("key_name", String))


MIGRATIONS: dict[int, Callable[[Connection], None]] = {
    2: _count_judge_attempts,
    3: _take_feedback_and_imports,
    4: _keep_teachers,
    5: _find_the_oldest_sample,
    6: _keep_token_records,
    7: _keep_measurements,
    8: _group_turns,
    9: _remember_wishes,
    10: _keep_dreams,
    11: _name_keys,
}
"""By version: migration from the version before, in Alembic operations (the same for every database)."""


def prepare_schema(connection: Connection) -> None:
    """Creates or migrates the tables, within the caller's transaction; copies the file before a migration. Raises
    StoreError for a newer schema, for a file with code of another person, or if there is no room for the copy."""
    _refuse_programs(connection)
    stored_version = _found_version(connection)
    if stored_version == SCHEMA_VERSION:
        return
    if stored_version > SCHEMA_VERSION:
        raise StoreError(
            f"the rollout store has schema version {stored_version}, this program supports up to {SCHEMA_VERSION}:"
            " use a newer program or another --rl-buffer-dir"
        )
    if stored_version == 0:
        metadata.create_all(connection)
    else:
        keep_before_migration(connection, stored_version)
    for version in range(stored_version + 1, SCHEMA_VERSION + 1) if stored_version else ():
        MIGRATIONS[version](connection)
    connection.execute(insert(schema_version).values(version=SCHEMA_VERSION, applied_at=time.time()))


def _refuse_programs(connection: Connection) -> None:
    """Raises StoreError if a SQLite file contains triggers or views. They run with our own statements, so those in a
    file of another person could keep what is deleted, or change the owner of turns."""
    if connection.dialect.name != "sqlite":
        return
    programs = connection.exec_driver_sql(
        "SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'view')"
    )
    if (first := programs.first()) is not None:
        raise StoreError(
            f"the rollout store contains the {first[0]} {first[1]!r}, which this program never creates: use a store that "
            "you trust"
        )


def _operations(connection: Connection) -> Operations:
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    return Operations(MigrationContext.configure(connection))


def _found_version(connection: Connection) -> int:
    if not inspect(connection).has_table(schema_version.name):
        return 0
    return int(connection.scalar(select(func.max(schema_version.c.version))) or 0)
