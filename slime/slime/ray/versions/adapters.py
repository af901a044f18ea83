"""Adapters that one trainer trains in turn: each has its own versions, checkpoints, gate and name in the engines.

    SAVE/policies/NAME/                        checkpoints, version counter and gate's records of the adapter
    RUN_DIR/policies/NAME/live_weights.json    its live version

The trainer holds the frozen base and one adapter. Every step of an adapter ends with a checkpoint, a few MB,
so that the next adapter can be loaded: state of a rejected or interrupted step is never reused.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from claw_base.files import is_file_name
from slime.engines.client import EngineControl
from slime.errors import ConfigError
from slime.gate.interruptible import Tries
from slime.hooks import load_hook
from slime.ray.train_group import TrainGroup
from slime.ray.versions.adapter_engines import AdapterEngine, ExaminedAdapter, forget_adapter
from slime.ray.versions.orders import execute_order
from slime.ray.versions.publisher import Publisher
from slime.weights import checkpoints
from slime.weights.engine_steps import Engine
from slime.weights.update import Candidate
from slime.weights.versions import WeightVersion, artifact_folder, is_adapter, live_file, read_live

if TYPE_CHECKING:
    from slime.flags import Arguments

FOLDER = "policies"
ADAPTER = "policy_adapter"
"""Field of a hook's arguments: the name of the adapter."""
ADAPTER_REQUIRED = "the base of this run has only one version: specify an adapter"


class AdapterPublisher(Publisher):
    """Publishes the versions of one adapter to engines that serve the base model.

    Args:
        args: arguments of this adapter, see `arguments_of`.
        base: publishes the base model to the same engines.
        name: name of the adapter.
    """

    def __init__(self, args: Arguments, base: Publisher, name: str) -> None:
        self.base, self.name = base, name
        home = Path(args.run_dir) / FOLDER / name
        home.mkdir(parents=True, exist_ok=True)
        super().__init__(args, [], base.external, base.nodes, home=home)
        self.newest, self.live, self.live_parent = 0, base.live, None
        self.is_known = False
        self._examined = [ExaminedAdapter(engine, name) for engine in base.own_engines]

    @property
    def engines(self) -> list[EngineControl]:
        return self.base.engines

    @property
    def updated(self) -> Sequence[Engine]:
        return [AdapterEngine(engine, self.name) for engine in self.engines]

    @property
    def free_engines(self) -> Sequence[Tries]:
        """Returns own engines, which can generate with a candidate while they serve."""
        return self._examined

    def save(self, trainers: TrainGroup, candidate: Candidate, hold: bool = False) -> None:
        """Writes a checkpoint with the adapter's own files, if it has a version already."""
        weights, rollout_id = candidate.weights, candidate.rollout_id
        files = weights.path if is_adapter(Path(weights.path)) else None
        trainers.save(rollout_id, weights.version, candidate.parent, files, True, hold)
        if files is not None and not hold:
            self.files.copy_for_others(weights, rollout_id)

    def leaves_whole(self, save_due: bool) -> bool:
        return False

    def begin_or_resume(self, trainers: TrainGroup, rollout_id: int) -> None:
        """Starts or resumes the gate; the trainer has loaded this adapter's live state."""
        if self.is_known:
            self.gate.resume(trainers)
        else:
            self.gate.begin(trainers, rollout_id, self.live, self.free_engines)
            self.is_known = True

    @property
    def checkpoint(self) -> Path | None:
        """Returns the newest checkpoint; None before the adapter's first step. Raises CheckpointError."""
        return checkpoints.latest(self.save_dir)

    @property
    def trained(self) -> int:
        """Returns the last trained rollout, even if its version was undone later; -1 if none."""
        return max(checkpoints.newest_rollout(self.save_dir), self.orders.trained)

    def serve_checkpoint(self) -> None:
        """Makes the version of the newest checkpoint live after a start. Raises like `WeightUpdate.publish`."""
        folder = self.checkpoint
        if folder is None:
            return
        meta = checkpoints.read_meta(folder)
        version, parent, rollout_id = int(meta["version"]), meta["parent"], int(meta["rollout_id"])
        if version == self.base.live.version:  # its first steps were rejected
            self.announce(Candidate(self.live, rollout_id, parent, restored=True))
            return
        before = read_live(self.home)
        self.newest = max(version, 0 if before is None else before.version)
        self.live, self.live_parent = self._weights(folder, version, before), parent
        self.files.remember(self.live)
        self.switch(Candidate(self.live, rollout_id, parent, restored=True))

    def forget(self, rollout_id: int) -> None:
        """Removes the adapter's data except its last version number and rollout id, which are not reused.

        It can be repeated.

        Args:
            rollout_id: the last trained rollout.

        Raises:
            EngineControlError: an engine could not unload it.
        """
        rollout_id = max(rollout_id, self.trained)
        self.gate.audit.forget()
        # after unloading, no engine can read it again
        live_file(self.home).unlink(missing_ok=True)
        for folder, kept in (
            (self.files.weights_dir, None), (self.save_dir, self.numbers.path), (self.home, self.orders.state),
        ):  # fmt: skip
            _empty(folder, kept)
        self.orders.forget(rollout_id)
        if self.args.train_adapters is not None:  # otherwise the engines hold no adapter since this start
            for tries in self._examined:
                tries.discard()
            for engine in self.engines:
                forget_adapter(engine, self.name)
        if (hook := load_hook(self.args, "on_weights_live_path")) is not None:
            hook(self.args, rollout_id, self.numbers.last(), {"forgotten": True})

    def _weights(self, checkpoint: Path, version: int, before: WeightVersion | None) -> WeightVersion:
        folder = artifact_folder(self.files.weights_dir, version)
        # a checkpoint contains the files of its version too
        path = folder if folder.is_dir() else checkpoint
        if before is not None and before.version == version:
            return WeightVersion(version, str(path), before.checksum)
        # this imports torch, which the driver needs only after a kill during a switch
        from slime.engines.embedded.adapters import read_adapter

        adapter = read_adapter(str(path))
        return WeightVersion(version, str(path), "" if adapter is None else adapter.checksum)


