"""FSDP2 backend: every rank is a replica and has a shard of every weight, gradient and optimizer state."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from slime.errors import TrainError
from slime.training.core.distributed import add_up, sum_over_ranks
from slime.training.core.learner import Learner, LossOf, build_optimizer
from slime.training.core.packing import PackedBatch
from slime.training.core.part import Part
from slime.training.export import Weights
from slime.training.fsdp.loading import PackedValues, fuse, load_critic, load_model
from slime.training.fsdp.lora import write_adapter
from slime.training.fsdp.model import PackedModel, export_weights, gather_trained
from slime.training.trainer import Trainer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from slime.flags.optimizer import OptimizerArguments

Module = TypeVar("Module", bound=nn.Module)


class FSDPLearner(Learner[Module]):
    """Gradients and optimizer of one rank's shards.

    Args:
        run: maps a pack to the input of the losses.
    """

    def __init__(self, model: Module, args: OptimizerArguments, run: Callable[[PackedBatch], Any]) -> None:
        self.model, self.run = model, run
        self.optimizer = build_optimizer(model, args)

    def clear(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def accumulate(self, packs: Sequence[PackedBatch], loss_of: LossOf) -> None:
        """Accumulates gradients; FSDP averages over ranks, so each rank's loss is multiplied by their number."""
        ranks = dist.get_world_size()
        for number, packed in enumerate(packs):
            torch.autograd.backward(loss_of(number, packed, self.run(packed)) * ranks)

    def add_up(self, sums: dict[str, float]) -> dict[str, float]:
        return sum_over_ranks(sums)

    def clip(self, loss: float, max_norm: float, where: str) -> float:
        if not math.isfinite(loss):
            raise TrainError(f"{where}: the loss is {loss}; the step was not applied")
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        total = get_total_norm([p.grad for p in parameters if p.grad is not None])
        norm = total.full_tensor() if isinstance(total, DTensor) else total
        if not bool(torch.isfinite(norm)):
            raise TrainError(f"{where}: the gradient's norm is {float(norm)}; the step was not applied")
        if max_norm > 0:
            clip_grads_with_norm_(parameters, max_norm, norm)
        return float(norm)

    def move(self) -> None:
        self.optimizer.step()

    def part(self, prefix: str = "", steps: int = 0) -> Part:
        return Part(self.model, self.optimizer, prefix, steps)


class FSDPTrainer(Trainer):
    """One of `world_size` ranks that train a Hugging Face model with FSDP2."""

    backend = "fsdp"
    learner: FSDPLearner[PackedModel]

    @property
    def sees(self) -> bool:
        return self.learner.model.placed is not None

    def divide(self) -> tuple[int, int]:
        return self.rank, self.world_size

    def load_policy(self, folder: str) -> FSDPLearner[PackedModel]:
        model = self._load(folder, trained=True)
        run = model.distribution if self.spec.on_logits is None else model.all_logits
        return FSDPLearner(model, self.args, run)

    def load_critic(self) -> FSDPLearner[PackedValues]:
        model = load_critic(self.args, self.mesh)
        fuse(model, self.args)
        return FSDPLearner(model, self.args, model.values)

    def load_frozen(self, folder: str) -> PackedModel:
        return self._load(folder, trained=False)

    def _load(self, folder: str, trained: bool) -> PackedModel:
        model = load_model(folder, self.mesh, self.args, trained)
        fuse(model, self.args)
        return model

    def weights_part(self, model: PreTrainedModel, prefix: str) -> Part:
        return Part(model, None, prefix)

    def whole_weights(self, dtype: torch.dtype | None) -> Weights:
        model = self.learner.model
        return Weights(export_weights(model, dtype, keep=self.rank == 0), len(model.state_dict()))

    def gather_adapter(self, base: str) -> Callable[[Path], dict[str, Tensor]]:
        model = self.learner.model
        adapters = gather_trained(model, keep=self.rank == 0)
        return lambda folder: write_adapter(folder, model, adapters, base)

    def add_up(self, values: Tensor) -> Tensor:
        return add_up(values)
