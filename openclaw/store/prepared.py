"""SQL statements that run for every answer and are compiled only once.

SQLAlchemy spends more time on a statement than SQLite does. On SQLite, the compiled statement runs directly on the
driver's connection, inside SQLAlchemy's transaction. On PostgreSQL it runs through SQLAlchemy, which detects broken
connections. Parameters must not need type conversion: only str, int, float, bytes and None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, Insert, RowMapping, Select, Update
from sqlalchemy.dialects import sqlite


class Prepared:
    """A SQL statement and its compiled forms, one for each set of parameter names."""

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
            compiled = self._statement.compile(dialect=_DIALECT, column_keys=list(names))
            constants = {name: value for name, value in compiled.params.items() if name not in names}
            self._compiled[names] = str(compiled), constants
        return self._compiled[names]


_DIALECT = sqlite.dialect(paramstyle="named")