class AdapterTable:
    """All adapters of one run.

    Args:
        args: arguments of the run.
        base: publisher of the frozen base model, which is live.

    Attributes:
        held: the adapter that is loaded in the trainer.
    """

    def __init__(self, args: Arguments, base: Publisher) -> None:
        self.args, self.base = args, base
        self.known: dict[str, AdapterPublisher] = {}
        self.held: AdapterPublisher | None = None
        self.folder = Path(args.save) / FOLDER

    def of(self, name: str) -> AdapterPublisher:
        """Returns the publisher of an adapter, which is created for a new one.

        Raises:
            ConfigError: the name would lead out of the folder of adapters.
        """
        if not is_file_name(name):
            raise ConfigError(f"{name!r} is not a valid adapter name")
        if name not in self.known:
            self.known[name] = AdapterPublisher(arguments_of(self.args, name), self.base, name)
        return self.known[name]

    @property
    def names(self) -> list[str]:
        """Returns all adapters that have or had a checkpoint."""
        return sorted(path.name for path in self.folder.glob("*") if path.is_dir())

    @property
    def trained(self) -> int:
        """Returns the last rollout that was trained for any adapter; -1 if none."""
        return max((self.of(name).trained for name in self.names), default=-1)

    def serve_checkpoints(self) -> None:
        """Makes every adapter with a checkpoint live; called after a start."""
        for name in self.names:
            self.of(name).serve_checkpoint()

    def load(self, trainers: TrainGroup, name: str, rollout_id: int) -> AdapterPublisher:
        """Loads the live state of an adapter into the trainer. Raises TrainerDied."""
        publisher = self.of(name)
        if self.held is not publisher:
            self.held = None
            trainers.load_adapter(publisher.save_dir, publisher.checkpoint)
            publisher.begin_or_resume(trainers, rollout_id)
            self.held = publisher
        return publisher

    def successor_of(self, publisher: Publisher) -> Publisher:
        """Returns the current publisher of the same adapter, a new one if the adapter was forgotten."""
        return self.of(publisher.name) if isinstance(publisher, AdapterPublisher) else publisher

    def forget(self, trainers: TrainGroup, name: str, rollout_id: int) -> None:
        """Removes an adapter from disk, engines and trainer; its next step starts from an untrained adapter.

        Raises:
            TrainerDied, EngineControlError: the trainer was lost, or an engine could not unload it.
        """
        publisher = self.of(name)
        if self.held is publisher:
            self.held = None
            trainers.load_adapter(publisher.save_dir, None)
            if self.args.gate:
                trainers.keep_state()
        publisher.forget(rollout_id)
        del self.known[name]

    def execute_order(self, trainers: TrainGroup, rollout_id: int) -> bool:
        """Executes pending rollbacks; returns whether any adapter changed.

        A pin would block all other adapters, and is rejected. Raises like `orders.execute_order`.
        """
        if (order := self.base.orders.next()) is not None:
            self.base.orders.finish(order, None, ADAPTER_REQUIRED)
        went_back = {self._execute_order(trainers, name, rollout_id) for name in sorted(self.known)}
        return True in went_back

    def _execute_order(self, trainers: TrainGroup, name: str, rollout_id: int) -> bool:
        publisher = self.known[name]
        publisher.gate.watch()
        order = publisher.orders.next()
        if order is None:
            return False
        if order.action != "rollback":
            publisher.orders.finish(
                order, None, f"{order.action} is not supported for an adapter: use rollback"
            )
            return False
        return execute_order(self.load(trainers, name, rollout_id), trainers, rollout_id)


def _empty(folder: Path, kept: Path | None) -> None:
    """Removes the content of a folder, except the file `kept`."""
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry != kept:
            entry.unlink()


def arguments_of(args: Arguments, name: str) -> Arguments:
    """Returns the run's arguments, adjusted for the publisher and hooks of one adapter."""
    arguments = copy.copy(args)
    arguments.save = str(Path(str(args.save)) / FOLDER / name)
    weights = Path(str(args.update_weight_disk_dir))
    inside = weights.is_relative_to(str(args.save))
    arguments.update_weight_disk_dir = f"{arguments.save}/weights" if inside else str(weights / FOLDER / name)
    arguments.save_interval = arguments.update_weights_interval = 1
    setattr(arguments, ADAPTER, name)
    return arguments


def arguments_of_base(args: Arguments) -> Arguments:
    """Returns the arguments for publishing the base model, which stays unchanged if adapters are trained."""
    if args.train_adapters is None:
        return args
    arguments = copy.copy(args)
    arguments.gate = False
    return arguments
