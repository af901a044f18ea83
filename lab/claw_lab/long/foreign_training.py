"""RL on environments and tools of other projects: `bash lab/claw_lab/long/environments.sh --train`.

A model that knows the call format of the tool, and calls it at random, is trained on the rewarded calls.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from claw_base.ports import free_port
from claw_lab import ROOT
from claw_lab.long.foreign import HARBOR, clock, done, server
from claw_lab.tiny_models.dialogue import Answered, Dialogue
from claw_lab.tiny_models.recipe import Recipe, make_checkpoint
from slime.agents import Action, Start, Task, ToolCall
from slime.agents.foreign import OpenEnvEnvironment
from slime.agents.protocol import Environment
from terminal_rl.environment import TerminalEnvironment, TerminalSettings
from toolcall_rl.prompt import first_messages
from toolcall_rl.tools.config import read_tools

RECIPE = Recipe(vocabulary=420, hidden=64, layers=2, steps=600, batch_tokens=2000, corpus=400)
GAINED = 0.25
LIMIT_SECONDS = 900
WORDS = ["a", "be", "cat", "door", "eagle", "flower", "general"]
ZONES = {
    "Tokyo": ("Asia/Tokyo", "9"),
    "Dubai": ("Asia/Dubai", "4"),
    "Karachi": ("Asia/Karachi", "5"),
    "Dhaka": ("Asia/Dhaka", "6"),
}
ONE_SESSION = """import os
from slime.agents import EpisodeLimits, agent
from slime.agents.foreign import OpenEnvEnvironment

generate = agent(lambda: OpenEnvEnvironment(os.environ["OPENENV_URL"], 0.5), EpisodeLimits(turns=2), parallel=1)
"""
COUNTS = """#!/bin/bash
touch done
echo "{\\"reward\\": 0.$(grep -c yes done)}" > /logs/verifier/reward.json
"""


@dataclass(frozen=True)
class Lesson:
    """The demonstrations of a model, and its training.

    Attributes:
        dialogues: a demonstration is drawn from these.
        rows: prompt rows of the tasks.
        flags, environment: additional flags and environment variables of the driver.
        rollouts: number of rollouts, each of 64 episodes.
        rate: learning rate.
    """

    dialogues: Sequence[Dialogue]
    rows: Sequence[dict[str, Any]]
    flags: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)
    rollouts: int = 16
    rate: float = 2e-3


async def openenv(folder: Path) -> str:
    """Trains on OpenEnv's own new environment, whose reward is 0.1 for each character of an answer."""
    python, port = os.environ["OPENENV_PYTHON"], free_port()
    await done(python, "-m", "openenv.cli", "init", "echo_env", "--output-dir", str(folder))
    url, asked = f"http://127.0.0.1:{port}", "Say something."
    async with server(
        [python, "-m", "uvicorn", "server.app:app", "--port", str(port)], folder / "echo_env", port
    ):
        environment = OpenEnvEnvironment(url)
        start = await environment.reset(Task(asked))
        [name] = start.tools[0].parameters["required"]
        dialogues = [await played(environment, start, "act", {name: word}) for word in WORDS]
        await environment.close()
        (folder / "echo.py").write_text(ONE_SESSION)
        flags = ["--custom-generate-function-path", f"{folder}/echo.py:generate", "--input-key", "prompt"]
        lesson = Lesson(dialogues, [{"prompt": asked}], flags, {"OPENENV_URL": url})
        return checked_rewards("OpenEnv's own environment, characters said", await learned(folder, lesson))


async def harbor(folder: Path) -> str:
    """Trains on Harbor's own new task, whose script rewards 0.1 for each line."""
    python = os.environ.get("HARBOR_PYTHON")
    if not python:
        return "Harbor: left out, for its package needs Python 3.12"
    words = ["--task", "-o", str(folder), "--author", "A <a@example.org>", "--description", "x"]
    await done(python, "-c", HARBOR, "init", "acme/say-yes", *words, "--no-pytest")
    (folder / "say-yes" / "instruction.md").write_text("Write lines of yes to /app/done.")
    (folder / "say-yes" / "tests" / "test.sh").write_text(COUNTS)
    environment = TerminalEnvironment(TerminalSettings(tasks_dir=folder, system=False))
    start = await environment.reset(Task("", metadata={"task_path": "say-yes"}))
    dialogues = []
    for lines in range(1, 10):
        call = {"id": "main", "command": f"yes yes | head -n {lines} > /app/done"}
        dialogues.append(await played(environment, start, start.tools[0].name, call))
    await environment.close()
    flags = ["--custom-generate-function-path", "terminal_rl.generate.generate", "--input-key", "task"]
    flags += ["--tasks-dir", str(folder), "--no-terminal-system-prompt", "--max-steps", "2"]
    row = {"task": "say-yes", "metadata": {"task_path": "say-yes"}}
    lesson = Lesson(dialogues, [row], flags)
    return checked_rewards("Harbor's own new task, lines written", await learned(folder, lesson))


