"""One database, opened by many processes: connections, short write transactions, the schema check, what a failure means.

SQLite: WAL, `BEGIN IMMEDIATE` for writes, `synchronous` NORMAL (survives kill -9) or FULL (survives power loss). Every
connection keeps up to 2 MiB of pages for itself, so the one used last is used next: connections that only a rush needed
stay small. PostgreSQL: row locks, and one lock a store for what must not overlap; reads see one snapshot; `durable`
insists on `synchronous_commit`, otherwise the server's own setting holds.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from openclaw.errors import StoreAway, StoreError, StoreUnavailable
from openclaw.store.migrations import prepare_schema

T = TypeVar("T")

CONNECT_TIMEOUT_SECONDS = 10
SLICE = 500
"""Values in one statement: databases allow some 30,000."""
_LOCK_KEY = 0x6F636C61
"""Of PostgreSQL's advisory lock: any number will do, as long as every process takes the same."""
BUSY_TIMEOUT_SECONDS = 30.0
"""How long a write waits for another one's lock before it fails."""

_BUSY = "another process held the write lock for more than {seconds:g} s: look for one that hangs; try again"
_FULL = "nothing of this write was stored: free space on that disk; serving may go on"
_READ_ONLY = "this user may not write there: give the buffer a writable folder or file"
_DOWN = "check that the server runs and that host, port, user and database of the URL are right"
_ADVICE: tuple[tuple[str, str], ...] = (
    ("database is locked", _BUSY),
    ("lock timeout", _BUSY),
    ("deadlock detected", "two writers waited for each other and this one was undone: try again"),
    ("disk is full", _FULL),
    ("No space left on device", _FULL),
    ("readonly database", _READ_ONLY),
    ("read-only", _READ_ONLY),
    ("unable to open database file", "the folder of the buffer is missing, or this user may not use it"),
    ("disk I/O error", "the disk failed, or the file was removed: look at the system's log"),
    ("malformed", "the file is damaged: restore a copy, or export what `python -m openclaw.store` can read"),
    ("not a database", "choose another --rl-buffer-dir"),
    ("connection is bad", _DOWN),
    ("connection failed", _DOWN),
    ("server closed the connection", _DOWN),
    ("terminating connection", _DOWN),
)
"""Part of a driver's message -> what to do."""


class Database:
    """Connections to the store. Thread-safe: each thread that writes has its own open transaction."""

    def __init__(self, location: str | Path, durable: bool = False) -> None:
        """location: a folder (made when missing; the file is `buffer.db` in it) or a database URL. Raises
        StoreError."""
        self.url = database_url(location)
        self.engine = _engine(self.url, durable)
        self._local = threading.local()
        with self.transaction() as connection:
            take_turns(connection)
            prepare_schema(connection)

    def close(self) -> None:
        """Close every connection. The store cannot be used by an open transaction afterwards."""
        self.engine.dispose()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A write transaction. Inside another one of the same thread it joins that one. Raises StoreError."""
        current: Connection | None = getattr(self._local, "connection", None)
        if current is not None:
            with as_store_error(self.url):
                yield current
            return
        with as_store_error(self.url), self.engine.connect() as connection:
            connection = connection.execution_options(openclaw_write=True)
            with connection.begin():
                self._local.connection = connection
                try:
                    yield connection
                finally:
                    self._local.connection = None
        if self._local.__dict__.pop("wipe_log", False):
            self._truncate_log()

    def wipe_log(self) -> None:
        """Take what this transaction deletes out of SQLite's write-ahead log too, once it is committed."""
        self._local.wipe_log = True

    def _truncate_log(self) -> None:
        if self.engine.dialect.name != "sqlite":
            return
        with as_store_error(self.url):
            connection = self.engine.raw_connection()
            try:  # during a read this does nothing; the next checkpoint of the log wipes it
                connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
            finally:
                connection.close()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A consistent view for reads; never waits for a writer. Inside a transaction it sees that
        transaction."""
        current: Connection | None = getattr(self._local, "connection", None)
        if current is not None:
            with as_store_error(self.url):
                yield current
            return
        with as_store_error(self.url), self.engine.connect() as connection:
            if connection.dialect.name == "postgresql":
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection


def take_turns(connection: Connection) -> None:
    """Until this transaction ends, no other one of any process is behind this line. On SQLite no two write
    transactions ever overlap; PostgreSQL needs a lock for it."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK_KEY})")


