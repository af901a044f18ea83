"""Copies a SQLite store: backups, and the copy made before a schema migration."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from sqlalchemy import Connection

from claw_base.files import new_file
from openclaw.errors import StoreError

BEFORE_MIGRATION = "{stem}-of-schema-{version}.db"
_ZEROS = bytes(1 << 20)


def copy(source: Path, file: Path) -> int:
    """Copies all committed data, also while other processes write. Returns the size of the copy in bytes.

    Only the owner can read the copy. Raises StoreError if `file` cannot be written.
    """
    unfinished = file.with_name(file.name + ".part")
    try:
        os.close(new_file(unfinished))
        from_database, to_database = sqlite3.connect(source), sqlite3.connect(unfinished)
        try:
            from_database.backup(to_database)
        finally:
            from_database.close()
            to_database.close()
        unfinished.replace(file)
        return file.stat().st_size
    except (OSError, sqlite3.Error) as error:
        unfinished.unlink(missing_ok=True)
        raise StoreError(f"cannot write {file}: {error}") from error


def backup(folder: Path, file: Path) -> dict[str, int]:
    """Copies the store in `folder` to a new file, also while it is in use. Returns {"bytes": size of the copy}.

    Only the owner can read the copy.

    Raises:
        StoreError: the file already exists, or cannot be written.
    """
    if file.exists():
        raise StoreError(f"{file} already exists; choose another file name")
    return {"bytes": copy(folder / "buffer.db", file)}


def keep_before_migration(connection: Connection, version: int) -> Path | None:
    """Copies the database file next to itself before a migration from schema `version`. Returns the copy's path.

    An older copy is deleted. Returns None without a copy if the database is not a file: PostgreSQL has its own
    backups. Raises StoreError if the disk is full.
    """
    file = _file_of(connection)
    if file is None:
        return None
    new_copy = file.with_name(BEFORE_MIGRATION.format(stem=file.stem, version=version))
    copy(file, new_copy)
    for old_copy in _copies_of(file):
        if old_copy != new_copy:
            _wipe(old_copy)
    return new_copy


def forget(connection: Connection) -> None:
    """Overwrites and deletes the copies made before migrations, which may still contain deleted data."""
    file = _file_of(connection)
    for old_copy in _copies_of(file) if file is not None else ():
        _wipe(old_copy)


def _file_of(connection: Connection) -> Path | None:
    url = connection.engine.url
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return None
    return Path(str(url.database))


def _copies_of(file: Path) -> list[Path]:
    return sorted(file.parent.glob(BEFORE_MIGRATION.format(stem=file.stem, version="*")))


def _wipe(file: Path) -> None:
    try:
        remaining = file.stat().st_size
        with file.open("r+b", buffering=0) as opened:
            while remaining > 0:
                remaining -= opened.write(_ZEROS[:remaining])
        file.unlink()
    except FileNotFoundError:  # another process has deleted it too
        return
    except OSError as error:
        raise StoreError(
            f"cannot delete {file}, the copy of the buffer made before a migration: {error.strerror}"
        ) from error
