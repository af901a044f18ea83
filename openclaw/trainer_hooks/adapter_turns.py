"""Chooses the adapter to train next, if a trainer trains several in turn on one frozen base model.

An adapter is due when its own batch is full or its oldest sample has waited long enough. Of several, the least
recently trained one is first, so that an active person does not delay others.
"""

from __future__ import annotations

import copy
import logging
import time
from typing import Any

from openclaw.errors import ConfigError, StoreAway
from openclaw.trainer_hooks.arguments import ADAPTER, HookSettings
from openclaw.trainer_hooks.next_batch import AWAY_SECONDS, POLL_SECONDS
from openclaw.trainer_hooks.pipeline import pipeline_of
from openclaw.types import SampleRecord

log = logging.getLogger("openclaw.trainer_hooks.adapter_turns")

NEVER = -1
_last_turns: dict[str, int] = {}
"""The last rollout of each adapter in this process."""


def check(settings: HookSettings) -> None:
    """Raises ConfigError for --trust, which would compare people whose turns are separate."""
    if settings.served.train_adapters is not None and settings.trust.is_on:
        raise ConfigError(
            "--train-adapters cannot be combined with --trust, which compares people who share a policy; drop one of them"
        )


def for_adapter(args: object, adapter: str) -> Any:
    """Returns the trainer's arguments for hooks of one adapter, which then access only its turns."""
    copied = copy.copy(args)
    setattr(copied, ADAPTER, adapter)
    return copied


def adapters_turn(args: object, rollout_id: int) -> tuple[str, list[SampleRecord]]:
    """Blocks until an adapter is due; returns its name and its leased batch. The same `rollout_id` returns the same
    batch again. See `NextBatch.wait`.

    Raises:
        StoreError: the buffer cannot be used, or this rollout is trained already.
    """
    while True:
        try:
            adapter = due_adapter(args, rollout_id)
        except StoreAway as error:
            log.warning("the next batch waits: %s", error)
            time.sleep(AWAY_SECONDS)
            continue
        if adapter is not None:
            pipeline_of(for_adapter(args, adapter[0])).next.log_backlog()
            return adapter
        time.sleep(POLL_SECONDS)


def due_adapter(args: object, rollout_id: int) -> tuple[str, list[SampleRecord]] | None:
    """Returns the adapter that is due, and its leased batch; None while none is."""
    base = pipeline_of(args)
    base.next.clean()
    waiting = {name: pipeline_of(for_adapter(args, name)) for name in base.store.policies.waiting()}
    has_lease = base.store.samples.has_lease
    leased = [name for name, one in waiting.items() if has_lease(rollout_id, one.settings.buffer.trainer_id)]
    in_turn = sorted(waiting, key=lambda name: (_last_turns.get(name, NEVER), name))
    for name in leased or in_turn:
        if records := waiting[name].next.take_if_due(rollout_id):
            _last_turns[name] = rollout_id
            return name, records
    return None
