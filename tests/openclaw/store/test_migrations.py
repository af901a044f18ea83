from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import inspect

from openclaw.errors import StoreError
from openclaw.store import RolloutStore, database
from openclaw.store.migrations import MIGRATIONS
from openclaw.store.rights import asker_of
from openclaw.store.schema import SCHEMA_VERSION
from openclaw.types import Drop, Judgement, NewTurn
from tests.fakes import unsynced

pytestmark = pytest.mark.every_database


def _tables(store: RolloutStore) -> dict[str, dict[str, str]]:
    """Returns columns and indexes by table, as reported by the database."""
    found: dict[str, dict[str, str]] = {}
    with store.database.reading() as connection:
        inspector = inspect(connection)
        for table in inspector.get_table_names():
            keys = inspector.get_pk_constraint(table)["constrained_columns"]
            found[table] = {
                str(column["name"]): f"{column['type']} {column['nullable']} {column['name'] in keys}"
                for column in inspector.get_columns(table)
            }
            found[table] |= {
                str(one["name"]): str(one["column_names"]) for one in inspector.get_indexes(table)
            }
    return found


def _make_version_1(location: str) -> None:
    """Creates a database of version 1, like the first release, with one session."""
    store = RolloutStore(location)
    store.sessions.touch("kept")
    _make_version_7(store)
    with store.database.transaction() as connection:
        connection.exec_driver_sql("DROP TABLE token_record")
        connection.exec_driver_sql("ALTER TABLE weight_version DROP COLUMN details")
        connection.exec_driver_sql("DROP INDEX sample_oldest")
        connection.exec_driver_sql("ALTER TABLE sample DROP COLUMN teacher")
        connection.exec_driver_sql("DROP TABLE feedback")
        connection.exec_driver_sql("DROP INDEX turn_person")
        connection.exec_driver_sql("ALTER TABLE turn DROP COLUMN source")
        connection.exec_driver_sql("ALTER TABLE turn DROP COLUMN judge_attempts")
        connection.exec_driver_sql("UPDATE schema_version SET version = 1")
    store.close()


def _make_version_10(store: RolloutStore) -> None:
    with store.database.transaction() as connection:
        connection.exec_driver_sql("DROP TABLE turn_picture")
        connection.exec_driver_sql("DROP TABLE picture")
        connection.exec_driver_sql("ALTER TABLE turn_body DROP COLUMN pictures")
        for table in ("session", "turn", "memory"):
            connection.exec_driver_sql(f"ALTER TABLE {table} DROP COLUMN key_name")
        connection.exec_driver_sql("UPDATE schema_version SET version = 10")


def _make_version_7(store: RolloutStore) -> None:
    _make_version_10(store)
    with store.database.transaction() as connection:
        connection.exec_driver_sql("DROP TABLE dream")
        connection.exec_driver_sql("ALTER TABLE turn_body DROP COLUMN memory")
        connection.exec_driver_sql("DROP TABLE memory")
        connection.exec_driver_sql("ALTER TABLE feedback DROP COLUMN scope")
        connection.exec_driver_sql("DROP INDEX turn_group")
        connection.exec_driver_sql("ALTER TABLE turn DROP COLUMN group_id")
        connection.exec_driver_sql("ALTER TABLE turn DROP COLUMN task_id")
        connection.exec_driver_sql("UPDATE schema_version SET version = 7")


def test_feedback_of_older_databases_belongs_to_its_turn(
    location: str, make_turn: Callable[..., NewTurn]
) -> None:
    store = RolloutStore(location)
    turn = store.turns.record(make_turn())
    store.feedback.record(completion_id=turn.completion_id, score=-1.0, text="shorter")
    _make_version_7(store)
    store.close()
    store = RolloutStore(location)
    kept = store.turns.get(turn.id)
    assert kept is not None and (kept.group_id, kept.task_id) == (None, None)
    (reward,) = store.feedback.reward_session("s", 1.0)
    assert (reward.status, store.feedback.judgements_of(turn.id)[0].score) == ("own_score", -1.0)
    store.close()


