"""Copies of a SQLite store: backups, and the copy made before a migration."""

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
    """Copies all committed data while others write; only the owner can read the copy. Returns its size in bytes.

    Raises:
        StoreError: the file cannot be written.
    """
    unfinished = file.with_name(file.name + ".part")
    try:
        os.close(new_file(unfinished))
        there, here = sqlite3.connect(source), sqlite3.connect(unfinished)
        try:
            there.backup(here)
        finally:
            there.close()
            here.close()
        unfinished.replace(file)
        return file.stat().st_size
    except (OSError, sqlite3.Error) as error:
        unfinished.unlink(missing_ok=True)
        raise StoreError(f"cannot write {file}: {error}") from error


def backup(folder: Path, file: Path) -> dict[str, int]:
    """Copies a SQLite store while it is in use; only the owner can read the copy. Returns its size.

    Raises:
        StoreError: the file exists already, or cannot be written.
    """
    if file.exists():
        raise StoreError(f"{file} exists already; use a new name")
    return {"bytes": copy(folder / "buffer.db", file)}


def keep_before_migration(connection: Connection, version: int) -> Path | None:
    """Copies the database file into its own folder before a migration from schema `version`; replaces an older copy.

    Returns None if the database is not a file (PostgreSQL has its own backups). Raises StoreError if the disk is full."""
    file = _file_of(connection)
    if file is None:
        return None
    kept = file.with_name(BEFORE_MIGRATION.format(stem=file.stem, version=version))
    copy(file, kept)
    for older in _kept(file):
        if older != kept:
            _wipe(older)
    return kept


def forget(connection: Connection) -> None:
    """Removes the copy made before a migration, which still contains deleted data. Its bytes are overwritten
    first."""
    file = _file_of(connection)
    for kept in _kept(file) if file is not None else ():
        _wipe(kept)


def _file_of(connection: Connection) -> Path | None:
    url = connection.engine.url
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return None
    return Path(str(url.database))


def _kept(file: Path) -> list[Path]:
    return sorted(file.parent.glob(BEFORE_MIGRATION.format(stem=file.stem, version="*")))


def _wipe(file: Path) -> None:
    try:
        left = file.stat().st_size
        with file.open("r+b", buffering=0) as opened:
            while left > 0:
                left -= opened.write(_ZEROS[:left])
        file.unlink()
    except FileNotFoundError:  # another process has deleted it too
        return
    except OSError as error:
        raise StoreError(
            f"cannot delete {file}, a copy of the buffer from before a migration: {error.strerror}"
        ) from error
