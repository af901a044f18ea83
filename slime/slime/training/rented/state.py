"""Checkpoints of an adapter at a service: where it keeps weights and optimizer, and where training stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from claw_base.files import fresh_folder, write_text
from slime.errors import CheckpointError
from slime.weights.checkpoints import (
    TRAINER,
    CheckpointState,
    add_model,
    check_adapters,
    describe,
    folder_of,
    put_into_force,
    read_meta,
    trainer_folder,
)

FILE = "rented_state.json"


def write_state(
    save: str,
    state: CheckpointState,
    address: str,
    extra: dict[str, Any],
    weights: Path | None = None,
    hold: bool = False,
) -> Path:
    """Makes the checkpoint whose weights and optimizer lie at `address` the latest one; returns its folder.

    Args:
        extra: added to `meta.json`. weights: folder whose files become part of it.
        hold: write it completely, under its hidden name; it counts once it is put into force.
    """
    path = folder_of(save, state.rollout_id)
    temporary = fresh_folder(path)
    (temporary / TRAINER).mkdir()
    write_text(temporary / TRAINER / FILE, json.dumps({"state": address}))
    if weights is not None:
        add_model(temporary, weights)
    counted = {"rollout_id": state.rollout_id, "version": state.version, "parent": state.parent}
    describe(temporary, {**counted, "global_step": state.global_step, **extra})
    if not hold:
        put_into_force(path)
    return path


def read_state(path: Path, lora: dict[str, Any] | None, model: str) -> tuple[CheckpointState, str]:
    """Where training stood, and the address of weights and optimizer. Raises CheckpointError."""
    meta = read_meta(path)
    check_adapters(path, meta, lora)
    if meta.get("rented_model") != model:
        raise CheckpointError(
            f"checkpoint {path} was trained from {meta.get('rented_model')}, this run has {model}"
        )
    try:
        address = str(json.loads((trainer_folder(path) / FILE).read_text(encoding="utf-8"))["state"])
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"checkpoint {path} does not say where the service keeps it: {error!r}"
        ) from error
    state = CheckpointState(
        meta["rollout_id"], meta["version"], meta["parent"], str(path), meta["global_step"]
    )
    return state, address
