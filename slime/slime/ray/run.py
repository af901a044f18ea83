"""A training run: its actors, its servers, the version that is live, and the recovery of what dies.

Servers and the two helper actors come back by themselves (see `ServerWatcher`, `RolloutManager`). Here is
the rest: a trainer that dies starts again from the latest checkpoint, whose weights go live once more; the
rollout side then takes back what was leased or trained since. When Ray itself dies the driver ends, and the
supervisor starts another.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import ray

from slime import processes
from slime.backends.control import EngineControl
from slime.errors import ConfigError, DataError, TrainError
from slime.plugins import load_attr
from slime.ray.engines import on_own_gpus, server_specs
from slime.ray.placement import Placement, split_of
from slime.ray.rollout_manager import RolloutManager
from slime.ray.runtime import Runtime
from slime.ray.server_watcher import ServerWatcher
from slime.ray.train_group import TrainerDied, TrainGroup
from slime.tracking import Tracker
from slime.versions import VersionNumbers, WeightVersion, artifact_folder, prune, read_live
from slime.weight_update import Candidate, WeightUpdate

logger = logging.getLogger(__name__)

RECOVERY_WINDOW = 600.0  # seconds in which the trainer's restarts are counted
FAILURES_IN_A_ROW = 3  # batches that could not be trained on, before the run is given up
LOOK_INTERVAL = 1.0  # seconds between looks at Ray while a batch is awaited


class PendingBatch(NamedTuple):
    """A batch that was asked for: references to its samples and to its metrics."""

    samples: Any
    metrics: Any


class TrainingRun:
    """Everything a training loop uses, in verbs. `args` are the parsed arguments of the driver."""

    def __init__(self, args: Any) -> None:
        self.args = args
        self.run_dir = Path(args.run_dir)
        self.save_dir = Path(args.save)
        if args.update_weights_interval > 1 and args.on_weights_live_path:
            raise ConfigError(
                f"--update-weights-interval {args.update_weights_interval} would leave batches uncommitted: "
                "--on-weights-live-path commits the batch of each version; drop one of them"
            )
        self.metrics: dict[str, float] = {}
        self.failures = 0
        self.deaths: deque[float] = deque()
        processes.record_self(self.run_dir, "driver", "driver")
        specs = server_specs(args)  # refuses what does not fit before anything starts
        split = split_of(args)
        self.runtime = Runtime(self.run_dir, cpus=split.total, gpus=None if split.gpus else 0)
        self.placement = Placement(split)
        self.specs = on_own_gpus(specs, self.placement)
        self.watcher = ServerWatcher.remote(self.run_dir, self.specs, dict(os.environ))  # type: ignore[attr-defined]
        self.start_actors()
        self.tracker = Tracker(args.tensorboard_dir if args.use_tensorboard else None)
        self.numbers = VersionNumbers(self.save_dir)
        engines = [
            EngineControl(spec.url, args.rollout_backend)
            for spec in self.specs
            if spec.role == "engine" and spec.url
        ]
        self.update = WeightUpdate(engines, self.run_dir, self.announce)

    def __enter__(self) -> TrainingRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends Ray and what runs in it, unless it failed. Servers go on: only the supervisor stops them."""
        self.tracker.close()
        if kind is None or not issubclass(kind, Exception):
            self.runtime.close()

    def start_actors(self) -> None:
        self.trainers = TrainGroup(self.args, self.placement)
        self.manager = RolloutManager.remote(self.args)  # type: ignore[attr-defined]

    def start(self) -> int:
        """Brings the trainer's weights live once it and the servers are up; returns the rollout to train.

        Raises:
            TrainError: the trainer died too often on the way, or Ray is dead.
        """
        while True:
            try:
                return self.go_live()
            except TrainerDied as death:
                self.replace_trainer(death)

    def go_live(self) -> int:
        state = self.trainers.load()
        ray.get(self.watcher.wait_ready.remote())
        for spec in self.specs:
            if spec.url and spec.role != "engine":
                print(f"{spec.name} ready at {spec.url}", flush=True)
        before = read_live(self.run_dir)
        self.newest = max(state.version, 0 if before is None else before.version)
        self.live = self.weights_of(state.version)
        self.update.publish(Candidate(self.live, state.rollout_id, state.parent, restored=True))
        return state.rollout_id + 1

    def request(self, rollout_id: int) -> PendingBatch:
        """Asks for a batch and returns at once."""
        return PendingBatch(*self.manager.generate.remote(rollout_id))

    def wait(self, batch: PendingBatch) -> None:
        """Returns when the batch is there.

        Raises:
            TrainerDied: it died meanwhile; it can be back before the batch is full.
            TrainError: Ray died.
        """
        began = time.monotonic()
        self.runtime.check()
        while not ray.wait([batch.metrics], timeout=LOOK_INTERVAL)[0]:
            self.runtime.check()
            self.trainers.check()
        self.metrics = {**ray.get(batch.metrics), "perf/wait_time": time.monotonic() - began}

    def train(self, rollout_id: int, batch: PendingBatch) -> None:
        """One training step on a batch that is there.

        A batch that cannot be trained on is used up like any other and changes nothing.

        Raises:
            DataError, TrainError: too many batches in a row could not be trained on.
        """
        began = time.monotonic()
        try:
            trained = self.trainers.train(rollout_id, batch.samples)
            self.failures = 0
        except TrainerDied:
            raise
        except (DataError, TrainError) as error:
            self.failures += 1
            if self.failures > FAILURES_IN_A_ROW:
                raise
            logger.error("rollout %d is skipped: %s", rollout_id, error)
            trained = {"skipped": 1.0}
        self.metrics.update({f"train/{name}": value for name, value in trained.items()})
        self.metrics["perf/train_time"] = time.monotonic() - began

    def publish(self, rollout_id: int) -> None:
        """Brings the weights after `rollout_id` live everywhere, with a checkpoint when one is due."""
        if (rollout_id + 1) % self.args.update_weights_interval == 0:
            self.update_weights(rollout_id)
        self.tracker.log(rollout_id, self.metrics)

    def update_weights(self, rollout_id: int) -> None:
        began = time.monotonic()
        version, parent = self.numbers.next(self.newest), self.live.version
        candidate = Candidate(self.export(version), rollout_id, parent, metrics=dict(self.metrics))

        def persist() -> None:
            if (rollout_id + 1) % self.args.save_interval == 0 or rollout_id + 1 == self.args.num_rollout:
                self.trainers.save(rollout_id, version, parent)

        self.update.publish(candidate, persist)
        self.live = candidate.weights
        self.remove_old()
        self.metrics.update(
            {"weights/version": version, "perf/update_weights_time": time.monotonic() - began}
        )

    def recover(self, death: TrainerDied) -> int:
        """Starts the trainer again from its checkpoint; returns the rollout to go on with."""
        self.replace_trainer(death)
        return self.start()

    def replace_trainer(self, death: TrainerDied) -> None:
        """A new trainer in place of the dead one.

        The rollout manager is replaced too: a call in it that still waits for a batch would take the samples
        that are about to come back.

        Raises:
            TrainError: it died too often, or Ray is dead.
        """
        logger.warning("%s; starting again from the latest checkpoint", death)
        self.runtime.check()
        now = time.monotonic()
        self.deaths.append(now)
        while now - self.deaths[0] > RECOVERY_WINDOW:
            self.deaths.popleft()
        if len(self.deaths) > self.args.trainer_max_restarts:
            raise TrainError(f"the trainer died {len(self.deaths)} times in {RECOVERY_WINDOW:g} s") from death
        self.trainers.kill()
        ray.kill(self.manager)
        self.start_actors()

    def weights_of(self, version: int) -> WeightVersion:
        """The artifact of the version that the trainer has loaded."""
        live = read_live(self.run_dir)
        if live is not None and live.version == version and Path(live.path).is_dir():
            return live
        return self.export(version)

    def export(self, version: int) -> WeightVersion:
        folder = artifact_folder(self.save_dir, version)
        return WeightVersion(version, str(folder), self.trainers.export_weights(folder, version))

    def announce(self, candidate: Candidate) -> None:
        """Every engine serves the candidate: tells the hook."""
        weights = candidate.weights
        checkpoint = {
            "path": weights.path,
            "parent": candidate.parent,
            "checksum": weights.checksum,
            "restored": candidate.restored,
        }
        if self.args.on_weights_live_path is not None:
            hook = load_attr(self.args.on_weights_live_path)
            hook(self.args, candidate.rollout_id, weights.version, checkpoint)

    def remove_old(self) -> None:
        """Retention of artifacts and checkpoints; what is live stays."""
        prune(self.save_dir / "weights", "v*", self.args.keep_weights, {Path(self.live.path)})
        prune(self.save_dir, "iter_*", self.args.keep_checkpoints, set())
