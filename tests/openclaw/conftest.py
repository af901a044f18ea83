"""A small model folder, a scripted engine over real HTTP, a gateway connected to it, and a store with turns."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from sqlalchemy import create_engine

from claw_base.ports import listen
from openclaw.server import create_app, http_config
from openclaw.settings import Settings
from openclaw.store import RolloutStore
from openclaw.types import Drop, Judgement, NewTurn, SampleDraft, Turn, Vote
from tests.fakes.gateway_model import build_model
from tests.fakes.postgresql import running_server
from tests.fakes.running_gateway import KEY, RunningGateway, StartGateway
from tests.fakes.scripted_engine import FakeEngine
from tests.fakes.unsynced import unsynced_stores

__all__ = ["unsynced_stores"]
THANKS = [{"role": "user", "content": "Thanks!"}]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("model") / "small-qwen3")


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    fake = FakeEngine().start()
    yield fake
    fake.end()


@pytest.fixture
def second_engine() -> Iterator[FakeEngine]:
    fake = FakeEngine().start()
    yield fake
    fake.end()


@pytest.fixture
def start_gateway(model: Path, engine: FakeEngine, tmp_path: Path) -> Iterator[StartGateway]:
    stops: list[Callable[[], None]] = []
    opened = contextlib.ExitStack()

    def start(engines: tuple[FakeEngine, ...] = (), **changes: object) -> RunningGateway:
        values: dict[str, Any] = {
            "model_path": str(model),
            "engine_url": tuple(one.url for one in (engine, *engines)),
            "enable_rl_intercept": True,
            "rl_buffer_dir": str(tmp_path / "buffer"),
            "log_level": "warning",
        }
        if any(changes.get(name) for name in ("api_key", "api_keys", "admin_key")):
            values |= {"api_key": KEY, "admin_key": KEY}
        settings = Settings(**{**values, **changes})
        listener = listen("127.0.0.1", 0)
        app = create_app(settings, settings.engine_url)
        config = http_config(settings, app)
        config.timeout_graceful_shutdown = 1
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()

        def stop() -> None:
            server.should_exit = True
            thread.join(10)
            listener.close()

        stops.append(stop)
        while not server.started:
            time.sleep(0.005)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        return RunningGateway(url, app, engine, model, tmp_path / "buffer", opened, stop)

    yield start
    with opened:
        for stop in reversed(stops):
            opened.callback(stop)


@pytest.fixture
def gateway(start_gateway: StartGateway) -> RunningGateway:
    return start_gateway()


@pytest.fixture
def keyed(start_gateway: StartGateway) -> RunningGateway:
    """Returns a gateway that requires the client key `KEY`."""
    return start_gateway(api_key=KEY)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of a real PostgreSQL server."""
    with running_server() as url:
        yield url


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs tests marked `every_database` on each database: those about locks, migrations or dialect-specific SQL."""
    if "database" in metafunc.fixturenames and metafunc.definition.get_closest_marker("every_database"):
        metafunc.parametrize("database", ["sqlite", "postgresql"])


@pytest.fixture
def database() -> str:
    """Returns the kind of database of `location` and `store`."""
    return "sqlite"


@pytest.fixture
def make_location(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Returns a function that gives places for empty stores: folders, or separate schemas on a server."""

    def make() -> str:
        name = f"test{uuid.uuid4().hex}"
        if database == "sqlite":
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
    """Returns a place for an empty store."""
    return make_location()


@pytest.fixture
def store(location: str) -> Iterator[RolloutStore]:
    store = RolloutStore(location)
    yield store
    store.close()


@pytest.fixture
def make_turn() -> Callable[..., NewTurn]:
    numbers = itertools.count()

    def make(**changes: object) -> NewTurn:
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
    """Takes a turn through capture, answer and judgement, so that its sample is ready (or dropped)."""

    def make(reward: float = 1.0, drop: str | None = None, **changes: object) -> Turn:
        turn = store.turns.record(make_turn(**changes))
        assert store.turns.answer(turn.id, THANKS)
        judgement = Judgement(kind="eval", score=reward, votes=[Vote(score=int(reward))], judge="test")
        outcome = Drop(drop) if drop else SampleDraft(turn_id=turn.id, reward={"score": reward})
        assert store.judgements.finish(turn.id, [judgement], outcome)
        return turn

    return make
