"""The weights of a run: versions, their artifacts and checkpoints, and which of them every engine serves."""

from __future__ import annotations

import json
import logging
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from slime.engines.client import EngineControl, EngineControlError
from slime.errors import EngineError
from slime.gate.gate import CandidateGate
from slime.hooks import load_hook
from slime.processes.records import memory_dir, write_json
from slime.processes.servers import ServerSpec
from slime.ray.engine_clients import engine_client
from slime.ray.external import ExternalEngines
from slime.ray.train_actor import TrainerState
from slime.ray.train_group import TrainGroup
from slime.utils.files import commit_folder, fresh_folder
from slime.weights import checkpoints
from slime.weights.kept import keep_versions
from slime.weights.orders import VersionOrders
from slime.weights.slots import copy_slot, is_slot
from slime.weights.update import Candidate, CandidateRejected, WeightUpdate, WrongWeights
from slime.weights.versions import (
    VersionNumbers,
    WeightVersion,
    artifact_folder,
    claim_folder,
    is_of_before,
    prune,
    read_live,
)

if TYPE_CHECKING:
    from slime.arguments import Arguments
    from slime.engines.sglang.broadcast import SenderHandle

logger = logging.getLogger(__name__)


CHECKSUMS = "checksums.json"


class Publisher:
    """Brings what the trainer has learned to the engines, and to disk when that is due.

    Args:
        args: parsed arguments of the driver.
        specs: servers of the run; those with the role "engine" get every version.
        external: engines that others run; they get every version too.
        sender: what broadcasts weights; None: engines read them from disk.
        sharer: what shares memory with an own engine, where that engine needs somebody for it.
    """

    publication: Future[None] | None = None

    def __init__(
        self,
        args: Arguments,
        specs: list[ServerSpec],
        external: ExternalEngines,
        sender: SenderHandle | None = None,
        sharer: Callable[[ServerSpec], SenderHandle | None] = lambda spec: None,
    ) -> None:
        self.args = args
        self.run_dir, self.save_dir = Path(args.run_dir), Path(args.save)
        self.weights_dir = Path(args.update_weight_disk_dir)
        claim_folder(self.weights_dir, self.save_dir)
        limit = args.weight_update_timeout or float("inf")
        self.external = external
        self.own_engines = [
            engine_client(args, spec.url, sender or sharer(spec), own=spec.name)
            for spec in specs
            if spec.role == "engine" and spec.url
        ]
        self.hook = load_hook(args, "on_weights_live_path")
        self.numbers = VersionNumbers(self.save_dir)
        self.orders = VersionOrders(self.run_dir)
        self.gate = CandidateGate(args, self.orders)
        self.update = WeightUpdate(self.own_engines, self.run_dir, self.announce, patience=limit)

    @property
    def engines(self) -> list[EngineControl]:
        """All engines that an update waits for."""
        return [*self.own_engines, *self.external.present()]

    def restore(self, trainers: TrainGroup, state: TrainerState, make_way: Callable[[], None]) -> None:
        """Makes the weights that the trainer has loaded the live ones.

        Args:
            make_way: called when they are written, before an engine is asked for anything.
        """
        before = read_live(self.run_dir)
        self.newest = max(state.version, 0 if before is None else before.version)
        self.live, self.live_parent = self.weights_of(trainers, state.version), state.parent
        self.remember(self.live)
        self.gate.begin(trainers, state.rollout_id, self.live)
        if self.args.keep_versions and state.version == 0 and not checkpoints.numbers(self.save_dir):
            trainers.save(-1, 0, None, self.live.path, wait=True)  # the first weights can be gone back to
        make_way()
        self.update.engines = list(self.engines)
        self.update.publish(Candidate(self.live, state.rollout_id, state.parent, restored=True))

    def publish(
        self,
        trainers: TrainGroup,
        rollout_id: int,
        metrics: dict[str, float],
        make_way: Callable[[], None],
    ) -> None:
        """Takes the weights after `rollout_id` from the trainer if an update or a checkpoint is due, and begins to make
        them live; `settle` returns when they are. The trainer may go on as soon as this returns.

        A checkpoint is complete before its weights go live, and they go live with it, so that a run resumed from it
        serves what the first one did. With --gate this returns when the version is live, or was rejected: what the gate
        rejects does not go live, the trainer goes back, and a checkpoint that is due holds the live weights.

        Args:
            metrics: of the rollout; gets the version and how long it took, once it is live.
            make_way: called when they are written, or nothing is due; before an engine is asked for anything.
        """
        self.settle()
        due = self.save_due(rollout_id)
        if not due and (not self.engines or (rollout_id + 1) % self.args.update_weights_interval):
            make_way()
            return
        began = time.monotonic()
        version, parent = self.numbers.next(self.newest), self.live.version
        whole = due or not self.args.ship_adapters
        weights, slot = self.share(trainers, version) if whole else (None, None)
        weights = weights or self.export(trainers, version, whole)
        persist = cache(partial(self.write_artifact, weights, slot))
        if due or self.gate.on or self.args.custom_update_weight_post_write_path:
            persist()
        candidate = Candidate(weights, rollout_id, parent, metrics=dict(metrics))
        if self.gate.on:
            self.publish_examined(trainers, candidate, due, metrics, make_way, slot)
            return
        make_way()
        if due:
            self.save(trainers, candidate)

        def go_live() -> None:
            self.make_live(candidate, persist, slot)
            metrics["weights/version"] = version
            metrics["perf/update_weights_time"] = time.monotonic() - began

        self.publication = in_background(go_live, f"version {version}")

    def publish_examined(
        self,
        trainers: TrainGroup,
        candidate: Candidate,
        due: bool,
        metrics: dict[str, float],
        make_way: Callable[[], None],
        slot: str | None,
    ) -> None:
        """Makes a candidate live, or undoes it, while the trainer holds its weights."""
        began = time.monotonic()

        def persist() -> None:
            if due:
                self.save(trainers, candidate)

        try:
            free = [] if self.args.offload_rollout else self.own_engines
            found = self.gate.examine(trainers, candidate, self.live, free)
            make_way()
            self.make_live(replace(candidate, measurements=found), persist, slot)
        except CandidateRejected as rejection:
            self.reject(trainers, candidate, rejection)
            make_way()
            if due:
                self.save(trainers, replace(candidate, weights=self.live, parent=self.live_parent))
            metrics |= {"gate/rejected": 1.0, **named(rejection.measurements)}
            return
        self.gate.accept(trainers, found)
        metrics |= named(found)
        metrics["weights/version"] = candidate.weights.version
        metrics["perf/update_weights_time"] = time.monotonic() - began

    def make_live(self, candidate: Candidate, persist: Callable[[], None], slot: str | None = None) -> None:
        """Brings a candidate to every engine.

        Raises:
            CandidateRejected: an engine refuses its files; every engine holds the old version.
        """
        self.update.engines = list(self.engines)
        try:
            self.update.publish(candidate, persist, slot)
        except EngineError as error:
            if self.gate.on and refused(error):
                raise CandidateRejected(str(error), "engine") from error
            raise
        self.live, self.live_parent = candidate.weights, candidate.parent
        self.remember(self.live)
        self.tidy()

    def remember(self, weights: WeightVersion) -> None:
        """Notes the checksum of a version, which proves it when it is gone back to."""
        write_json(self.weights_dir / CHECKSUMS, {**self.checksums(), str(weights.version): weights.checksum})

    @property
    def busy(self) -> bool:
        """Whether a version is on its way to the engines."""
        return self.publication is not None and not self.publication.done()

    def settle(self) -> None:
        """Returns when the version that is on its way is live everywhere, or was given up.

        Raises:
            EngineError: it was given up; the version before it is live on every engine that answers.
        """
        publication, self.publication = self.publication, None
        if publication is not None:
            publication.result()

    def reject(self, trainers: TrainGroup, candidate: Candidate, rejection: CandidateRejected) -> None:
        """Undoes a candidate: its files go, the trainer goes back to the live weights."""
        version = candidate.weights.version
        logger.warning(
            "version %d is rejected, version %d stays live: %s", version, self.live.version, rejection
        )
        self.newest = max(self.newest, version)
        self.gate.reject(trainers, candidate, rejection)
        shutil.rmtree(candidate.weights.path, ignore_errors=True)

    def tidy(self) -> None:
        """Removes what is not kept of older versions."""
        args, spare = self.args, {Path(self.live.path)}
        if args.keep_versions:
            named = {self.live.version, *([self.orders.pinned] if self.orders.pinned is not None else [])}
            kept = keep_versions(
                self.save_dir, self.weights_dir, args.keep_versions, named, args.keep_checkpoints
            )
            spare |= {artifact_folder(self.weights_dir, version) for version in kept}
        else:
            checkpoints.prune(self.save_dir, args.keep_checkpoints)
        prune(self.weights_dir, "v*", args.keep_weights, spare)

    def save_due(self, rollout_id: int) -> bool:
        return (rollout_id + 1) % self.args.save_interval == 0 or self.is_last(rollout_id)

    def is_last(self, rollout_id: int) -> bool:
        return bool(rollout_id + 1 == self.args.num_rollout)

    def save(self, trainers: TrainGroup, candidate: Candidate) -> None:
        """Checkpoint and --save-hf; the last one of a run is complete when this returns."""
        weights, rollout_id = candidate.weights, candidate.rollout_id
        trainers.save(
            rollout_id, weights.version, candidate.parent, weights.path, wait=self.is_last(rollout_id)
        )
        if self.args.save_hf is not None:
            target = Path(self.args.save_hf.replace("{rollout_id}", str(rollout_id)))
            temporary = fresh_folder(target)
            shutil.copytree(weights.path, temporary, dirs_exist_ok=True)
            commit_folder(temporary, target)

    def weights_of(self, trainers: TrainGroup, version: int) -> WeightVersion:
        """The artifact of the version that the trainer has loaded."""
        live = read_live(self.run_dir)
        if live is not None and live.version == version and Path(live.path).is_dir():
            if not is_of_before(live.checksum):
                return live
            logger.info("version %d has a checksum of an earlier release: it is written again", version)
        return self.export(trainers, version)

    def export(self, trainers: TrainGroup, version: int, whole: bool = True) -> WeightVersion:
        """Writes a version: the model, of which a checkpoint is made too, or (not `whole`) its adapter alone."""
        folder = artifact_folder(self.weights_dir, version)
        weights = WeightVersion(version, str(folder), trainers.export_weights(folder, version, whole))
        self.tell_written(folder)
        return weights

    def share(self, trainers: TrainGroup, version: int) -> tuple[WeightVersion | None, str | None]:
        """A version in shared memory, whose artifact is still to be written, and its slot; (None, None): it goes by
        disk."""
        if self.args.update_weight_transport != "tensor":
            return None, None
        checksum, slot = trainers.share_weights(memory_dir(self.run_dir), version)
        if checksum and is_slot(Path(slot)):
            return WeightVersion(version, str(artifact_folder(self.weights_dir, version)), checksum), slot
        reason = "the trainer's first rank is on another machine" if checksum else slot
        logger.warning("version %d goes by disk, not through shared memory: %s", version, reason)
        return None, None

    def write_artifact(self, weights: WeightVersion, slot: str | None) -> None:
        """Writes a version to disk that lies in shared memory; nothing where it is written (None)."""
        if slot is not None:
            folder = Path(weights.path)
            temporary = fresh_folder(folder)
            copy_slot(Path(slot), temporary)
            commit_folder(temporary, folder)
            self.tell_written(folder)

    def tell_written(self, folder: Path) -> None:
        if (hook := load_hook(self.args, "custom_update_weight_post_write_path")) is not None:
            hook(self.args, str(folder), self.engines)

    def checksums(self) -> dict[str, str]:
        """Of every version that was written, by its number."""
        path = self.weights_dir / CHECKSUMS
        found: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def announce(self, candidate: Candidate) -> None:
        """Every engine serves the candidate: tells the hook."""
        if self.hook is None or candidate.silent:
            return
        weights = candidate.weights
        checkpoint = {
            "path": weights.path,
            "parent": candidate.parent,
            "checksum": weights.checksum,
            "restored": candidate.restored,
            "metrics": candidate.metrics,
            "measurements": candidate.measurements,
            **({"undo": candidate.undo} if candidate.undo is not None else {}),
        }
        load_hook(self.args, "on_weights_live_path")(
            self.args, candidate.rollout_id, weights.version, checkpoint
        )

    def release_engines(self) -> None:
        """Engines give back their memory and wait; requests wait with them."""
        for engine in self.engines:
            engine.release_memory()

    def resume_engines(self) -> None:
        for engine in self.engines:
            engine.resume_memory()


def refused(error: EngineError) -> bool:
    """Whether an engine read the files and did not want them; one that is away is another matter."""
    status = error.status if isinstance(error, EngineControlError) else None
    return isinstance(error, WrongWeights) or (status is not None and 400 <= status < 500)


def named(found: dict[str, float]) -> dict[str, float]:
    return {f"gate/{name}": value for name, value in found.items()}


def in_background(action: Callable[[], None], name: str) -> Future[None]:
    """Runs an action in a thread that does not keep the process from ending."""
    done: Future[None] = Future()

    def run() -> None:
        try:
            action()
        except BaseException as error:  # whoever waits for it gets it
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, name=name, daemon=True).start()
    return done
