"""A database that is locked, full, read-only or unreachable: one clear StoreError, nothing stored partially."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import event

from openclaw.errors import ConfigError, StoreError, StoreUnavailable
from openclaw.store import RolloutStore, StoreWriter, database
from openclaw.trainer_hooks.arguments import BufferArguments
from openclaw.trainer_hooks.services import store_flags
from openclaw.types import NewTurn, Turn

pytestmark = pytest.mark.every_database

MakeTurn = Callable[..., NewTurn]


async def test_a_full_disk_fails_the_caller_and_loses_no_committed_data(
    tmp_path: Path, make_turn: MakeTurn
) -> None:
    store = RolloutStore(tmp_path)
    writer = StoreWriter(store.database)

    def limit(connection: sqlite3.Connection, *_: object) -> None:
        connection.execute("PRAGMA max_page_count = 80")

    def noise(seed: int) -> list[int]:
        return random.Random(seed).choices(range(2**31), k=2000)

    event.listen(store.database.engine, "checkout", limit)
    turns = [make_turn(prompt_ids=noise(seed)) for seed in range(60)]
    jobs = [writer.submit(lambda turn=turn: store.turns.record(turn)) for turn in turns]  # type: ignore[misc]
    results = await asyncio.gather(*jobs, return_exceptions=True)
    failed = [result for result in results if isinstance(result, BaseException)]
    promised = [result for result in results if isinstance(result, Turn)]
    assert failed and promised and len(failed) + len(promised) == 60
    assert all(
        isinstance(error, StoreError) and "full" in str(error) and "free space" in str(error)
        for error in failed
    )
    for turn in promised:
        assert store.turns.get(turn.id) == turn
    assert store.status.counts()["turns"] == {"captured": len(promised)}
    event.remove(store.database.engine, "checkout", limit)
    event.listen(store.database.engine, "checkout", lambda c, *_: c.execute("PRAGMA max_page_count = 100000"))
    await writer.submit(lambda: store.turns.record(make_turn(prompt_ids=noise(99))))
    await asyncio.to_thread(writer.close)
    store.close()


def test_a_held_lock_is_named_after_the_wait(
    location: str, make_turn: MakeTurn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT_SECONDS", 0.3)
    store, other = RolloutStore(location), RolloutStore(location)
    locked, done = threading.Event(), threading.Event()

    def keep() -> None:
        with other.database.transaction():
            other.turns.record(make_turn(session_id="s"))
            locked.set()
            done.wait(10)

    thread = threading.Thread(target=keep)
    thread.start()
    locked.wait(10)
    with pytest.raises(StoreError, match=r"another process held the write lock for more than 0.3 s"):
        store.turns.record(make_turn(session_id="s"))
    assert store.status.counts()["turns"] == {}
    done.set()
    thread.join()
    store.turns.record(make_turn(session_id="s"))
    assert store.status.counts()["turns"] == {"captured": 2}
    store.close()
    other.close()


def test_a_read_only_file_is_readable_and_writing_reports_the_reason(
    tmp_path: Path, make_turn: MakeTurn
) -> None:
    store = RolloutStore(tmp_path)
    turn = store.turns.record(make_turn())
    store.close()
    store = RolloutStore(f"sqlite:///file:{tmp_path / 'buffer.db'}?mode=ro&uri=true")
    assert store.turns.get(turn.id) == turn
    with pytest.raises(StoreError, match=r"buffer\.db.*readonly database; this user may not write there"):
        store.turns.record(make_turn())
    store.close()


@pytest.mark.parametrize("left", [0.0, 0.3, 0.7, 0.99])
def test_a_truncated_write_ahead_log_loses_only_the_last_turns(
    tmp_path: Path, make_turn: MakeTurn, left: float
) -> None:
    store = RolloutStore(tmp_path / "one")
    turns = [store.turns.record(make_turn()) for _ in range(20)]
    shutil.copytree(tmp_path / "one", tmp_path / "cut", ignore=shutil.ignore_patterns("*-shm"))
    store.close()
    log = tmp_path / "cut" / "buffer.db-wal"
    os.truncate(log, int(log.stat().st_size * left))
    cut = RolloutStore(tmp_path / "cut")
    there = [cut.turns.get(turn.id) == turn for turn in turns]
    assert there == sorted(there, reverse=True) and not all(there)
    new = cut.turns.record(make_turn())
    assert cut.turns.get(new.id) == new
    cut.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "cut" / "buffer.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_missing_folder_of_a_url_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"unable to open.*the folder of the buffer does not exist"):
        RolloutStore(f"sqlite:///{tmp_path / 'no' / 'buffer.db'}")


def test_an_unreachable_server_is_reported_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="check that the server runs") as failure:
        RolloutStore(f"postgresql+psycopg://me:secret@/db?host={tmp_path}")
    assert "secret" not in str(failure.value)


def test_text_that_is_not_unicode_is_rejected(store: RolloutStore) -> None:
    with pytest.raises(StoreError, match=r"valid Unicode|not valid|surrogate"):
        store.sessions.touch("\ud800")
    assert store.status.counts()["turns"] == {}


async def test_all_waiters_of_a_held_lock_fail_together(
    tmp_path: Path, make_turn: MakeTurn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT_SECONDS", 0.4)
    store = RolloutStore(tmp_path)
    writer = StoreWriter(store.database)
    lock = sqlite3.connect(tmp_path / "buffer.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    started = time.monotonic()
    jobs = [writer.submit(lambda: store.turns.record(make_turn())) for _ in range(20)]
    results = await asyncio.gather(*jobs, return_exceptions=True)
    assert all(isinstance(result, StoreUnavailable) for result in results)
    assert time.monotonic() - started < 5 * 0.4
    lock.execute("ROLLBACK")
    await writer.submit(lambda: store.turns.record(make_turn()))
    await asyncio.to_thread(writer.close)
    assert store.status.counts()["turns"] == {"captured": 1}


def test_a_password_is_neither_printed_nor_put_on_a_command_line() -> None:
    url = "postgresql+psycopg://ann:hunter2@db.example/rl"
    assert "hunter2" not in database.shown(url) and "db.example" in database.shown(url)
    assert database.shown("./rl_buffer") == "./rl_buffer"
    with pytest.raises(ConfigError, match="PGPASSWORD") as refused:
        store_flags(BufferArguments(rl_buffer_url=url))
    assert "hunter2" not in str(refused.value)
    plain = "postgresql+psycopg://ann@db.example/rl"
    assert store_flags(BufferArguments(rl_buffer_url=plain)) == ["--rl-buffer-url", plain]


def test_a_claim_expires_although_the_clock_was_set_back(
    store: RolloutStore, make_turn: MakeTurn, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = store.turns.record(make_turn())
    assert store.turns.answer(turn.id, [{"role": "user", "content": "Thanks!"}])
    assert store.judgements.claim("dies", 1, 60.0)
    assert store.judgements.claim("waits", 1, 60.0) == []
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() - 3600)
    assert [claimed.id for claimed in store.judgements.claim("waits", 1, 60.0)] == [turn.id]
    assert store.judgements.claim("other", 1, 60.0) == []
