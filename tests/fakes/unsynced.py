"""Stores that do not wait for the disk: a dozen milliseconds for each sync, in a thousand tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from openclaw.store import database

SETTINGS = database._sqlite_settings
"""What a connection of the product sets, synchronous writes included."""


@pytest.fixture(scope="session", autouse=True)
def unsynced_stores() -> Iterator[None]:
    """SQLite stores of this process survive a kill of the process, not a power loss. Other processes sync."""

    def settings(durable: bool) -> Any:
        on_connect = SETTINGS(durable)

        def connect(connection: Any, record: Any) -> None:
            # before the journal is made, which is synced as well, and after the product's own choice
            connection.execute("PRAGMA synchronous = OFF").close()
            on_connect(connection, record)
            connection.execute("PRAGMA synchronous = OFF").close()

        return connect

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_sqlite_settings", settings)
        yield
