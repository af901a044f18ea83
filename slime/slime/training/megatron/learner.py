"""Gradients and optimizer of a model in parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from slime.training.core.learner import Learner, LossOf, build_optimizer
from slime.training.core.packing import PackedBatch
from slime.training.megatron.checkpoint import MegatronPart
from slime.training.megatron.gradients import Gradients
from slime.training.megatron.parallel import add_up_metrics
from slime.training.megatron.pipeline import ShardedModel

if TYPE_CHECKING:
    from slime.flags.sides import TrainingSide

Model = TypeVar("Model", bound=ShardedModel, covariant=True)


class MegatronLearner(Learner[Model]):
    """One rank's part. Losses are asked for on the last pipeline stage."""

    def __init__(self, model: Model, args: TrainingSide) -> None:
        self.model, self.gradients = model, Gradients(model, args)
        self.optimizer = build_optimizer(self.gradients.masters.parameters, args)

    def clear(self) -> None:
        self.gradients.clear()

    def accumulate(self, packs: Sequence[PackedBatch], loss_of: LossOf) -> None:
        self.model.train_step(packs, loss_of)
        self.gradients.collect()

    def add_up(self, sums: dict[str, float]) -> dict[str, float]:
        return add_up_metrics(sums, self.model.parallel)

    def clip(self, loss: float, max_norm: float, where: str) -> float:
        return self.gradients.clip(loss, max_norm, where)

    def move(self) -> None:
        self.gradients.masters.move(self.optimizer)

    def part(self, prefix: str = "", steps: int = 0) -> MegatronPart:
        return MegatronPart(self.model, self.optimizer, prefix, steps, gradients=self.gradients)
