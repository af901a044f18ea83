"""Statements compiled once equal those of SQLAlchemy."""

from __future__ import annotations

import sqlite3

import pytest
from sqlalchemy import bindparam, func, insert, select

from openclaw.errors import StoreUnavailable
from openclaw.store import RolloutStore, schema
from openclaw.store.database import Prepared

SESSION = {"id": "s", "person": "o'hara", "turns": 3, "created_at": 1.5, "last_seen": 2.0}
COUNT = select(func.count()).select_from(schema.session)


@pytest.mark.every_database
def test_values_round_trip_and_a_statement_adapts_to_other_columns(store: RolloutStore) -> None:
    add = Prepared(insert(schema.session))
    turns = Prepared(select(schema.session.c.turns).where(schema.session.c.id == bindparam("session")))
    with store.database.transaction() as connection:
        add.run(connection, SESSION)
        add.run(connection, {**SESSION, "id": "t", "key_name": "k"})
        assert turns.value(connection, {"session": "s"}) == 3
        assert turns.value(connection, {"session": "?"}) is None
    found = store.sessions.get("t")
    assert found is not None and (found.person, found.created_at, found.key_name) == ("o'hara", 1.5, "k")


@pytest.mark.every_database
def test_a_failed_statement_raises_a_store_error_and_rolls_back(store: RolloutStore) -> None:
    add = Prepared(insert(schema.session))
    with pytest.raises(StoreUnavailable), store.database.transaction() as connection:
        add.run(connection, SESSION)
        add.run(connection, SESSION)
    with store.database.reading() as connection:
        assert connection.scalar(COUNT) == 0


def test_an_error_of_the_database_driver_has_advice(store: RolloutStore) -> None:
    with pytest.raises(StoreUnavailable, match="free space"), store.database.transaction():
        raise sqlite3.OperationalError("database or disk is full")
