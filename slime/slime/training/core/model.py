"""What the training core asks of a model, whatever holds it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor

from slime.losses import Distribution
from slime.training.core.packing import PackedBatch


class PackModel(Protocol):
    """One rank's part of a model that runs on packs. Every rank makes the same calls."""

    def eval(self) -> Any:
        """Switches the dropout of adapters off."""
        ...

    def train(self) -> Any:
        """Switches the dropout of adapters on."""
        ...

    def requires_grad_(self, requires_grad: bool) -> Any:
        """Whether its weights can be trained."""
        ...


class TrainedModel(PackModel, Protocol):
    """A causal language model: the policy, its reference or its teacher."""

    @property
    def vocabulary(self) -> int:
        """Tokens that it knows."""
        ...

    def distribution(self, packed: PackedBatch) -> Distribution:
        """The model's distribution of every target [T] of the pack, at the temperature of its sample."""
        ...

    def without_adapters(self) -> AbstractContextManager[None]:
        """Inside, the model computes what its base computes."""
        ...

    def shapes(self) -> dict[str, torch.Size]:
        """Of the weights of this rank by name, as they are with adapters merged."""
        ...

    def take_over(self, policy: Any) -> None:
        """Copies the weights of a model of the same backend and the same shapes, adapters merged."""
        ...


class ValueModel(PackModel, Protocol):
    """A model with one number for each token: the critic."""

    def values(self, packed: PackedBatch) -> Tensor:
        """fp32 values [T] at the targets of the pack, before each of them."""
        ...
