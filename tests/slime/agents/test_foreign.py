"""Tests environments in a process of another Python: their answers, and the effects of their failures."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from slime.agents import Action, Task, ToolCall
from slime.agents.foreign import OpenEnvEnvironment, VerifiersEnvironments
from slime.agents.foreign.__main__ import main
from slime.agents.foreign.worker import ForeignEnvironment, Process, Worker
from slime.errors import ConfigError, EnvironmentAway
from tests.slime.agents.counter import add

SIDES = str(Path(__file__).with_name("foreign_sides"))
TASK = Task("Count.", "3")


def counting(python: str = sys.executable, **options: object) -> Worker:
    return Worker("counting", python, options, {"PYTHONPATH": SIDES})


def with_worker(worker: Worker, go: Callable[[ForeignEnvironment], Awaitable[None]]) -> None:
    async def run() -> None:
        try:
            await go(ForeignEnvironment(worker))
        finally:
            await worker.close()

    asyncio.run(run())


def test_an_episode_in_another_process_equals_a_local_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_API_KEY", "x")
    worker = counting()

    async def go(environment: ForeignEnvironment) -> None:
        other = ForeignEnvironment(worker)
        start, _ = await asyncio.gather(environment.reset(TASK), other.reset(TASK))
        assert start.messages == [{"role": "user", "content": "Count."}] and start.tools == ()
        assert (await environment.step(add(2))).messages[0]["content"] == "2"
        assert (await other.step(add(5))).messages[0]["content"] == "5", "episodes share nothing"
        assert (await environment.step(add(3))).messages[0]["content"] == "5"
        outcome = await environment.evaluate()
        assert outcome.score == 5.0 and outcome.details == {"keys": []}, "keys of the run stay here"
        await asyncio.gather(environment.close(), other.close())

    with_worker(worker, go)


def test_a_process_that_sends_an_invalid_line_is_not_reported_as_ended() -> None:
    code = "print('not JSON', flush=True); input()"
    with pytest.raises(EnvironmentAway, match="sent an invalid or too long line"):
        asyncio.run(Process(5.0).start([sys.executable, "-c", code], {}))


def test_a_crashed_process_loses_its_episodes_and_the_next_one_starts_a_new_process() -> None:
    worker = counting()

    async def go(environment: ForeignEnvironment) -> None:
        other = ForeignEnvironment(worker)
        await asyncio.gather(environment.reset(TASK), other.reset(TASK))
        with pytest.raises(EnvironmentAway, match="process has ended"):
            await environment.step(Action("die"))
        await environment.close()
        fresh = ForeignEnvironment(worker)
        await fresh.reset(TASK)
        with pytest.raises(EnvironmentAway, match="process has ended"):
            await other.step(add(1))  # its process has exited, and the new one does not know it
        assert (await fresh.step(add(1))).messages[0]["content"] == "1"

    with_worker(worker, go)


def test_failures_there_count_as_unavailable_and_rejections_as_configuration_errors() -> None:
    async def go(environment: ForeignEnvironment) -> None:
        await environment.reset(TASK)
        with pytest.raises(EnvironmentAway, match="RuntimeError: the disk is full"):
            await environment.step(Action("raise"))
        assert (await environment.step(add(1))).messages[0]["content"] == "1"
        with pytest.raises(ConfigError, match="there is no such task"):
            await ForeignEnvironment(environment.worker).reset(Task("x", "no such task"))

    with_worker(counting(), go)


def test_an_environment_that_cannot_start_prints_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def go(environment: ForeignEnvironment) -> None:
        with pytest.raises(ConfigError, match="ImportError: no module named games"):
            await environment.reset(TASK)

    with_worker(counting(broken=True), go)
    with pytest.raises(ConfigError, match="the Python for verifiers, /no/python, does not exist"):
        VerifiersEnvironments({}, python="/no/python")
    with pytest.raises(ConfigError, match="has no verifiers"):
        VerifiersEnvironments({}, python=sys.executable)
    with pytest.raises(SystemExit, match="not VerifiersEnvironments"):
        main(["json:loads", "--out", str(tmp_path / "rows.jsonl")])


def test_a_too_slow_answer_counts_as_unavailable() -> None:
    worker = counting()
    worker.seconds = 1e-6

    async def go(environment: ForeignEnvironment) -> None:
        with pytest.raises(EnvironmentAway, match="gave no answer in"):
            await environment.reset(TASK)

    with_worker(worker, go)


class FakeOpenEnv:
    """OpenEnv's messages: a word is echoed, "end" ends, an empty one is rejected, "break" crashes the server."""

    def __init__(self) -> None:
        self.sessions, self.most, self.resets = 0, 1, list[Any]()

    async def schema(self, request: web.Request) -> web.Response:
        action = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
        return web.json_response({"action": action, "observation": {}, "state": {}})

    async def socket(self, request: web.Request) -> web.WebSocketResponse:
        found = web.WebSocketResponse()
        await found.prepare(request)
        self.sessions += 1
        try:
            if self.sessions > self.most:
                await found.send_json(
                    {"type": "error", "data": {"code": "CAPACITY_REACHED", "message": "full"}}
                )
            async for message in found:
                await found.send_json(self.answer(json.loads(message.data)))
        finally:
            self.sessions -= 1
        return found

    def answer(self, said: dict[str, Any]) -> dict[str, Any]:
        if said["type"] == "reset":
            self.resets.append(said["data"])
            return {
                "type": "observation",
                "data": {"observation": {"echo": "ready"}, "reward": 0.0, "done": False},
            }
        word = said["data"]["word"]
        if word in ("", "break"):
            code = "EXECUTION_ERROR" if word else "VALIDATION_ERROR"
            return {"type": "error", "data": {"code": code, "message": "no word"}}
        seen = {"observation": {"echo": word}, "reward": len(word) / 10, "done": word == "end"}
        return {"type": "observation", "data": seen}


