"""Removes the remaining data of a person after the gateway has deleted the rows of the store.

These are rollout files, the person's own adapter, and cached prompts in engines.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from claw_base.run_folder import forgetting
from claw_base.run_folder.forgetting import Forgetting
from claw_base.run_folder.token_record_files import file_of
from slime import replay
from slime.engines.client import EngineControl, EngineControlError
from slime.errors import EngineError
from slime.ray.train_group import TrainGroup
from slime.ray.versions.adapters import AdapterTable

if TYPE_CHECKING:
    from slime.flags import Arguments

logger = logging.getLogger(__name__)

RETRY_SECONDS = 2.0
REQUESTED = 2
"""Maximum number of batches in preparation: the one that is awaited or trained, and the next."""


class PeopleToForget:
    """The driver's part of forgetting people. A driver restarted after a kill continues unfinished requests."""

    def __init__(self, args: Arguments) -> None:
        self.args, self.run_dir = args, Path(args.run_dir)
        self.next_try = 0.0

    def carry_out(
        self,
        trainers: TrainGroup,
        adapters: AdapterTable,
        engines: Sequence[EngineControl],
        trained: int,
    ) -> list[Forgetting]:
        """Returns the requests of people whose data is now completely removed.

        A request is retried later if an engine cannot unload an adapter.

        Args:
            trained: the last trained rollout.

        Raises:
            TrainerDied: the trainer was lost.
        """
        if time.monotonic() < self.next_try:
            return []
        done = []
        for request in forgetting.waiting(self.run_dir):
            if not request.rows_deleted:
                continue
            began = time.monotonic()
            try:
                if request.adapter is not None:
                    adapters.forget(trainers, request.adapter, trained)
            except EngineError as error:
                logger.warning("could not delete an adapter yet, retrying: %s", error)
                self.next_try = time.monotonic() + RETRY_SECONDS
                continue
            # a batch may have been leased or trained while the rows were deleted
            self.remove_files({*request.rollouts, *range(trained, trained + 1 + REQUESTED)}, request.adapter)
            flush(engines)
            forgetting.finish(self.run_dir, request.person)
            logger.info("deleted a person's files in %.2f s", time.monotonic() - began)
            done.append(request)
        return done

    def remove_files(self, rollouts: Iterable[int], adapter: str | None = None) -> None:
        """Removes the files of rollouts, and the adapter's copies made by --save-hf."""
        for rollout_id in rollouts:
            file_of(self.run_dir, rollout_id).unlink(missing_ok=True)
            if self.args.save_debug_rollout_data is not None:
                replay.path_of(self.args.save_debug_rollout_data, rollout_id).unlink(missing_ok=True)
            if self.args.save_hf is not None and adapter is not None:
                copy = Path(self.args.save_hf.replace("{rollout_id}", str(rollout_id)))
                shutil.rmtree(copy, ignore_errors=True)


def flush(engines: Sequence[EngineControl]) -> None:
    """Requests that engines drop cached keys and values of finished prompts.

    An engine that cannot do so now, such as SGLang while it answers, drops them when it needs the memory, or
    with the next version.
    """
    for engine in engines:
        try:
            engine.flush_cache()
        except EngineControlError as error:
            logger.info("an engine keeps its KV cache until the next version: %s", error)
