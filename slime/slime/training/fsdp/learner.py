"""Gradients and optimizer of a model that FSDP2 shards."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from slime.errors import TrainError
from slime.training.core.checkpoint import Part
from slime.training.core.distributed import sum_over_ranks
from slime.training.core.learner import Learner, LossOf
from slime.training.core.optimizer import build_optimizer
from slime.training.core.packing import PackedBatch

if TYPE_CHECKING:
    from slime.arguments.groups.optimizer import OptimizerArguments

Module = TypeVar("Module", bound=nn.Module)


class FSDPLearner(Learner[Module]):
    """One rank's shards.

    Args:
        run: what losses see of a pack.
    """

    def __init__(self, model: Module, args: OptimizerArguments, run: Callable[[PackedBatch], Any]) -> None:
        self.model, self.run = model, run
        self.optimizer = build_optimizer(model, args)

    def clear(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def accumulate(self, packs: Sequence[PackedBatch], loss_of: LossOf) -> None:
        """FSDP averages gradients over ranks, so each rank's loss is multiplied by their number."""
        ranks = dist.get_world_size()
        for number, packed in enumerate(packs):
            torch.autograd.backward(loss_of(number, packed, self.run(packed)) * ranks)

    def add_up(self, sums: dict[str, float]) -> dict[str, float]:
        return sum_over_ranks(sums)

    def clip(self, loss: float, max_norm: float, where: str) -> float:
        if not math.isfinite(loss):
            raise TrainError(f"{where}: the loss is {loss}; the step was refused and nothing of it applied")
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        total = get_total_norm([p.grad for p in parameters if p.grad is not None])
        norm = total.full_tensor() if isinstance(total, DTensor) else total
        if not bool(torch.isfinite(norm)):
            raise TrainError(
                f"{where}: the gradient's norm is {float(norm)}; the step was refused and not applied"
            )
        if max_norm > 0:
            clip_grads_with_norm_(parameters, max_norm, norm)
        return float(norm)

    def move(self) -> None:
        self.optimizer.step()

    def part(self, prefix: str = "", steps: int = 0) -> Part:
        return Part(self.model, self.optimizer, prefix, steps)
