"""The training core of one rank with megatron-core: tensor, pipeline, context and data parallelism."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from slime.training.export import Weights
from slime.training.megatron.checkpoint import MegatronPart
from slime.training.megatron.gradients import Gradients
from slime.training.megatron.learner import MegatronLearner
from slime.training.megatron.loading import ShardedValues, load_critic, load_model
from slime.training.megatron.lora import adapter_writer
from slime.training.megatron.parallel import Parallel, divide, sum_over
from slime.training.megatron.pipeline import ShardedModel
from slime.training.megatron.weights import whole_weights
from slime.training.trainer import Trainer


class MegatronTrainer(Trainer):
    """One of `world_size` ranks that train a Hugging Face model with megatron-core."""

    backend = "megatron"
    parallel: Parallel
    learner: MegatronLearner[ShardedModel]

    @property
    def asks_teacher_before(self) -> bool:
        """The stages of a pipeline are busy with other micro-batches between a forward and its backward."""
        return self.spec.teacher == "topk" and self.parallel.pp.size > 1

    def divide(self) -> tuple[int, int]:
        self.parallel = divide(self.args)
        return self.parallel.dp.rank, self.parallel.dp.size

    def load_policy(self, folder: str) -> MegatronLearner[ShardedModel]:
        on_logits = self.spec.on_logits is not None
        model = load_model(folder, self.args, self.parallel, self.device, trained=True, on_logits=on_logits)
        return MegatronLearner(model, self.args)

    def load_critic(self) -> MegatronLearner[ShardedValues]:
        return MegatronLearner(load_critic(self.args, self.parallel, self.device), self.args)

    def load_frozen(self, folder: str) -> ShardedModel:
        return load_model(folder, self.args, self.parallel, self.device)

    def weights_part(self, model: Any, prefix: str) -> MegatronPart:
        return MegatronPart(model, None, prefix, gradients=Gradients(model))

    def whole_weights(self, dtype: torch.dtype | None) -> Weights:
        weights = self.learner.model.weights
        stage = sum(len(entry.sources) for entry in weights.entries.values())
        return Weights(whole_weights(weights, dtype, self.parallel), stage * self.parallel.pp.size)

    def gather_adapter(self, base: str) -> Callable[[Path], dict[str, Tensor]]:
        return adapter_writer(self.learner.model.weights, self.parallel, self.args, base)

    def add_up(self, values: Tensor) -> Tensor:
        return sum_over(values, self.parallel.dp)
