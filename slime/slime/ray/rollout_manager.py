"""The actor that turns rollouts into training batches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import ray

from slime.errors import DataError
from slime.plugins import load_attr
from slime.ray import actor_process
from slime.types import RolloutFnTrainOutput, Sample


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, max_concurrency=8)
class RolloutManager:
    """Calls the rollout function, each call in a thread, so that it answers others while a batch is awaited.

    Ray restarts it when it dies and asks for the batch again: a rollout function must give the same
    `rollout_id` the same samples, or new ones as good.
    """

    def __init__(self, args: Any) -> None:
        actor_process.enter(Path(args.run_dir), "buffer", role="buffer")
        self.args = args
        self.rollout_function = load_attr(args.rollout_function_path)
        self.waiting: set[int] = set()

    @ray.method(num_returns=2)  # type: ignore[untyped-decorator]
    def generate(self, rollout_id: int) -> tuple[list[Sample], dict[str, float]]:
        """Blocks until the rollout function has a batch; returns its samples and its metrics."""
        self.waiting.add(rollout_id)
        try:
            output = self.rollout_function(self.args, rollout_id, None, evaluation=False)
        finally:
            self.waiting.discard(rollout_id)
        return to_batch(output, self.args.reward_key)

    def status(self) -> dict[str, Any]:
        """Which rollouts are being waited for."""
        return {"waiting": sorted(self.waiting)}


def to_batch(output: Any, reward_key: str | None) -> tuple[list[Sample], dict[str, float]]:
    """Flattens groups of any depth to a list of samples and adds the metrics that every batch has.

    Raises:
        DataError: nothing to train on.
    """
    metrics: dict[str, float] = {}
    if isinstance(output, RolloutFnTrainOutput):
        metrics = dict(output.metrics or {})
        output = output.samples
    samples = list(flatten(output))
    if not samples:
        raise DataError("the rollout function returned no samples; it must block until it has one")
    rewards = rewards_of(samples, reward_key)
    lengths = [sample.response_length for sample in samples]
    metrics["rollout/batch_size"] = len(samples)
    if rewards:
        metrics["rollout/reward_mean"] = sum(rewards) / len(rewards)
    metrics["rollout/response_len/mean"] = sum(lengths) / len(lengths)
    metrics["rollout/response_len/max"] = max(lengths)
    return samples, metrics


def rewards_of(samples: Sequence[Sample], reward_key: str | None) -> list[float]:
    """The rewards that there are; whether one that is missing matters is for the trainer to say."""
    rewards = []
    for sample in samples:
        with contextlib.suppress(DataError):
            rewards.append(sample.get_reward_value(reward_key))
    return rewards


def flatten(groups: Any) -> Iterable[Sample]:
    if isinstance(groups, Sample):
        yield groups
        return
    for group in groups:
        yield from flatten(group)
