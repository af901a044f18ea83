"""Connections to the database, which many processes share: transactions, schema check, writer thread.

SQLite: WAL mode, and `BEGIN IMMEDIATE` for writes. `synchronous` is NORMAL (commits survive kill -9), or FULL if
`durable` is set (commits survive power loss). Each connection caches up to 2 MiB of pages. The pool reuses the most
recently used connection, so that connections opened for a burst stay small.

PostgreSQL: row locks, and one advisory lock per store for exclusive operations. Reads see one snapshot. `durable` sets
`synchronous_commit = on`; otherwise the server's setting applies.

Each process has one writer thread. Writes that are queued while a transaction runs share the next transaction.
"""

from __future__ import annotations

import asyncio
import functools
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Insert, RowMapping, Select, Update, create_engine, event
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from openclaw.errors import StoreAway, StoreError, StoreUnavailable
from openclaw.store.migrations import prepare_schema

T = TypeVar("T")

CONNECT_TIMEOUT_SECONDS = 10
SLICE = 500
"""Values per statement; databases allow about 30,000."""
_LOCK_KEY = 0x6F636C61
"""Key of PostgreSQL's advisory lock: an arbitrary number, the same in all processes."""
LARGEST_REWRITTEN_BYTES = 1 << 30
"""Largest SQLite file that is rewritten while in use; other writers wait meanwhile."""
BUSY_TIMEOUT_SECONDS = 30.0
"""Longest wait for a write lock."""

_BUSY = "another process held the write lock for more than {seconds:g} s: look for a process that hangs, then try again"
_FULL = "the write was rolled back: free space on the disk of the buffer"
_READ_ONLY = "this user may not write there: make the folder and the file of the buffer writable"
_DOWN = "check that the server runs, and check host, port, user and database in the URL"
_ADVICE: tuple[tuple[str, str], ...] = (
    ("database is locked", _BUSY),
    ("lock timeout", _BUSY),
    ("deadlock detected", "this transaction was rolled back: try again"),
    ("disk is full", _FULL),
    ("No space left on device", _FULL),
    ("readonly database", _READ_ONLY),
    ("read-only", _READ_ONLY),
    (
        "unable to open database file",
        "the folder of the buffer does not exist, or this user has no permission to use it",
    ),
    ("disk I/O error", "the disk failed, or the file was deleted: read the system log"),
    (
        "malformed",
        "the file is damaged: restore a backup, or export the readable part with `python -m openclaw.store export`",
    ),
    ("not a database", "restore a backup, or choose another --rl-buffer-dir"),
    ("connection is bad", _DOWN),
    ("connection failed", _DOWN),
    ("server closed the connection", _DOWN),
    ("terminating connection", _DOWN),
)
"""Substrings of the drivers' error messages, and what to do about each."""


class Database:
    """Connections to the store. Thread-safe: each writing thread has its own open transaction."""

    def __init__(self, location: str | Path, durable: bool = False) -> None:
        """Opens the database, and creates or migrates its tables.

        Args:
            location: folder of `buffer.db`, created if missing, or a database URL.
            durable: whether commits survive power loss.

        Raises:
            StoreError: the database cannot be used.
        """
        self.url = database_url(location)
        self.engine = _engine(self.url, durable)
        self._writing = self.engine.execution_options(openclaw_write=True)
        self._local = threading.local()
        with self.transaction() as connection:
            lock_transaction(connection)
            prepare_schema(connection)

    def close(self) -> None:
        """Closes all connections. The database cannot be used afterwards."""
        self.engine.dispose()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Opens a write transaction, or joins the one that this thread has open. Raises StoreError."""
        current: Connection | None = getattr(self._local, "connection", None)
        if current is not None:
            with as_store_error(self.url):
                yield current
            return
        with as_store_error(self.url), self._writing.connect() as connection, connection.begin():
            self._local.connection = connection
            try:
                yield connection
            finally:
                self._local.connection = None
        pages = self._local.__dict__.pop("wipe_pages", False)
        if self._local.__dict__.pop("wipe_log", False) or pages:
            self._wipe(pages)

    def wipe_log(self) -> None:
        """Makes the current transaction empty SQLite's write-ahead log after its commit, so that deleted data is not
        left in it."""
        self._local.wipe_log = True

    def wipe_pages(self) -> None:
        """Does the same as `wipe_log`, and rewrites the file, unless it is larger than `LARGEST_REWRITTEN_BYTES`.

        SQLite overwrites a deleted row with zeros, but not copies of it in unused parts of pages. Other writes wait
        meanwhile.
        """
        self._local.wipe_pages = True

    def _wipe(self, pages: bool) -> None:
        if self.engine.dialect.name != "sqlite":
            return
        with as_store_error(self.url):
            connection = self.engine.raw_connection()
            try:
                cursor = connection.cursor()
                file = self.engine.url.database
                if pages and file and Path(file).stat().st_size <= LARGEST_REWRITTEN_BYTES:
                    cursor.execute("VACUUM")
                # if a read takes longer than the time-out, the log is emptied at the next checkpoint
                cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                cursor.close()
            finally:
                connection.close()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Opens a consistent snapshot for reads, or joins the transaction that this thread has open. Does not wait for
        writers."""
        current: Connection | None = getattr(self._local, "connection", None)
        if current is not None:
            with as_store_error(self.url):
                yield current
            return
        with as_store_error(self.url), self.engine.connect() as connection:
            if connection.dialect.name == "postgresql":
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection


