"""Forgets a person: deletes the store's rows; the run's driver then deletes files, adapter and cached data in
engines.

The run folder records the remaining steps (`claw_base.run_folder.forgetting`), so that another gateway continues
after a kill.
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
"""A run folder with this file has a driver, or had one."""
WAIT_SECONDS = 60.0
"""Seconds to wait for the driver; it continues afterwards."""
POLL_SECONDS = 0.1
LOOK_SECONDS = 2.0
"""Seconds between checks for steps that another gateway has left."""


class PeopleToForget:
    """Deletes the rows of people, and waits for the driver to delete the rest.

    Args:
        run_dir: folder of the run whose driver removes the rest; None: there is none.
        settings: of the gateway; None: the run has ended.
    """

    def __init__(self, recorder: Recorder, run_dir: Path | None, settings: Settings | None) -> None:
        self._recorder, self._settings = recorder, settings
        is_run = run_dir is not None and (run_dir / ARGUMENTS).is_file()
        self._run_dir = run_dir if is_run else None

    async def forget(self, person: str) -> Json | None:
        """Forgets a person as far as possible now.

        Returns:
            None if nothing is stored about the person. `{"person", "deleted", "adapter", "shared", "status",
                "seconds"}`:
            deleted rows by kind; the person's own adapter, which goes too; weights that others use and that learned
                from
            the person (each an `openclaw.store.influence.Influence`); "done", or "waiting" for the driver.

        Raises:
            StoreError: the store cannot be used.
        """
        began = time.monotonic()
        adapter = await asyncio.to_thread(self._own_adapter, person)
        influence = self._recorder.store.influence
        async with self._recorder.forgetting:  # `watch` does not take it for one that a killed gateway left
            before = self._waiting(person)
            if before is None and not await asyncio.to_thread(influence.is_known, person, adapter):
                return None
            shared = await asyncio.to_thread(influence.of, person)
            rollouts = await asyncio.to_thread(influence.rollouts_of, person, adapter)
            one = before or Forgetting(person, adapter, rollouts)
            if self._run_dir is not None:
                await asyncio.to_thread(forgetting.write, self._run_dir, one)
            deleted = await self._delete_rows(person, one)
        others = [asdict(one) for one in shared if one.adapter is None or one.adapter != adapter]
        done = await self._wait(person)
        seconds = round(time.monotonic() - began, 3)
        return {
            "person": person, "deleted": deleted, "adapter": adapter, "shared": others,
            "status": "done" if done else "waiting", "seconds": seconds,
        }  # fmt: skip

    async def watch(self) -> None:
        """Completes deletions that a killed gateway had begun; runs until cancelled."""
        while self._run_dir is not None:
            async with self._recorder.forgetting:
                for one in await asyncio.to_thread(forgetting.waiting, self._run_dir):
                    if not one.rows_deleted:
                        try:
                            await self._delete_rows(one.person, one)
                        except StoreError as error:
                            log.warning("a person's data is not deleted yet, trying again: %s", error)
            await asyncio.sleep(LOOK_SECONDS)

    async def _delete_rows(self, person: str, one: Forgetting) -> dict[str, int]:
        deleted, rollouts = await self._recorder.delete_person(person, one.adapter)
        if self._run_dir is not None:
            await asyncio.to_thread(forgetting.write, self._run_dir, one.with_rows_deleted(rollouts))
        return deleted

    async def _wait(self, person: str) -> bool:
        """Returns whether all data of the person is deleted."""
        deadline = time.monotonic() + WAIT_SECONDS
        while self._waiting(person) is not None:
            if self._settings is None or time.monotonic() > deadline:
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True

    def _waiting(self, person: str) -> Forgetting | None:
        return None if self._run_dir is None else forgetting.read(self._run_dir, person)

    def _own_adapter(self, person: str) -> str | None:
        """Returns the adapter that only this person's key trained, also if the run has ended or no longer has this key
        or its adapter; None if there is none. Raises StoreError."""
        if self._settings is not None and person in self._settings.trained_adapters:
            return person if person in self._settings.own_adapters else None
        named = self._run_dir is not None and is_adapter_name(person)
        if self._run_dir is None or not named or not (self._run_dir / FOLDER / person).is_dir():
            return None
        if keys := self._recorder.store.policies.keys_of(person):
            return person if keys == {person} else None
        if self._settings is not None:
            trained = self._settings.train_adapters
        else:
            trained = orjson.loads((self._run_dir / ARGUMENTS).read_bytes()).get("train_adapters")
        return person if str(trained).strip() == PER_KEY else None
