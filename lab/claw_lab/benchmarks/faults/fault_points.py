"""Moments of a run at which a kill hurts most, detected from outside by the run's files.

Each watches the store or the run folder and returns once the moment is there; the kill follows within milliseconds.
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
"""Then the kill comes all the same, and counts as one at random."""

Point = Callable[[Loop], Awaitable[bool]]
"""Waits for the moment; False when it did not come."""


def number(loop: Loop, query: str) -> int:
    """The only value of a query to the store."""
    uri = f"file:{loop.run_dir}/buffer/buffer.db?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=5.0)) as database:
        return int(database.execute(query).fetchone()[0] or 0)


def announced_version(run_dir: Path) -> int:
    """The version that engines load when they start; 0 before the first."""
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
    """A training step has just taken its samples."""
    query = "SELECT max(rollout_id) FROM sample WHERE state = 'leased'"
    before = number(loop, query)
    return await _until(lambda: number(loop, query) > before)


async def checkpoint_written(loop: Loop) -> bool:
    """A checkpoint was just finished: trained, but the store does not know yet."""
    return await _appears(loop.run_dir / "checkpoints", "iter_*")


async def weights_exported(loop: Loop) -> bool:
    """New weights were just written that no engine has."""
    return await _appears(loop.run_dir / "checkpoints" / "weights", "v*")


async def weights_announced(loop: Loop) -> bool:
    """Engines were just notified of new weights; the store has no record yet that they are live."""
    before = announced_version(loop.run_dir)
    return await _until(lambda: announced_version(loop.run_dir) > before)


async def turn_claimed(loop: Loop) -> bool:
    """A judge worker has just taken a turn."""
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