def test_turns_without_a_recorded_key_belong_to_their_person(
    location: str, make_turn: Callable[..., NewTurn]
) -> None:
    store = RolloutStore(location)
    before = store.turns.record(make_turn(person="ada", memory=[], transcript_digest="d"))
    store.turns.answer(before.id, [{"role": "user", "content": "shorter"}])
    hint = Judgement(kind="hint", score=1.0, votes=[], judge="test", hints=["shorter"])
    assert store.judgements.finish(before.id, [hint], Drop("test"))
    _make_version_10(store)
    store.close()
    store = RolloutStore(location)
    (wish,) = store.memory.wishes()
    session, turn = store.sessions.get("s"), store.turns.get(before.id)
    assert session is not None and turn is not None
    assert [one.key_name for one in (session, turn, wish)] == [None, None, None]
    names = frozenset({"ada", "bob"})
    askers = [asker_of(key, None, names) for key in ("ada", "bob", None)]
    assert [store.turns.find_by_digest(["d"], asker=one) is not None for one in askers] == [
        True,
        False,
        False,
    ]
    assert [len(store.memory.remembered("ada", asker=one)) for one in askers] == [1, 0, 0]
    new = store.turns.record(make_turn(person="bob", key_name="bob", transcript_digest="d"))
    assert store.turns.find_by_digest(["d"], asker=askers[1]) == new
    session = store.sessions.get("s")
    assert session is not None and (session.person, session.key_name) == ("ada", None)
    store.close()


def test_an_older_database_is_migrated_without_losing_data(
    make_location: Callable[[], str], make_turn: Callable[..., NewTurn]
) -> None:
    fresh, old = RolloutStore(make_location()), make_location()
    _make_version_1(old)
    store = RolloutStore(old)
    assert store.sessions.get("kept") is not None
    turn = store.turns.record(make_turn())
    assert store.turns.get(turn.id) == turn
    assert _tables(store) == _tables(fresh)
    store.close()
    fresh.close()
    RolloutStore(old).close()


def test_a_file_is_backed_up_before_migration_and_a_deletion_removes_the_backup(
    tmp_path: Path, make_turn: Callable[..., NewTurn]
) -> None:
    store = RolloutStore(tmp_path)
    store.turns.record(make_turn(session_id="s"))
    _make_version_7(store)
    store.close()
    assert not list(tmp_path.glob("*-of-schema-*"))
    store = RolloutStore(tmp_path)
    copy = tmp_path / "buffer-of-schema-7.db"
    assert copy.stat().st_mode & 0o777 == 0o600
    old = sqlite3.connect(copy)
    assert old.execute("SELECT max(version) FROM schema_version").fetchone() == (7,)
    assert old.execute("SELECT count(*) FROM turn").fetchone() == (1,)
    old.close()
    RolloutStore(tmp_path).close()
    assert copy.exists()
    store.deletion.delete_session("s")
    assert not copy.exists()
    store.close()


def test_every_version_has_a_migration() -> None:
    assert sorted(MIGRATIONS) == list(range(2, SCHEMA_VERSION + 1))


def test_a_newer_database_is_rejected_and_not_changed(location: str) -> None:
    store = RolloutStore(location)
    with store.database.transaction() as connection:
        connection.exec_driver_sql("INSERT INTO schema_version VALUES (99, 0)")
    before = _tables(store)
    with pytest.raises(StoreError, match=r"schema version 99.*update the program"):
        RolloutStore(location)
    assert _tables(store) == before
    store.close()


def test_a_file_that_is_not_a_database_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "buffer.db").write_text(
        "this is a diary, not a database, and it is long enough to look at\n" * 50
    )
    with pytest.raises(StoreError, match="not a database"):
        RolloutStore(tmp_path)


def test_a_folder_that_cannot_be_created_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot create the rollout buffer folder"):
        RolloutStore(tmp_path / "file" / "buffer")


def test_a_database_may_be_given_as_a_url(tmp_path: Path) -> None:
    store = RolloutStore(f"sqlite:///{tmp_path / 'other.db'}")
    assert store.status.counts() == {"turns": {}, "samples": {}, "dropped": {}, "judge_failures": {}}
    store.close()
    assert (tmp_path / "other.db").exists()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nosuchdatabase://host/name", "unsupported database nosuchdatabase: use sqlite or postgresql"),
        ("sqlite+nosuchdriver:///file", "--rl-buffer-url: cannot open the database"),
        ("://", "--rl-buffer-url: cannot open the database"),
    ],
)
def test_an_unknown_url_is_refused(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        RolloutStore(url)


@pytest.mark.parametrize(("durable", "synchronous"), [(False, 1), (True, 2)])
def test_the_durable_setting_enables_safety_on_power_loss(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, durable: bool, synchronous: int
) -> None:
    monkeypatch.setattr(database, "_sqlite_settings", unsynced.SETTINGS)
    store = RolloutStore(tmp_path, durable=durable)
    with store.database.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == synchronous
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    store.close()