async def mcp(folder: Path) -> str:
    """Trains on time differences by a published MCP server; before RL, most cities are looked up in the zone of the
    next one."""
    config = clock()
    [source] = read_tools(config).sources
    tools, opened = tuple(await source.tools()), source.opened()
    seen = {}
    for zone, _ in ZONES.values():
        arguments = {"source_timezone": "UTC", "time": "12:00", "target_timezone": zone}
        seen[zone] = (arguments, await opened.call("clock_convert_time", arguments))
    await source.close()
    dialogues, rows, places = [], [], list(ZONES)
    for number, (city, (_, hours)) in enumerate(ZONES.items()):
        asked = f"How many hours is {city} ahead of UTC?"
        rows.append({"prompt": asked, "label": hours})
        start = Start(first_messages(Task(asked)), tools)
        mistaken = places[(number + 1) % len(places)]
        for zone, read in (ZONES[place] for place in (*places, mistaken, mistaken)):
            arguments, text = seen[zone]
            call = Answered(written("clock_convert_time", arguments), [{"role": "tool", "content": text}])
            dialogues.append(Dialogue(start, [call, Answered(f"Answer: \\boxed{{{read}}}")]))
    flags = ["--custom-generate-function-path", "toolcall_rl.generate.generate", "--input-key", "prompt"]
    flags += ["--label-key", "label", "--max-turns", "2", "--no-tool-encouragement"]
    flags += ["--answer-check", "strict"]
    lesson = Lesson(dialogues, rows, flags, {"TOOLS_CONFIG": config}, rollouts=40, rate=7e-4)
    return checked_rewards("mcp-server-time, hours between zones", await learned(folder, lesson))


def written(name: str, arguments: dict[str, Any]) -> str:
    """Returns a call as the model writes it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


async def played(environment: Environment, start: Start, name: str, arguments: dict[str, Any]) -> Dialogue:
    """Returns a dialogue of one call and the environment's output."""
    seen = await environment.step(Action("", (ToolCall(name, arguments),)))
    return Dialogue(start, [Answered(written(name, arguments), seen.messages), Answered("Done.")])


async def learned(folder: Path, lesson: Lesson) -> list[float]:
    """Trains; returns the mean rewards of the rollouts."""
    model, run = folder / "model", folder / "run"
    await asyncio.to_thread(make_checkpoint, model, lambda rng: rng.choice(lesson.dialogues), RECIPE)
    rows = random.Random(1).choices(lesson.rows, k=8)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = [
        *("--hf-checkpoint", str(model), "--train-backend", "fsdp", "--backend", "embedded"),
        *("--run-dir", str(run), "--prompt-data", str(folder / "rows.jsonl"), "--metadata-key", "metadata"),
        *("--num-rollout", str(lesson.rollouts), "--rollout-batch-size", "8", "--n-samples-per-prompt", "8"),
        *("--num-steps-per-rollout", "1", "--rollout-max-response-len", "64"),
        *("--disable-grpo-std-normalization", "--calculate-per-token-loss", "--lr", str(lesson.rate)),
        *("--lr-warmup-iters", "2", "--weight-decay", "0.0"),
        *("--reward-key", "score", "--save-interval", "1000"),
    ]
    driver = [sys.executable, str(ROOT / "slime" / "train.py"), *flags, *lesson.flags]
    command = [sys.executable, "-m", "slime.processes.supervisor", "--run-dir", str(run), "--", *driver]
    environment = os.environ | lesson.environment
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            status: int | str = await asyncio.wait_for(process.wait(), LIMIT_SECONDS)
        except TimeoutError:
            process.terminate()
            await process.wait()
            status = f"not done in {LIMIT_SECONDS} s"
    assert status == 0, f"{status}: {(folder / 'log').read_text()[-3000:]}"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["rollout/reward_mean"] for line in lines if "rollout/reward_mean" in line]


def checked_rewards(what: str, rewards: list[float]) -> str:
    first, last = statistics.fmean(rewards[:2]), statistics.fmean(rewards[-2:])
    assert last - first >= GAINED, f"{what}: {[round(one, 2) for one in rewards]}"
    return f"{what}: mean reward {first:.2f} -> {last:.2f} in {len(rewards)} rollouts"
