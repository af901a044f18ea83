"""The trainer's interface to the rollout buffer: leases a batch, and commits it once its weights are live.

No trainer framework is imported: a batch is a list of dictionaries with the framework's own sample fields, and `args` is
the framework's object of all flags (see `arguments.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openclaw.errors import StoreError
from openclaw.trainer_hooks.adapter_turns import adapters_turn, for_adapter
from openclaw.trainer_hooks.arguments import BATCH_FLAGS
from openclaw.trainer_hooks.pipeline import BatchPipeline, pipeline_of
from openclaw.trainer_hooks.rows import Row, sample_dict
from openclaw.types import SampleRecord

log = logging.getLogger("openclaw.trainer_hooks.lease")

FLAGS = BATCH_FLAGS


def generate_rollout(
    args: object, rollout_id: int, data_source: object = None, evaluation: bool = False
) -> dict[str, Any]:
    """For --rollout-function-path: blocks until a batch is due; serving continues meanwhile.

    Each turn is a separate group.

    Args:
        data_source: unused; the batch comes from the buffer.

    Returns:
        `samples`, one dictionary each, those of extra steps last, and `metrics`; with --train-adapters also `policy`,
            the
        adapter whose turns these are.

    Raises:
        ValueError: an evaluation is requested; conversations have no evaluation set.
        StoreError: as `NextBatch.wait`.
    """
    if evaluation:
        raise ValueError("conversations are no evaluation set: talk to the model with openclaw-test/ instead")
    pipeline = pipeline_of(args)
    if not pipeline.settings.served.train_adapters:
        return _returned(pipeline, pipeline.lease(rollout_id), rollout_id)
    adapter, records = adapters_turn(args, rollout_id)
    return {**_returned(pipeline_of(for_adapter(args, adapter)), records, rollout_id), "policy": adapter}


def _returned(pipeline: BatchPipeline, records: list[SampleRecord], rollout_id: int) -> dict[str, Any]:
    batch = pipeline.prepare(records, rollout_id)
    return {"samples": batch.rows, "metrics": pipeline.metrics(batch)}


def lease_batch(args: object, rollout_id: int) -> list[Row]:
    """Returns only the leased samples, as rows; blocks until a batch is due. See `NextBatch.wait`."""
    return [sample_dict(record, rollout_id) for record in pipeline_of(args).lease(rollout_id)]


def on_weights_live(args: object, rollout_id: int, version: int, checkpoint: Mapping[str, Any]) -> None:
    """For --on-weights-live-path: every engine serves `version`, so its batch is committed as trained.

    Args:
        checkpoint: `path`, `parent` (int or None), `checksum`, `restored` (the trainer has just started
        from these weights; see `VersionTable.weights_live`); of an update also `metrics` and `measurements`; `undo`
        (`drop_turns`, `reason`) if an older version is restored. Only `forgotten`: all versions of this trainer are
        gone.

    Raises:
        StoreError: the version number was used for something else.
    """
    pipeline = pipeline_of(args)
    trainer = pipeline.settings.buffer.trainer_id
    if checkpoint.get("forgotten"):
        pipeline.store.versions.forget(trainer)
        return
    if (undo := checkpoint.get("undo")) is not None:
        pipeline.store.versions.roll_back(version, undo["drop_turns"], undo["reason"], trainer)
        return
    pipeline.store.versions.weights_live(
        rollout_id,
        version,
        parent=checkpoint["parent"],
        restored=bool(checkpoint["restored"]),
        checkpoint_path=checkpoint["path"],
        checksum=checkpoint["checksum"],
        trainer=trainer,
        details={name: value for name in ("metrics", "measurements") if (value := checkpoint.get(name))},
    )
    _take_token_records(pipeline)


def _take_token_records(pipeline: BatchPipeline) -> None:
    """Moves the trainer's records of single tokens to the store; a failure is only logged."""
    run_dir = pipeline.settings.trainer.run_dir
    if run_dir:
        try:
            pipeline.store.token_records.take(Path(run_dir))
        except StoreError as error:
            log.warning("token records could not be moved to the store: %s", error)
