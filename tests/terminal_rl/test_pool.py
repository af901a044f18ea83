"""Tests terminals in a pool: the same episode, in another process."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import pytest

from slime.agents import Action, Task, ToolCall
from slime.errors import EnvironmentAway
from slime.pool import PoolEnvironment, local_pool
from terminal_rl import served
from terminal_rl.environment import TerminalEnvironment
from terminal_rl.generate import TerminalFlags, environment_use, settings_of, start
from tests.terminal_rl.conftest import Write

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


async def test_an_episode_in_a_pool_is_rewarded_by_its_tests(
    write_task: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATASET_DIR", str(write_task().path.parent))
    served._settings.cache_clear()
    async with local_pool(served.environment) as make:
        one = make()
        begun = await one.reset(Task("", metadata={"task_path": "a-task"}))
        assert len(begun.tools) == 5 and "/app/done" in begun.messages[-1]["content"]
        seen = await one.step(
            Action("", (ToolCall("shell_exec", {"id": "x", "command": "echo yes > done; pwd"}),))
        )
        assert seen.messages == [{"role": "tool", "content": "/app"}] and not seen.done
        odd = (ToolCall("shell_exec", {}), ToolCall("shell_fly", {}))
        told = [message["content"] for message in (await one.step(Action("", odd))).messages]
        assert "the argument command is missing" in told[0] and "there is no tool 'shell_fly'" in told[1]
        found = await one.evaluate()
        assert (found.score, found.solved, found.details["tests"]) == (1.0, True, 1)
        await one.close()
    served._settings.cache_clear()


async def test_the_pool_rejects_a_row_outside_the_task_folder(
    write_task: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(TerminalFlags(parallel_envs=1, tasks_dir=str(write_task().path.parent)))
    async with local_pool(lambda: TerminalEnvironment(settings)) as make:
        one = make()
        with pytest.raises(EnvironmentAway, match="task_path"):
            await one.reset(Task("", metadata={"task_path": "../a-task"}))
        await one.close()


def test_a_run_with_remote_terminals_needs_no_local_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise AssertionError("no sandbox is needed here")

    monkeypatch.setattr("terminal_rl.generate.require_sandbox", refuse)
    flags: Any = TerminalFlags(env_server_url="http://127.0.0.1:1", tasks_dir="/nowhere")
    assert start(flags, {}) == [] and environment_use(flags) is None
    assert environment_use(replace(flags, env_server_url=None)) is not None
    assert PoolEnvironment("http://127.0.0.1:1", None).lease is None
