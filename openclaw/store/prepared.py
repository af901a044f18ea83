"""Statements that run for every answer, compiled once.

SQLAlchemy's work for one statement takes longer than SQLite's. On SQLite, the compiled statement goes to the driver's
own connection, inside the transaction that SQLAlchemy began; on PostgreSQL it goes through SQLAlchemy, which sees there
that a connection broke. Values are such that no type converts them: texts, numbers, bytes, None.
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
        """Executes it with all the values that it has names for; returns how many rows changed."""
        return int(self._cursor(connection, values).rowcount)

    def value(self, connection: Connection, values: Mapping[str, Any]) -> Any:
        """The first column of the first row; None without a row."""
        row = self._cursor(connection, values).fetchone()
        return None if row is None else row[0]

    def rows(
        self, connection: Connection, values: Mapping[str, Any]
    ) -> Iterator[RowMapping | Mapping[str, Any]]:
        """Its rows, by column."""
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
        """SQL with named parameters, and the values that the statement itself has."""
        if names not in self._compiled:
            compiled = self._statement.compile(dialect=_DIALECT, column_keys=list(names))
            own = {name: value for name, value in compiled.params.items() if name not in names}
            self._compiled[names] = str(compiled), own
        return self._compiled[names]


_DIALECT = sqlite.dialect(paramstyle="named")
