"""The components of a training run: its processes, and which of them uses the memory of shared GPUs."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from claw_base.files import own_run_folder
from claw_base.run_folder import records
from slime.arguments.record import write_arguments
from slime.plan.gpu_split import GpuSplit, split_of
from slime.plan.refusals import check_before_start
from slime.processes import control
from slime.ray.actor_process import server_environment
from slime.ray.placement import Placement
from slime.ray.rollouts import Rollouts
from slime.ray.runtime import Runtime, joins
from slime.ray.servers.engine_clients import end_released, weight_sender, weight_sharer
from slime.ray.servers.engine_nodes import EngineNodes
from slime.ray.servers.external import ExternalEngines
from slime.ray.servers.specs import on_own_gpus, server_specs
from slime.ray.servers.watch_actor import WatcherHandle
from slime.ray.train_group import TrainGroup
from slime.ray.versions.adapters import arguments_of_base
from slime.ray.versions.publisher import Publisher
from slime.tracking import Tracker
from slime.utils.logging import log_to_file
from slime.weights.versions import clear_missing_live

if TYPE_CHECKING:
    from slime.flags import Arguments

logger = logging.getLogger(__name__)


class RunComponents:
    """Starts and stops everything that a training loop uses. `args` are the driver's parsed arguments."""

    def __init__(self, args: Arguments) -> None:
        self.args = args
        self.run_dir = Path(args.run_dir)
        own_run_folder(self.run_dir)
        records.record_self(self.run_dir, "driver", "driver")
        check_before_start(args, os.environ)
        # on one machine, check that the engines fit before anything starts
        specs = [] if joins() else server_specs(args)
        self.reach(split_of(args))
        # includes the variables that starting Ray has set for all processes
        self.nodes = EngineNodes(args, self.placement, server_environment(os.environ))
        if joins():
            # addresses of engines on other machines are not known earlier
            specs = server_specs(args, self.nodes.hosts)
        write_arguments(self.run_dir, args)
        if (lost := clear_missing_live(self.run_dir)) is not None:
            logger.warning("version %d is missing at %s: writing it again", lost.version, lost.path)
        self.specs = on_own_gpus(specs, self.placement, args)
        end_released(self.run_dir)
        sender = weight_sender(args, self.placement)
        self.nodes.start(self.specs, sender)
        here = [spec for spec in self.specs if not spec.machine]
        self.watcher = WatcherHandle(self.run_dir, here, self.nodes.env, args.health_timeout)
        self.rollouts = Rollouts(args)
        self.trainers = None if args.debug_rollout_only else TrainGroup(args, self.placement)
        self.tracker = Tracker(args)
        self.external = ExternalEngines(args, sender)
        self.publisher = Publisher(
            arguments_of_base(args),
            self.specs,
            self.external,
            self.nodes,
            sender,
            lambda spec: weight_sharer(args, self.placement, spec.env),
        )

    def reach(self, split: GpuSplit) -> None:
        """Starts or joins Ray, and reserves the GPUs of the split."""
        log_to_file(control.log_path(self.run_dir, "training"))
        self.runtime = Runtime(self.run_dir, split.total, split.ray_gpus, self.args.ray_start_timeout)
        self.placement = Placement(split)
        self.placement.check_folders(
            [self.run_dir, Path(self.args.save), Path(self.args.update_weight_disk_dir)]
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Shuts Ray down with all actors, unless Ray itself failed. Servers continue; the supervisor stops
        them."""
        self.tracker.close()
        if kind is None or not issubclass(kind, Exception):
            self.runtime.close()

    def wait_for_servers(self) -> None:
        """Returns when own servers and external engines respond."""
        self.watcher.wait_ready()
        self.nodes.wait_ready()
        self.external.wait_ready()

    def give_gpus_to(self, user: str) -> None:
        """With --colocate: gives the GPU memory to "engines" or "trainers"; no-op if they have it."""
        if self.args.offload_rollout:
            logger.info("the GPU memory is now used by the %s", user)
            if user == "trainers":
                self.publisher.release_engines()
            else:
                self.publisher.resume_engines()
        if self.args.offload_train and self.trainers is not None and user == "trainers":
            self.trainers.wake_up()

    def release_gpus(self) -> None:
        """Called after weights are written: moves trainers off the GPUs, then lets engines use their memory
        again."""
        self.offload_trainers()
        self.give_gpus_to("engines")

    def offload_trainers(self) -> None:
        """With --offload-train: moves trainers off the GPUs until the next batch is complete."""
        if self.args.offload_train and self.trainers is not None:
            self.trainers.sleep()
