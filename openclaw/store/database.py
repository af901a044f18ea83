"""One database, opened by many processes: connections, short write transactions, the schema check.

SQLite: WAL, `BEGIN IMMEDIATE` for writes, a busy timeout, `synchronous` NORMAL (survives kill -9) or FULL
(survives power loss). Any other SQLAlchemy URL is taken as it is.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from openclaw.errors import StoreError
from openclaw.store.migrations import prepare_schema

BUSY_TIMEOUT_SECONDS = 30.0


class Database:
    """Connections to the store. Thread-safe: each thread that writes has its own open transaction."""

    def __init__(self, location: str | Path, durable: bool = False) -> None:
        """location: a folder (made when missing; the file is `buffer.db` in it) or a database URL. Raises
        StoreError."""
        self.url = database_url(location)
        self._engine = _engine(self.url, durable)
        self._local = threading.local()
        with self.transaction() as connection:
            prepare_schema(connection)

    def close(self) -> None:
        """Close every connection. The store cannot be used by an open transaction afterwards."""
        self._engine.dispose()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A write transaction. Inside another one of the same thread it joins that one. Raises StoreError."""
        current: Connection | None = getattr(self._local, "connection", None)
        if current is not None:
            with _as_store_error(self.url):
                yield current
            return
        with _as_store_error(self.url), self._engine.connect() as connection:
            connection = connection.execution_options(openclaw_write=True)
            with connection.begin():
                self._local.connection = connection
                try:
                    yield connection
                finally:
                    self._local.connection = None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A consistent view for reads; never waits for a writer. Inside a transaction it sees that
        transaction."""
        current: Connection | None = getattr(self._local, "connection", None)
        if current is not None:
            with _as_store_error(self.url):
                yield current
            return
        with _as_store_error(self.url), self._engine.connect() as connection:
            yield connection


def database_url(location: str | Path) -> str:
    """The SQLAlchemy URL of a folder or URL. Raises StoreError when the folder cannot be made."""
    text = str(location)
    if "://" in text:
        return text
    folder = Path(text).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make the rollout buffer folder {folder}: {error.strerror}") from error
    return f"sqlite:///{folder / 'buffer.db'}"


def _engine(url: str, durable: bool) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() != "sqlite":
            return create_engine(parsed, pool_pre_ping=True)
        engine = create_engine(
            parsed, connect_args={"timeout": BUSY_TIMEOUT_SECONDS, "check_same_thread": False}
        )
    except (ArgumentError, ImportError) as error:
        raise StoreError(f"cannot use the rollout buffer URL: {error}") from error
    event.listen(engine, "connect", _sqlite_pragmas(durable))
    event.listen(engine, "begin", _sqlite_begin)
    return engine


def _sqlite_pragmas(durable: bool) -> Any:
    def on_connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the driver begins nothing by itself: _sqlite_begin does
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_SECONDS * 1000)}")
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        cursor.close()

    return on_connect


def _sqlite_begin(connection: Connection) -> None:
    write = connection.get_execution_options().get("openclaw_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


@contextmanager
def _as_store_error(url: str) -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        raise StoreError(
            f"rollout store {make_url(url).render_as_string(hide_password=True)}: {cause}"
        ) from error
