"""Exports and copies of the store into a folder where another user may write, such as /tmp; a store from another
user."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from openclaw.errors import StoreError
from openclaw.store import RolloutStore
from openclaw.store.__main__ import main
from openclaw.types import NewTurn


@pytest.mark.parametrize("kind", ["link", "file"])
@pytest.mark.parametrize("command", ["export", "backup"])
def test_an_export_does_not_follow_another_users_link(
    tmp_path: Path,
    store: RolloutStore,
    make_turn: Callable[..., NewTurn],
    location: str,
    command: str,
    kind: str,
) -> None:
    store.turns.record(make_turn())
    out, victim = tmp_path / "out", tmp_path / "victim"
    victim.write_text("precious")
    trap = tmp_path / "out.part"
    trap.symlink_to(victim) if kind == "link" else trap.write_text("theirs")
    with victim.open() as of_link, trap.open() as kept_open:
        where = ["--output", str(out)] if command == "export" else [str(out)]
        assert main([command, *where, "--rl-buffer-dir", location]) == 0
        assert of_link.read() == "precious"
        assert kept_open.read() == ("precious" if kind == "link" else "theirs")
    assert out.stat().st_size > 0 and not out.is_symlink() and out.stat().st_mode & 0o077 == 0
    assert not trap.exists()


PROGRAMS = {
    "trigger": "CREATE TRIGGER keep AFTER DELETE ON turn BEGIN INSERT INTO kept VALUES (OLD.request); END",
    "view": "CREATE VIEW keep AS SELECT * FROM turn",
}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_store_with_programs_of_somebody_else_is_refused(tmp_path: Path, kind: str) -> None:
    """A trigger could keep what is deleted, or give turns to another person."""
    RolloutStore(tmp_path).close()
    with sqlite3.connect(tmp_path / "buffer.db") as file:
        file.execute("CREATE TABLE kept (request)")
        file.execute(PROGRAMS[kind])
    with pytest.raises(StoreError, match=f"contains the {kind} 'keep'"):
        RolloutStore(tmp_path)