def lock_transaction(connection: Connection) -> None:
    """Takes an exclusive lock for the rest of this transaction. SQLite needs none: it runs one write transaction at a
    time."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK_KEY})")


def slices(values: list[T]) -> Iterator[list[T]]:
    """Yields consecutive parts of a list, each of at most `SLICE` values."""
    return (values[start : start + SLICE] for start in range(0, len(values), SLICE))


def database_url(location: str | Path) -> str:
    """Returns the SQLAlchemy URL of a folder or URL. Raises StoreError if the folder cannot be created."""
    text = str(location)
    if "://" in text:
        return text
    folder = Path(text).expanduser().absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # a new folder is private to this user
    except OSError as error:
        raise StoreError(f"cannot create the rollout buffer folder {folder}: {error.strerror}") from error
    file = folder / "buffer.db"
    with suppress(OSError):  # it exists, or the connection reports the error
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # SQLite itself would use 644
    return f"sqlite:///{file}"


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
                f"--rl-buffer-url: unsupported database {kind}: use sqlite or postgresql+psycopg"
            )
        waits = {"timeout": BUSY_TIMEOUT_SECONDS, "check_same_thread": False}
        engine = create_engine(parsed, connect_args=waits, pool_use_lifo=True)
    except (ArgumentError, ImportError) as error:
        raise StoreError(f"--rl-buffer-url: cannot open the database: {error}") from error
    event.listen(engine, "connect", _sqlite_settings(durable))
    event.listen(engine, "begin", _sqlite_begin)
    return engine


def _sqlite_settings(durable: bool) -> Any:
    def on_connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = (
            None  # disables the driver's implicit transactions; _sqlite_begin starts them
        )
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
    """Returns a folder or URL for messages, without its password."""
    return make_url(location).render_as_string(hide_password=True) if "://" in location else location


@contextmanager
def as_store_error(url: str) -> Iterator[None]:
    """Converts database errors to StoreUnavailable, or to StoreAway if the server is unreachable.

    The message contains the database without password, the driver's message, and what to do.
    """
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error) as error:
        cause = str(getattr(error, "orig", None) or error).strip()
        advice = _advice(cause)
        kind = StoreAway if advice == _DOWN else StoreUnavailable
        failed = kind(f"rollout store {shown(url)}: {cause}{advice and '; ' + advice}")
        failed.remedy = advice
        raise failed from error
    except UnicodeEncodeError as error:
        raise StoreError(f"cannot store a text that is not valid Unicode: {error.reason}") from error


def _advice(cause: str) -> str:
    for substring, advice in _ADVICE:
        if substring in cause:
            return advice.format(seconds=BUSY_TIMEOUT_SECONDS)
    return ""


MAX_GROUP = 256
"""Most functions that run in one transaction."""
MAX_PENDING = 4096
"""Most pending functions of one process."""
MAX_WAIT_SECONDS = 30.0
"""Longest time that a caller waits for room in the queue."""


class Prepared:
    """A SQL statement that runs for every answer, and its compiled forms, one for each set of parameter names.

    SQLAlchemy spends more time on a statement than SQLite does. On SQLite, the compiled statement runs directly on the
    driver's connection, inside SQLAlchemy's transaction. On PostgreSQL it runs through SQLAlchemy, which detects broken
    connections. Parameters must not need type conversion: only str, int, float, bytes and None.
    """

    def __init__(self, statement: Select[Any] | Insert | Update) -> None:
        self._statement = statement
        self._compiled: dict[tuple[str, ...], tuple[str, dict[str, Any]]] = {}

    def run(self, connection: Connection, values: Mapping[str, Any]) -> int:
        """Executes the statement. Returns the number of changed rows."""
        return int(self._cursor(connection, values).rowcount)

    def value(self, connection: Connection, values: Mapping[str, Any]) -> Any:
        """Executes the query. Returns the first column of the first row, or None without rows."""
        row = self._cursor(connection, values).fetchone()
        return None if row is None else row[0]

    def rows(
        self, connection: Connection, values: Mapping[str, Any]
    ) -> Iterator[RowMapping | Mapping[str, Any]]:
        """Executes the query. Yields each row as a mapping from column name to value."""
        cursor = self._cursor(connection, values)
        if connection.dialect.name != "sqlite":
            yield from cursor.mappings()
            return
        names = [column[0] for column in cursor.description]
        for row in cursor:
            yield dict(zip(names, row, strict=True))

    def _cursor(self, connection: Connection, values: Mapping[str, Any]) -> Any:
        if connection.dialect.name != "sqlite":
            return connection.execute(self._statement, values)
        if not connection.in_transaction():
            connection.begin()
        text, constants = self._for_sqlite(tuple(values))
        driver: Any = connection.connection.driver_connection
        return driver.execute(text, {**constants, **values})

    def _for_sqlite(self, names: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
        """Returns the SQL text with named parameters, and the values of the constants in the statement."""
        if names not in self._compiled:
            compiled = self._statement.compile(dialect=_SQLITE, column_keys=list(names))
            constants = {name: value for name, value in compiled.params.items() if name not in names}
            self._compiled[names] = str(compiled), constants
        return self._compiled[names]


_SQLITE = sqlite.dialect(paramstyle="named")
"""Statements compiled once equal those of SQLAlchemy."""


@dataclass(frozen=True)
class _Job:
    """A queued function. The writer thread calls `finish` with its result and None, or with None and the error."""

    function: Callable[[], Any]
    finish: Callable[[Any, Exception | None], None]


class StoreWriter:
    """Runs functions that write to the store in one thread, several in each transaction (group commit).

    Example: `turn = await writer.submit(lambda: store.turns.record(new_turn))`.

    A function must only call the store. If one function of a group fails, the group is rolled back and each function
    runs again in its own transaction, so that an exception affects only its caller. If a caller is cancelled, its
    function still runs.

    Backpressure: if `max_pending` functions are pending, `submit` waits up to `max_wait` seconds for room, and then
    raises StoreUnavailable.
    """

    def __init__(
        self, database: Database, max_pending: int = MAX_PENDING, max_wait: float = MAX_WAIT_SECONDS
    ) -> None:
        self._database = database
        self._max_pending = max_pending
        self._max_wait = max_wait
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._room = asyncio.Semaphore(max_pending)
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._write, name="store-writer", daemon=True)
        self._thread.start()

    async def submit(self, function: Callable[[], T]) -> T:
        """Runs a function and returns its result after the commit.

        Raises StoreUnavailable if the database cannot commit, the queue stays full, or the writer is closed.
        Exceptions of the function are raised too.
        """
        try:
            # creating a time-out is as slow as the rest of this function, and most calls do not wait
            async with asyncio.timeout(self._max_wait) if self._room.locked() else nullcontext():
                await self._room.acquire()
        except TimeoutError as error:
            raise StoreUnavailable(
                f"the rollout store has {self._max_pending} pending writes and completed none in"
                f" {self._max_wait:g} s: check its disk or server, then try again"
            ) from error
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def finish(result: T, error: Exception | None) -> None:
            with suppress(RuntimeError):  # the event loop was closed
                loop.call_soon_threadsafe(_settle, done, result, error)

        try:
            self._put(_Job(function, finish))
            return await done
        finally:
            self._room.release()

    def run(self, function: Callable[[], T]) -> T:
        """Does the same as `submit` for a thread without event loop: blocks until the commit."""
        done: Future[T] = Future()
        self._put(_Job(function, functools.partial(_settle, done)))
        return done.result()

    def close(self) -> None:
        """Commits queued writes, then ends the thread. Can be called again."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _put(self, job: _Job) -> None:
        with self._lock:
            if self._closed:
                raise StoreUnavailable("the store writer is closed")
            self._queue.put(job)

    def _write(self) -> None:
        last = False
        while not last:
            first = self._queue.get()
            if first is None:
                return
            group, last = self._group(first)
            self._commit(group)

    def _group(self, first: _Job) -> tuple[list[_Job], bool]:
        """Returns `first` and the jobs queued after it, and whether the writer was closed after them."""
        group = [first]
        while len(group) < MAX_GROUP:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                break
            if job is None:
                return group, True
            group.append(job)
        return group, False

    def _commit(self, jobs: list[_Job]) -> None:
        """Runs all jobs in one transaction. If a job fails, each job runs again in its own transaction.

        If no transaction can begin (the database is locked or unreachable), all jobs fail at once: each of them would
        wait for the same time-out.
        """
        if len(jobs) == 1:
            self._commit_alone(jobs[0])
            return
        begun = False
        try:
            with self._database.transaction():
                begun = True
                results = [job.function() for job in jobs]
        except Exception as error:  # the jobs run again one by one, to find the one that fails
            for job in jobs:
                if begun:
                    self._commit_alone(job)
                else:
                    job.finish(None, error)
            return
        for job, result in zip(jobs, results, strict=True):
            job.finish(result, None)

    def _commit_alone(self, job: _Job) -> None:
        try:
            with self._database.transaction():
                result = job.function()
        except Exception as error:  # raised again in the caller
            job.finish(None, error)
        else:
            job.finish(result, None)


def _settle(done: Future[T] | asyncio.Future[T], result: T, error: Exception | None) -> None:
    if done.done():  # its caller was cancelled
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
