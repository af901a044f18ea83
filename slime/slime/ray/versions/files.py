"""Files of a run's weight versions: writes them for the engines, keeps and removes them."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from claw_base.files import commit_folder, fresh_folder, write_json
from slime.engines.client import EngineControl
from slime.hooks import load_hook
from slime.processes.control import memory_dir
from slime.ray.train_group import TrainGroup
from slime.rented.versions import is_rented
from slime.weights import checkpoints
from slime.weights.kept import keep_versions
from slime.weights.slots import copy_slot, is_slot
from slime.weights.versions import (
    WeightVersion,
    artifact_folder,
    claim_folder,
    is_legacy_checksum,
    prune,
    read_live,
)

if TYPE_CHECKING:
    from slime.flags import Arguments

logger = logging.getLogger(__name__)

CHECKSUMS = "checksums.json"


class VersionFiles:
    """Version folders, shared-memory slots and copies of one run.

    Args:
        engines: passed to a hook when files are written.
        home: folder with the record of the live version; None: the run folder.
    """

    def __init__(
        self, args: Arguments, engines: Callable[[], list[EngineControl]], home: Path | None = None
    ) -> None:
        self.args, self.engines = args, engines
        self.run_dir, self.save_dir = home or Path(args.run_dir), Path(args.save)
        self.weights_dir = Path(args.update_weight_disk_dir)

    def claim(self) -> None:
        """Marks the folder as this run's. Raises ConfigError if it belongs to another run."""
        claim_folder(self.weights_dir, self.save_dir)

    def weights_of(self, trainers: TrainGroup, version: int) -> WeightVersion:
        """Returns the version that the trainer has loaded, as files on disk."""
        live = read_live(self.run_dir)
        if live is not None and live.version == version and Path(live.path).is_dir():
            if is_legacy_checksum(live.checksum):
                logger.info("version %d has a checksum of an earlier release: writing it again", version)
            elif not is_rented(Path(live.path)) or trainers.keeps(live.path):
                return live
        return self.export(trainers, version)

    def export(self, trainers: TrainGroup, version: int, whole: bool = True) -> WeightVersion:
        """Writes a version: the full model, which a checkpoint also uses, or (not `whole`) only its adapter."""
        folder = artifact_folder(self.weights_dir, version)
        weights = WeightVersion(version, str(folder), trainers.export_weights(folder, version, whole))
        self.call_written_hook(folder)
        return weights

    def take(
        self, trainers: TrainGroup, version: int, whole: bool = True
    ) -> tuple[WeightVersion, str | None]:
        """Takes a version from the trainer: into shared memory, whose slot is also returned, or as files on disk."""
        weights, slot = self.share(trainers, version) if whole else (None, None)
        return weights or self.export(trainers, version, whole), slot

    def export_whole_model(self, trainers: TrainGroup, version: int) -> WeightVersion:
        """Writes the full model of a version that serves as an adapter, next to its folder. `tidy` removes it
        later."""
        folder = artifact_folder(self.weights_dir, version)
        folder = folder.with_name(f"{folder.name}-whole")
        return WeightVersion(version, str(folder), trainers.export_weights(folder, version, True))

    def share(self, trainers: TrainGroup, version: int) -> tuple[WeightVersion | None, str | None]:
        """Copies a version to shared memory, and returns it (its files are not written yet) with its slot; (None,
        None): disk is used."""
        if self.args.update_weight_transport != "tensor":
            return None, None
        checksum, slot = trainers.share_weights(memory_dir(self.run_dir), version)
        if checksum and is_slot(Path(slot)):
            return WeightVersion(version, str(artifact_folder(self.weights_dir, version)), checksum), slot
        reason = "the trainer's first rank is on another machine" if checksum else slot
        logger.warning(
            "version %d is sent through files on disk, not through shared memory: %s", version, reason
        )
        return None, None

    def write_artifact(self, weights: WeightVersion, slot: str | None) -> None:
        """Writes a version from shared memory to disk; does nothing if it is on disk already (`slot` None)."""
        if slot is not None:
            folder = Path(weights.path)
            temporary = fresh_folder(folder)
            copy_slot(Path(slot), temporary)
            commit_folder(temporary, folder)
            self.call_written_hook(folder)

    def call_written_hook(self, folder: Path) -> None:
        if (hook := load_hook(self.args, "custom_update_weight_post_write_path")) is not None:
            hook(self.args, str(folder), self.engines())

    def checksums(self) -> dict[str, str]:
        """Returns the checksum of every version that was written, by number."""
        path = self.weights_dir / CHECKSUMS
        checksums: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        return checksums

    def remember(self, weights: WeightVersion) -> None:
        """Records the checksum of a version, which verifies it at a rollback."""
        write_json(self.weights_dir / CHECKSUMS, {**self.checksums(), str(weights.version): weights.checksum})

    def tidy(self, live: WeightVersion, *others: int | None) -> None:
        """Removes the files of older versions that are not kept. `others`: versions that a rollback may need."""
        args, spare = self.args, {Path(live.path)}
        if args.keep_versions:
            named = {live.version, *(one for one in others if one is not None)}
            kept = keep_versions(
                self.save_dir, self.weights_dir, args.keep_versions, named, args.keep_checkpoints
            )
            spare |= {artifact_folder(self.weights_dir, version) for version in kept}
        else:
            checkpoints.prune(self.save_dir, args.keep_checkpoints)
        prune(self.weights_dir, "v*", args.keep_weights, spare)

    def copy_for_others(self, weights: WeightVersion, rollout_id: int) -> None:
        """Writes the copy requested by --save-hf."""
        if self.args.save_hf is not None:
            target = Path(self.args.save_hf.replace("{rollout_id}", str(rollout_id)))
            temporary = fresh_folder(target)
            shutil.copytree(weights.path, temporary, dirs_exist_ok=True)
            commit_folder(temporary, target)
