"""All ranks of the trainer as one object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError

from slime.errors import TrainError
from slime.ray.placement import Placement
from slime.ray.train_actor import TrainActor, TrainerState


class TrainerDied(TrainError):
    """A rank's process is gone. The group is of no use any more; a new one starts from the checkpoint."""


class TrainGroup:
    """Starts one actor a rank in the bundles of the placement's actor part. Every call goes to all ranks."""

    def __init__(self, args: Any, placement: Placement) -> None:
        sites = placement.sites["actor"]
        self.ranks = [
            TrainActor.options(  # type: ignore[attr-defined]
                num_gpus=0 if site.gpu is None else 1,
                scheduling_strategy=placement.strategy_of(site.bundle),
            ).remote(args, rank, len(sites))
            for rank, site in enumerate(sites)
        ]
        self.lives = [rank.live.remote() for rank in self.ranks]

    def load(self) -> TrainerState:
        state: TrainerState = self.call("load", self.first("rendezvous"))
        return state

    def train(self, rollout_id: int, samples: Any) -> dict[str, float]:
        """One training step. `samples` is the batch or a reference to it; returns rank 0's metrics."""
        metrics: dict[str, float] = self.call("train", rollout_id, samples)
        return metrics

    def export_weights(self, folder: Path, version: int) -> str:
        """Writes the weights as a Hugging Face folder and returns their checksum."""
        checksum: str = self.call("export_weights", str(folder), version)
        return checksum

    def save(self, rollout_id: int, version: int, parent: int | None) -> Path:
        return Path(self.call("save", rollout_id, version, parent))

    def first(self, method: str) -> Any:
        return self.collect([getattr(self.ranks[0], method).remote()])[0]

    def call(self, method: str, *args: Any) -> Any:
        """Runs a method on all ranks; returns rank 0's answer.

        Raises:
            TrainerDied: a rank's process ended; the others may wait for it forever.
        """
        return self.collect([getattr(rank, method).remote(*args) for rank in self.ranks])[0]

    def collect(self, answers: list[Any]) -> list[Any]:
        try:
            collected: list[Any] = ray.get(answers)
        except RayActorError as error:
            raise TrainerDied(f"a trainer process ended: {str(error).splitlines()[0]}") from error
        return collected

    def check(self) -> None:
        """Raises TrainerDied if a rank's process has ended since `load`."""
        self.collect(ray.wait(self.lives, num_returns=len(self.lives), timeout=0)[0])

    def kill(self) -> None:
        for rank in self.ranks:
            ray.kill(rank)
