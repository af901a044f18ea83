"""Measures the processor time that a turn of a verifiers game costs its process, independent of the machine's
load."""

from __future__ import annotations

import asyncio
import random
import string
from typing import Any

import psutil

from slime.agents import Action, Task
from slime.agents.foreign import VerifiersEnvironments

GAMES = 16


async def cost_of_a_turn(made: VerifiersEnvironments) -> float:
    """Returns the processor seconds of the worker, with 16 games of Hangman at a time."""
    rows = await made.rows(100, GAMES)
    worker = made.worker._process
    assert worker is not None and worker.process is not None
    process = psutil.Process(worker.process.pid)
    before = _seconds(process)
    turns = sum(await asyncio.gather(*(_played(made, row) for row in rows)))
    return (_seconds(process) - before) / turns


async def _played(made: VerifiersEnvironments, row: dict[str, Any]) -> int:
    """Plays letters in random order; returns how many were named."""
    environment, turns, over = made(), 0, False
    letters = iter(random.Random(row["metadata"]["task_id"]).sample(string.ascii_uppercase, 26))
    await environment.reset(Task(row["prompt"], None, row["metadata"]))
    while not over:
        over, turns = (await environment.step(Action(f"[{next(letters)}]"))).done, turns + 1
    await environment.close()
    return turns


def _seconds(process: psutil.Process) -> float:
    spent = process.cpu_times()
    return float(spent.user + spent.system)
