"""A model with its gradients and its optimizer, as steps of policy and critic use it, whatever holds them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from slime.training.core.model import PackModel
from slime.training.core.optimizer import set_learning_rate
from slime.training.core.packing import PackedBatch
from slime.training.core.part import Part

Model = TypeVar("Model", bound=PackModel, covariant=True)
LossOf = Callable[[int, PackedBatch, Any], Tensor]
"""(number of the micro-batch, pack, what the model says of it) -> loss. The model says its distribution of the targets;
a critic its values [T]; under a custom loss on logits the model its raw logits [1, N, V]."""


class Learner(ABC, Generic[Model]):
    """One rank's part. Every rank makes the same calls."""

    model: Model
    optimizer: torch.optim.Optimizer

    @abstractmethod
    def clear(self) -> None:
        """Forgets the gradients."""

    @abstractmethod
    def accumulate(self, packs: Sequence[PackedBatch], loss_of: LossOf) -> None:
        """Adds up the gradients of the losses of this rank's micro-batches and those of the other ranks."""

    @abstractmethod
    def add_up(self, sums: dict[str, float]) -> dict[str, float]:
        """Metrics of this rank's micro-batches -> those of all, on every rank."""

    @abstractmethod
    def clip(self, loss: float, max_norm: float, where: str) -> float:
        """The gradient's norm over the whole model, after which it is clipped to `max_norm` (0: not at all).

        Raises:
            TrainError: loss or gradient is not finite. Every rank sees the same numbers, so all raise or none.
        """

    @abstractmethod
    def move(self) -> None:
        """Moves the weights by the gradients."""

    @abstractmethod
    def part(self, prefix: str = "", steps: int = 0) -> Part:
        """What a checkpoint holds of model and optimizer."""

    def update(self, rate: float) -> None:
        """One step of the optimizer at a learning rate."""
        set_learning_rate(self.optimizer, rate)
        self.move()
