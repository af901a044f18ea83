"""Plays environments of others by scripts: `bash tests/long/environments.sh`. Exit status 1 when something is wrong."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx

from openclaw.common.ports import free_port
from slime.agents import Action, Task, ToolCall
from slime.agents.foreign import OpenEnvEnvironment, VerifiersEnvironments
from slime.errors import EnvironmentAway
from terminal_rl.environment import TerminalEnvironment, TerminalSettings
from tests import ROOT
from toolcall_rl.tools.config import read_tools

GAME = ROOT / "slime" / "examples" / "verifiers_game"
START_SECONDS = 120.0
GREETING = """from pathlib import Path

def test_greeting():
    assert Path("/app/greeting.txt").read_text().strip() == "hello"
"""


async def verifiers(folder: Path) -> str:
    """A word is found, an episode is cut off, a worker is killed."""
    nltk = folder / "nltk"
    await done(sys.executable, str(GAME / "tiny.py"), "words", str(nltk))
    words = (GAME / "words.txt").read_text().split()
    made = VerifiersEnvironments(
        {"taskset": {"id": "textarena", "game": "Hangman-v0"}},
        python=os.environ["VERIFIERS_PYTHON"],
        environment={"NLTK_DATA": str(nltk)},
    )
    [row] = await made.rows(7, 1)
    word, task = random.Random(7).choice(words), Task(row["prompt"], None, row["metadata"])
    found, cut, broken = made(), made(), made()
    await asyncio.gather(*(one.reset(task) for one in (found, cut, broken)))
    assert (await found.step(Action(f"[{word[0]}]"))).messages[0]["content"].count(word[0].upper()) >= 1
    assert (await found.step(Action(f"[{word}]"))).done
    outcome = await found.evaluate()
    assert outcome.solved and outcome.details["rewards"] == {"game_reward": 1.0}, outcome
    await cut.step(Action(f"[{word[0]}]"))
    assert not (await cut.evaluate()).solved
    process = made.worker._process
    assert process is not None and process.process is not None
    os.kill(process.process.pid, signal.SIGKILL)
    with contextlib.suppress(EnvironmentAway):
        await broken.step(Action("[A]"))
        raise AssertionError("a killed worker answered")
    again = made()
    await again.reset(task)
    assert (await again.step(Action(f"[{word}]"))).done and (await again.evaluate()).solved
    await made.worker.close()
    return f"Hangman of verifiers: {word!r} found, one episode cut off, one begun again after kill -9"


async def openenv(folder: Path) -> str:
    """The environment that `openenv init` makes, served as its README says."""
    python, port = os.environ["OPENENV_PYTHON"], free_port()
    await done(python, "-m", "openenv.cli", "init", "echo_env", "--output-dir", str(folder))
    async with server(
        [python, "-m", "uvicorn", "server.app:app", "--port", str(port)], folder / "echo_env", port
    ):
        environment = OpenEnvEnvironment(f"http://127.0.0.1:{port}", solved_at=0.5)
        start = await environment.reset(Task("Say something long."))
        [required] = start.tools[0].parameters["required"]
        seen = await environment.step(Action("", (ToolCall("act", {required: "Hello"}),)))
        assert json.loads(seen.messages[0]["content"])["echoed_message"] == "Hello" and seen.step_score == 0.5
        assert (await environment.evaluate()).solved
        await environment.close()
    return "OpenEnv's own environment: one action, reward 0.5"


async def done(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
    assert await process.wait() == 0, command


@contextlib.asynccontextmanager
async def server(command: list[str], folder: Path, port: int) -> AsyncIterator[None]:
    """Runs until the block ends."""
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + START_SECONDS
        async with httpx.AsyncClient(trust_env=False) as client:
            while time.monotonic() < until:
                with contextlib.suppress(httpx.TransportError):
                    if (await client.get(f"http://127.0.0.1:{port}/health")).status_code == 200:
                        break
                assert process.returncode is None, "the server has ended"
                await asyncio.sleep(0.2)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def harbor(folder: Path) -> str:
    """A task folder that Harbor's own command makes, played in a box: its tests pass where nothing is wrong."""
    python = os.environ.get("HARBOR_PYTHON")
    if not python:
        return "Harbor: left out, for its package needs Python 3.12"
    words = ["init", "acme/say-hello", "--task", "-o", str(folder), "--author", "A <a@example.org>"]
    await done(python, "-c", "from harbor.cli.main import app; app()", *words, "--description", "x")
    (folder / "say-hello" / "instruction.md").write_text("Write hello to /app/greeting.txt.")
    (folder / "say-hello" / "tests" / "test_outputs.py").write_text(GREETING)
    environment = TerminalEnvironment(TerminalSettings(tasks_dir=folder))
    start = await environment.reset(Task("", metadata={"task_path": "say-hello"}))
    command = {"id": "1", "command": "echo hello > /app/greeting.txt", "block": True}
    seen = await environment.step(Action("", (ToolCall(start.tools[0].name, command),)))
    outcome = await environment.evaluate()
    await environment.close()
    assert outcome.solved, (seen.messages, outcome)
    return "Harbor's own new task, with a test in it: solved in a box"


async def mcp(folder: Path) -> str:
    """A published MCP server as a tool of toolcall-rl."""
    command = [os.environ["MCP_PYTHON"], "-m", "mcp_server_time", "--local-timezone", "UTC"]
    config = {"tools": [{"type": "mcp", "command": command, "prefix": "clock_", "seconds": 60}]}
    [source] = read_tools(json.dumps(config)).sources
    names = [tool.name for tool in await source.tools()]
    assert "clock_convert_time" in names, names
    arguments = {"source_timezone": "UTC", "target_timezone": "Asia/Tokyo", "time": "16:30"}
    told = await source.opened().call("clock_convert_time", arguments)
    assert "01:30" in told, told
    wrong = await source.opened().call("clock_convert_time", {**arguments, "time": "late"})
    assert "Error" in wrong, wrong
    await source.close()
    return f"mcp-server-time: {', '.join(names)}; 16:30 UTC is 01:30 in Tokyo"


async def main() -> int:
    bad = 0
    checks: tuple[Callable[[Path], Awaitable[str]], ...] = (verifiers, openenv, harbor, mcp)
    for check in checks:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                told = await check(Path(folder))
            except Exception as error:
                bad, told = 1, f"{check.__name__} FAILED: {type(error).__name__} {error}"
        print(f"{told} ({time.monotonic() - began:.0f} s)", flush=True)
    return bad


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
