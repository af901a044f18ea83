"""Tests a pool: leases, request ids, places, rejections, paths."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from slime.agents.wire import Refusal
from slime.pool.leases import Leases, PoolLimits
from slime.pool.service import pool_app
from tests.slime.agents.counter import Counter, asked


@pytest.fixture(autouse=True)
def _none_made() -> None:
    Counter.made = []


def leased(test: Callable[[Leases], Awaitable[None]], **limits: Any) -> None:
    asyncio.run(test(Leases(Counter, PoolLimits(**limits))))  # type: ignore[arg-type]


def test_upstreams_fields_are_accepted_and_returned() -> None:
    app = pool_app(Counter)
    _, lease, _ = asked(app, "/allocate", task_key="t", request_id="r")
    assert lease["ok"] and lease["lease_id"].startswith("run-") and not lease["reused"]
    meta = {"task_name": "t", "task_path": "tasks/t", "instruction": "Do it."}
    _, start, _ = asked(app, "/reset", lease_id=lease["lease_id"], task_meta=meta)
    assert start["user_msg"] == "Add up to None." and start["tool_schemas"][0]["function"]["name"] == "add"
    call = {"name": "add", "arguments": {"n": 3}}
    assert asked(app, "/exec_tool", lease_id=lease["lease_id"], tool_call=call)[1]["observation"] == "3"
    assert asked(app, "/evaluate", lease_id=lease["lease_id"])[1]["score"] == 1.0


def test_a_call_continues_after_its_client_disconnects_and_keeps_its_answer() -> None:
    async def go(leases: Leases) -> None:
        lease, _ = await leases.allocate("t", None)

        async def slow(environment: Any) -> dict[str, Any]:
            await environment.go_on.wait()
            environment.total += 1
            return {"total": environment.total}

        first = asyncio.create_task(leases.call(lease.id, "a", "same", slow))
        await asyncio.sleep(0)
        with pytest.raises(Refusal) as busy:
            await leases.call(lease.id, "b", "other", slow)
        first.cancel()
        again = asyncio.create_task(leases.call(lease.id, "a", "same", slow))
        await asyncio.sleep(0)
        Counter.made[0].go_on.set()
        assert await again == {"total": 1} == await leases.call(lease.id, "a", "same", slow)
        with pytest.raises(Refusal) as reused:
            await leases.call(lease.id, "a", "other", slow)
        assert (busy.value.status, busy.value.code) == (409, "LEASE_BUSY")
        assert (reused.value.status, reused.value.code) == (409, "REQUEST_ID_REUSED")

    leased(go)


def test_an_allocation_with_the_same_request_id_is_the_same_lease() -> None:
    async def go(leases: Leases) -> None:
        first, reused = await leases.allocate("t", "a")
        assert not reused and await leases.allocate("t", "a") == (first, True)
        assert (await leases.allocate("other", "a"))[0] is not first
        leases.close(first.id)
        assert (await leases.allocate("t", "a"))[0] is not first

    leased(go)


def test_a_silent_lease_expires_and_its_environment_is_closed() -> None:
    now = [0.0]

    async def go() -> None:
        leases = Leases(Counter, PoolLimits(ttl=10), lambda: now[0])
        lost, _ = await leases.allocate("t", None)
        kept, _ = await leases.allocate("t", None)
        now[0] = 9
        leases.find(kept.id)
        now[0] = 11
        assert leases.reap() == [lost.id] and leases.status()["total_active_runs"] == 1
        await leases.close_all()
        assert all(one.closed for one in Counter.made)
        for lease_id, status in ((lost.id, 410), ("run-unknown", 404)):
            with pytest.raises(Refusal) as refusal:
                leases.find(lease_id)
            assert refusal.value.status == status

    asyncio.run(go())


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"max_runs": 1}, "RUN_SLOTS_EXHAUSTED"),
        ({"max_runs_per_task": 1}, "RUN_SLOTS_EXHAUSTED"),
        ({"max_tasks": 1}, "TASK_SLOTS_EXHAUSTED"),
    ],
)
def test_a_full_pool_queues_some_requests_and_rejects_the_rest(limits: dict[str, int], code: str) -> None:
    async def go(leases: Leases) -> None:
        first, _ = await leases.allocate("t", None)
        key = "other" if "max_tasks" in limits else "t"
        waiting = asyncio.create_task(leases.allocate(key, None))
        await asyncio.sleep(0)
        with pytest.raises(Refusal) as refusal:
            await leases.allocate(key, None)
        assert (refusal.value.status, refusal.value.code, refusal.value.retry_after) == (429, code, 1.0)
        leases.close(first.id)
        assert (await waiting)[0].task_key == key and Counter.made[0].closed

    leased(go, max_waiting=1, wait_seconds=60.0, **limits)


def test_waiting_for_a_place_times_out() -> None:
    async def go(leases: Leases) -> None:
        await leases.allocate("t", None)
        with pytest.raises(Refusal, match="in use"):
            await leases.allocate("t", None)
        assert leases.waiting == 0

    leased(go, max_runs=1, wait_seconds=0.01)


def test_invalid_requests_get_their_status_codes() -> None:
    app = pool_app(Counter, key="secret")
    assert asked(app, "/allocate", task_key="t")[0] == 401
    assert asked(app, "/allocate", key="wrong", task_key="t")[0] == 401
    assert asked(app, "/allocate", key="secret")[:2] == (
        400,
        {"ok": False, "code": "BAD_REQUEST", "error": "the request needs the field task_key, a text"},
    )
    lease = asked(app, "/allocate", key="secret", task_key="t")[1]["lease_id"]
    assert asked(app, "/heartbeat", key="secret", lease_id="run-0")[0] == 404
    assert asked(app, "/step", key="secret", lease_id=lease, action={"text": 1})[0] == 400
    assert (
        asked(app, "/exec_tool", key="secret", lease_id=lease, tool_call={"name": "x", "arguments": "y"})[0]
        == 400
    )
    assert (
        asked(app, "/step", key="secret", lease_id=lease, action={"text": "away"})[1]["code"]
        == "ENVIRONMENT_AWAY"
    )
    status, body, _ = asked(app, "/step", key="secret", lease_id=lease, action={"text": "raise"})
    assert (status, body["error"]) == (500, "RuntimeError: a mistake")
    assert asked(app, "/close", key="secret", lease_id=lease)[1] == {"ok": True, "found": True}
    assert asked(app, "/close", key="secret", lease_id=lease)[1] == {"ok": True, "found": False}
    assert asked(app, "/evaluate", key="secret", lease_id=lease)[0] == 410


def test_a_clients_path_cannot_leave_the_task_folder(tmp_path: Path) -> None:
    (tmp_path / "tasks" / "good").mkdir(parents=True)
    (tmp_path / "tasks" / "out").symlink_to("/etc")
    app = pool_app(Counter, tasks=tmp_path / "tasks")
    lease = asked(app, "/allocate", task_key="t")[1]["lease_id"]
    for path in ("/etc", "../x", "a/../../x", "out", "a\0b", 5):
        meta = {"instruction": "x", "task_path": path}
        assert asked(app, "/reset", lease_id=lease, task_meta=meta)[1]["code"] == "BAD_PATH"
        nested = {"prompt": "x", "metadata": {"task_path": path}}
        assert asked(app, "/reset", lease_id=lease, task_meta=nested)[0] == 400
    log = {"log_dir": "/root/x"}
    assert asked(app, "/reset", lease_id=lease, task_meta={"instruction": "x"}, run_ctx=log)[0] == 400
    assert asked(app, "/reset", lease_id=lease, task_meta={"instruction": "x", "task_path": "good"})[0] == 200
