"""The training core of one rank with FSDP2: every rank is a replica, and holds a shard of every weight."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slime.training.core.checkpoint import Part
from slime.training.core.distributed import add_up
from slime.training.fsdp.critic import PackedValues, load_critic
from slime.training.fsdp.learner import FSDPLearner
from slime.training.fsdp.loading import load_model
from slime.training.fsdp.lora import write_adapter
from slime.training.fsdp.model import PackedModel, gather_trained, gather_weights
from slime.training.trainer import Trainer

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class FSDPTrainer(Trainer):
    """One of `world_size` ranks that train a Hugging Face model with FSDP2."""

    backend = "fsdp"
    learner: FSDPLearner[PackedModel]

    def divide(self) -> tuple[int, int]:
        return self.rank, self.world_size

    def load_policy(self, folder: str) -> FSDPLearner[PackedModel]:
        model = load_model(folder, self.mesh, self.args)
        run = model.distribution if self.spec.on_logits is None else model.all_logits
        return FSDPLearner(model, self.args, run)

    def load_critic(self) -> FSDPLearner[PackedValues]:
        model = load_critic(self.args, self.mesh)
        return FSDPLearner(model, self.args, model.values)

    def load_frozen(self, folder: str) -> PackedModel:
        return load_model(folder, self.mesh, self.args, trained=False)

    def weights_part(self, model: PreTrainedModel, prefix: str) -> Part:
        return Part(model, None, prefix)

    def gather_weights(self, dtype: torch.dtype | None) -> dict[str, Tensor]:
        return gather_weights(self.learner.model, dtype, keep=self.rank == 0)

    def gather_adapter(self, base: str) -> Callable[[Path], dict[str, Tensor]]:
        model = self.learner.model
        adapters = gather_trained(model, keep=self.rank == 0)
        return lambda folder: write_adapter(folder, model, adapters, base)

    def add_up(self, values: Tensor) -> Tensor:
        return add_up(values)