def slices(values: list[T]) -> Iterator[list[T]]:
    """Parts of a list of which each is short enough for the variables of one statement."""
    return (values[start : start + SLICE] for start in range(0, len(values), SLICE))


def database_url(location: str | Path) -> str:
    """The SQLAlchemy URL of a folder or URL. Raises StoreError when the folder cannot be made."""
    text = str(location)
    if "://" in text:
        return text
    folder = Path(text).expanduser().absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # a new one is for this user alone
    except OSError as error:
        raise StoreError(f"cannot make the rollout buffer folder {folder}: {error.strerror}") from error
    return f"sqlite:///{folder / 'buffer.db'}"


def _engine(url: str, durable: bool) -> Engine:
    try:
        parsed = make_url(url)
        kind = parsed.get_backend_name()
        if kind == "postgresql":
            engine = create_engine(
                parsed, pool_pre_ping=True, connect_args={"connect_timeout": CONNECT_TIMEOUT_SECONDS}
            )
            event.listen(engine, "connect", _postgresql_settings(durable))
            return engine
        if kind != "sqlite":
            raise StoreError(
                f"the rollout buffer cannot be a {kind} database: use sqlite or postgresql+psycopg"
            )
        waits = {"timeout": BUSY_TIMEOUT_SECONDS, "check_same_thread": False}
        engine = create_engine(parsed, connect_args=waits, pool_use_lifo=True)
    except (ArgumentError, ImportError) as error:
        raise StoreError(f"cannot use the rollout buffer URL: {error}") from error
    event.listen(engine, "connect", _sqlite_settings(durable))
    event.listen(engine, "begin", _sqlite_begin)
    return engine


def _sqlite_settings(durable: bool) -> Any:
    def on_connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the driver begins nothing by itself: _sqlite_begin does
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_SECONDS * 1000)}")
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA secure_delete = ON")
        cursor.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        cursor.close()

    return on_connect


def _postgresql_settings(durable: bool) -> Any:
    def on_connect(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        cursor.execute(f"SET lock_timeout = {int(BUSY_TIMEOUT_SECONDS * 1000)}")
        if durable:
            cursor.execute("SET synchronous_commit = on")
        cursor.close()
        connection.commit()

    return on_connect


def _sqlite_begin(connection: Connection) -> None:
    write = connection.get_execution_options().get("openclaw_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def shown(location: str) -> str:
    """A folder or URL as it may be printed: without its password."""
    return make_url(location).render_as_string(hide_password=True) if "://" in location else location


@contextmanager
def as_store_error(url: str) -> Iterator[None]:
    """Database errors leave as StoreUnavailable, those of a server that is away as StoreAway: the database (no
    password), the driver's words, what to do."""
    try:
        yield
    except SQLAlchemyError as error:
        cause = str(getattr(error, "orig", None) or error).strip()
        advice = _advice(cause)
        kind = StoreAway if advice == _DOWN else StoreUnavailable
        raise kind(f"rollout store {shown(url)}: {cause}{advice and '; ' + advice}") from error
    except UnicodeEncodeError as error:
        raise StoreError(f"a text that is no valid Unicode cannot be stored: {error.reason}") from error


def _advice(cause: str) -> str:
    for words, advice in _ADVICE:
        if words in cause:
            return advice.format(seconds=BUSY_TIMEOUT_SECONDS)
    return ""
