"""Stores that do not wait for the disk, because a sync takes a dozen milliseconds, in a thousand tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from openclaw.store import database

SETTINGS = database._sqlite_settings
"""The product's connection settings, including synchronous writes."""


@pytest.fixture(scope="session", autouse=True)
def unsynced_stores() -> Iterator[None]:
    """SQLite stores of this process survive a kill of the process, but not a power loss. Other processes sync."""

    def settings(durable: bool) -> Any:
        on_connect = SETTINGS(durable)

        def connect(connection: Any, record: Any) -> None:
            # before the journal is created, which would be synced too, and after the product's own setting
            connection.execute("PRAGMA synchronous = OFF").close()
            on_connect(connection, record)
            connection.execute("PRAGMA synchronous = OFF").close()

        return connect

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_sqlite_settings", settings)
        yield
