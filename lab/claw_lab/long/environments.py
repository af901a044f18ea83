"""Plays environments of other projects with scripts, or trains on them: `bash lab/claw_lab/long/environments.sh
[--train]`.

Exit status 1 if a check fails.
"""

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
from collections.abc import Awaitable, Callable
from pathlib import Path

from claw_base.ports import free_port
from claw_lab import ROOT
from claw_lab.long import foreign_training as training
from claw_lab.long.foreign import HARBOR, clock, done, server
from claw_lab.long.verifiers_turn import cost_of_a_turn
from claw_lab.tiny_models.verifiers_game import WORDS
from slime.agents import Action, Outcome, Task, ToolCall
from slime.agents.foreign import OpenEnvEnvironment, VerifiersEnvironments
from slime.errors import EnvironmentAway
from terminal_rl.environment import TerminalEnvironment, TerminalSettings
from terminal_rl.harbor_rewards import NoReward, rewards_of
from toolcall_rl.tools.config import read_tools

GAME = ROOT / "slime" / "examples" / "verifiers_game"
READS = """import json, sys
from pathlib import Path
from types import SimpleNamespace
from harbor.verifier.verifier import Verifier

found = []
for files in json.load(sys.stdin):
    paths = SimpleNamespace(reward_json_path=Path("reward.json"), reward_text_path=Path("reward.txt"))
    verifier = Verifier.__new__(Verifier)
    verifier.trial_paths = paths
    for path in vars(paths).values():
        path.unlink(missing_ok=True)
    for name, text in files.items():
        Path(name).write_text(text)
    read = verifier._parse_reward_json if "reward.json" in files else verifier._parse_reward_text
    try:
        found.append(dict(read()))
    except Exception as error:
        found.append(None)
print(json.dumps(found))
"""
REWARDS: list[dict[str, str]] = [
    {"reward.txt": "1"},
    {"reward.txt": " 0.5\n"},
    {"reward.txt": ""},
    {"reward.txt": "yes"},
    {"reward.txt": "nan"},
    {"reward.txt": "0", "reward.json": '{"reward": 0.25, "speed": 3}'},
    {"reward.json": '{"reward": "1"}'},
    {"reward.json": '{"reward": Infinity}'},
    {"reward.json": "[1]"},
    {"reward.json": "{"},
]
COUNTS = """#!/bin/bash
echo "{\\"reward\\": 0.$(grep -c yes done), \\"lines\\": $(wc -l < done)}" > /logs/verifier/reward.json
"""
GREETING = """from pathlib import Path

def test_greeting():
    assert Path("/app/greeting.txt").read_text().strip() == "hello"
"""


async def verifiers(folder: Path) -> str:
    """Checks a solved word, a truncated episode, and a killed worker."""
    nltk = folder / "nltk"
    await done(sys.executable, "-m", "claw_lab.tiny_models.verifiers_game", "words", str(nltk))
    words = WORDS
    made = VerifiersEnvironments(
        {"taskset": {"id": "textarena", "game": "Hangman-v0"}},
        python=os.environ["VERIFIERS_PYTHON"],
        environment={"NLTK_DATA": str(nltk)},
    )
    [row] = await made.rows(7, 1)
    word, task = random.Random(7).choice(words), Task(row["prompt"], None, row["metadata"])
    complete, cut, broken = made(), made(), made()
    await asyncio.gather(*(one.reset(task) for one in (complete, cut, broken)))
    assert (await complete.step(Action(f"[{word[0]}]"))).messages[0]["content"].count(word[0].upper()) >= 1
    assert (await complete.step(Action(f"[{word}]"))).done
    outcome = await complete.evaluate()
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
    spent = await cost_of_a_turn(made)
    await made.worker.close()
    assert spent < 0.02, f"{1000 * spent:.0f} ms of a core a turn"
    summary = f"Hangman of verifiers: {word!r} found, one episode cut off, one begun again after kill -9"
    return f"{summary}; {1000 * spent:.1f} ms of a core a turn"


