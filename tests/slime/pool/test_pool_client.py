"""Tests environments of a pool through its client and a router, with failures, and the start of a pool."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from claw_base.settings.command_line import parse
from claw_lab import environment
from slime.agents import Action, Observation, Outcome, Start, Task
from slime.arguments import parse_args
from slime.errors import ConfigError, EnvironmentAway
from slime.plugins import load_attr
from slime.pool import PoolEnvironment, hook, local_pool
from slime.pool.__main__ import PoolSettings, app_of, main
from slime.pool.leases import PoolLimits
from slime.pool.router import router_app
from slime.pool.service import pool_app
from tests import ROOT
from tests.slime.agents.counter import ADD, Counter, Pools, add
from tests.slime.rollout.conftest import model  # noqa: F401


@pytest.fixture(autouse=True)
def _none_made() -> None:
    Counter.made = []


def test_an_episode_through_a_pool_equals_a_local_one() -> None:
    async def go() -> None:
        async with local_pool(Counter) as make:
            environment = make()
            start = await environment.reset(Task([{"role": "user", "content": "x"}], 10, {"a": 1}))
            assert start == Start([{"role": "user", "content": "Add up to 10."}], (ADD,))
            assert Counter.made[0].task == Task([{"role": "user", "content": "x"}], 10, {"a": 1})
            assert await environment.step(add(4)) == Observation(
                [{"role": "tool", "content": "4"}], False, 0.5
            )
            assert (await environment.step(add(6))).done
            assert await environment.evaluate() == Outcome(1.0, True, {"total": 10})
            await environment.close()
            left = make()
            await left.reset(Task("x"))
        assert [one.closed for one in Counter.made] == [True, True], "a pool that ends closes all"

    asyncio.run(go())


def test_a_repeated_call_is_carried_out_once() -> None:
    async def go() -> None:
        pools = Pools(pool=pool_app(Counter))
        environment = PoolEnvironment("http://pool", transport=pools)
        await environment.reset(Task("x"))
        pools.apps["deaf"] = 2
        assert (await environment.step(add(4))).messages[0]["content"] == "4"
        assert pools.paths.count("/step") == 3 and Counter.made[0].total == 4
        await environment.close()

    asyncio.run(go())


def test_failures_count_as_an_unavailable_environment_and_never_as_an_outcome() -> None:
    async def go() -> None:
        pools = Pools(pool=pool_app(Counter))
        for text in ("away", "raise"):
            environment = PoolEnvironment("http://pool", transport=pools)
            await environment.reset(Task("x"))
            with pytest.raises(EnvironmentAway):
                await environment.step(Action(text))
            await environment.close()
        restarted = PoolEnvironment("http://pool", transport=pools)
        await restarted.reset(Task("x"))
        pools.apps["pool"] = pool_app(Counter)
        with pytest.raises(EnvironmentAway, match="404"):
            await restarted.step(add(1))
        await restarted.close()
        dead = PoolEnvironment("http://pool", transport=pools)
        await dead.reset(Task("x"))
        del pools.apps["pool"]
        with pytest.raises(EnvironmentAway, match="ConnectError"):
            await dead.evaluate()
        await dead.close()
        nowhere = PoolEnvironment("http://pool", patience=0.3, transport=pools)
        with pytest.raises(EnvironmentAway, match=r"no environment within 0.3 s"):
            await nowhere.reset(Task("x"))
        await nowhere.close()

    asyncio.run(go())


def test_a_call_that_hangs_ends_when_its_lease_is_lost() -> None:
    async def go() -> None:
        app = pool_app(Counter, PoolLimits(ttl=0.2))
        environment = PoolEnvironment("http://pool", transport=Pools(pool=app))
        await environment.reset(Task("x"))
        call = asyncio.create_task(environment.step(Action("hang")))
        await asyncio.sleep(0.01)
        app.state.leases.close(next(iter(app.state.leases.leases)))
        with pytest.raises(EnvironmentAway):
            await asyncio.wait_for(call, 60)
        await environment.close()

    asyncio.run(go())


def test_an_idle_lease_is_renewed_in_the_background() -> None:
    async def go() -> None:
        app = pool_app(Counter, PoolLimits(ttl=0.4))
        environment = PoolEnvironment("http://pool", transport=Pools(pool=app))
        await environment.reset(Task("x"))
        lease = next(iter(app.state.leases.leases.values()))
        first = lease.seen
        until = time.monotonic() + 60
        while lease.seen == first and time.monotonic() < until:
            await asyncio.sleep(0.01)
        assert lease.seen > first
        await environment.close()

    asyncio.run(go())


def test_a_router_uses_a_tasks_pool_or_the_next_if_it_is_full_or_unavailable() -> None:
    async def go() -> None:
        pools = Pools(a=pool_app(Counter, PoolLimits(max_runs=1, wait_seconds=0.01)), b=pool_app(Counter))
        router = router_app(["http://a", "http://b"], transport=pools)
        names = Pools(router=router)
        keys = [str(number) for number in range(20)]

        async def reset(key: str) -> PoolEnvironment:
            environment = PoolEnvironment("http://router", transport=names)
            await environment.reset(Task("x", metadata={"task_key": key}))
            return environment

        open_ = [await reset(key) for key in keys]
        counts = [len(pools.apps[name].state.leases.leases) for name in ("a", "b")]
        assert counts == [1, 19] and len({one.lease for one in open_}) == 20
        assert (await open_[0].step(add(2))).messages[0]["content"] == "2"
        del pools.apps["a"]
        fallen = await reset(keys[0])
        assert (await fallen.evaluate()).solved
        async with httpx.AsyncClient(transport=httpx.ASGITransport(router), base_url="http://r") as http:
            status = (await http.get("/status")).json()
            assert [worker["ok"] for worker in status["workers"]] == [False, True]
            assert (await http.post("/step", json={"lease_id": "run-1"})).status_code == 400
            assert (await http.post("/step", json={"lease_id": "00000000:run-1"})).status_code == 404
        for one in [*open_, fallen]:
            await one.close()

    asyncio.run(go())


def test_a_pool_that_cannot_start_prints_one_line(tmp_path: Path) -> None:
    good = f"{ROOT}/slime/examples/my_agent/guess.py:GuessNumber"
    (tmp_path / "empty").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = ["--environment", good, "--port", str(taken.getsockname()[1])]
        command = [sys.executable, "-m", "slime.pool", *words]
        found = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 1 and "in use" in found.stderr and found.stderr.count("\n") == 1
    with pytest.raises(SystemExit, match=r"0\.0\.0\.0 is reachable from other machines: give --key-file"):
        main(["--environment", good, "--host", "0.0.0.0"])
    for words, why in (
        (["--environment", f"{tmp_path}/no.py:X"], "no.py"),
        (["--environment", "json:JSONDecoder.__doc__"], "json"),
        (["--environment", good, "--key-file", f"{tmp_path}/empty"], "is empty"),
        (["--environment", good, "--key-file", f"{tmp_path}/none"], "No such file"),
        (["--environment", good, "--max-runs", "0"], "more than 0"),
        (["--environment", good, "--tasks", f"{tmp_path}/none"], "not a folder"),
    ):
        with pytest.raises(ConfigError, match=why):
            app_of(parse(PoolSettings, words, "pool", "Serves."))


def test_slime_starts_a_pool_with_a_run_by_its_hook() -> None:
    args = SimpleNamespace(
        environment_path=f"{ROOT}/slime/examples/my_agent/guess.py:GuessNumber",
        environment_port=18099,
        parallel_envs=8,
    )
    assert load_attr("slime.pool.hook.start") is hook.start
    [service] = hook.start(args, {})  # type: ignore[arg-type]
    assert service["url"] == "http://127.0.0.1:18099" and "--max-runs" in service["command"]


def test_variables_set_the_pools_environment_size_and_episode_length(
    model: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    start = ["--service-path", "slime.pool.hook.start", "--environment-port", "18098"]
    plays = ["--custom-generate-function-path", "slime.pool.hook.generate"]
    track = ["--custom-generate-function-path", "toolcall_rl.generate.generate"]
    (tmp_path / "rows.jsonl").write_text('{"input": "x"}')

    def args(words: Sequence[str], **env: str) -> Any:
        common = ["--hf-checkpoint", model, "--run-dir", str(tmp_path / "run"), "--reward-key", "score"]
        data = ["--prompt-data", str(tmp_path / "rows.jsonl"), "--rollout-max-response-len", "8"]
        data.append("--disable-rewards-normalization")
        return parse_args([*common, *data, *start, *words], env=env)

    env = {"ENV_TYPE": f"{ROOT}/slime/examples/my_agent/guess.py:GuessNumber"}
    found = args(plays, PARALLEL_ENVS="5", MAX_STEPS="7", **env)
    assert (found.parallel_envs, found.max_steps) == (5, 7)
    [service] = hook.start(found, {})
    assert service["command"][service["command"].index("--max-runs") + 1] == "5"
    assert args([*plays, "--max-steps", "3"], MAX_STEPS="7").max_steps == 3
    assert args(track, PARALLEL_ENVS="5").parallel_envs == 5, (
        "where a track has a flag of that name, its own is the one"
    )
    assert hook.path_of("terminal") == "terminal_rl.served:environment"
    with pytest.raises(ConfigError, match="nothing_rl"):
        hook.start(args(plays, ENV_TYPE="nothing"), {})
    with pytest.raises(ConfigError, match="needs --environment-path"):
        hook.start(args(plays), {})


@pytest.mark.skipif(not Path("/usr/bin/bwrap").exists(), reason="bubblewrap is not installed")
def test_killing_pools_router_and_sandboxes_loses_no_group_and_leaves_no_processes() -> None:
    words = [sys.executable, "-m", "claw_lab.benchmarks.trainer.pool_kills", "--episodes", "12"]
    words += ["--parallel", "4", "--kills", "2", "--pools", "1"]
    found = subprocess.run(words, capture_output=True, text=True, timeout=400, env=environment(), check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    about = json.loads(found.stdout)
    assert (about["episodes"], about["kills"], about["groups_lost"]) == (12, 2, 0)
