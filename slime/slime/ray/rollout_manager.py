"""The actor that turns prompts into training batches."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray

from slime import replay
from slime.ray import actor_process
from slime.rollout.service import RolloutService
from slime.types import Sample

if TYPE_CHECKING:
    from slime.arguments.sides import GenerationSide


@ray.remote(num_cpus=0, max_restarts=0, max_concurrency=8)
@actor_process.logs_failures
class RolloutManager:
    """Each call runs in a thread of its own, so that none waits behind a batch that is being made.

    When it dies the driver starts another, restores its data and asks for the batch again: a rollout function
    must give the same `rollout_id` the same samples, or new ones as good.
    """

    def __init__(self, args: GenerationSide) -> None:
        actor_process.enter(Path(args.run_dir), "buffer", role="buffer")
        self.args = args
        self.service: RolloutService | None = None
        self.opening = threading.Lock()

    def open(self) -> None:
        """Reads the data; whatever is wrong with it is raised here and by every call, not as the end of the actor."""
        self._opened()

    def _opened(self) -> RolloutService:
        with self.opening:
            if self.service is None:
                self.service = RolloutService(self.args)
            return self.service

    @ray.method(num_returns=2)  # type: ignore[untyped-decorator]
    def generate(self, rollout_id: int) -> tuple[list[Sample], dict[str, float]]:
        """Blocks until there is a batch; returns its samples and its metrics."""
        samples, metrics = self._opened().generate(rollout_id)
        if self.args.save_debug_rollout_data is not None:
            replay.save(self.args.save_debug_rollout_data, rollout_id, samples)
        return samples, metrics

    def evaluate(self, rollout_id: int) -> dict[str, float]:
        """Evaluates the weights that serve now; returns `eval/*` metrics."""
        return self._opened().evaluate(rollout_id)

    def save(self, rollout_id: int) -> None:
        """Writes the state of the data source after `rollout_id`."""
        self._opened().save(rollout_id)

    def load(self, rollout_id: int) -> None:
        """Goes on with the data where a run stood after `rollout_id`."""
        self._opened().load(rollout_id)

    def status(self) -> dict[str, Any]:
        """What is being waited for, and for how many seconds."""
        return {"waiting": {}} if self.service is None else self.service.status()
