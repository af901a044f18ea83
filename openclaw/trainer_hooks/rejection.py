"""Handles a rejected update in the store: its version and its samples."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from openclaw.trainer_hooks.pipeline import pipeline_of

log = logging.getLogger("openclaw.trainer_hooks.rejection")


def on_weights_rejected(args: object, rollout_id: int, version: int, rejection: Mapping[str, Any]) -> None:
    """For --on-weights-rejected-path: the update of `rollout_id` never goes live; its samples are quarantined.

    Args:
        rejection: `reason`, `stage`, `measurements` (numbers by name), `parent`, `checksum`, `release` (no fault was
            found: its samples are ready again at once).

    Raises:
        StoreError: the version number was used for something else.
    """
    details = {name: rejection[name] for name in ("reason", "stage", "measurements")}
    pipeline = pipeline_of(args)
    trainer = pipeline.settings.buffer.trainer_id
    samples = pipeline.store.versions.weights_rejected(
        rollout_id, version, rejection["parent"], rejection["checksum"], details, trainer
    )
    if rejection.get("release"):
        pipeline.store.quarantine.release(version, trainer)
        log.info(
            "update discarded for an order, its samples are ready again version=%d samples=%d",
            version,
            samples,
        )
        return
    log.warning("quarantined version=%d samples=%d reason=%s", version, samples, rejection["reason"])
