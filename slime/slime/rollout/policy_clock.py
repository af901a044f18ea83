"""How many rollouts the weights that serve now were trained on."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from slime.rollout.engine_pool import EngineAway, EnginePool
from slime.weights.versions import read_live

LOOK_EVERY = 0.2  # seconds


class PolicyClock:
    """Counts trained rollouts by `live_weights.json` in the run folder, once every engine serves that version.

    So a group that starts when the clock says `n` is written by weights after at least `n` rollouts. Where no
    weights were announced, as when only rollouts are made, the clock stands at the rollout that is asked for.
    """

    def __init__(self, run_dir: str, pool: EnginePool) -> None:
        self.run_dir, self.pool = Path(run_dir), pool
        self.trained: int | None = None
        self._version: int | None = None
        self._next_look = 0.0

    async def look(self, asked: int) -> int:
        """Rollouts trained; `asked` is the rollout that is asked for now."""
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_EVERY
            await self._refresh()
        return asked if self.trained is None else self.trained

    async def _refresh(self) -> None:
        live = await asyncio.to_thread(read_live, self.run_dir)
        if live is None or live.rollout_id is None or live.version == self._version:
            return
        try:
            serving = await self.pool.versions()
        except EngineAway:
            return  # the pool's requests say so too; until then the clock stands
        if serving and min(serving) >= live.version:
            self._version, self.trained = live.version, live.rollout_id + 1