def with_openenv(go: Callable[[FakeOpenEnv, str], Awaitable[None]]) -> None:
    async def run() -> None:
        server, app = FakeOpenEnv(), web.Application()
        app.add_routes([web.get("/schema", server.schema), web.get("/ws", server.socket)])
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            await go(server, f"http://127.0.0.1:{runner.addresses[0][1]}")
        finally:
            await runner.cleanup()

    asyncio.run(run())


def act(word: str) -> Action:
    return Action("", (ToolCall("act", {"word": word}),))


def test_the_action_of_an_openenv_server_is_a_tool_and_its_rewards_are_summed() -> None:
    async def go(server: FakeOpenEnv, url: str) -> None:
        environment = OpenEnvEnvironment(url, solved_at=0.7)
        start = await environment.reset(Task("Say words.", metadata={"openenv_reset": {"seed": 3}}))
        assert server.resets == [{"seed": 3}] and start.tools[0].parameters["required"] == ["word"]
        assert [message["content"] for message in start.messages] == ["Say words.", '{"echo": "ready"}']
        seen = await environment.step(act("tree"))
        assert seen.messages == [{"role": "tool", "content": '{"echo": "tree"}'}] and not seen.done
        assert (await environment.step(act(""))).messages[0]["content"] == "Error: no word"
        assert (await environment.step(act("end"))).done
        outcome = await environment.evaluate()
        assert outcome.score == pytest.approx(0.7) and outcome.solved
        await environment.close()

    with_openenv(go)


def test_a_full_broken_or_stopped_openenv_server_counts_as_unavailable() -> None:
    async def go(server: FakeOpenEnv, url: str) -> None:
        environment, other = OpenEnvEnvironment(url), OpenEnvEnvironment(url)
        await environment.reset(TASK)
        with pytest.raises(EnvironmentAway, match="CAPACITY_REACHED full"):
            await other.reset(TASK)
        with pytest.raises(EnvironmentAway, match="EXECUTION_ERROR"):
            await environment.step(act("break"))
        await asyncio.gather(environment.close(), other.close())
        nobody = OpenEnvEnvironment("http://127.0.0.1:9")
        with pytest.raises(EnvironmentAway, match=r"127\.0\.0\.1:9"):
            await nobody.reset(TASK)
        await nobody.close()

    with_openenv(go)
