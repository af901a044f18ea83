"""Addresses of an adapter at the service: starts or resumes it, and saves it for sampling and for resuming."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from claw_base.files import fresh_folder, write_text
from slime.errors import CheckpointError
from slime.rented.service import FIRST_ANSWER, ServiceForgot, ServiceRefuses
from slime.rented.trainer.model import RentedModel
from slime.rented.trainer.retry import with_retries
from slime.rented.versions import RentedWeights, read_version, write_version
from slime.utils.logging import event
from slime.weights import checkpoints
from slime.weights.checkpoints import (
    TRAINER,
    CheckpointState,
    activate_checkpoint,
    add_model,
    check_adapters,
    describe,
    folder_of,
    read_meta,
    trainer_folder,
)

logger = logging.getLogger(__name__)


class RentedPlaces:
    """The saved states of one run's adapter at the rented service, identified by their addresses.

    Args:
        name: name of the base model at the service.
        save: folder of the run's checkpoints.
    """

    def __init__(self, model: RentedModel, name: str, save: str) -> None:
        self.model, self.name, self.save_dir = model, name, save
        self.save_count = 0
        self.moved = False

    def load(self, otherwise: str | None, address: str, lora: dict[str, Any] | None) -> CheckpointState:
        """Loads the run's latest checkpoint, else that of `otherwise`, else the state at `address`, else a new
        adapter.

        Raises:
            CheckpointError: a checkpoint is missing or does not fit this run.
        """
        folder = checkpoints.find(self.save_dir) or checkpoints.find(otherwise)
        if folder is not None:
            return self.return_to(folder, lora)
        try:
            self.resume(address)
        except ServiceRefuses as error:
            raise CheckpointError(
                f"--rented-state {address}: the service does not have it: {error}"
            ) from error
        self.moved = bool(address)
        event(logger, "trainer loaded", rollout_id=-1, version=0, path=None)
        return CheckpointState()

    def return_to(self, folder: Path, lora: dict[str, Any] | None) -> CheckpointState:
        """Loads a checkpoint. Raises CheckpointError."""
        state, address = read_state(folder, lora, self.name)
        try:
            self.resume(address)
        except ServiceRefuses as error:
            raise CheckpointError(
                f"checkpoint {folder}: the service does not have {address} any more: {error}"
            ) from error
        event(logger, "trainer loaded", rollout_id=state.rollout_id, version=state.version, path=state.path)
        return state

    def resume(self, address: str) -> None:
        """Resumes the adapter and its optimizer from an address; "": starts a new adapter."""
        service = self.model.service
        self.model.trained = with_retries(lambda: service.resume(address) if address else service.new())

    def keep(self) -> str:
        """Saves weights and optimizer; returns their address."""
        self.save_count += 1
        return self.model.adapter.save_state(f"kept_{self.save_count:06d}").result()

    def export(self, folder: Path, version: int, steps: int) -> str:
        """Records a version in a folder; before the first step of a new adapter, the version is the base model.

        Returns the checksum.
        """
        address = self.model.adapter.save_sampler(f"v{version:06d}").result() if steps or self.moved else None
        checksum = write_version(folder, RentedWeights(self.name, address))
        event(logger, "weights kept at the service", version=version, address=address)
        return checksum

    def keeps(self, folder: Path) -> bool:
        """Returns whether the service still has the version recorded in a folder; True without a
        request if the service has a single set of weights."""
        service, address = self.model.service, read_version(folder).sampler
        if service.exclusive or address is None:
            return True
        try:
            with_retries(lambda: service.sampler(address).sample(FIRST_ANSWER).result())
        except (ServiceForgot, ServiceRefuses) as error:
            logger.warning("the service no longer has %s, so it is saved there again: %s", address, error)
            return False
        return True

    def save(
        self, state: CheckpointState, extra: dict[str, Any], weights: Path | None, hold: bool = False
    ) -> str:
        """Writes a checkpoint of the adapter; `weights`: folder of the same version for sampling; `hold`: it becomes
        valid only after `activate_checkpoint`."""
        address = self.model.adapter.save_state(
            f"step_{state.rollout_id + 1:06d}_v{state.version:06d}"
        ).result()
        path = write_state(self.save_dir, state, address, {**extra, "rented_model": self.name}, weights, hold)
        event(logger, "checkpoint saved", rollout_id=state.rollout_id, version=state.version, path=str(path))
        return str(path)


FILE = "rented_state.json"


def write_state(
    save: str,
    state: CheckpointState,
    address: str,
    extra: dict[str, Any],
    weights: Path | None = None,
    hold: bool = False,
) -> Path:
    """Writes the checkpoint with weights and optimizer at `address` as the latest one; returns its folder.

    Args:
        extra: added to `meta.json`.
        weights: folder whose files become part of it.
        hold: write it completely under a hidden name; it becomes valid after `activate_checkpoint`.
    """
    path = folder_of(save, state.rollout_id)
    temporary = fresh_folder(path)
    (temporary / TRAINER).mkdir()
    write_text(temporary / TRAINER / FILE, json.dumps({"state": address}))
    if weights is not None:
        add_model(temporary, weights)
    counters = {"rollout_id": state.rollout_id, "version": state.version, "parent": state.parent}
    describe(temporary, {**counters, "global_step": state.global_step, **extra})
    if not hold:
        activate_checkpoint(path)
    return path


def read_state(path: Path, lora: dict[str, Any] | None, model: str) -> tuple[CheckpointState, str]:
    """Returns the training state, and the address of weights and optimizer. Raises CheckpointError."""
    meta = read_meta(path)
    check_adapters(path, meta, lora)
    if meta.get("rented_model") != model:
        raise CheckpointError(
            f"checkpoint {path} was trained from {meta.get('rented_model')}, this run trains {model}"
        )
    try:
        address = str(json.loads((trainer_folder(path) / FILE).read_text(encoding="utf-8"))["state"])
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"checkpoint {path} has no address of its state at the service: {error!r}"
        ) from error
    state = CheckpointState(
        meta["rollout_id"], meta["version"], meta["parent"], str(path), meta["global_step"]
    )
    return state, address
