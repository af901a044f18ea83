"""The trainer's side of a rejected update: its version and its samples in the store."""

from __future__ import annotations

import logging
from typing import Any

from openclaw.trainer_hooks.batch import trainer_of
from openclaw.trainer_hooks.lease import opened_store

log = logging.getLogger("openclaw.trainer_hooks.rejection")


def on_weights_rejected(args: Any, rollout_id: int, version: int, rejection: dict[str, Any]) -> None:
    """For --on-weights-rejected-path: the update of `rollout_id` never goes live; its samples are quarantined.

    Args:
        rejection: `reason`, `stage`, `measurements` (numbers by name), `parent`, `checksum`, `release` (nothing was
            found against it: its samples are ready again at once).

    Raises:
        StoreError: the version number was used for something else.
    """
    details = {name: rejection[name] for name in ("reason", "stage", "measurements")}
    store = opened_store(args)
    samples = store.versions.weights_rejected(
        rollout_id, version, rejection["parent"], rejection["checksum"], details, trainer_of(args)
    )
    if rejection.get("release"):
        store.quarantine.release(version)
        log.info("given up for an order version=%d samples=%d", version, samples)
        return
    log.warning("quarantined version=%d samples=%d reason=%s", version, samples, rejection["reason"])
