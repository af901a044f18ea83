"""Weight versions of a run: their files and checkpoints, and the version that every engine serves."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from claw_base.run_folder.orders import VersionOrders
from slime.engines.client import EngineControl, EngineControlError
from slime.errors import EngineError
from slime.gate.gate import CandidateGate
from slime.gate.interruptible import Tries
from slime.hooks import load_hook
from slime.plan.model_servers import GATE
from slime.processes.servers import ServerSpec
from slime.ray.limits import update_limit
from slime.ray.servers.engine_clients import engine_client, gate_client, spare_clients
from slime.ray.servers.external import ExternalEngines
from slime.ray.train_actor import TrainerState
from slime.ray.train_group import TrainerDied, TrainGroup
from slime.ray.versions.files import VersionFiles
from slime.weights import checkpoints
from slime.weights.engine_steps import Engine, WrongWeights
from slime.weights.update import Candidate, CandidateRejected, WeightUpdate
from slime.weights.versions import VersionNumbers, WeightVersion, is_adapter, read_live

if TYPE_CHECKING:
    from slime.engines.sglang.broadcast import SenderHandle
    from slime.flags import Arguments
    from slime.ray.servers.engine_nodes import EngineNodes


class Publisher:
    """Publishes the trainer's weights to the engines, and writes checkpoints when they are due.

    Args:
        args: parsed arguments of the driver.
        specs: servers of the run; those with the role "engine" receive every version.
        external: external engines; they receive every version too.
        nodes: engines of the run on other machines; they receive every version too.
        sender: broadcasts weights; None: engines read them from disk.
        sharer: returns the process that shares memory with an own engine, or None if the engine needs none.
        home: folder with the record of the live version and orders about versions; None: the run folder.
    """

    def __init__(
        self,
        args: Arguments,
        specs: list[ServerSpec],
        external: ExternalEngines,
        nodes: EngineNodes,
        sender: SenderHandle | None = None,
        sharer: Callable[[ServerSpec], SenderHandle | None] = lambda spec: None,
        home: Path | None = None,
    ) -> None:
        self.args, run_dir = args, home or Path(args.run_dir)
        self.home = run_dir
        self.save_dir = Path(args.save)
        self.files = VersionFiles(args, lambda: self.engines, run_dir)
        self.files.claim()
        # a hook that cannot be loaded fails here, before anything is trained
        load_hook(args, "on_weights_live_path")
        limit = update_limit(args)
        self.external, self.nodes = external, nodes
        self.own_engines = [
            engine_client(args, spec.url, sender or sharer(spec), own=spec.name)
            for spec in specs
            if spec.role == "engine" and spec.url and not spec.machine
        ]
        self.gate_engines: list[Tries] = [
            *(gate_client(args, spec.url) for spec in specs if spec.role == GATE and spec.url),
            *spare_clients(args),
        ]
        self.numbers = VersionNumbers(self.save_dir)
        self.orders = VersionOrders(run_dir)
        self.gate = CandidateGate(args, self.orders)
        self.update = WeightUpdate(
            self.own_engines,
            run_dir,
            self.announce,
            patience=limit,
            is_lost=nodes.is_lost,
            is_remote=lambda url: nodes.node_of(url) is not None,
        )

    @property
    def engines(self) -> list[EngineControl]:
        """Returns all engines that an update waits for."""
        return [*self.own_engines, *self.nodes.present(), *self.external.present()]

    @property
    def updated(self) -> Sequence[Engine]:
        """Returns `engines` behind the interface of an update."""
        return self.engines

    @property
    def free_engines(self) -> Sequence[Tries]:
        """Returns engines that may test a candidate while the trainer works.

        These are the gate's own, otherwise own engines that have their memory at that time.
        """
        return self.gate_engines or ([] if self.args.offload_rollout else self.own_engines)

    def restore(self, trainers: TrainGroup, state: TrainerState, release_gpus: Callable[[], None]) -> None:
        """Makes the weights that the trainer has loaded live.

        Args:
            release_gpus: called when they are written, before any request to an engine.
        """
        before = read_live(self.home)
        self.newest = max(state.version, 0 if before is None else before.version)
        self.live, self.live_parent = self.files.weights_of(trainers, state.version), state.parent
        self.files.remember(self.live)
        self.gate.begin(trainers, state.rollout_id, self.live, self.free_engines)
        if self.args.keep_versions and state.version == 0 and not checkpoints.numbers(self.save_dir):
            trainers.save(
                -1, 0, None, self.live.path, wait=True
            )  # makes a rollback to the first weights possible
        release_gpus()
        self.switch(Candidate(self.live, state.rollout_id, state.parent, restored=True))

    def switch(
        self, candidate: Candidate, persist: Callable[[], None] = lambda: None, slot: str | None = None
    ) -> None:
        """Makes every engine serve the candidate; `live` is unchanged. Raises as `WeightUpdate.publish`."""
        self.update.engines = list(self.updated)
        self.update.publish(candidate, persist, slot)

    def make_live(self, candidate: Candidate, persist: Callable[[], None], slot: str | None = None) -> None:
        """Makes every engine serve the candidate.

        Raises:
            CandidateRejected: an engine rejects its files; all engines keep the old version.
        """
        try:
            self.switch(candidate, persist, slot)
        except EngineError as error:
            if self.gate.on and is_rejection(error):
                raise CandidateRejected(str(error), "engine") from error
            raise
        self.live, self.live_parent = candidate.weights, candidate.parent
        self.files.remember(self.live)
        self.files.tidy(self.live, self.orders.pinned, self.gate.history.good)

    def leaves_whole(self, save_due: bool) -> bool:
        """Returns whether the next version is exported as a full model, not only as an adapter."""
        return save_due or not self.args.ship_adapters

    def update_due(self, rollout_id: int) -> bool:
        return bool(self.engines) and (rollout_id + 1) % self.args.update_weights_interval == 0

    def save_due(self, rollout_id: int) -> bool:
        return (rollout_id + 1) % self.args.save_interval == 0 or self.is_last(rollout_id)

    def is_last(self, rollout_id: int) -> bool:
        return bool(rollout_id + 1 == self.args.num_rollout)

    def save(self, trainers: TrainGroup, candidate: Candidate, hold: bool = False) -> None:
        """Writes the checkpoint and the --save-hf copy; the last one of a run is complete on return.

        Args:
            hold: the checkpoint becomes valid when `activate_checkpoint` is called, which does not need the trainer.
        """
        weights, rollout_id = candidate.weights, candidate.rollout_id
        wait = self.is_last(rollout_id)
        trainers.save(rollout_id, weights.version, candidate.parent, weights.path, wait, hold)
        if not hold:
            self.files.copy_for_others(weights, rollout_id)

    def return_to(self, weights: WeightVersion, parent: int | None) -> None:
        """Makes an older version live again; version numbers are not reused."""
        self.newest = max(self.newest, self.live.version)
        self.live, self.live_parent = weights, parent

    @property
    def serves_adapter(self) -> bool:
        """Returns whether engines serve an adapter only, so that a checkpoint needs the full model from the trainer."""
        return is_adapter(Path(self.live.path))

    def save_live(self, trainers: TrainGroup, rollout_id: int, release_gpus: Callable[[], None]) -> None:
        """Writes a checkpoint of the live version, which the trainer holds, after `rollout_id`; complete on return.

        Args:
            release_gpus: called when the trainer has exported its weights.
        """
        model = self.live
        if self.serves_adapter:
            # a checkpoint contains the whole model
            model = self.files.export_whole_model(trainers, model.version)
        release_gpus()
        trainers.save(rollout_id, self.live.version, self.live_parent, model.path, wait=True)
        self.files.copy_for_others(model, rollout_id)
        if model is not self.live:
            shutil.rmtree(model.path, ignore_errors=True)

    def activate_checkpoint(self, candidate: Candidate) -> None:
        """Makes the checkpoint valid that was written with `hold`."""
        checkpoints.activate_checkpoint(checkpoints.folder_of(self.save_dir, candidate.rollout_id))
        self.files.copy_for_others(candidate.weights, candidate.rollout_id)

    def announce(self, candidate: Candidate) -> None:
        """Calls the hook --on-weights-live-path once every engine serves the candidate."""
        hook = load_hook(self.args, "on_weights_live_path")
        if hook is None or candidate.silent:
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
        hook(self.args, candidate.rollout_id, weights.version, checkpoint)

    def check_kept(self) -> None:
        """Raises TrainerDied if a service has lost the live weights: the training state is lost too, and a new trainer
        restores both."""
        for engine in self.own_engines if self.args.rollout_backend == "rented" else ():
            with suppress(EngineError):
                if (info := engine.info()).forgotten:
                    raise TrainerDied(f"the rented service has lost version {info.version}")

    def release_engines(self) -> None:
        """Makes engines release their memory and pause; their requests wait."""
        for engine in self.engines:
            engine.release_memory()

    def resume_engines(self) -> None:
        for engine in self.engines:
            engine.resume_memory()


def is_rejection(error: EngineError) -> bool:
    """Returns whether an engine read the files and rejected them; False if it was unreachable."""
    status = error.status if isinstance(error, EngineControlError) else None
    return isinstance(error, WrongWeights) or (status is not None and 400 <= status < 500)
