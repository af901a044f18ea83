"""What a model says of many packs without gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from slime.training.core.model import TrainedModel, ValueModel
from slime.training.core.packing import PackedBatch


@runtime_checkable
class Pipelined(Protocol):
    """A model that takes many packs at once, so that its stages work at the same time."""

    def of_all(self, packs: Sequence[PackedBatch]) -> list[Tensor]:
        """[T] of every pack: log-probs of its targets, or a critic's values."""
        ...


@torch.no_grad()
def log_probs_of(model: TrainedModel, packs: Sequence[PackedBatch]) -> list[Tensor]:
    """Log-probs of the targets of every pack, [T] each."""
    if isinstance(model, Pipelined):
        return model.of_all(packs)
    return [model.distribution(packed).log_probs(packed.targets) for packed in packs]


@torch.no_grad()
def values_of_all(model: ValueModel, packs: Sequence[PackedBatch]) -> list[Tensor]:
    """A critic's values of every pack, [T] each."""
    return model.of_all(packs) if isinstance(model, Pipelined) else [model.values(packed) for packed in packs]
