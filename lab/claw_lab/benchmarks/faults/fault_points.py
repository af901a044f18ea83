"""Finds the moments of a run at which a kill does most harm, from the files of the run.

Each function watches the store or the run folder and returns at its moment; the kill follows within milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

from openclaw_test.loop.real_loop import Loop

LOOK_EVERY_S = 0.002
LONGEST_WAIT_S = 30.0
"""Seconds after which the process is killed anyway; the kill then counts as random."""

Point = Callable[[Loop], Awaitable[bool]]
"""Waits for its moment; returns False if it did not come."""


def number(loop: Loop, query: str) -> int:
    """Returns the only value of a query to the store."""
    uri = f"file:{loop.run_dir}/buffer/buffer.db?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=5.0)) as database:
        return int(database.execute(query).fetchone()[0] or 0)


def announced_version(run_dir: Path) -> int:
    """Returns the version that engines load when they start; 0 before the first."""
    try:
        return int(json.loads((run_dir / "live_weights.json").read_text())["version"])
    except (FileNotFoundError, ValueError):
        return 0


async def _until(changed: Callable[[], bool]) -> bool:
    deadline = asyncio.get_running_loop().time() + LONGEST_WAIT_S
    while asyncio.get_running_loop().time() < deadline:
        if changed():
            return True
        await asyncio.sleep(LOOK_EVERY_S)
    return False


async def _appears(folder: Path, pattern: str) -> bool:
    def names() -> set[Path]:
        return set(folder.glob(pattern))

    before = names()
    return await _until(lambda: bool(names() - before))


async def batch_leased(loop: Loop) -> bool:
    """Waits until a training step has leased its samples."""
    query = "SELECT max(rollout_id) FROM sample WHERE state = 'leased'"
    before = number(loop, query)
    return await _until(lambda: number(loop, query) > before)


async def checkpoint_written(loop: Loop) -> bool:
    """Waits until a checkpoint is written, before the store records it."""
    return await _appears(loop.run_dir / "checkpoints", "iter_*")


async def weights_exported(loop: Loop) -> bool:
    """Waits until new weights are written that no engine has loaded."""
    return await _appears(loop.run_dir / "checkpoints" / "weights", "v*")


async def weights_announced(loop: Loop) -> bool:
    """Waits until engines are notified of new weights, before the store records them as live."""
    before = announced_version(loop.run_dir)
    return await _until(lambda: announced_version(loop.run_dir) > before)


async def turn_claimed(loop: Loop) -> bool:
    """Waits until a judge worker has claimed a turn."""
    query = "SELECT count(*) FROM turn WHERE state = 'answered' AND claimed_by IS NOT NULL"
    await _until(lambda: number(loop, query) == 0)
    return await _until(lambda: number(loop, query) > 0)


POINTS: dict[str, Point] = {
    "batch leased": batch_leased,
    "checkpoint written": checkpoint_written,
    "weights exported": weights_exported,
    "weights announced": weights_announced,
    "turn claimed": turn_claimed,
}
