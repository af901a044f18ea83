from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from openclaw.errors import StoreError
from openclaw.store import RolloutStore, StoreWriter
from openclaw.types import NewTurn

MakeTurn = Callable[..., NewTurn]


@pytest.fixture
async def writer(store: RolloutStore) -> AsyncIterator[StoreWriter]:
    writer = StoreWriter(store.database)
    yield writer
    await asyncio.to_thread(writer.close)


@pytest.mark.every_database
async def test_a_submitted_write_is_visible_in_other_stores_on_return(
    location: str, store: RolloutStore, writer: StoreWriter, make_turn: MakeTurn
) -> None:
    turn = await writer.submit(lambda: store.turns.record(make_turn()))
    other = RolloutStore(location)
    assert other.turns.get(turn.id) == turn
    other.close()


@pytest.mark.every_database
async def test_waiting_writes_are_committed_together(
    store: RolloutStore, writer: StoreWriter, make_turn: MakeTurn
) -> None:
    gate = threading.Event()
    first = asyncio.create_task(writer.submit(gate.wait))
    await asyncio.sleep(0.05)
    rest = [asyncio.create_task(writer.submit(lambda: store.turns.record(make_turn()))) for _ in range(50)]
    rest.append(asyncio.create_task(writer.submit(lambda: store.samples.ready_count())))
    await asyncio.sleep(0.05)
    commits = _count_commits(store)
    gate.set()
    await asyncio.gather(first, *rest)
    assert store.status.counts()["turns"] == {"captured": 50}
    assert len(commits) <= 3


async def test_a_failing_function_fails_only_its_own_caller(
    store: RolloutStore, writer: StoreWriter, make_turn: MakeTurn
) -> None:
    def half_done() -> None:
        store.turns.record(make_turn(session_id="half"))
        raise ValueError("mine alone")

    jobs = [writer.submit(lambda: store.turns.record(make_turn())) for _ in range(10)]
    jobs.insert(5, writer.submit(half_done))  # type: ignore[arg-type]
    jobs.insert(8, writer.submit(lambda: store.turns.answer("nobody", [])))  # type: ignore[arg-type]
    results = await asyncio.gather(*jobs, return_exceptions=True)
    failed = [result for result in results if isinstance(result, BaseException)]
    assert [type(error) for error in failed] == [ValueError, StoreError]
    assert store.status.counts()["turns"] == {"captured": 10}
    assert store.sessions.get("half") is None


async def test_a_cancelled_caller_leaves_its_turn_stored(
    store: RolloutStore, writer: StoreWriter, make_turn: MakeTurn
) -> None:
    gate = threading.Event()
    blocker = asyncio.create_task(writer.submit(gate.wait))
    await asyncio.sleep(0.02)
    caller = asyncio.create_task(writer.submit(lambda: store.turns.record(make_turn())))
    await asyncio.sleep(0.02)
    caller.cancel()
    gate.set()
    await blocker
    await asyncio.to_thread(writer.close)
    assert store.status.counts()["turns"] == {"captured": 1}


async def test_a_full_queue_makes_submit_wait(store: RolloutStore, make_turn: MakeTurn) -> None:
    writer = StoreWriter(store.database, max_pending=1)
    gate = threading.Event()
    blocker = asyncio.create_task(writer.submit(gate.wait))
    await asyncio.sleep(0.02)
    waiting = asyncio.create_task(writer.submit(lambda: store.turns.record(make_turn())))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    gate.set()
    await asyncio.gather(blocker, waiting)
    await asyncio.to_thread(writer.close)


async def test_a_caller_that_finds_no_room_in_time_gets_an_error(
    store: RolloutStore, make_turn: MakeTurn
) -> None:
    writer = StoreWriter(store.database, max_pending=1, max_wait=0.05)
    gate = threading.Event()
    blocker = asyncio.create_task(writer.submit(gate.wait))
    await asyncio.sleep(0.02)
    with pytest.raises(StoreError, match=r"1 pending writes and completed none in 0.05 s: .*try again"):
        await writer.submit(lambda: store.turns.record(make_turn()))
    gate.set()
    await blocker
    await writer.submit(lambda: store.turns.record(make_turn()))
    await asyncio.to_thread(writer.close)
    assert store.status.counts()["turns"] == {"captured": 1}


async def test_closing_commits_queued_writes_and_rejects_new_ones(
    store: RolloutStore, writer: StoreWriter, make_turn: MakeTurn
) -> None:
    jobs = [asyncio.create_task(writer.submit(lambda: store.turns.record(make_turn()))) for _ in range(20)]
    await asyncio.sleep(0)
    await asyncio.to_thread(writer.close)
    await asyncio.gather(*jobs)
    assert store.status.counts()["turns"] == {"captured": 20}
    with pytest.raises(StoreError, match="closed"):
        await writer.submit(lambda: None)


def _count_commits(store: RolloutStore) -> list[object]:
    from sqlalchemy import event

    commits: list[object] = []
    event.listen(store.database.engine, "commit", commits.append)
    return commits
