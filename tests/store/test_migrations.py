from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from openclaw.errors import StoreError
from openclaw.records import NewTurn
from openclaw.store import RolloutStore
from openclaw.store.migrations import MIGRATIONS
from openclaw.store.schema import SCHEMA_VERSION


def _tables(file: Path) -> dict[str, dict[str, tuple[object, ...]]]:
    with sqlite3.connect(file) as connection:
        names = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        # name, type, not null, primary key
        columns = {name: connection.execute(f"PRAGMA table_info({name})").fetchall() for name in names}
    return {table: {row[1]: (row[2], row[3], row[5]) for row in rows} for table, rows in columns.items()}


def _make_version_1(file: Path) -> None:
    """A database of version 1: as the first release made it, with one judged turn."""
    store = RolloutStore(file.parent)
    store.close()
    with sqlite3.connect(file) as connection:
        connection.execute("DROP TABLE feedback")
        connection.execute("DROP INDEX turn_person")
        connection.execute("ALTER TABLE turn DROP COLUMN source")
        connection.execute("ALTER TABLE turn DROP COLUMN judge_attempts")
        connection.execute("UPDATE schema_version SET version = 1")


def test_an_older_database_is_migrated_and_keeps_its_turns(
    tmp_path: Path, make_turn: Callable[..., NewTurn]
) -> None:
    fresh = RolloutStore(tmp_path / "fresh")
    fresh.close()
    old = tmp_path / "old" / "buffer.db"
    old.parent.mkdir()
    _make_version_1(old)
    with sqlite3.connect(old) as connection:
        connection.execute(
            "INSERT INTO session (id, turns, created_at, last_seen) VALUES ('kept', 3, 1.0, 2.0)"
        )
    store = RolloutStore(old.parent)
    session = store.get_session("kept")
    assert session is not None and session.turns == 3
    turn = store.record_turn(make_turn())
    assert store.get_turn(turn.id) == turn
    store.close()
    assert _tables(old) == _tables(tmp_path / "fresh" / "buffer.db")
    RolloutStore(old.parent).close()


def test_every_version_has_a_migration() -> None:
    assert sorted(MIGRATIONS) == list(range(2, SCHEMA_VERSION + 1))


def test_a_newer_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    RolloutStore(tmp_path).close()
    with sqlite3.connect(tmp_path / "buffer.db") as connection:
        connection.execute("INSERT INTO schema_version VALUES (99, 0)")
    before = _tables(tmp_path / "buffer.db")
    with pytest.raises(StoreError, match=r"schema version 99.*use a newer program"):
        RolloutStore(tmp_path)
    assert _tables(tmp_path / "buffer.db") == before


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "buffer.db").write_text(
        "this is a diary, not a database, and it is long enough to look at\n" * 50
    )
    with pytest.raises(StoreError, match="not a database"):
        RolloutStore(tmp_path)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot make the rollout buffer folder"):
        RolloutStore(tmp_path / "file" / "buffer")


def test_a_url_names_a_database_too(tmp_path: Path) -> None:
    store = RolloutStore(f"sqlite:///{tmp_path / 'other.db'}")
    assert store.counts() == {"turns": {}, "samples": {}, "dropped": {}}
    store.close()
    assert (tmp_path / "other.db").exists()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nosuchdatabase://host/name", "cannot be a nosuchdatabase database: use sqlite or postgresql"),
        ("sqlite+nosuchdriver:///file", "cannot use the rollout buffer URL"),
        ("://", "cannot use the rollout buffer URL"),
    ],
)
def test_an_unknown_url_is_refused(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        RolloutStore(url)


@pytest.mark.parametrize(("durable", "synchronous"), [(False, 1), (True, 2)])
def test_durable_asks_for_power_loss_safety(tmp_path: Path, durable: bool, synchronous: int) -> None:
    store = RolloutStore(tmp_path, durable=durable)
    with store.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == synchronous
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    store.close()
