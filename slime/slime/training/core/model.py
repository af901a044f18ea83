"""What the training core asks of a model, whatever holds it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from torch import Tensor

from slime.losses import Distribution
from slime.training.core.packing import PackedBatch


class TrainedModel(Protocol):
    """One rank's part of a causal language model. Every rank makes the same calls."""

    def distribution(self, packed: PackedBatch) -> Distribution:
        """The model's distribution of every target [T] of the pack, at the temperature of its sample."""
        ...

    def all_logits(self, packed: PackedBatch, temperatures: Tensor) -> Tensor:
        """fp32 logits [1, N, V] of every token of the pack, divided by `temperatures` [N]."""
        ...

    def without_adapters(self) -> AbstractContextManager[None]:
        """Inside, the model computes what its base computes."""
        ...

    def eval(self) -> Any:
        """Switches the dropout of adapters off."""
        ...

    def train(self) -> Any:
        """Switches the dropout of adapters on."""
        ...
