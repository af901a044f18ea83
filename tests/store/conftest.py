"""A store on each kind of database, and turns to put into it."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine

from openclaw.store import RolloutStore
from openclaw.types import Drop, Judgement, NewTurn, SampleDraft, Turn, Vote

THANKS = [{"role": "user", "content": "Thanks!"}]


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of a real PostgreSQL server in a temporary folder, behind a Unix socket."""
    binaries = _server_binaries()
    if binaries is None:
        pytest.skip("NO POSTGRESQL SERVER TO TEST WITH: install one (Debian: apt-get install postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="rlpg"))
    user: dict[str, Any] = {}
    if os.geteuid() == 0:  # the server refuses to run as root
        shutil.chown(folder, "postgres", "postgres")
        user = {"user": "postgres", "group": "postgres", "extra_groups": []}
    data = folder / "data"
    quick = ["-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", "listen_addresses=", "-k", str(folder)]
    initdb = [binaries / "initdb", "-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync"]
    subprocess.run(initdb, check=True, cwd=folder, stdout=subprocess.DEVNULL, **user)
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [binaries / "postgres", "-D", data, *quick], cwd=folder, stdout=log, stderr=log, **user
        )
    try:
        _wait_for(server, folder)
        yield f"postgresql+psycopg://postgres@/postgres?host={folder}"
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(timeout=20)
        shutil.rmtree(folder)


def _server_binaries() -> Path | None:
    found = shutil.which("postgres")
    candidates = [Path(found).resolve().parent] if found else []
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in candidates if (folder / "initdb").exists()), None)


def _wait_for(server: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(host=str(folder), user="postgres").close()
            return
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"PostgreSQL did not start: {(folder / 'log').read_text()}")
            time.sleep(0.05)


@pytest.fixture(params=["sqlite", "postgresql"])
def make_location(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Gives places where an empty store may be made: folders, and schemas of their own on a server."""

    def make() -> str:
        name = f"test{uuid.uuid4().hex}"
        if request.param == "sqlite":
            return str(tmp_path / name)
        url = request.getfixturevalue("postgresql")
        engine = create_engine(url)
        with engine.begin() as connection:
            connection.exec_driver_sql(f"CREATE SCHEMA {name}")
        engine.dispose()
        return f"{url}&options=-csearch_path%3D{name}"

    return make


@pytest.fixture
def location(make_location: Callable[[], str]) -> str:
    """Where an empty store may be made."""
    return make_location()


@pytest.fixture
def store(location: str) -> Iterator[RolloutStore]:
    store = RolloutStore(location)
    yield store
    store.close()


@pytest.fixture
def make_turn() -> Callable[..., NewTurn]:
    numbers = itertools.count()

    def make(**changes: Any) -> NewTurn:
        number = next(numbers)
        values: dict[str, Any] = {
            "completion_id": f"chatcmpl-{number}",
            "session_id": "s",
            "messages": [{"role": "user", "content": f"question {number}"}],
            "response_message": {"role": "assistant", "content": "4"},
            "prompt_ids": [5, 6, 7],
            "completion_ids": [8, 9],
            "completion_log_probs": [-0.25, -1 / 3],
            "version_spans": [(0, 0, 1), (1, 1, 2)],
            "sampling": {"temperature": 0.6},
            "finish_reason": "stop",
            "transcript_digest": f"digest-{number}",
        }
        return NewTurn(**(values | changes))

    return make


@pytest.fixture
def make_sample(store: RolloutStore, make_turn: Callable[..., NewTurn]) -> Callable[..., Turn]:
    """Takes a turn through capture, answer and judgement: its sample is ready (or dropped)."""

    def make(reward: float = 1.0, drop: str | None = None, **changes: Any) -> Turn:
        turn = store.record_turn(make_turn(**changes))
        assert store.answer_turn(turn.id, THANKS)
        judgement = Judgement(kind="eval", score=reward, votes=[Vote(score=int(reward))], judge="test")
        outcome = Drop(drop) if drop else SampleDraft(turn_id=turn.id, reward={"score": reward})
        assert store.finish_judgement(turn.id, [judgement], outcome)
        return turn

    return make
