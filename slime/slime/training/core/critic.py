"""The critic of PPO: a separate model that predicts the remaining reward before every trained token.

It runs in the policy's process with the same micro-batches and ranks, so no samples are transferred.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slime.losses import value_loss
from slime.training.core.batch import TrainBatch
from slime.training.core.learner import Learner, learning_rate
from slime.training.core.model import ValueModel, values_of_all
from slime.training.core.packing import PackedBatch, pack
from slime.training.core.part import Part
from slime.training.core.step import by_sample, step_reducer, summed, values_of
from slime.training.schedule import MicroBatch, Schedule, Step
from slime.types import Sample

if TYPE_CHECKING:
    from slime.flags import Arguments

PREFIX = "critic_"


class Critic:
    """The critic model and its number of optimizer steps. All ranks must make the same calls.

    Args:
        replica: index of this rank's replica, which selects its samples of a step.
    """

    def __init__(
        self, args: Arguments, learner: Learner[ValueModel], replica: int, device: torch.device
    ) -> None:
        self.args, self.learner, self.replica, self.device = args, learner, replica, device
        self.rate: float = args.lr if args.critic_lr is None else args.critic_lr
        self.steps = 0

    @property
    def model(self) -> ValueModel:
        return self.learner.model

    @property
    def part(self) -> Part:
        """Returns the critic's part of a checkpoint."""
        return self.learner.part(PREFIX, self.steps)

    @torch.no_grad()
    def values(self, schedule: Schedule, samples: Sequence[Sample]) -> dict[int, list[float]]:
        """Returns the predicted value before every trained token of this rank's samples, by position."""
        by_position: dict[int, list[float]] = {}
        self.model.eval()
        micro_batches = [micro_batch for step in schedule.steps for micro_batch in step.plain(self.replica)]
        packs = [self._pack(micro_batch, samples) for micro_batch in micro_batches]
        for micro_batch, packed, values in zip(
            micro_batches, packs, values_of_all(self.model, packs), strict=True
        ):
            by_position |= by_sample(micro_batch, packed, values)
        self.model.train()
        return by_position

    def train(self, schedule: Schedule, data: TrainBatch, where: str) -> dict[str, float]:
        """Makes one optimizer step for each step of the schedule; returns the mean metrics.

        Raises:
            TrainError: loss or gradient is not finite; that step and later ones were not applied.
        """
        of_steps = [
            self._step(step, data, f"{where}, step {number} of the critic")
            for number, step in enumerate(schedule.steps)
            if step.plain(self.replica)
        ]
        if not of_steps:
            return {}
        return {name: sum(step[name] for step in of_steps) / len(of_steps) for name in of_steps[0]}

    def _step(self, step: Step, data: TrainBatch, where: str) -> dict[str, float]:
        micro_batches, metrics_of = step.plain(self.replica), list[dict[str, Tensor]]()

        def loss_of(number: int, packed: PackedBatch, values: Tensor) -> Tensor:
            by_token = self.args.calculate_per_token_loss
            reducer = step_reducer(step.denominator(by_token), packed, by_token)
            old, returns = (
                values_of(micro_batches[number], packed, by_position)
                for by_position in (data.values, data.returns)
            )
            assert old is not None and returns is not None
            output = value_loss(values, old, returns, reducer, self.args.value_clip)
            metrics_of.append({name: value.detach() for name, value in output.metrics.items()})
            return output.loss

        try:
            self.learner.clear()
            packs = [self._pack(micro_batch, data.samples) for micro_batch in micro_batches]
            self.learner.accumulate(packs, loss_of)
            metrics = self.learner.add_up(summed(metrics_of))
            norm = self.learner.clip(metrics["value_loss"], self.args.clip_grad, where)
            rate = learning_rate(self.args, self.steps, self.rate)
            self.learner.update(rate)
        finally:
            self.learner.clear()
        self.steps += 1
        return metrics | {"critic_grad_norm": norm, "critic_lr": rate}

    def _pack(self, micro_batch: MicroBatch, samples: Sequence[Sample]) -> PackedBatch:
        return pack([samples[i] for i in micro_batch], self.device, merge=self.args.merge_prefixes)
