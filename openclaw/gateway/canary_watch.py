"""Asks the canaries of live weights whenever a new version is live, while nobody else is answered."""

from __future__ import annotations

import asyncio
import logging
import uuid
from contextlib import aclosing

from openclaw.engine.generation import EngineRequest, Generation
from openclaw.errors import ClawError
from openclaw.gateway.canaries import Canaries
from openclaw.gateway.gateway import Gateway
from openclaw.store import RolloutStore
from openclaw.types import Turn

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""Between two looks whether a version is live under which somebody's wishes were not counted."""
RETRY_SECONDS = 60.0
"""After a look that failed, or in which another version answered than the store has as live."""
PATIENCE_SECONDS = 30.0
"""How long a canary waits for people's answers to end; then it is asked beside them."""
QUIET_POLL_SECONDS = 0.05
MOST_TOKENS = 512


class LiveModel:
    """The weights that serve, through the gateway's engines; nothing of it is stored."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def answer(self, turn: Turn, prompt_ids: list[int], seed: int) -> tuple[list[int], int]:
        """Raises ClientError where the engines refuse, or the prompt leaves no room."""
        await self._quiet()
        room = self._gateway.context_length - len(prompt_ids)
        wanted = EngineRequest(
            id=f"canary-{uuid.uuid4().hex}",
            prompt_ids=prompt_ids,
            max_new_tokens=max(1, min(MOST_TOKENS, room)),
            sampling={"temperature": turn.sampling["temperature"], "sampling_seed": seed},
            stop_ids=frozenset(self._gateway.format.stop_ids),
            log_probs=False,
        )
        generation = Generation(self._gateway.engines, wanted, wanted.id)
        async with aclosing(generation.run()) as increments:
            async for _ in increments:
                pass
        versions = {version for version, _, _ in generation.spans}
        return generation.ids, versions.pop() if len(versions) == 1 else -1

    async def log_prob(self, prompt_ids: list[int], ids: list[int]) -> float:
        """Raises EngineError."""
        await self._quiet()
        engines = self._gateway.engines
        return await engines.log_prob(engines.preferred("canary")[0], prompt_ids, ids)

    async def _quiet(self) -> None:
        waited = 0.0
        while self._gateway.running.running and waited < PATIENCE_SECONDS:
            await asyncio.sleep(QUIET_POLL_SECONDS)
            waited += QUIET_POLL_SECONDS


async def watch(gateway: Gateway, store: RolloutStore) -> None:
    """Until cancelled. What fails is tried again later."""
    canaries = Canaries(store, gateway.format, LiveModel(gateway))
    pause = LOOK_SECONDS
    while True:
        await asyncio.sleep(pause)
        try:
            version = await asyncio.to_thread(store.versions.live)
            found = [await canaries.look(person, version) for person in await canaries.due(version)]
        except ClawError as error:
            log.info("canaries are asked again later: %s", error)
            pause = RETRY_SECONDS
            continue
        pause = LOOK_SECONDS if all(found) else RETRY_SECONDS
        for one in (one for looked in found for one in looked if one.count.held):
            log.info("version %d holds a wish: %d of %d", version, one.count.shown, one.count.asked)
