"""Statements that run for every answer, compiled only once.

SQLAlchemy needs more time for a statement than SQLite. On SQLite, the compiled statement runs on the driver's
connection inside SQLAlchemy's transaction; on PostgreSQL it runs through SQLAlchemy, which detects broken
connections. Values must need no type conversion: texts, numbers, bytes, None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, Insert, RowMapping, Select, Update
from sqlalchemy.dialects import sqlite


class Prepared:
    """A statement and its compiled form."""

    def __init__(self, statement: Select[Any] | Insert | Update) -> None:
        self._statement = statement
        self._compiled: dict[tuple[str, ...], tuple[str, dict[str, Any]]] = {}

    def run(self, connection: Connection, values: Mapping[str, Any]) -> int:
        """Executes the statement; returns the number of changed rows."""
        return int(self._cursor(connection, values).rowcount)

    def value(self, connection: Connection, values: Mapping[str, Any]) -> Any:
        """Returns the first column of the first row; None if there are no rows."""
        row = self._cursor(connection, values).fetchone()
        return None if row is None else row[0]

    def rows(
        self, connection: Connection, values: Mapping[str, Any]
    ) -> Iterator[RowMapping | Mapping[str, Any]]:
        """Yields the rows, by column."""
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
        text, defaults = self._for_sqlite(tuple(values))
        driver: Any = connection.connection.driver_connection
        return driver.execute(text, {**defaults, **values})

    def _for_sqlite(self, names: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
        """Returns SQL with named parameters, and the statement's own constants."""
        if names not in self._compiled:
            compiled = self._statement.compile(dialect=_DIALECT, column_keys=list(names))
            own = {name: value for name, value in compiled.params.items() if name not in names}
            self._compiled[names] = str(compiled), own
        return self._compiled[names]


_DIALECT = sqlite.dialect(paramstyle="named")