async def openenv(folder: Path) -> str:
    """Checks the environment that `openenv init` creates, served as its README describes."""
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


async def harbor(folder: Path) -> str:
    """Checks task folders created by Harbor's own command, in sandboxes: one with test functions, one whose script
    writes rewards, which are read as by Harbor's verifier."""
    python = os.environ.get("HARBOR_PYTHON")
    if not python:
        return "Harbor: left out, for its package needs Python 3.12"
    words = ["--task", "-o", str(folder), "--author", "A <a@example.org>", "--description", "x"]
    for name, more in (("say-hello", []), ("say-yes", ["--no-pytest"])):
        await done(python, "-c", HARBOR, "init", f"acme/{name}", *words, *more)
        (folder / name / "instruction.md").write_text(
            "Write hello to /app/greeting.txt, or yes to /app/done."
        )
    (folder / "say-hello" / "tests" / "test_outputs.py").write_text(GREETING)
    (folder / "say-yes" / "tests" / "test.sh").write_text(COUNTS)
    hello = await played(folder, "say-hello", "echo hello > /app/greeting.txt")
    assert hello.solved, hello
    yes = await played(folder, "say-yes", "yes yes | head -n 5 > done")
    assert yes.details["rewards"] == {"reward": 0.5, "lines": 5.0} and yes.score == 0.0, yes
    assert read_by_us() == await asyncio.to_thread(read_by_harbor, python, folder)
    return f"Harbor's own new tasks: functions and a script that writes a reward; {len(REWARDS)} files read alike"


async def played(folder: Path, task: str, command: str) -> Outcome:
    environment = TerminalEnvironment(TerminalSettings(tasks_dir=folder))
    try:
        start = await environment.reset(Task("", metadata={"task_path": task}))
        call = ToolCall(start.tools[0].name, {"id": "1", "command": command, "block": True})
        await environment.step(Action("", (call,)))
        return await environment.evaluate()
    finally:
        await environment.close()


def read_by_us() -> list[dict[str, float] | None]:
    rewards: list[dict[str, float] | None] = []
    for files in REWARDS:
        try:
            rewards.append(rewards_of(files))
        except NoReward:
            rewards.append(None)
    return rewards


def read_by_harbor(python: str, folder: Path) -> list[dict[str, float] | None]:
    finished = subprocess.run(
        [python, "-c", READS],
        cwd=folder,
        input=json.dumps(REWARDS),
        capture_output=True,
        text=True,
        check=True,
    )
    rewards: list[dict[str, float] | None] = json.loads(finished.stdout)
    return rewards


async def mcp(folder: Path) -> str:
    """Checks a published MCP server as a tool of toolcall-rl."""
    [source] = read_tools(clock()).sources
    names = [tool.name for tool in await source.tools()]
    assert "clock_convert_time" in names, names
    arguments = {"source_timezone": "UTC", "target_timezone": "Asia/Tokyo", "time": "16:30"}
    answer = await source.opened().call("clock_convert_time", arguments)
    assert "01:30" in answer, answer
    wrong = await source.opened().call("clock_convert_time", {**arguments, "time": "late"})
    assert "Error" in wrong, wrong
    await source.close()
    return f"mcp-server-time: {', '.join(names)}; 16:30 UTC is 01:30 in Tokyo"


async def main() -> int:
    bad = 0
    checks: list[Callable[[Path], Awaitable[str]]] = [verifiers, openenv, harbor, mcp]
    if "--train" in sys.argv[1:]:
        checks = [training.openenv, training.harbor, training.mcp]
    for check in checks:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                summary = await check(Path(folder))
            except Exception as error:
                bad, summary = 1, f"{check.__name__} FAILED: {type(error).__name__} {error}"
        print(f"{summary} ({time.monotonic() - began:.0f} s)", flush=True)
    return bad


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
