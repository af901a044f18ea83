"""Tests episodes in terminals: the effect of each tool, the observations, the end of an episode and its reward."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slime.agents import Action, Observation, Task, ToolCall
from slime.errors import EnvironmentAway, SandboxError
from slime.sandbox import Shells
from terminal_rl import system
from terminal_rl.environment import MOST_CALLS, SYSTEM, TerminalEnvironment, TerminalSettings
from terminal_rl.system import LIMITS
from terminal_rl.tools import TOOLS
from tests.terminal_rl.conftest import Write

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


class Played:
    """An episode played by a test."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.environment = TerminalEnvironment(TerminalSettings(folder, **settings))
        self.last = Observation()

    async def begin(self, name: str = "a-task") -> Played:
        self.start = await self.environment.reset(Task("", metadata={"task_path": name}))
        return self

    async def call(self, name: str, **arguments: object) -> str:
        self.last = await self.environment.step(Action("", (ToolCall(name, arguments),)))
        [message] = self.last.messages
        assert message["role"] == "tool"
        return str(message["content"])

    async def run(self, command: str, **more: object) -> str:
        return await self.call("shell_exec", id="main", command=command, **more)


Play = Callable[..., Any]


@pytest.fixture
async def play(write_task: Write) -> Any:
    """f(settings): a started episode of a task with one test; it is closed at the end."""
    folder, begun = write_task().path.parent, []

    async def play(**settings: object) -> Played:
        begun.append(Played(folder, **settings))
        return await begun[-1].begin()

    yield play
    for one in begun:
        await one.environment.close()


async def test_an_episode_starts_with_the_required_instructions(play: Play) -> None:
    episode = await play()
    system, user = (message["content"] for message in episode.start.messages)
    assert user == "Task name:a-task\nTask instruction: Write yes to /app/done."
    for part in (
        "System: Linux",
        "Folder: you begin in /app",
        "Date: 2",
        "</operating_environment>",
        "</terminal>",
    ):
        assert part in system
    assert [tool.name for tool in episode.start.tools] == [tool.name for tool in TOOLS]
    said = SYSTEM + " ".join(tool.description for tool in TOOLS)
    for name in ("shell_exec", "shell_view", "shell_write_to_process", "shell_kill_process"):
        assert name in said and name in {tool.name for tool in TOOLS}


async def test_a_shell_keeps_its_folder_and_variables_and_others_have_their_own(play: Play) -> None:
    episode = await play()
    assert await episode.run("mkdir here; cd here; A=1; pwd") == "/app/here"
    assert await episode.run("echo $A; pwd; awk 'BEGIN {print 2}'") == "1\n/app/here\n2"
    assert await episode.call("shell_exec", id="other", command="echo $A; pwd") == "\n/app"
    assert "No such file" in await episode.run("cd nowhere") and await episode.run("true") == "[no output]"


async def test_a_long_command_runs_in_the_background_and_can_be_viewed_fed_and_killed(
    play: Play,
) -> None:
    episode = await play()
    assert (
        await episode.run("echo a; read line; echo got $line; sleep 600", timeout=0.5)
    ) == "a\n[still running]"
    assert "still runs" in await episode.run("echo b")
    assert await episode.call("shell_view", id="main") == "[still running]"
    assert (
        await episode.call("shell_write_to_process", id="main", command="x y") == "got x y\n[still running]"
    )
    await episode.call("shell_kill_process", id="main")
    assert "there is no shell 'main'" in await episode.call("shell_view", id="main")
    assert await episode.run("echo c") == "c"
    assert await episode.run("echo now; sleep 600", block=False) in (
        "[still running]",
        "now\n[still running]",
    )


async def test_files_are_written_atomically_to_any_writable_path(play: Play) -> None:
    episode = await play()
    text = "a 'quoted' \"text\"\n$HOME `id` é\n" * 2000
    for path in ("deep/er/it's", "/tmp/x", "/app/done"):
        told = await episode.call("shell_write_content_to_file", content=text, file_path=path)
        assert told == "[no output]"
    assert (await episode.run('cmp "deep/er/it\'s" /tmp/x && wc -c < done')) == str(len(text.encode()))
    told = await episode.call("shell_write_content_to_file", content="x", file_path="/usr/bin/x")
    assert "Read-only file system" in told and "[exit code" in told


