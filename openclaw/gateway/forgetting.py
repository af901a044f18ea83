"""Forgets a person: the gateway deletes the rows of the store, the driver then deletes files, adapter and caches.

The run folder records the remaining steps (`claw_base.run_folder.forgetting`), so that another gateway can continue if
this one is killed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from claw_base.run_folder import forgetting
from claw_base.run_folder.forgetting import Forgetting
from openclaw.engine.live_adapter import FOLDER
from openclaw.errors import StoreError
from openclaw.gateway.recorder import Recorder
from openclaw.settings import PER_KEY, Settings, is_adapter_name

log = logging.getLogger(__name__)

Json = dict[str, Any]

ARGUMENTS = "arguments.json"
"""A run folder that contains this file has or had a driver."""
WAIT_SECONDS = 60.0
"""Longest wait for the driver, which may finish later."""
POLL_SECONDS = 0.1
LOOK_SECONDS = 2.0
"""Interval between checks for deletions that another gateway has not completed."""


class PeopleToForget:
    """Deletes the rows of people, and waits until the driver has deleted the rest.

    Args:
        run_dir: folder of the run whose driver deletes the rest; None without a driver.
        settings: settings of the gateway; None if the run has ended.
    """

    def __init__(self, recorder: Recorder, run_dir: Path | None, settings: Settings | None) -> None:
        self._recorder, self._settings = recorder, settings
        is_run = run_dir is not None and (run_dir / ARGUMENTS).is_file()
        self._run_dir = run_dir if is_run else None

    async def forget(self, person: str) -> Json | None:
        """Deletes all data of a person. Returns a report, or None if nothing is stored about the person.

        Returns:
            person: name of the person.
            deleted: number of deleted rows by kind.
            adapter: the person's own adapter, which is deleted too; None if there is none.
            shared: weights that also serve others and were trained on the person's turns, each the fields of an
                `openclaw.store.influence.Influence`. They do not change.
            running: number of requests with words of the person that are still being answered after
                `openclaw.gateway.running.DELETION_WAIT_SECONDS`. Their answers are not stored.
            status: "done", or "waiting" if the driver has not finished.
            seconds: duration of this call.

        Raises:
            StoreError: the store cannot be used.
        """
        began = time.monotonic()
        adapter = await asyncio.to_thread(self._own_adapter, person)
        influence = self._recorder.store.influence
        async with self._recorder.forgetting:  # keeps `watch` from continuing a deletion that runs here
            pending = self._pending(person)
            if pending is None and not await asyncio.to_thread(influence.is_known, person, adapter):
                return None
            influences = await asyncio.to_thread(influence.of, person)
            rollouts = await asyncio.to_thread(influence.rollouts_of, person, adapter)
            request = pending or Forgetting(person, adapter, rollouts)
            if self._run_dir is not None:
                await asyncio.to_thread(forgetting.write, self._run_dir, request)
            deleted, running = await self._delete_rows(person, request)
        shared = [asdict(one) for one in influences if one.adapter is None or one.adapter != adapter]
        done = await self._wait(person)
        seconds = round(time.monotonic() - began, 3)
        return {
            "person": person, "deleted": deleted, "adapter": adapter, "shared": shared,
            "running": running, "status": "done" if done else "waiting", "seconds": seconds,
        }  # fmt: skip

    async def watch(self) -> None:
        """Completes deletions that a killed gateway has begun. Runs until cancelled."""
        while self._run_dir is not None:
            async with self._recorder.forgetting:
                for one in await asyncio.to_thread(forgetting.waiting, self._run_dir):
                    if not one.rows_deleted:
                        try:
                            await self._delete_rows(one.person, one)
                        except StoreError as error:
                            log.warning("the deletion of a person's data failed, it is retried: %s", error)
            await asyncio.sleep(LOOK_SECONDS)

    async def _delete_rows(self, person: str, one: Forgetting) -> tuple[dict[str, int], int]:
        """Returns the number of deleted rows by kind, and of uses of the person's words that still run.

        The driver acts after their end, so that it also deletes their prompts from the caches of engines.
        """
        deleted, rollouts = await self._recorder.delete_person(person, one.adapter)
        running = await self._recorder.uses.end_of_person(person)
        if running:
            log.warning("a person was deleted while %d requests of that person are still answered", running)
        if self._run_dir is not None:
            await asyncio.to_thread(forgetting.write, self._run_dir, one.with_rows_deleted(rollouts))
        return deleted, running

    async def _wait(self, person: str) -> bool:
        """Waits for the driver. Returns whether all data of the person is deleted."""
        deadline = time.monotonic() + WAIT_SECONDS
        while self._pending(person) is not None:
            if self._settings is None or time.monotonic() > deadline:
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True

    def _pending(self, person: str) -> Forgetting | None:
        """Returns the unfinished deletion of a person; None if there is none."""
        return None if self._run_dir is None else forgetting.read(self._run_dir, person)

    def _own_adapter(self, person: str) -> str | None:
        """Returns the adapter that only this person's key trained; None if there is none. Raises StoreError.

        The adapter is also found if the run has ended, or no longer has the key or the adapter in its settings.
        """
        if self._settings is not None and person in self._settings.trained_adapters:
            return person if person in self._settings.own_adapters else None
        can_be_adapter = self._run_dir is not None and is_adapter_name(person)
        if self._run_dir is None or not can_be_adapter or not (self._run_dir / FOLDER / person).is_dir():
            return None
        if keys := self._recorder.store.policies.keys_of(person):
            return person if keys == {person} else None
        if self._settings is not None:
            trained = self._settings.train_adapters
        else:
            trained = orjson.loads((self._run_dir / ARGUMENTS).read_bytes()).get("train_adapters")
        return person if str(trained).strip() == PER_KEY else None
