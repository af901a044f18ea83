"""One rank of the trainer in a Ray actor; the training backend does all work and does not depend on Ray."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import ray

from claw_base.imports import without_garbage_collection
from slime.errors import unknown_name
from slime.ray import actor_process
from slime.ray.actor_process import enable_expandable_segments
from slime.types import Sample

if TYPE_CHECKING:
    from slime.flags import Arguments
    from slime.gate.memory import KeptState
    from slime.ray.adapter_turns import AdapterTurns
    from slime.ray.meeting import Meeting
    from slime.training.trainer import Trainer


class TrainerState(NamedTuple):
    """The state that a trainer has loaded: last rollout trained (-1: none), its weight version, that version's
    parent."""

    rollout_id: int
    version: int
    parent: int | None


def record_name(rank: int) -> str:
    """Returns the name of a rank's record and log."""
    return "trainer" if rank == 0 else f"trainer-{rank}"


def _fsdp() -> Callable[..., Trainer]:
    from slime.training.fsdp import FSDPTrainer

    return FSDPTrainer


def _megatron() -> Callable[..., Trainer]:
    from slime.training.megatron import MegatronTrainer

    return MegatronTrainer


def _rented() -> Callable[..., Trainer]:
    from slime.rented.trainer import RentedTrainer

    return RentedTrainer


TRAINERS: Mapping[str, Callable[[], Callable[..., Trainer]]] = {
    "fsdp": _fsdp,
    "megatron": _megatron,
    "rented": _rented,
}
"""Loaders of the trainer classes, by the name in --train-backend; only the chosen one is imported."""


def trainer_class(name: str) -> Callable[..., Trainer]:
    """Returns the trainer class for --train-backend. Raises ConfigError for an unknown name."""
    if name not in TRAINERS:
        raise unknown_name("training backend", name, TRAINERS)
    with without_garbage_collection():
        return TRAINERS[name]()


@ray.remote(num_cpus=1, max_restarts=0, concurrency_groups={"life": 1})
@actor_process.logs_failures
class TrainActor:
    """Rank `rank` of `world_size`. Runs with lower priority than servers on the same machine."""

    def __init__(self, args: Arguments, rank: int, world_size: int) -> None:
        nice = 0 if args.actor_num_gpus_per_node else args.train_nice
        actor_process.enter(Path(args.run_dir), record_name(rank), role="trainer", nice=nice)
        os.environ["OMP_NUM_THREADS"] = str(args.train_threads)
        enable_expandable_segments(os.environ)
        self.args, self.rank, self.world_size = args, rank, world_size
        self.noted: KeptState | None = None
        self.kept: KeptState | None = None
        self.turns: AdapterTurns | None = None

    @ray.method(concurrency_group="life")  # type: ignore[untyped-decorator]
    def live(self) -> None:
        """Never returns: its reference fails the moment this process dies."""
        threading.Event().wait()

    def load(self, meeting: Meeting) -> TrainerState:
        """Joins the other ranks and loads the latest checkpoint, or the model if there is none."""
        make = trainer_class(self.args.train_backend)
        store = meeting.enter(self.world_size)
        self.trainer = make(self.args, self.rank, self.world_size, store=store)
        state = self.trainer.load()
        if self.args.train_adapters is not None:
            from slime.ray.adapter_turns import AdapterTurns

            self.turns = AdapterTurns(self.trainer)
        return TrainerState(state.rollout_id, state.version, state.parent)

    def train(self, rollout_id: int, samples: list[Sample]) -> dict[str, float]:
        from slime.training.profiling import profiled

        with profiled(self.args, rollout_id, self.rank):
            return self.trainer.train(rollout_id, samples)

    def note_state(self) -> None:
        """Copies this rank's current state to memory, for `keep_state`."""
        from slime.gate.memory import KeptState

        self.noted = KeptState(self.trainer)

    def keep_state(self) -> None:
        """Makes the noted state, or else the current one, the state that `go_back` restores."""
        if self.noted is None:
            self.note_state()
        self.kept, self.noted = self.noted, None

    def go_back(self) -> None:
        """Restores the state of `keep_state`; later notes are discarded."""
        assert self.kept is not None
        self.noted = None
        self.kept.restore(self.trainer)

    def shrink(self, share: float) -> None:
        """Moves the weights to `share` of the way from the state of `keep_state` to the current weights."""
        assert self.kept is not None
        self.kept.shrink(self.trainer, share)

    def return_to(self, checkpoint: str) -> None:
        self.trainer.return_to(checkpoint)

    def load_adapter(self, save: str, checkpoint: str | None) -> None:
        """Trains another adapter from now on; state of the current one that is in no checkpoint is lost."""
        self.noted = self.kept = None
        assert self.turns is not None
        self.turns.load_adapter(save, checkpoint)

    def measure_files(self, candidate: str, live: str) -> dict[str, float]:
        from slime.gate.files import measure_files

        return measure_files(candidate, live)

    def log_probs(self, samples: list[Sample]) -> list[list[float]]:
        return self.trainer.log_probs(samples)

    def scale_learning_rate(self, scale: float) -> None:
        self.trainer.rate_scale = scale

    def export_weights(self, folder: str, version: int, whole: bool) -> str:
        return self.trainer.export_weights(folder, version, whole)

    def keeps(self, folder: str) -> bool:
        return self.trainer.keeps(folder)

    def share_weights(self, slots: str, version: int) -> tuple[str, str]:
        return self.trainer.share_weights(slots, version)

    def save(
        self,
        rollout_id: int,
        version: int,
        parent: int | None,
        model_folder: str | None,
        wait: bool,
        hold: bool,
    ) -> str:
        return self.trainer.save(rollout_id, version, parent, model_folder, wait, hold)

    def finish_save(self) -> None:
        self.trainer.finish_save()

    def sleep(self) -> None:
        from slime.training.fsdp.offload import to_cpu

        to_cpu(self.trainer.resident)

    def wake_up(self) -> None:
        from slime.training.fsdp.offload import to_device

        to_device(self.trainer.resident, self.trainer.device)