async def test_output_per_call_and_calls_per_turn_are_limited(play: Play) -> None:
    episode = await play(limits=replace(LIMITS, output_chars=300))
    shown = await episode.run("seq 100000")
    assert (
        len(shown) < 400
        and shown.startswith("1\n2\n")
        and "bytes in all" in shown
        and shown.endswith("100000")
    )
    calls = tuple(
        ToolCall("shell_exec", {"id": "main", "command": f"echo {n} >> n"}) for n in range(MOST_CALLS + 3)
    )
    seen = await episode.environment.step(Action("", calls))
    assert len(seen.messages) == MOST_CALLS + 1 and "only the first" in seen.messages[-1]["content"]
    assert (await episode.run("wc -l < n")) == str(MOST_CALLS)


async def test_scores_are_those_of_the_tests(play: Play) -> None:
    episode = await play()
    assert not (
        await episode.environment.step(Action("", (ToolCall("shell_exec", {"command": "true"}),)))
    ).done
    lost = await episode.environment.evaluate()
    assert (lost.score, lost.solved) == (-1.0, False) and "test_done" in lost.details["failures"][0]
    episode = await play()
    await episode.run("echo yes > done; sleep 600 &")
    assert (await episode.environment.step(Action("I am done."))).done
    won = await episode.environment.evaluate()
    assert (won.score, won.solved, won.details["accuracy"], won.details["tests"]) == (1.0, True, 1.0, 1)


async def test_an_episode_ends_at_its_time_limit_during_a_command_and_is_evaluated(
    play: Play,
) -> None:
    episode = await play()
    folder = episode.environment.task.folder
    episode.environment.task = replace(episode.environment.task, folder=replace(folder, agent_seconds=2.0))
    await asyncio.wait_for(episode.run("echo yes > done; sleep 600", timeout=300), 120)
    assert episode.last.done and (await episode.environment.evaluate()).solved


@pytest.mark.parametrize("slow", [True, False])
async def test_a_timeout_on_a_slow_machine_is_not_a_failed_task(
    slow: bool, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    episode = await play()
    folder = episode.environment.task.folder
    episode.environment.task = replace(episode.environment.task, folder=replace(folder, agent_seconds=0.2))
    await episode.run("sleep 600")
    assert episode.last.done
    monkeypatch.setattr(system, "SLOW_SECONDS", 0.0 if slow else 60.0)
    if slow:
        with pytest.raises(EnvironmentAway, match="the machine is slow"):
            await episode.environment.evaluate()
    else:
        assert (await episode.environment.evaluate()).score == -1.0


async def test_a_crashed_sandbox_is_not_a_failed_task(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    episode = await play()

    def away(*words: object) -> None:
        raise SandboxError("no place for a box")

    monkeypatch.setattr(Shells, "_start", away)
    with pytest.raises(EnvironmentAway, match="no place for a box"):
        await episode.run("true")


async def test_episodes_wait_for_their_sandboxes_concurrently(play: Play) -> None:
    """Each waits until all others have arrived: in threads of too small a pool they would wait for ever."""
    many = 12
    threads = ThreadPoolExecutor(many)
    episodes = [await play(threads=threads) for _ in range(many)]
    running = [asyncio.create_task(one.run("read line; echo $line", timeout=60.0)) for one in episodes]
    for one in episodes:
        while one.environment.shells.box is None:
            await asyncio.sleep(0.01)
    for one in episodes:
        one.environment.shells.box.close()
    told = await asyncio.gather(*running)
    assert all("all shells were ended; files in /app are kept" in one for one in told)


async def test_an_episode_leaves_no_files_or_processes(play: Play) -> None:
    episode = await play()
    await episode.run("echo x > file")
    place, box = episode.environment.workspace.path, episode.environment.shells.box
    await episode.environment.close()
    assert not place.exists() and box.exit_code(5.0) is not None
